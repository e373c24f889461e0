//! The first steps of an activation in its kernel thread, and the signal mask of that kernel thread.

use core::sync::atomic::Ordering;

use upcall_core::Machine;
use upcall_core::kernel::Vessels;

use crate::activation::preempt;
use crate::state::{Activation, Linux, Thread, base};
use crate::sys;

impl Linux {
    /// Makes the calling kernel thread the vessel of `activation`, which [`upcall_core::Runtime::adopt`]
    /// returned, with the thread on it.
    pub fn adopt(&self, activation: &Activation, thread: &'static Thread, mask: u64) {
        let state = &activation.kernel;
        // SAFETY: asks only.
        let tid = unsafe { sys!(sys::SYS_gettid) } as i32;
        state.tid.store(tid, Ordering::Relaxed);
        let pointer = base::thread_pointer();
        state.thread_pointer.store(pointer, Ordering::Relaxed);
        thread
            .kernel
            .thread_pointer
            .store(pointer, Ordering::Relaxed);
        state.mask.store(mask & !preempt::OWN, Ordering::Relaxed);
        thread.kernel.mask.store(mask, Ordering::Relaxed);
        thread.kernel.has_lazy_mask.store(false, Ordering::Relaxed);
        thread.kernel.slack.adopt();
        thread.kernel.asked.inherit(None);
        let own = base::of_program(base::read());
        thread.kernel.program_base.store(own, Ordering::Relaxed);
        base::set(Some(activation));
        if tid == self.pid {
            self.first
                .set(Some(activation.vp().word().owner()), Ordering::Relaxed);
        }
        self.begin_without_slices(activation);
        self.bind(activation);
    }

    /// The first steps of every activation in its own kernel thread.
    pub(crate) fn begin(&self, activation: &Activation) {
        if !activation.kernel.sentinel.load(Ordering::Relaxed) {
            self.begin_slices(activation);
        }
        self.begin_without_slices(activation);
    }

    /// The time slices of the calling activation begin. The handler of SIGURG must be installed: Linux from 6.13 on never
    /// sets a timer again that has fired while its signal was ignored by default, even if a handler is installed afterwards.
    pub fn begin_slices(&self, activation: &Activation) {
        preempt::start_slices(activation, self.now(), self.settings.slice_ns);
    }

    fn begin_without_slices(&self, activation: &Activation) {
        activation.kernel.observer.open(self.settings.probe);
        self.begin_record(activation);
        (self.settings.hooks.begin)();
    }

    /// Sets the calling kernel thread's signal mask, except for the runtime's own signals. With a signal
    /// in the inbox everything stays blocked until that is delivered.
    #[inline]
    pub fn set_mask(&self, activation: &Activation, mask: u64) {
        let (mask, state) = (mask & !preempt::OWN, &activation.kernel);
        if state.mask.load(Ordering::Relaxed) != mask && state.inbox.is_empty() {
            sys::set_signal_mask(mask);
            // Afterwards, and Release: see `resting`.
            state.mask.store(mask, Ordering::Release);
        }
    }

    /// As [`set_mask`](Self::set_mask), for a thread that is about to run.
    #[inline]
    pub(crate) fn install_mask(&self, activation: &Activation, thread: &Thread, mask: u64) {
        if activation.kernel.mask.load(Ordering::Relaxed) != mask
            && !thread.kernel.has_lazy_mask.load(Ordering::Relaxed)
        {
            self.set_mask(activation, mask);
        }
    }
}
