//! What must always hold. Each invariant is a function, with the sentence of the paper from which it comes. The report of
//! a run that breaks it names it. [`AFTER_EVERY_EVENT`] are checked whenever the machine has the processor, [`AT_REST`]
//! when nothing can run, so that no vessel is half-way.
//!
//! "Soon" is a number of *rounds*. In a round every vessel that could run all the time has run. How long a vessel waits is
//! the machine's doing, and says nothing about the runtime.
//!
//! Three limits:
//! - That the holder of a lock is continued first holds for the runtime's own locks only (section 3.3). The runtime does
//!   not know a program's locks.
//! - `upcall-alloc` decides how many processors each of several address spaces has, and its tests judge that. Here a space
//!   must only keep to the decision.
//! - That no wake-up is doubled is checked for the ends of waits, which programs can see. Programs cannot see kernel
//!   threads that are woken in vain.

mod events;
mod rest;
mod steps;

use upcall_core::Runtime;
use upcall_core::State;

use crate::machine::books::Books;
use crate::machine::sim::{Sim, Vp};
use crate::machine::space::Space;
use crate::machine::{Doing, Machine};

pub use events::*;
pub use rest::*;
pub use steps::*;

/// Says what is wrong, if anything is.
pub type Invariant = fn(&Machine, usize, &Space) -> Result<(), String>;

/// As [`Invariant`], about the vessel that makes a step.
pub type StepInvariant = fn(&Machine) -> Result<(), String>;

impl Machine {
    /// Between any two steps.
    pub(crate) fn watch(&self) -> Result<(), String> {
        self.ask_all(&AFTER_EVERY_EVENT, |_| true)?;
        for space in &self.spaces {
            space.books.borrow_mut().remember(space, self.rounds.now());
        }
        Ok(())
    }

    pub(crate) fn watch_step(&self) -> Result<(), String> {
        let mut broken = AT_EACH_STEP
            .iter()
            .map(|(name, holds)| holds(self).map_err(|what| format!("{name}: {what}")));
        broken.find(Result::is_err).unwrap_or(Ok(()))
    }

    /// When nothing can run. What has a ready thread and no processor is not at rest.
    pub(crate) fn watch_rest(&self) -> Result<(), String> {
        self.ask_all(&AT_REST, |space| {
            space.has_processor() || !space.vps().iter().any(Vp::has_ready)
        })?;
        let of_scenario = self.of_scenario.borrow();
        let mut broken = of_scenario
            .iter()
            .map(|(name, holds)| holds().map_err(|what| format!("{name}: {what}")));
        broken.find(Result::is_err).unwrap_or(Ok(()))
    }

    fn ask_all(
        &self,
        invariants: &[(&str, Invariant)],
        is_asked: impl Fn(&Space) -> bool,
    ) -> Result<(), String> {
        for (index, space) in self.spaces.iter().enumerate() {
            if space.runtime.get().is_none() || !is_asked(space) {
                continue;
            }
            for (name, holds) in invariants {
                holds(self, index, space).map_err(|what| format!("{name}: {what}"))?;
            }
        }
        Ok(())
    }

    /// Whether a vessel waits in the kernel, for anything but a page of the runtime's own, which is
    /// always there soon.
    fn idles(&self, vessel: usize) -> bool {
        match self.doing(vessel) {
            Doing::Blocked { .. } => !self.is_in_the_seat(vessel),
            Doing::Sleeping | Doing::Polling => true,
            Doing::Runnable | Doing::Waking { .. } | Doing::Gone => false,
        }
    }

    /// Whether an activation runs its thread on the processor of `vp` that does not know yet that it was
    /// replaced.
    fn is_used_astray(&self, vp: &Vp) -> bool {
        let runnable = self.runnable.borrow();
        runnable.iter().any(|&vessel| {
            let activation = self.vessel(vessel, |vessel| vessel.activation.get());
            let carrier = activation.filter(|one| one.thread().is_some() && !one.is_in_call());
            carrier.is_some_and(|one| std::ptr::eq(one.vp(), vp) && !vp.word().is_owned_by(one))
        })
    }

    /// Whether the sentinel of `vp` has not followed it to its processor yet, and has to wait for others where it is.
    fn has_left_its_sentinel(&self, vp: &Vp) -> bool {
        let runnable = self.runnable.borrow();
        runnable.iter().any(|&vessel| {
            let (activation, processor) = self.vessel(vessel, |vessel| {
                (vessel.activation.get(), vessel.processor.get())
            });
            self.is_starved(vessel)
                && processor != vp.processor()
                && activation.is_some_and(|one| std::ptr::eq(one.vp(), vp))
        })
    }

    /// Whether a vessel that carries nothing is on a page fault of its own.
    fn is_delayed(&self, vessel: usize) -> bool {
        matches!(self.doing(vessel), Doing::Blocked { .. }) && self.is_in_the_seat(vessel)
    }

    /// Whether a virtual processor's owner is, which may have been called for what is ready.
    fn is_delayed_in(&self, space: &Space) -> bool {
        let mut owners = space.vps().iter().filter_map(word).map(|(owner, _)| owner);
        owners.any(|owner| self.is_delayed(owner))
    }

    /// Of one that is blocked: whether it is the poller, on a page fault of its own.
    fn is_in_the_seat(&self, vessel: usize) -> bool {
        let activation = self.vessel(vessel, |vessel| vessel.activation.get());
        activation.is_some_and(|activation| activation.thread().is_none())
    }
}

impl Books {
    fn remember(&mut self, space: &Space, round: u64) {
        self.round = round;
        self.words.clear();
        let words = space.vps().iter().filter_map(word);
        self.words.extend(words);
    }
}

impl Space {
    /// Its runtime: what is not asked at a step is asked of address spaces that have one.
    fn started(&self) -> &'static Runtime<Sim> {
        self.runtime.get().expect("it has started")
    }
}

/// The vessel that owns a virtual processor, and what it does. With the bias it is inside the runtime as soon as it is marked.
fn word(vp: &Vp) -> Option<(usize, State)> {
    let word = vp.word();
    let enters = word.is_biased() && word.owner().is_inside();
    let state = match enters {
        true => State::Runtime,
        false => word.state(),
    };
    Some((Machine::vessel_of(word.owner())?, state))
}
