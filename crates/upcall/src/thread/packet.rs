//! What a thread is given and what it gives: in the room of its shell, or, where it is too large for that, in a box
//! whose address is there.

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use super::{Result, Thread};
use crate::current;

/// What a thread gives: in front of what it is given, so that its handle finds it without knowing that.
#[repr(C)]
pub(super) struct Outcome<T> {
    pub(super) thread: OnceLock<Thread>,
    /// Whether there is one: not if the thread runs, or was ended by pthread_exit(3) or a cancellation.
    has_result: bool,
    result: MaybeUninit<Result<T>>,
}

/// A thread's closure, and then its result.
#[repr(C)]
pub(super) struct Packet<F, T> {
    pub(super) outcome: Outcome<T>,
    begins: bool,
    body: MaybeUninit<F>,
}

impl<T> Outcome<T> {
    /// Moves the result out, once; `None`: the thread was ended early. Runs no code of others, and asks for no memory.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Result<T>> {
        if !std::mem::replace(&mut self.has_result, false) {
            return None;
        }
        // SAFETY: it is there, and not again.
        Some(unsafe { self.result.assume_init_read() })
    }
}

impl<T> Drop for Outcome<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<F, T> Drop for Packet<F, T> {
    fn drop(&mut self) {
        if self.begins {
            // SAFETY: it is there.
            unsafe { self.body.assume_init_drop() };
        }
    }
}

impl<F: FnOnce() -> T, T> Packet<F, T> {
    #[inline]
    pub(super) fn new(thread: Option<Thread>, body: F) -> Self {
        Packet {
            outcome: Outcome {
                thread: thread.map_or_else(OnceLock::new, OnceLock::from),
                has_result: false,
                result: MaybeUninit::uninit(),
            },
            begins: true,
            body: MaybeUninit::new(body),
        }
    }

    /// Runs it, in the thread.
    #[inline]
    pub(super) fn run(&mut self) {
        self.begins = false;
        // SAFETY: it is there, and not again.
        let body = unsafe { self.body.assume_init_read() };
        let outcome = &mut self.outcome;
        let named = outcome.thread.get().and_then(Thread::name).map(OsName::set);
        current::enter(&outcome.thread);
        outcome.result.write(catch_unwind(AssertUnwindSafe(body)));
        outcome.has_result = true;
        current::leave();
        drop(named);
    }
}

/// The name that the system shows for a thread, as long as it runs.
struct OsName([libc::c_char; 16]);

impl OsName {
    fn set(name: &str) -> Self {
        let mut before = OsName([0; 16]);
        let mut bytes = [0u8; 16];
        let shown = name.bytes().take(15).take_while(|&byte| byte != 0);
        for (to, byte) in bytes.iter_mut().zip(shown) {
            *to = byte;
        }
        // SAFETY: the calling thread; names of at most sixteen bytes with a zero at the end.
        unsafe {
            let own = libc::pthread_self();
            libc::pthread_getname_np(own, before.0.as_mut_ptr(), before.0.len());
            libc::pthread_setname_np(own, bytes.as_ptr().cast());
        }
        before
    }
}

impl Drop for OsName {
    fn drop(&mut self) {
        // SAFETY: as in `set`.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), self.0.as_ptr()) };
    }
}
