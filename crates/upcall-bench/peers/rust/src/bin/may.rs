//! The workloads with coroutines of `may`.

use std::process::ExitCode;

use may::coroutine::{self, JoinHandle};
use may::{go, sync};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use upcall_peers::workload::Failure;
use upcall_peers::workload::posix;
use upcall_peers::workload::threads::{self, Threads};

/// `may` as a package of threads.
struct May;

impl Threads for May {
    type Handle<R: Send + 'static> = JoinHandle<R>;
    type Semaphore = Semaphore;
    type Mutex<V: Send + 'static> = Mutex<V>;
    type Reader = OwnedFd;
    type Writer = OwnedFd;
    type Stream = UnixStream;

    fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
        posix::pipe()
    }

    fn stream(fd: OwnedFd) -> std::io::Result<UnixStream> {
        Ok(fd.into())
    }

    fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
        go!(body)
    }

    fn join<R: Send + 'static>(handle: JoinHandle<R>) -> R {
        handle.join().expect("a coroutine that does not panic")
    }

    fn yield_now() {
        coroutine::yield_now();
    }
}

struct Semaphore(sync::Semphore);

impl threads::Semaphore for Semaphore {
    fn new() -> Self {
        Self(sync::Semphore::new(0))
    }

    fn post(&self) {
        self.0.post();
    }

    fn wait(&self) {
        self.0.wait();
    }
}

struct Mutex<V>(sync::Mutex<V>);

impl<V: Send + 'static> threads::Mutex<V> for Mutex<V> {
    type Guard<'a> = sync::MutexGuard<'a, V>;
    type Condition = sync::Condvar;

    fn new(value: V) -> Self {
        Self(sync::Mutex::new(value))
    }

    fn lock(&self) -> sync::MutexGuard<'_, V> {
        self.0.lock().expect("no coroutine panics")
    }

    fn condition() -> sync::Condvar {
        sync::Condvar::new()
    }

    fn wait<'a>(
        &'a self,
        condition: &sync::Condvar,
        guard: sync::MutexGuard<'a, V>,
    ) -> sync::MutexGuard<'a, V> {
        condition.wait(guard).expect("no coroutine panics")
    }

    fn signal(condition: &sync::Condvar) {
        condition.notify_one();
    }

    fn signal_all(condition: &sync::Condvar) {
        condition.notify_all();
    }
}

fn main() -> ExitCode {
    upcall_peers::workload::main_on::<May>(Vec::new(), std::env::args().skip(1), |workers, job| {
        may::config().set_workers(workers);
        May::join(May::spawn(job))
    })
}
