//! Futures and threads, each in the place of the other: asynchronous libraries in a program of threads, and blocking
//! code in an asynchronous one.
//!
//! There is no executor to set up. [`block_on`] polls a future on the calling thread and parks the thread
//! in between; a waker unparks it. [`spawn`] does so on a thread of its own, which costs little more than a task of
//! an executor does, and may block: its virtual processor goes on with other threads. [`blocking`] is the way back: a
//! future for what a thread returns.
//!
//! A future that needs what its own library drives (a reactor, timers) needs it here too. *Not taken:* many futures on one
//! thread: then one that blocks keeps the others waiting, which is what threads are there to avoid.
//!
//! ```
//! use upcall::future::{block_on, blocking, spawn};
//!
//! let sum = spawn(async {
//!     let file = blocking(|| std::fs::read("/proc/self/stat").map(|read| read.len()));
//!     file.await.unwrap().unwrap()
//! });
//! assert!(block_on(async { sum.join().unwrap() }) > 0);
//! ```

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::signal::Signal;
use crate::thread::{self, JoinHandle};

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.set();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set();
    }
}

/// Waits for a future on the calling thread.
///
/// May be called anywhere, also by a future that is polled.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let signal = Arc::new(Signal::new());
    let waker = Waker::from(Arc::clone(&signal));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        signal.wait();
    }
}

/// Makes a thread that waits for a future. If the handle is dropped, the future goes on.
///
/// # Panics
///
/// As [`thread::spawn`].
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    thread::spawn(move || block_on(future))
}

/// Makes a thread that runs `body`, which may block. The result of `body` is the future's. The thread goes on if the
/// future is dropped.
///
/// # Panics
///
/// As [`thread::spawn`]. A panic of `body` is the future's output, as that of [`JoinHandle::join`].
pub fn blocking<F, T>(body: F) -> Blocking<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let shared = Arc::new(Mutex::new(Stage::Running(None)));
    let place = Promise(Arc::clone(&shared));
    drop(thread::spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(body));
        place.keep(result);
    }));
    Blocking(shared)
}

/// The future of what a thread returns. See [`blocking`].
#[must_use = "the thread runs, but nobody has its result"]
pub struct Blocking<T>(Arc<Mutex<Stage<T>>>);

/// A thread on the way to its result.
enum Stage<T> {
    /// The waker to wake when the result is there.
    Running(Option<Waker>),
    Ended(thread::Result<T>),
    /// The result was taken.
    Taken,
}

fn lock<T>(stage: &Mutex<Stage<T>>) -> MutexGuard<'_, Stage<T>> {
    // No code of others runs with it held.
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's side, which gives a result whatever ends the thread.
struct Promise<T>(Arc<Mutex<Stage<T>>>);

impl<T> Promise<T> {
    fn keep(&self, result: thread::Result<T>) {
        let waker = {
            let mut stage = lock(&self.0);
            match &mut *stage {
                Stage::Running(waker) => {
                    let waker = waker.take();
                    *stage = Stage::Ended(result);
                    waker
                }
                Stage::Ended(_) | Stage::Taken => None,
            }
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.keep(Err(Box::new(
            "the thread was ended by pthread_exit(3) or a cancellation",
        )));
    }
}

impl<T> Future for Blocking<T> {
    type Output = thread::Result<T>;

    /// # Panics
    ///
    /// It has given its result already.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = lock(&self.0);
        match &mut *stage {
            Stage::Running(waker) => {
                match waker {
                    Some(known) => known.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            _ => match std::mem::replace(&mut *stage, Stage::Taken) {
                Stage::Ended(result) => Poll::Ready(result),
                _ => panic!("polled after it was ready"),
            },
        }
    }
}

impl<T> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").finish_non_exhaustive()
    }
}
