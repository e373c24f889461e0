//! The timeline: what the runtime says, and what the backend and the layer above add, goes to the rings ([`crate::record`]).

use core::ffi::CStr;
use core::sync::atomic::Ordering;

use upcall_abi::trace::{wait, what};
use upcall_core::Errno;
use upcall_core::event::{Event, What};
use upcall_core::kernel::Trace;

use crate::record::Entry;
use crate::state::{Activation, Linux, Runtime, Thread, Vp, activations, base};

impl Trace for Linux {
    fn note(&self, event: Event<Self>) {
        let argument = match (event.what, event.thread) {
            (What::Blocked, Some(thread)) if event.argument == 0 => waits(thread),
            (What::Calls, Some(thread)) => (self.settings.hooks.call)(thread),
            _ => event.argument,
        };
        self.write(event.what as u32, event.vp, event.thread, argument);
    }
}

/// The descriptor for which a thread waits, as [`wait::DESCRIPTOR`] has it; 0 if it waits for none.
fn waits(thread: &Thread) -> u64 {
    let node = &thread.kernel.node;
    if !node.linked.load(Ordering::Relaxed) {
        return 0;
    }
    let descriptor = u64::from(node.descriptor.load(Ordering::Relaxed));
    let wants = u64::from(node.wants.load(Ordering::Relaxed)) & 3;
    descriptor << 8 | wants << 2 | wait::DESCRIPTOR
}

impl Linux {
    /// Begins to note what happens from here on, in a file in this directory; goes on in the one that there is. An activation
    /// calls this, one at a time.
    ///
    /// # Errors
    ///
    /// The kernel's error when there can be no file.
    pub fn begin_trace(runtime: &'static Runtime, directory: &CStr) -> Result<(), Errno> {
        let kernel = runtime.kernel();
        if kernel.recorder.is_on() {
            kernel.recorder.goes_on();
        } else {
            kernel.recorder.open(directory, kernel.pid)?;
        }
        kernel.recorder.note_vps(runtime.vps().len() as u32);
        // Nobody writes yet but those that begin now, and have a ring.
        runtime.each_activation(|activation| {
            let state = &activation.kernel;
            if state.tid.load(Ordering::Relaxed) != 0 && state.ring.load(Ordering::Relaxed) == 0 {
                kernel.begin_record(activation);
            }
        });
        runtime.begin_trace();
        for vp in runtime.vps() {
            kernel.note_place(vp);
        }
        Ok(())
    }

    /// Returns true if events are noted.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.recorder.is_on()
    }

    /// An activation begins in its own kernel thread: it has a ring from here on.
    pub(crate) fn begin_record(&self, activation: &Activation) {
        if !self.recorder.is_on() {
            return;
        }
        let state = &activation.kernel;
        let tid = state.tid.load(Ordering::Relaxed).unsigned_abs();
        let vp = activation.vp().index();
        let known = state.ring.load(Ordering::Relaxed);
        let ring = if known != 0 {
            known
        } else {
            self.recorder.ring()
        };
        self.recorder.begins(ring, tid, vp);
        // A new one is the activation's only now. Who begins a timeline makes one for each activation, and so does one that
        // begins at that moment: of two, one stays as it is.
        let _ = state
            .ring
            .compare_exchange(0, ring, Ordering::Release, Ordering::Relaxed);
    }

    /// The virtual processor is on another processor.
    pub(crate) fn note_place(&self, vp: &'static Vp) {
        if self.recorder.is_on() {
            self.write_common(what::PLACED, vp.index(), None, vp.processor().into());
        }
    }

    /// A new thread has this id; the thread has this name. Kept apart from what comes often, so that it is not lost.
    pub fn note_identity(&self, thread: &'static Thread, id: Option<i32>, name: [u64; 2]) {
        if !self.recorder.is_on() {
            return;
        }
        if let Some(id) = id {
            let id = u64::from(id.unsigned_abs());
            self.write_common(what::IDENTITY, 0, Some(thread), id);
        }
        self.write_common(what::NAME, 0, Some(thread), name[0]);
        self.write_common(what::NAME_REST, 0, Some(thread), name[1]);
    }

    fn write(&self, what: u32, vp: &'static Vp, thread: Option<&'static Thread>, argument: u64) {
        let register = base::read();
        let ring = if activations::contains(register) {
            // SAFETY: an activation's kernel thread calls this.
            let own = unsafe { base::current() };
            if self.recorder.is_stopped() {
                self.rest(own.runtime());
                return;
            }
            own.kernel.ring.load(Ordering::Relaxed)
        } else {
            0
        };
        self.recorder.write(
            ring,
            Entry {
                what,
                vp: vp.index(),
                thread: address(thread),
                argument,
            },
        );
    }

    /// Nobody reads any more: events cost nothing, until somebody asks again.
    #[cold]
    fn rest(&self, runtime: &'static Runtime) {
        runtime.end_trace();
        // Perhaps somebody has just asked.
        if !self.recorder.is_stopped() {
            runtime.begin_trace();
        }
    }

    fn write_common(&self, what: u32, vp: u32, thread: Option<&'static Thread>, argument: u64) {
        self.recorder.write(
            0,
            Entry {
                what,
                vp,
                thread: address(thread),
                argument,
            },
        );
    }
}

fn address(thread: Option<&'static Thread>) -> usize {
    thread.map_or(0, |thread| core::ptr::from_ref(thread) as usize)
}
