//! Threads that borrow: as `std::thread::scope`.

use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{Builder, JoinHandle, Result, Thread, ended_early};
use crate::waiting;

/// A scope in which threads may borrow from outside of it. See [`scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    books: Arc<Books>,
    // Invariant, as std's: neither may be shortened or lengthened.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// What is not over yet in a scope.
#[derive(Debug, Default)]
pub(crate) struct Books {
    running: AtomicU32,
    panicked: AtomicBool,
}

impl Books {
    /// Something was forked, by a thread that belongs to the scope and joins it.
    pub(crate) fn forked(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// It was joined. Nobody is woken: if the scope waits already, it waits for the calling thread, too.
    pub(crate) fn joined(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// A thread is not there any more.
    fn left(&self) {
        // Release: pairs with the Acquire in `scope`.
        if self.running.fetch_sub(1, Ordering::Release) == 1 {
            waiting::wake(&self.running, 1);
        }
    }

    /// A panic that nobody has seen.
    pub(crate) fn panicked(&self) {
        self.panicked.store(true, Ordering::Relaxed);
    }
}

/// The right to wait for a thread of a [`Scope`].
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<Outcome<T>>,
    scope: PhantomData<&'scope ()>,
}

/// Runs `body`, which may make threads that borrow from outside of it. All of them have ended when this returns.
///
/// ```
/// let mut numbers = vec![1, 2, 3, 4];
/// let (left, right) = numbers.split_at_mut(2);
/// upcall::thread::scope(|scope| {
///     scope.spawn(|| left[0] = 10);
///     scope.spawn(|| right[1] = 40);
/// });
/// assert_eq!(numbers, [10, 2, 3, 40]);
/// ```
///
/// # Panics
///
/// If a thread panicked that was not joined.
pub fn scope<'env, F, T>(body: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        books: Arc::default(),
        scope: PhantomData,
        env: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
    let running = &scope.books.running;
    loop {
        // Acquire: pairs with the Release where a thread counts no more: what the threads did is done.
        match running.load(Ordering::Acquire) {
            0 => break,
            left => waiting::wait(running, left, None),
        };
    }
    match result {
        Err(panic) => resume_unwind(panic),
        Ok(_) if scope.books.panicked.load(Ordering::Relaxed) => {
            panic!("a scoped thread panicked")
        }
        Ok(value) => value,
    }
}

/// The result of a thread of a scope. The thread counts as running as long as that is there, since it may borrow.
struct Outcome<T> {
    /// `None`: somebody has it.
    result: Option<Result<T>>,
    books: Arc<Books>,
    /// The thread counts until it has ended. If not, until this is dropped.
    is_counted: bool,
}

impl<T> Drop for Outcome<T> {
    fn drop(&mut self) {
        if let Some(Err(_)) = self.result {
            // Relaxed: it counts as running still.
            self.books.panicked.store(true, Ordering::Relaxed);
        }
        self.result = None;
        if !self.is_counted {
            self.books.left();
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    pub(crate) fn books(&'scope self) -> &'scope Books {
        &self.books
    }

    /// As [`super::spawn`], for a thread that borrows.
    ///
    /// # Panics
    ///
    /// If there is no memory, or the kernel gives no thread.
    pub fn spawn<F, T>(&'scope self, body: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        Builder::new()
            .spawn_scoped(self, body)
            .expect("failed to spawn thread")
    }
}

impl Builder {
    /// As [`Builder::spawn`], for a thread of a scope.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    ///
    /// # Panics
    ///
    /// As [`Builder::spawn`].
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        body: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let books = &scope.books;
        books.running.fetch_add(1, Ordering::Relaxed);
        let body = |is_counted| {
            let mut outcome = Outcome {
                result: None,
                books: Arc::clone(books),
                is_counted: false,
            };
            move || {
                // Where there is no thread after all, this is dropped as it is.
                outcome.is_counted = is_counted;
                outcome.result = Some(catch_unwind(AssertUnwindSafe(body)));
                outcome
            }
        };
        // SAFETY: the scope ends after the outcome is gone, and with it what it borrows.
        let handle = unsafe { self.spawn_counted(&raw const books.running, body) }?;
        Ok(ScopedJoinHandle {
            handle,
            scope: PhantomData,
        })
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// As [`JoinHandle::join`].
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::join`].
    pub fn join(self) -> Result<T> {
        let mut outcome = self.handle.join()?;
        outcome.result.take().unwrap_or_else(|| Err(ended_early()))
    }

    /// As [`JoinHandle::is_finished`].
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// As [`JoinHandle::thread`].
    pub fn thread(&self) -> &Thread {
        self.handle.thread()
    }
}
