//! What a thread is given and what it gives: in the room of its shell, or, where it is too large for that, in a box
//! whose address is there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use super::{Result, Thread, current};

/// A thread's closure, then its result.
pub(super) struct Packet<F, T> {
    pub(super) thread: OnceLock<Thread>,
    stage: Stage<F, T>,
}

enum Stage<F, T> {
    Begins(F),
    Ended(Result<T>),
    /// It runs, or was ended by pthread_exit(3) or a cancellation.
    Between,
}

/// What is left of a thread that has ended; no result: it was ended early.
pub(super) type Remains<T> = (Option<Thread>, Option<Result<T>>);

impl<F: FnOnce() -> T, T> Packet<F, T> {
    pub(super) fn new(thread: Option<Thread>, body: F) -> Self {
        Packet {
            thread: thread.map_or_else(OnceLock::new, OnceLock::from),
            stage: Stage::Begins(body),
        }
    }

    /// Runs it, in the thread.
    pub(super) fn run(&mut self) {
        let Stage::Begins(body) = std::mem::replace(&mut self.stage, Stage::Between) else {
            return;
        };
        let named = self.thread.get().and_then(Thread::name).map(OsName::set);
        current::enter(&self.thread);
        self.stage = Stage::Ended(catch_unwind(AssertUnwindSafe(body)));
        current::leave();
        drop(named);
    }

    /// Moves out what is left of it. Runs no code of others, and asks for no memory.
    pub(super) fn remains(&mut self) -> Remains<T> {
        let result = match std::mem::replace(&mut self.stage, Stage::Between) {
            Stage::Ended(result) => Some(result),
            Stage::Begins(_) | Stage::Between => None,
        };
        (self.thread.take(), result)
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
