//! The right to a thread's result.

use std::fmt;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::packet::Outcome;
use super::{Result, Thread};

/// The right to wait for a thread and to have its result. If it is dropped, the thread goes on.
pub struct JoinHandle<T>(pub(super) Kind<T>);

pub(super) enum Kind<T> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Own(Own<T>),
    Std(std::thread::JoinHandle<T>, Thread),
}

/// Of a thread in a shell.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) struct Own<T> {
    pub(super) shell: upcall_guest::shell::Handle,
    pub(super) outcome: *mut Outcome<T>,
    /// Frees the box in which that is, if it is not in the room.
    pub(super) free: Option<unsafe fn(*mut Outcome<T>)>,
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
// SAFETY: as of `std::thread::JoinHandle`: its owner takes the result, which the thread was allowed to send; the
// pointer is to what the thread and its handle share.
unsafe impl<T> Send for Own<T> {}
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
// SAFETY: as above; a reference gives the thread's own handle only.
unsafe impl<T> Sync for Own<T> {}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended, and returns its result.
    ///
    /// # Errors
    ///
    /// If the thread panicked, the value of the panic. If pthread_exit(3) has ended it, a text that says so.
    #[inline]
    pub fn join(self) -> Result<T> {
        match self.0 {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Kind::Own(own) => {
                let Own {
                    shell,
                    outcome,
                    free,
                } = own;
                if free.is_none() {
                    // SAFETY: the thread has ended: it is the handle's.
                    let (result, thread) = shell.join(|| unsafe {
                        let outcome = &mut *outcome;
                        let thread = outcome.thread.get().is_some();
                        (outcome.take(), thread.then(|| outcome.thread.take()))
                    });
                    drop(thread);
                    return result.unwrap_or_else(|| Err(super::ended_early()));
                }
                shell.join(|| ());
                // SAFETY: as above.
                let result = unsafe { (*outcome).take() };
                if let Some(free) = free {
                    // SAFETY: the box is the handle's, and nobody looks at it any more.
                    unsafe { free(outcome) };
                }
                result.unwrap_or_else(|| Err(super::ended_early()))
            }
            Kind::Std(handle, _) => handle.join(),
        }
    }

    /// Returns true if the thread has ended, so that [`JoinHandle::join`] will not wait.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Kind::Own(own) => own.shell.is_ended(),
            Kind::Std(handle, _) => handle.is_finished(),
        }
    }

    /// Returns the thread.
    pub fn thread(&self) -> &Thread {
        match &self.0 {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Kind::Own(own) => {
                // SAFETY: in the room or the box, which stay until the handle gives them up.
                unsafe { &(*own.outcome).thread }.get_or_init(|| Thread::new(None))
            }
            Kind::Std(_, thread) => thread,
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}
