//! `section_flags`: null fork and signal-wait where each critical section of the package sets a flag (Anderson et al. 1991,
//! section 5.1).
//!
//! [`Flagged`] is a package of threads like another one, in which each call that enters the runtime is in a section of the
//! program too: it sets a flag, clears it, and checks if it was to give way. A null fork has three of these (the fork, the
//! thread's end, the join), and a round trip of signal-wait has four. With `flags=0` the operation is measured as it is.

use std::marker::PhantomData;
use std::os::fd::OwnedFd;

use super::threads::{Mutex, Semaphore, Threads};
use super::{Failure, Figures, Params, fork, signal};

/// The package `T` with flags.
pub struct Flagged<T>(PhantomData<T>);

/// Its semaphore.
pub struct FlaggedSemaphore<T: Threads>(T::Semaphore);

/// Its mutex. To lock and unlock it does not enter the runtime, so only waiting and signalling have a flag.
pub struct FlaggedMutex<T: Threads, V: Send + 'static>(T::Mutex<V>);

impl<T: Threads> Threads for Flagged<T> {
    type Handle<R: Send + 'static> = T::Handle<R>;
    type Semaphore = FlaggedSemaphore<T>;
    type Mutex<V: Send + 'static> = FlaggedMutex<T, V>;
    type Reader = T::Reader;
    type Writer = T::Writer;
    type Stream = T::Stream;

    #[inline]
    fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> T::Handle<R> {
        T::critical(|| {
            T::spawn(move || {
                let result = body();
                // The section of its end, which begins when this function has returned.
                T::critical(|| ());
                result
            })
        })
    }

    #[inline]
    fn join<R: Send + 'static>(handle: T::Handle<R>) -> R {
        T::critical(|| T::join(handle))
    }

    #[inline]
    fn yield_now() {
        T::critical(T::yield_now);
    }

    fn pipe() -> Result<(T::Reader, T::Writer), Failure> {
        T::pipe()
    }

    fn stream(fd: OwnedFd) -> std::io::Result<T::Stream> {
        T::stream(fd)
    }
}

impl<T: Threads> Semaphore for FlaggedSemaphore<T> {
    #[inline]
    fn new() -> Self {
        Self(T::Semaphore::new())
    }

    #[inline]
    fn post(&self) {
        T::critical(|| self.0.post());
    }

    #[inline]
    fn wait(&self) {
        T::critical(|| self.0.wait());
    }
}

impl<T: Threads, V: Send + 'static> Mutex<V> for FlaggedMutex<T, V> {
    type Guard<'a> = <T::Mutex<V> as Mutex<V>>::Guard<'a>;
    type Condition = <T::Mutex<V> as Mutex<V>>::Condition;

    #[inline]
    fn new(value: V) -> Self {
        Self(T::Mutex::new(value))
    }

    #[inline]
    fn lock(&self) -> Self::Guard<'_> {
        self.0.lock()
    }

    #[inline]
    fn condition() -> Self::Condition {
        T::Mutex::<V>::condition()
    }

    #[inline]
    fn wait<'a>(&'a self, condition: &Self::Condition, guard: Self::Guard<'a>) -> Self::Guard<'a> {
        T::critical(|| self.0.wait(condition, guard))
    }

    #[inline]
    fn signal(condition: &Self::Condition) {
        T::critical(|| T::Mutex::<V>::signal(condition));
    }

    #[inline]
    fn signal_all(condition: &Self::Condition) {
        T::critical(|| T::Mutex::<V>::signal_all(condition));
    }
}

pub(super) fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let has_flags = params.number("flags", 0)? != 0;
    match (params.text("operation"), has_flags) {
        (Some("null_fork"), false) => fork::null::<T>(params),
        (Some("null_fork"), true) => fork::null::<Flagged<T>>(params),
        (Some("signal_wait"), false) => signal::run::<T>(params),
        (Some("signal_wait"), true) => signal::run::<Flagged<T>>(params),
        (other, _) => Err(Failure::Usage(format!(
            "operation={other:?}: null_fork or signal_wait"
        ))),
    }
}
