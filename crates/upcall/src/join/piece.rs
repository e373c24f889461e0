//! A piece of work that a thread has forked, and what becomes of it.
//!
//! The piece lies on the stack of the thread that forked it. Its [`Place`](super::list::Place) in that thread's list decides
//! who runs it. If that is another thread, the word `ended` tells the forking thread when it may use its stack again:
//!
//! ```text
//!   RUNS ──────────────▶ ENDED     the taker has run it
//!   RUNS ──▶ AWAITED ──▶ ENDED     the forking thread waits meanwhile
//! ```
//!
//! The change to `ENDED` is the taker's last use of the piece.

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use crate::waiting::{self, AtomicU32};

const RUNS: u32 = 0;
const AWAITED: u32 = 1;
const ENDED: u32 = 2;

/// What a taker knows of a piece.
pub(crate) struct Header {
    run: unsafe fn(NonNull<Header>),
    ended: AtomicU32,
}

/// See the module's text.
#[repr(C)]
pub(crate) struct Piece<F, R> {
    header: Header,
    body: UnsafeCell<ManuallyDrop<F>>,
    result: UnsafeCell<Option<std::thread::Result<R>>>,
}

impl Header {
    /// Runs a piece, up to its end.
    ///
    /// # Safety
    ///
    /// The caller has taken the piece, and ends it afterwards.
    pub(crate) unsafe fn run(piece: NonNull<Header>) {
        // SAFETY: the piece is there until it has ended.
        let run = unsafe { piece.as_ref() }.run;
        // SAFETY: the caller's promise: it is the function for this piece.
        unsafe { run(piece) };
    }

    /// A piece that this function runs.
    #[inline]
    pub(crate) fn new(run: unsafe fn(NonNull<Header>)) -> Self {
        Header {
            run,
            ended: AtomicU32::new(RUNS),
        }
    }

    /// Returns true if the taker that has taken it has ended it.
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire: as in `wait`.
        self.ended.load(Ordering::Acquire) == ENDED
    }

    /// Waits until the taker that has taken it has ended it.
    #[cold]
    pub(crate) fn wait(&self) {
        let ended = &self.ended;
        // Acquire: pairs with the Release in `Header::end`: the result is there.
        while ended.load(Ordering::Acquire) != ENDED {
            let runs = ended.compare_exchange(RUNS, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
            if runs != Err(ENDED) {
                waiting::wait(ended, AWAITED, None);
            }
        }
    }

    /// Ends a piece. If it has not run to its end, it has no result.
    ///
    /// # Safety
    ///
    /// As [`Header::run`]. The piece is gone afterwards.
    pub(crate) unsafe fn end(piece: NonNull<Header>) {
        // SAFETY: the piece is there as long as it has not ended.
        let ended = unsafe { &(*piece.as_ptr()).ended };
        // Release: pairs with the Acquire in `wait`. So too below.
        if ended
            .compare_exchange(RUNS, ENDED, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            waiting::change_and_wake(ended, |_| {
                ended.swap(ENDED, Ordering::Release);
                true
            });
        }
    }
}

impl<F: FnOnce() -> R, R> Piece<F, R> {
    #[inline]
    pub(crate) fn new(body: F) -> Self {
        Piece {
            header: Header::new(run::<F, R>),
            body: UnsafeCell::new(ManuallyDrop::new(body)),
            result: UnsafeCell::new(None),
        }
    }

    /// What a taker is told. The piece may not move from now on.
    #[inline]
    pub(crate) fn header(&self) -> NonNull<Header> {
        NonNull::from(self).cast()
    }

    /// What a taker knows of it.
    pub(crate) fn known(&self) -> &Header {
        &self.header
    }

    /// Moves the work out.
    ///
    /// # Safety
    ///
    /// The piece is the caller's, and this is called once.
    #[inline]
    pub(crate) unsafe fn body(&self) -> F {
        // SAFETY: the caller's promise.
        unsafe { ManuallyDrop::take(&mut *self.body.get()) }
    }

    /// Waits until the taker has run it, and returns its result; `None`: the taker's thread was ended by pthread_exit(3) or a
    /// cancellation.
    ///
    /// # Safety
    ///
    /// It was taken, and this is called once.
    #[cold]
    pub(crate) unsafe fn join(&self) -> Option<std::thread::Result<R>> {
        self.header.wait();
        // SAFETY: the taker does not use it any more.
        unsafe { (*self.result.get()).take() }
    }
}

/// # Safety
///
/// As [`Header::run`], for a piece of this type.
unsafe fn run<F: FnOnce() -> R, R>(piece: NonNull<Header>) {
    // SAFETY: the caller's promise: it is there until it has ended.
    let piece = unsafe { &*piece.cast::<Piece<F, R>>().as_ptr() };
    // SAFETY: the caller has taken it.
    let body = unsafe { piece.body() };
    let result = catch_unwind(AssertUnwindSafe(body));
    // SAFETY: as above; the forking thread does not look before the end.
    unsafe { *piece.result.get() = Some(result) };
}
