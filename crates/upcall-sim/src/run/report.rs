//! Describes the state of a machine, for the report of a failure.

use std::sync::atomic::Ordering;

use upcall_core::Activation;
use upcall_core::State;

use crate::machine::sim::Sim;
use crate::machine::space::Space;
use crate::machine::{Doing, Machine};

impl Machine {
    fn describe_space(&self, space: &Space, text: &mut String) {
        let runtime = space.runtime.get();
        for vp in runtime.into_iter().flat_map(|runtime| runtime.vps()) {
            let word = vp.word();
            let state: State = word.state();
            let owner = Self::vessel_of(word.owner());
            *text += &format!("vp {}: {state:?} of {owner:?}", vp.index());
            if vp.has_ready() {
                *text += ", threads ready";
            }
            if let Some(stopped) = space.stopped(vp.processor()) {
                *text += &format!(", {stopped:?}");
            }
            *text += "\n";
        }
    }

    /// The state, for the report of a failure.
    pub fn describe(&self) -> String {
        let (clock, points) = (self.clock.get(), self.points.get());
        let mut text = format!("{:?}\nclock {clock} points {points}\n", self.style);
        for (index, space) in self.spaces.iter().enumerate() {
            let (alarm, waiting) = (space.alarm.get(), space.nr_waiting.get());
            text += &format!("space {index}: alarm {alarm} waiting {waiting}\n");
            self.describe_space(space, &mut text);
        }
        text += &self.describe_daemon();
        let alive = |&index: &usize| self.doing(index) != Doing::Gone;
        for index in (0..self.nr_vessels()).filter(alive) {
            self.vessel(index, |vessel| {
                let activation = vessel.activation.get();
                let is = |what: fn(&Activation<Sim>) -> bool| activation.is_some_and(what);
                text += &format!(
                    "vessel {index}: {:?}, processor {}, {:?}, thread {}, absent {}, wake {}\n",
                    vessel.doing.get(),
                    vessel.processor.get(),
                    activation.map(Activation::activity),
                    is(|activation| activation.thread().is_some()),
                    is(Activation::is_absent),
                    activation.map_or(0, |activation| activation
                        .wake_word()
                        .load(Ordering::Relaxed)),
                );
            });
        }
        text
    }

    /// How many vessels of an address space do that.
    pub(crate) fn count(&self, space: usize, is: fn(Doing) -> bool) -> usize {
        (0..self.nr_vessels())
            .filter(|&index| self.vessel(index, |vessel| vessel.space == space))
            .filter(|&index| is(self.doing(index)))
            .count()
    }
}
