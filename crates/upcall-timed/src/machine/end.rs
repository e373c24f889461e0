//! The end of a program, and the report of a run that has none.

use upcall_core::Activation;

use super::kernel::Timed;
use super::{Doing, Machine};

impl Machine {
    /// The program of the running vessel has ended, and its address space with it.
    pub(crate) fn finish(&'static self, index: usize) -> ! {
        let space = &self.spaces[index];
        let mut report = space.report.get();
        report.ended = self.now.get();
        if let Some(runtime) = space.runtime.get() {
            let stats = runtime.stats();
            report.upcalls = stats.blocked.get()
                + stats.unblocked()
                + stats.displaced.get()
                + stats.rung.get()
                + stats.taken.get();
            report.stolen = stats.stolen.get();
        }
        space.report.set(report);
        space.gone.set(true);
        for vessel in self.vessels.borrow().iter() {
            if vessel.space == index {
                vessel.doing.set(Doing::Gone);
                vessel.epoch.set(vessel.epoch.get() + 1);
            }
        }
        self.clear(index);
        if !space.daemon {
            self.unfinished.set(self.unfinished.get() - 1);
        }
        loop {
            self.come_back();
        }
    }

    /// The state, for the report of a failure.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("clock {}\n", self.now.get());
        for (index, processor) in self.processors.iter().enumerate().take(16) {
            text += &format!(
                "processor {index}: {:?}, vessel {:?}\n",
                processor.serves.get(),
                processor.current.get()
            );
        }
        for (index, space) in self.spaces.iter().enumerate().take(8) {
            text += &format!(
                "space {index}: {:?}, busy {}, starving {:?}, unused {:?}\n",
                space.kind,
                space.busy.get(),
                space.starving.borrow(),
                space.unused.borrow(),
            );
            for vp in space.runtime.get().iter().flat_map(|it| it.vps()).take(16) {
                let kernel = &space.vps[vp.index() as usize];
                text += &format!(
                    "  vp {}: {:?} of {:?}, ready {}, processor {:?}, leaving {}, queue {:?}, awaiting {:?}\n",
                    vp.index(),
                    vp.word().state(),
                    Timed::vessel_of(vp.word().owner()),
                    vp.has_ready(),
                    kernel.processor.get(),
                    kernel.leaving.get(),
                    kernel.queue.borrow(),
                    kernel.awaiting.borrow(),
                );
            }
        }
        for (index, vessel) in self.vessels.borrow().iter().enumerate().take(32) {
            text += &format!(
                "vessel {index} of {}: {:?} on {:?}, {:?}\n",
                vessel.space,
                vessel.doing.get(),
                vessel.processor.get(),
                vessel.activation.get().map(Activation::activity),
            );
        }
        text
    }
}
