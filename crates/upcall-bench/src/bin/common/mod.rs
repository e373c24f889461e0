//! The crate upcall as a package of threads: a part of the programs that are written with it.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;

use upcall::net::UnixStream;
use upcall::sync;
use upcall::thread::{self, Builder, JoinHandle};
use upcall_bench::workload::Failure;
use upcall_bench::workload::threads::{self, Threads, no_thread};

/// The crate upcall as a package of threads.
pub struct Crate;

impl Threads for Crate {
    type Handle<R: Send + 'static> = JoinHandle<R>;
    type Semaphore = Semaphore;
    type Mutex<V: Send + 'static> = Mutex<V>;
    type Reader = Reader;
    type Writer = Writer;
    type Stream = UnixStream;

    #[inline]
    fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
        match Builder::new().spawn(body) {
            Ok(handle) => handle,
            Err(error) => no_thread(&error),
        }
    }

    #[inline]
    fn join<R: Send + 'static>(handle: JoinHandle<R>) -> R {
        handle.join().expect("a thread that does not panic")
    }

    #[inline]
    fn both<A, B: Send + 'static>(
        one: impl FnOnce() -> A,
        other: impl FnOnce() -> B + Send + 'static,
    ) -> (A, B) {
        upcall::join(one, other)
    }

    #[inline]
    fn critical<R>(section: impl FnOnce() -> R) -> R {
        upcall::critical(section)
    }

    fn critical_code(code: Range<*const u8>) -> io::Result<()> {
        upcall::critical_code(code)
    }

    #[inline]
    fn yield_now() {
        thread::yield_now();
    }

    fn pipe() -> Result<(Reader, Writer), Failure> {
        let (reader, writer) = upcall::io::pipe()
            .map_err(|error| Failure::Failed(format!("making a pipe: {error}")))?;
        Ok((Reader(reader), Writer(writer)))
    }

    fn stream(fd: OwnedFd) -> io::Result<UnixStream> {
        fd.try_into()
    }
}

/// The end of the crate's pipes that is read.
pub struct Reader(upcall::io::PipeReader);

/// The end that is written.
pub struct Writer(upcall::io::PipeWriter);

impl threads::Reader for Reader {
    fn read_byte(&self) -> bool {
        matches!((&self.0).read(&mut [0]), Ok(1))
    }
}

impl threads::Writer for Writer {
    fn write_byte(&self) -> bool {
        matches!((&self.0).write(&[1]), Ok(1))
    }
}

/// The crate's semaphore.
pub struct Semaphore(sync::Semaphore);

impl threads::Semaphore for Semaphore {
    #[inline]
    fn new() -> Self {
        Self(sync::Semaphore::new(0))
    }

    #[inline]
    fn post(&self) {
        self.0.release();
    }

    #[inline]
    fn wait(&self) {
        self.0.acquire();
    }
}

/// The crate's mutex and condition variable.
pub struct Mutex<V>(sync::Mutex<V>);

impl<V: Send + 'static> threads::Mutex<V> for Mutex<V> {
    type Guard<'a> = sync::MutexGuard<'a, V>;
    type Condition = sync::Condvar;

    #[inline]
    fn new(value: V) -> Self {
        Self(sync::Mutex::new(value))
    }

    #[inline]
    fn lock(&self) -> sync::MutexGuard<'_, V> {
        self.0.lock().expect("no thread panics")
    }

    #[inline]
    fn condition() -> sync::Condvar {
        sync::Condvar::new()
    }

    #[inline]
    fn wait<'a>(
        &'a self,
        condition: &sync::Condvar,
        guard: sync::MutexGuard<'a, V>,
    ) -> sync::MutexGuard<'a, V> {
        condition.wait(guard).expect("no thread panics")
    }

    #[inline]
    fn signal(condition: &sync::Condvar) {
        condition.notify_one();
    }

    #[inline]
    fn signal_all(condition: &sync::Condvar) {
        condition.notify_all();
    }
}
