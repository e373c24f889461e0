//! Threads that leave the virtual processors for a kernel thread that is no activation, and come back.
//!
//! A thread leaves by [`Entered::park`]: once it is saved, and known to nobody else, that kernel thread continues it.
//! It comes back the same way: saved, it is made ready, and the kernel thread goes on without it, on a stack of its own.

use core::sync::atomic::Ordering;

use crate::arch;
use crate::kernel::Kernel;
use crate::runtime::Runtime;
use crate::state::inside::Entered;
use crate::state::ready::By;
use crate::state::thread::Thread;

impl<K: Kernel> Runtime<K> {
    /// Continues a thread on the calling kernel thread, which is no activation.
    ///
    /// # Safety
    ///
    /// The thread has parked or come back as the module's text says, and nobody else continues it.
    pub unsafe fn carry_outside(&self, thread: &'static Thread<K>) -> ! {
        // SAFETY: the caller's promise.
        unsafe { arch::resume(thread.context.load(Ordering::Relaxed), arch::control()) }
    }

    /// Saves the calling thread, which runs on a kernel thread that is no activation, and goes on with
    /// `landing(argument)` on the stack that ends at `stack`. Returns when somebody has made it ready
    /// ([`Runtime::make_ready_from_outside`]), inside the runtime.
    ///
    /// # Safety
    ///
    /// `stack` is the 16-byte aligned end of a free stack, and `landing` does not return.
    #[inline(always)]
    pub unsafe fn return_from_outside(
        &'static self,
        thread: &'static Thread<K>,
        stack: usize,
        landing: extern "C" fn(usize, usize, usize) -> !,
        argument: usize,
    ) -> Entered<K> {
        // SAFETY: the context is the thread's own; the caller vouches for the rest.
        unsafe { arch::switch_out(thread.context.as_ptr(), stack, landing, argument, 0, 0) };
        Entered::on(self.kernel.current())
    }

    /// Makes a thread ready that has come back. Called by a kernel thread that is no activation.
    pub fn make_ready_from_outside(&'static self, thread: &'static Thread<K>) {
        if let Some(first) = self.vps().first() {
            let vp = self.with_processor(first);
            self.make_ready_on(vp, By::Others, thread);
            self.choose_again(vp, true);
        }
    }
}
