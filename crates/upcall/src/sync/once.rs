//! What is done once (pthread_once(3)).

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::Ordering;

use crate::futex::{self, AtomicU32};

/// Nobody has begun.
const NEW: u32 = 0;
/// Who began has panicked.
const POISONED: u32 = 1;
const RUNNING: u32 = 2;
const DONE: u32 = 3;
/// Beside one of the first three: somebody may wait for the end.
const AWAITED: u32 = 4;

/// Something that is done once, by whoever comes first; the others wait for it. As [`std::sync::Once`].
///
/// ```
/// use upcall::sync::Once;
///
/// static ONCE: Once = Once::new();
/// let mut done = 0;
/// ONCE.call_once(|| done += 1);
/// ONCE.call_once(|| done += 1);
/// assert_eq!(done, 1);
/// ```
pub struct Once {
    state: AtomicU32,
}

impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

/// What [`Once::call_once_force`] tells of the earlier attempts.
///
/// ```
/// use upcall::sync::Once;
///
/// let once = Once::new();
/// assert!(std::panic::catch_unwind(|| once.call_once(|| panic!("in vain"))).is_err());
/// once.call_once_force(|state| assert!(state.is_poisoned()));
/// assert!(once.is_completed());
/// ```
pub struct OnceState {
    poisoned: bool,
    /// For the thread that calls, as in std.
    not_sync: PhantomData<Cell<()>>,
}

/// Whoever does it; with its end the others go on.
struct Attempt<'a> {
    once: &'a Once,
    after: u32,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquires of all others.
        if self.once.state.swap(self.after, Ordering::Release) & AWAITED != 0 {
            futex::wake(&self.once.state, u32::MAX);
        }
    }
}

impl Once {
    constant! {
        /// Nothing was done yet.
        #[inline]
        #[must_use]
        #[allow(clippy::new_without_default)] // As in std.
        pub const fn new() -> Self {
            Once {
                state: AtomicU32::new(NEW),
            }
        }
    }

    /// Calls `f` if no call was completed before; waits for one that runs. What it did happens before all
    /// returns from here.
    ///
    /// # Panics
    ///
    /// If `f` does, which poisons this; if an earlier call has panicked. A call from within `f` waits for ever.
    #[inline]
    #[track_caller]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        if !self.is_completed() {
            let mut f = Some(f);
            self.call(false, &mut |_| take(&mut f)());
        }
    }

    /// As [`Once::call_once`], but an earlier call that has panicked is only told of.
    ///
    /// # Panics
    ///
    /// If `f` does.
    #[inline]
    pub fn call_once_force<F: FnOnce(&OnceState)>(&self, f: F) {
        if !self.is_completed() {
            let mut f = Some(f);
            self.call(true, &mut |state| take(&mut f)(state));
        }
    }

    /// Whether a call was completed; what it did is seen then.
    #[inline]
    pub fn is_completed(&self) -> bool {
        // Acquire: pairs with the Release at the end of the attempt.
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Waits until a call is completed.
    ///
    /// # Panics
    ///
    /// A call has panicked.
    #[track_caller]
    pub fn wait(&self) {
        if !self.is_completed() {
            self.wait_until_done(false);
        }
    }

    /// Waits until a call is completed, whatever panicked before.
    pub fn wait_force(&self) {
        if !self.is_completed() {
            self.wait_until_done(true);
        }
    }

    #[cold]
    #[track_caller]
    fn call(&self, force: bool, f: &mut dyn FnMut(&OnceState)) {
        // Acquire: pairs with the Release at the end of an attempt.
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            match state & !AWAITED {
                DONE => return,
                RUNNING => state = self.wait_from(state),
                POISONED if !force => poisoned(),
                _ => match self.begin(state) {
                    Ok(attempt) => {
                        attempt.run(state & !AWAITED == POISONED, f);
                        return;
                    }
                    Err(now) => state = now,
                },
            }
        }
    }

    fn begin(&self, state: u32) -> Result<Attempt<'_>, u32> {
        // Acquire: pairs with the Release at the end of an attempt.
        self.state.compare_exchange(
            state,
            RUNNING | state & AWAITED,
            Ordering::Acquire,
            Ordering::Acquire,
        )?;
        Ok(Attempt {
            once: self,
            after: POISONED,
        })
    }

    #[cold]
    #[track_caller]
    fn wait_until_done(&self, force: bool) {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            match state & !AWAITED {
                DONE => return,
                POISONED if !force => poisoned(),
                _ => state = self.wait_from(state),
            }
        }
    }

    /// Waits, if the state is still this, for the end of an attempt. Returns what it is then.
    fn wait_from(&self, state: u32) -> u32 {
        let awaited = state | AWAITED;
        // Acquire: pairs with the Release at the end of an attempt.
        if state != awaited
            && let Err(now) =
                self.state
                    .compare_exchange(state, awaited, Ordering::Relaxed, Ordering::Acquire)
        {
            return now;
        }
        futex::wait(&self.state, awaited, None);
        self.state.load(Ordering::Acquire)
    }
}

impl Attempt<'_> {
    fn run(mut self, poisoned: bool, f: &mut dyn FnMut(&OnceState)) {
        f(&OnceState {
            poisoned,
            not_sync: PhantomData,
        });
        self.after = DONE;
    }
}

/// The function: it is called once.
fn take<F>(f: &mut Option<F>) -> F {
    f.take().expect("called once")
}

#[cold]
#[track_caller]
fn poisoned() -> ! {
    panic!("Once instance has previously been poisoned");
}

impl OnceState {
    /// Whether an earlier call has panicked.
    #[inline]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState")
            .field("poisoned", &self.is_poisoned())
            .finish()
    }
}
