//! What the adviser of a program was told of its threads.

use std::cell::{Cell, RefCell};

use upcall_core::runtime::Transition;

use crate::machine::Thread;

/// What a thread does, as far as the adviser was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last {
    /// It could run.
    Ready,
    /// It waits.
    Waits,
    /// It has ended, and its block is nobody's.
    Ended,
}

/// What is remembered of an adviser.
#[derive(Default)]
pub(crate) struct Advice {
    /// The adviser, while there is one.
    pub(crate) adviser: Cell<Option<&'static Thread>>,
    /// It waits for more.
    pub(crate) waits: Cell<bool>,
    /// What it was told of each thread last.
    pub(crate) last: RefCell<Vec<(&'static Thread, Last)>>,
    /// Threads that were made and have not ended, and whether there was this adviser already.
    pub(crate) living: RefCell<Vec<(&'static Thread, bool)>>,
}

impl Advice {
    /// A thread is made.
    pub(crate) fn begins(&self, thread: &'static Thread) {
        let is_told = self.adviser.get().is_some();
        self.living.borrow_mut().push((thread, is_told));
    }

    /// A thread is about to end.
    pub(crate) fn ends(&self, thread: &'static Thread) {
        let mut living = self.living.borrow_mut();
        living.retain(|(one, _)| !std::ptr::eq(*one, thread));
    }

    /// How many threads are held, and have not taken yet what they were woken for.
    pub(crate) fn nr_held(&self) -> u64 {
        let living = self.living.borrow();
        living.iter().filter(|(thread, _)| thread.is_held()).count() as u64
    }

    /// What was told of a thread last, if anything was.
    pub(crate) fn last_of(&self, thread: &'static Thread) -> Option<Last> {
        let last = self.last.borrow();
        let its = last.iter().find(|(one, _)| std::ptr::eq(*one, thread));
        its.map(|&(_, last)| last)
    }

    /// The adviser is told of this.
    pub(crate) fn hear(
        &self,
        thread: &'static Thread,
        transition: Transition,
    ) -> Result<(), String> {
        let before = self.last_of(thread);
        let now = match (transition, before) {
            (Transition::Created, None | Some(Last::Ended)) => Last::Ready,
            (Transition::Ended, Some(Last::Ready | Last::Waits) | None) => Last::Ended,
            (Transition::Blocked, Some(Last::Ready) | None) => Last::Waits,
            // Its wait may have been too short to be told of.
            (Transition::Unblocked, Some(Last::Ready | Last::Waits) | None) => Last::Ready,
            (Transition::Yielded | Transition::Preempted, Some(Last::Ready) | None) => Last::Ready,
            _ => {
                return Err(format!(
                    "told {transition:?} of a thread that was {before:?}"
                ));
            }
        };
        let mut last = self.last.borrow_mut();
        match last.iter_mut().find(|(one, _)| std::ptr::eq(*one, thread)) {
            Some((_, last)) => *last = now,
            None => last.push((thread, now)),
        }
        Ok(())
    }
}
