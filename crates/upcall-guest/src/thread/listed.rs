//! The ids of helpers: kernel threads of the program that the runtime does not carry. Procfs lists them.
//!
//! A helper is listed when the call that makes it returns, and no more when it has ended, whichever comes first. So a place is
//! taken before it exists, with a ticket, and whoever has the ticket and comes first, its creator or itself, replaces it by
//! the id.

use core::sync::atomic::{AtomicI32, Ordering};

use crate::ground::identity::kernel_tid;

/// More helpers than these are not listed.
const PLACES: usize = 256;

/// 0: free. Less: a ticket. More: an id.
static IDS: [AtomicI32; PLACES] = [const { AtomicI32::new(0) }; PLACES];
/// The last ticket that was given out.
static TICKETS: AtomicI32 = AtomicI32::new(0);

/// The place of a helper that is being made.
#[derive(Clone, Copy)]
pub struct Place {
    index: usize,
    ticket: i32,
}

impl Place {
    /// Takes one. `None`: there is none free.
    pub fn take() -> Option<Self> {
        let ticket = TICKETS.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1) | i32::MIN;
        let take = |id: &AtomicI32| replace(id, 0, ticket);
        let index = IDS.iter().position(take)?;
        Some(Self { index, ticket })
    }

    /// The helper is there, by the kernel's answer to its creator, or was not made.
    pub fn made(self, answer: i64) {
        replace(&IDS[self.index], self.ticket, answer.max(0) as i32);
    }

    /// The helper is the calling kernel thread.
    pub fn begin(self) {
        self.made(kernel_tid().into());
    }
}

fn replace(id: &AtomicI32, before: i32, after: i32) -> bool {
    id.compare_exchange(before, after, Ordering::SeqCst, Ordering::Relaxed)
        .is_ok()
}

/// The calling kernel thread is about to end.
pub fn end() {
    let own = kernel_tid();
    // Nobody else writes there while it has not ended.
    if let Some(id) = IDS.iter().find(|id| id.load(Ordering::SeqCst) == own) {
        id.store(0, Ordering::SeqCst);
    }
}

/// Calls `visit` with each id.
pub fn each(mut visit: impl FnMut(i32)) {
    for id in &IDS {
        let id = id.load(Ordering::SeqCst);
        if id > 0 {
            visit(id);
        }
    }
}

/// The process is the child of a fork, which has none.
pub fn forget() {
    // Where there was none the child writes nothing, which would copy a page.
    if TICKETS.load(Ordering::Relaxed) != 0 {
        for id in &IDS {
            id.store(0, Ordering::Relaxed);
        }
    }
}
