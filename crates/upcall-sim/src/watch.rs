//! What must always hold.
//!
//! 1. The owner of a virtual processor exists, and owns no other.
//! 2. A thread is on one activation.
//! 3. When nothing can run, no thread is ready, and somebody waits for deadlines and descriptors if
//!    any thread does. The latter is not asked while an owner is on a page fault, which no call
//!    announces; neither once kernel threads have run out.
//! 4. The run ends: not all wait for ever, and it takes a bounded number of points.

use std::sync::atomic::Ordering;

use upcall_core::vp::State;

use crate::machine::{Doing, Machine};
use crate::space::Space;

impl Machine {
    /// Between any two points.
    pub(crate) fn watch(&self) -> Result<(), String> {
        self.watch_threads()?;
        self.spaces
            .iter()
            .try_for_each(|space| self.watch_owners(space))
    }

    /// When nothing can run.
    pub(crate) fn watch_rest(&self) -> Result<(), String> {
        let spaces = self.spaces.iter().enumerate();
        spaces
            .into_iter()
            .try_for_each(|(index, space)| self.watch_rest_of(index, space))
    }

    fn watch_owners(&self, space: &Space) -> Result<(), String> {
        let Some(runtime) = space.runtime.get() else {
            return Ok(());
        };
        let mut seen = Vec::new();
        for vp in runtime.vps() {
            let owner = vp.word().owner();
            let Some(index) = Self::vessel_of(owner) else {
                continue;
            };
            if self.vessel(index, |vessel| vessel.doing.get()) == Doing::Gone {
                return Err(format!("vp {} is owned by an ended activation", vp.index()));
            }
            if seen.contains(&index) {
                return Err(format!("vessel {index} owns two virtual processors"));
            }
            seen.push(index);
        }
        Ok(())
    }

    fn watch_threads(&self) -> Result<(), String> {
        let mut threads = Vec::new();
        for vessel in self.vessels.borrow().iter() {
            let gone = vessel.doing.get() == Doing::Gone;
            let thread = vessel.activation.get().filter(|_| !gone);
            if let Some(thread) = thread.and_then(|activation| activation.thread()) {
                if threads.iter().any(|&other| std::ptr::eq(other, thread)) {
                    return Err("a thread is on two activations".to_owned());
                }
                threads.push(thread);
            }
        }
        Ok(())
    }

    fn watch_rest_of(&self, index: usize, space: &Space) -> Result<(), String> {
        let Some(runtime) = space.runtime.get() else {
            return Ok(());
        };
        let count = |is: fn(Doing) -> bool| {
            let vessels = self.vessels.borrow();
            let those = vessels.iter().filter(|vessel| vessel.space == index);
            those.filter(|vessel| is(vessel.doing.get())).count() as u64
        };
        let blocked = count(|doing| matches!(doing, Doing::Blocked { .. }));
        let absent = runtime.stats().absent.get();
        if absent > blocked {
            return Err(format!("{absent} are absent, {blocked} are blocked"));
        }
        if space.spawn_failed.get() {
            return Ok(());
        }
        if let Some(vp) = runtime.vps().iter().find(|vp| vp.has_ready()) {
            return Err(format!(
                "a thread is ready on vp {} and nobody runs",
                vp.index()
            ));
        }
        let faults = count(|doing| matches!(doing, Doing::Blocked { fault: true, .. }));
        let polling = count(|doing| doing == Doing::Polling);
        if space.wants_poller() && polling == 0 && faults == 0 {
            return Err("nobody sits in the poller's seat".to_owned());
        }
        Ok(())
    }

    fn describe_space(&self, space: &Space, text: &mut String) {
        let runtime = space.runtime.get();
        for vp in runtime.into_iter().flat_map(|runtime| runtime.vps()) {
            let word = vp.word();
            let state: State = word.state();
            let owner = Self::vessel_of(word.owner());
            *text += &format!("vp {}: {state:?} of {owner:?}", vp.index());
            *text += if vp.has_ready() {
                ", threads ready\n"
            } else {
                "\n"
            };
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
        for (index, vessel) in self.vessels.borrow().iter().enumerate() {
            let activation = vessel.activation.get();
            text += &format!(
                "vessel {index}: {:?}, processor {}, role {:?}, thread {}, in call {}, wake {}\n",
                vessel.doing.get(),
                vessel.processor.get(),
                activation.map(|activation| activation.role()),
                activation.is_some_and(|activation| activation.thread().is_some()),
                activation.is_some_and(|activation| activation.is_in_call()),
                activation.map_or(0, |activation| activation
                    .wake_word()
                    .load(Ordering::Relaxed)),
            );
        }
        text
    }
}
