//! What a thread does as the adviser of a policy of the program's own.
//!
//! The adviser is a thread of the run ([`Me::become_adviser`]). Everything that it is told goes through
//! [`Me::await_transition`], which checks that it makes sense. The adviser is told nothing of a thread that has ended. Of a
//! thread that waits it is told only that the thread is ready again. It is told nothing twice. Another check, at rest, is
//! that it was told everything ([`crate::invariants::the_adviser_knows_who_waits`]).

use upcall_core::runtime::{Advice as Notes, Transition};
use upcall_core::{Machine, Rank};

use crate::machine::Thread;
use crate::machine::advice::Last;
use crate::threads::Me;

/// What an adviser is told at a time.
pub enum Told {
    /// This has happened to this thread, in this order.
    Thread(&'static Thread, Vec<Transition>),
    /// A virtual processor has nothing to run.
    Idle,
    /// The program is to lose its processors at this moment.
    Warned(u64),
    /// The time is over.
    Nothing,
}

impl Me {
    /// The thread is the adviser from here on. Returns true if it is: another one may be.
    pub fn become_adviser(self) -> bool {
        let inside = self.runtime.enter();
        let becomes = {
            // At once: what happens from here on is told.
            let _in_kernel = self.machine.enter();
            let becomes = inside.become_adviser();
            if becomes {
                let advice = &self.space.advice;
                advice.adviser.set(Some(self.thread));
                advice.last.borrow_mut().clear();
                for (_, is_told) in advice.living.borrow_mut().iter_mut() {
                    *is_told = false;
                }
                self.space.count_ranked(self.thread);
            }
            becomes
        };
        inside.leave();
        becomes
    }

    /// The adviser waits until something happens, or until a time, and is told.
    pub fn await_transition(self, deadline: Option<u64>) -> Told {
        let advice = &self.space.advice;
        let inside = self.runtime.enter();
        advice.waits.set(true);
        let (inside, notes) = inside.await_transition(deadline);
        advice.waits.set(false);
        if self.thread.rank() != Rank(0) {
            self.machine
                .fail("the_adviser_runs_first: it is less urgent than others".to_owned());
        }
        inside.leave();
        self.step();
        match notes {
            Notes::Thread(thread, transitions) => {
                let transitions: Vec<_> = transitions.iter().collect();
                for &transition in &transitions {
                    if let Err(what) = advice.hear(thread, transition) {
                        self.machine
                            .fail(format!("transitions_make_sense: {what}: {transitions:?}"));
                    }
                }
                Told::Thread(thread, transitions)
            }
            Notes::Idle => Told::Idle,
            Notes::Warned(moment) => Told::Warned(moment),
            Notes::Nothing => {
                // Nobody sends it signals.
                let is_over =
                    deadline.is_some_and(|deadline| self.runtime.kernel().now() >= deadline);
                if !is_over {
                    self.machine
                        .fail("the adviser was woken for nothing".to_owned());
                }
                Told::Nothing
            }
        }
    }

    /// The program is to lose its processors. Returns true if an adviser is told.
    pub fn warn(self, moment: u64) -> bool {
        let inside = self.runtime.enter();
        let is_told = self.runtime.warn(inside.vp(), moment);
        inside.leave();
        is_told
    }

    /// The threads that the adviser was told of and that have not ended.
    pub fn known_threads(self) -> Vec<&'static Thread> {
        let last = self.space.advice.last.borrow();
        let living = last.iter().filter(|(_, last)| *last != Last::Ended);
        living.map(|&(thread, _)| thread).collect()
    }

    /// Whether a thread waits, as far as the adviser was told.
    pub fn is_known_to_wait(self, thread: &'static Thread) -> bool {
        self.space.advice.last_of(thread) == Some(Last::Waits)
    }

    /// The adviser is none any more; threads are equal from here on, as far as it knew them.
    pub fn dismiss_adviser(self) {
        let inside = self.runtime.enter();
        {
            let _in_kernel = self.machine.enter();
            inside.dismiss_adviser();
            self.space.advice.adviser.set(None);
        }
        inside.leave();
        for thread in self.known_threads() {
            self.set_rank(thread, Rank::COMMON.0);
        }
    }
}
