//! Which thread has made which child.
//!
//! SIGCHLD is for the process, and the kernel offers it first to the thread that has made the child. To the kernel that is an
//! activation, so the runtime remembers the thread, which may wait for the signal in pause(2).
//!
//! A child takes the place of another one's whose id is the same modulo their number: what becomes of that one is told to the first
//! thread, as where the thread has ended.
//!
//! It remembers, too, of which children's ends a handler was told: who waits for one of these need not wait for the signal.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use upcall_linux::Thread;

use crate::ground::attributes::GuestAttributes;
use crate::ground::state::GUEST;
use crate::signal::lists::Information;

const PLACES: usize = 256;

/// The child's id above the thread's.
static MAKERS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Who makes one now, which may end before it is known.
static MAKING: AtomicI32 = AtomicI32::new(0);

/// Children of whose end a handler was told, each in the place of its id.
static TOLD: [AtomicI32; PLACES] = [const { AtomicI32::new(0) }; PLACES];

fn id_of(maker: &Thread) -> i32 {
    maker.guest().tid.load(Ordering::Relaxed)
}

/// Called before a thread makes a child. `None` is the first one, of which nothing is noted: it is told anyway.
pub fn begins(maker: Option<&Thread>) {
    if let Some(maker) = maker {
        MAKING.store(id_of(maker), Ordering::Relaxed);
    }
}

/// Called when it has, with the kernel's answer: also in the child, unless that shares the memory.
pub fn made(maker: Option<&Thread>, answer: i64) {
    if answer > 0 {
        let word = maker.map_or(0, |maker| (answer as u64) << 32 | id_of(maker) as u64);
        let place = &MAKERS[answer as usize % PLACES];
        // A process without threads writes nothing here: each fork copies a page that is written.
        if place.load(Ordering::Relaxed) != word {
            place.store(word, Ordering::SeqCst);
        }
    }
    if MAKING.load(Ordering::Relaxed) != 0 {
        MAKING.store(0, Ordering::SeqCst);
    }
}

/// Returns the thread that has made the child, if it is known and has not ended.
pub fn maker_of(child: i32) -> Option<&'static Thread> {
    let word = MAKERS[child as usize % PLACES].load(Ordering::SeqCst);
    let maker = if (word >> 32) as i32 == child {
        word as i32
    } else {
        MAKING.load(Ordering::SeqCst)
    };
    GUEST.identities.find(maker)
}

/// Called when a handler of SIGCHLD is about to run.
pub fn tells(information: &Information) {
    let (code, child) = (information[1] as u32 as i32, information[2] as u32 as i32);
    let has_ended = matches!(code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
    // A process without threads writes nothing, as above.
    if has_ended && GUEST.runtime().is_some() {
        TOLD[child as usize % PLACES].store(child, Ordering::Relaxed);
    }
}

/// Returns true if a handler was told of the child's end; once.
pub fn was_told(child: i32) -> bool {
    let place = &TOLD[child as usize % PLACES];
    let (swap, keep) = (Ordering::Relaxed, Ordering::Relaxed);
    child != 0 && place.compare_exchange(child, 0, swap, keep).is_ok()
}
