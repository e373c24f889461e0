//! What the workloads that need nothing but threads are written with.
//!
//! Packages of threads have these few operations alike, so one text of a workload measures POSIX
//! threads and the crate upcall. The compiler makes a program of it for each: nothing is called
//! through a table, and each package's own functions are inlined as in any program with it.

use std::io::{self, Read, Write};
use std::ops::{DerefMut, Range};
use std::os::fd::OwnedFd;
use std::sync::Once;

use super::{Failure, SKIP};

/// A package of threads.
pub trait Threads: 'static {
    /// The right to a thread's result.
    type Handle<R: Send + 'static>;
    /// The package's semaphore.
    type Semaphore: Semaphore;
    /// The package's mutex.
    type Mutex<V: Send + 'static>: Mutex<V>;
    /// The end of a pipe that is read.
    type Reader: Reader;
    /// The end of a pipe that is written.
    type Writer: Writer;
    /// A connected socket.
    type Stream: Read + Write + Send + 'static;

    /// Starts a thread; where there cannot be one more, [`no_thread`] ends the process.
    fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> Self::Handle<R>;

    /// Waits for a thread's end and returns its result.
    fn join<R: Send + 'static>(handle: Self::Handle<R>) -> R;

    /// Runs both, perhaps at the same time, and returns their results. Where a package has no such function, `other` is a
    /// thread.
    #[inline]
    fn both<A, B: Send + 'static>(
        one: impl FnOnce() -> A,
        other: impl FnOnce() -> B + Send + 'static,
    ) -> (A, B) {
        let other = Self::spawn(other);
        (one(), Self::join(other))
    }

    /// Calls a function in a critical section, in which the thread is not preempted, where a package has such.
    #[inline]
    fn critical<R>(section: impl FnOnce() -> R) -> R {
        section()
    }

    /// Makes code a critical section, where a package has such.
    ///
    /// # Errors
    ///
    /// The package's.
    fn critical_code(_code: Range<*const u8>) -> io::Result<()> {
        Ok(())
    }

    /// Gives way to other threads.
    fn yield_now();

    /// A pipe, in whose calls a thread waits.
    fn pipe() -> Result<(Self::Reader, Self::Writer), Failure>;

    /// The connected Unix socket `fd`, in whose calls a thread waits.
    fn stream(fd: OwnedFd) -> io::Result<Self::Stream>;
}

/// The end of a pipe that is read.
pub trait Reader: Send + 'static {
    /// Reads one byte; false at the end of the file or on an error.
    fn read_byte(&self) -> bool;
}

/// The end of a pipe that is written.
pub trait Writer: Send + 'static {
    /// Writes one byte; false on an error.
    fn write_byte(&self) -> bool;
}

/// A counting semaphore.
pub trait Semaphore: Send + Sync + 'static {
    /// A semaphore of value zero.
    fn new() -> Self;

    /// Adds one.
    fn post(&self);

    /// Takes one; waits until there is one.
    fn wait(&self);
}

/// A mutex around a value, with condition variables for those that hold it.
pub trait Mutex<V>: Send + Sync + 'static {
    /// The right to use the value; the mutex is unlocked when it is dropped.
    type Guard<'a>: DerefMut<Target = V>;
    /// A condition variable.
    type Condition: Send + Sync + 'static;

    /// An unlocked mutex around `value`.
    fn new(value: V) -> Self;

    /// Locks it; waits until it is unlocked.
    fn lock(&self) -> Self::Guard<'_>;

    /// A condition variable without waiters.
    fn condition() -> Self::Condition;

    /// Waits for a signal, with the mutex unlocked.
    fn wait<'a>(&'a self, condition: &Self::Condition, guard: Self::Guard<'a>) -> Self::Guard<'a>;

    /// Wakes one that waits.
    fn signal(condition: &Self::Condition);

    /// Wakes all that wait.
    fn signal_all(condition: &Self::Condition);
}

/// Ends the process because a thread cannot be made.
///
/// It ends here and not by an error that is handed upwards, since other threads wait for this one
/// and would wait for ever. EAGAIN is the answer of a package that has as many threads as it can
/// have: then the workload is declined. Anything else is a failure.
pub fn no_thread(error: &std::io::Error) -> ! {
    // Several threads can get here; the first one says it, the others wait for the end.
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        eprintln!("upcall-workload: not one thread more can be made: {error}");
        let declined = error.raw_os_error() == Some(libc::EAGAIN);
        std::process::exit(if declined { i32::from(SKIP) } else { 1 })
    });
    unreachable!("the process has ended")
}
