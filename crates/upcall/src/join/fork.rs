//! What a scope forks, and joins in any order.

use std::marker::PhantomData;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::{forked::Forked, taker};
use crate::thread::{Books, Result, Scope, ScopedJoinHandle, ended_early};

/// The right to join what [`Scope::fork`] has forked, for the thread that has forked it.
///
/// A handle that is dropped joins it, and loses the result. If a thread drops it because it panics, what has not begun is
/// dropped, too. With a handle that is never dropped ([`mem::forget`](std::mem::forget)) the scope never ends.
#[must_use = "a handle that is dropped at once runs what was forked at once"]
pub struct ScopedFork<'scope, T> {
    forked: Option<Box<dyn Joins<T> + 'scope>>,
    books: &'scope Books,
    /// It is in the list of the thread that has forked it.
    of_thread: PhantomData<*const ()>,
}

/// What was forked, whatever its closure is.
trait Joins<T> {
    fn join(&mut self) -> Result<T>;
    /// As `join`, but what has not begun is dropped.
    fn abandon(&mut self);
}

impl<'scope> Scope<'scope, '_> {
    /// Forks `body`, which may run at the same time as what follows. As [`join`](crate::join()) does with its second half, and
    /// as cheap but for an allocation: it is called where it is joined, unless a virtual processor without other work begins
    /// it before. Then it is a thread. Which of the two it is decides what [`current`](crate::thread::current) and
    /// thread-local storage are there.
    ///
    /// ```
    /// let numbers: Vec<u64> = (1..=1000).collect();
    /// let sum = upcall::thread::scope(|scope| {
    ///     let parts: Vec<_> = numbers.chunks(100).map(|part| scope.fork(move || part.iter().sum::<u64>())).collect();
    ///     parts.into_iter().map(|part| part.join().unwrap()).sum::<u64>()
    /// });
    /// assert_eq!(sum, 500_500);
    /// ```
    ///
    /// What runs between fork and join may wait for `body`. `body` must not wait for what its forking thread does after the
    /// join. A thread that has forked must join, or drop the handle, itself. In the child of a fork(2) it joins as
    /// [`join`](crate::join()) does.
    ///
    /// # Panics
    ///
    /// If it must be a thread of its own, and there is no memory, or the kernel gives no thread.
    pub fn fork<F, T>(&'scope self, body: F) -> ScopedFork<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let forked = forked(self, body);
        let books = self.books();
        books.forked();
        ScopedFork {
            forked: Some(forked),
            books,
            of_thread: PhantomData,
        }
    }
}

fn forked<'scope, F, T>(scope: &'scope Scope<'scope, '_>, body: F) -> Box<dyn Joins<T> + 'scope>
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    let body = match taker::own() {
        Some(own) => match Forked::new(own, body) {
            Ok(forked) => return forked,
            Err(body) => body,
        },
        None => body,
    };
    Box::new(Some(scope.spawn(body)))
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl<F: FnOnce() -> T, T> Joins<T> for Forked<F, T> {
    fn join(&mut self) -> Result<T> {
        match self.end() {
            Ok(body) => catch_unwind(AssertUnwindSafe(body)),
            Err(result) => result,
        }
    }

    fn abandon(&mut self) {
        drop(self.end());
    }
}

impl<T> Joins<T> for Option<ScopedJoinHandle<'_, T>> {
    fn join(&mut self) -> Result<T> {
        match self.take() {
            Some(handle) => handle.join(),
            None => Err(ended_early()),
        }
    }

    fn abandon(&mut self) {
        drop(self.join());
    }
}

impl<T> ScopedFork<'_, T> {
    /// Returns the result: calls what was forked if nobody has begun it, else waits for its end.
    ///
    /// # Errors
    ///
    /// The panic, if it panicked.
    pub fn join(mut self) -> Result<T> {
        let result = match self.forked.take() {
            Some(mut forked) => forked.join(),
            None => Err(ended_early()),
        };
        self.books.joined();
        result
    }
}

impl<T> Drop for ScopedFork<'_, T> {
    fn drop(&mut self) {
        let Some(mut forked) = self.forked.take() else {
            return;
        };
        if std::thread::panicking() {
            forked.abandon();
        } else if forked.join().is_err() {
            self.books.panicked();
        }
        self.books.joined();
    }
}

impl<T> std::fmt::Debug for ScopedFork<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopedFork").finish_non_exhaustive()
    }
}
