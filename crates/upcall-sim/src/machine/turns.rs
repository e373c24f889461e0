//! Checks that threads of one rank take turns: a thread that gave way first on a virtual processor runs first.
//!
//! Anderson et al. 1991, section 4.2, leaves the policy to the program. Ours is first in, first out, and that bounds
//! unfairness. The order is strict on one virtual processor. If there are more, a thread that was stolen from the list
//! first may be on its way for some rounds. Where a processor is taken, the list goes to another virtual processor, and from there on
//! is as new: a scenario of its own holds that it keeps its order.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use upcall_core::Rank;

use crate::machine::Thread;

struct Waiting {
    thread: &'static Thread,
    vp: u32,
    /// Its rank then: with another one it comes after its equals.
    rank: Rank,
    /// Since which round another one, who came later, runs.
    passed: Cell<Option<u64>>,
}

/// Threads that gave way and have not run since, in this order.
#[derive(Default)]
pub(crate) struct Turns {
    waiting: RefCell<Vec<Waiting>>,
    /// How many virtual processors there are.
    pub(crate) vps: Cell<usize>,
}

impl Turns {
    /// A thread does not run any more.
    pub(crate) fn left(&self, vp: u32, thread: &'static Thread) {
        if thread.kernel.gives_way.load(Ordering::Relaxed) {
            let passed = Cell::new(None);
            self.waiting.borrow_mut().push(Waiting {
                thread,
                vp,
                rank: thread.rank(),
                passed,
            });
        }
    }

    /// The processor of a virtual processor is taken.
    pub(crate) fn lose(&self, vp: u32) {
        self.waiting.borrow_mut().retain(|one| one.vp != vp);
    }

    /// A thread has got another rank.
    pub(crate) fn forget(&self, thread: &'static Thread) {
        self.waiting
            .borrow_mut()
            .retain(|one| !std::ptr::eq(one.thread, thread));
    }

    /// A thread runs. Returns what is wrong with that.
    ///
    /// A thread that was taken from a ready list first may still be on its way for `on_the_way` rounds: its
    /// activation calls others before it runs.
    pub(crate) fn came(
        &self,
        thread: &'static Thread,
        round: u64,
        on_the_way: u64,
    ) -> Result<(), String> {
        let mut waiting = self.waiting.borrow_mut();
        let is_it = |one: &Waiting| std::ptr::eq(one.thread, thread);
        let Some(place) = waiting.iter().position(is_it) else {
            return Ok(());
        };
        let Waiting { vp, rank, .. } = waiting.remove(place);
        if rank != thread.rank() {
            return Ok(());
        }
        let equals = |one: &&Waiting| one.vp == vp && one.rank == rank && one.thread.rank() == rank;
        for first in waiting[..place].iter().filter(equals) {
            let since = first.passed.get().unwrap_or(round);
            first.passed.set(Some(since));
            if self.vps.get() == 1 || round - since > on_the_way {
                return Err("threads_take_turns: who gave way first has not run yet".to_owned());
            }
        }
        Ok(())
    }
}
