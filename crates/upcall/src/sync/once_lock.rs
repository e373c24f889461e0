//! A value that is written once.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::Once;

/// A value that is written once, by whoever comes first, and read from then on. As [`std::sync::OnceLock`].
///
/// ```
/// use upcall::sync::OnceLock;
///
/// static NAME: OnceLock<String> = OnceLock::new();
/// assert_eq!(NAME.get(), None);
/// assert_eq!(NAME.get_or_init(|| "first".into()), "first");
/// assert_eq!(NAME.set("second".into()), Err("second".into()));
/// ```
pub struct OnceLock<T> {
    /// Completed: the value is there.
    once: Once,
    value: UnsafeCell<MaybeUninit<T>>,
    /// It owns the value.
    owns: PhantomData<T>,
}

// SAFETY: the value moves along.
unsafe impl<T: Send> Send for OnceLock<T> {}
// SAFETY: threads that share it share the value, and one may write it that another one drops.
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}

impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    constant! {
        /// No value yet.
        #[inline]
        #[must_use]
        pub const fn new() -> Self {
            OnceLock {
                once: Once::new(),
                value: UnsafeCell::new(MaybeUninit::uninit()),
                owns: PhantomData,
            }
        }
    }

    /// The value if it is there.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: it is there.
        self.once
            .is_completed()
            .then(|| unsafe { self.get_unchecked() })
    }

    /// The value if it is there, to change it.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: it is there, and borrowed as a whole.
        self.once
            .is_completed()
            .then(|| unsafe { self.value.get_mut().assume_init_mut() })
    }

    /// # Safety
    ///
    /// The value is there.
    #[inline]
    unsafe fn get_unchecked(&self) -> &T {
        debug_assert!(self.once.is_completed());
        // SAFETY: it is there, as the caller says, and nobody writes it any more.
        unsafe { (*self.value.get()).assume_init_ref() }
    }

    /// Waits until somebody has written the value.
    #[inline]
    pub fn wait(&self) -> &T {
        self.once.wait_force();
        // SAFETY: the wait is over.
        unsafe { self.get_unchecked() }
    }

    /// Writes the value if there is none; waits for somebody who does so at the moment.
    ///
    /// # Errors
    ///
    /// There is one already; the given one comes back.
    #[inline]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// The value; where there is none, `f` makes it, once. Others wait meanwhile.
    ///
    /// # Panics
    ///
    /// If `f` does; there is no value then, and another call may make one. A call from within `f` waits for ever.
    #[inline]
    pub fn get_or_init<F: FnOnce() -> T>(&self, f: F) -> &T {
        // An attempt that has panicked left nothing behind.
        self.once.call_once_force(|_| {
            let value = f();
            // SAFETY: one thread at a time is here, and nobody reads before the end.
            unsafe { (*self.value.get()).write(value) };
        });
        // SAFETY: the call is completed.
        unsafe { self.get_unchecked() }
    }

    /// The value if it was there.
    #[inline]
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// The value if it was there; there is none then.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_completed() {
            return None;
        }
        self.once = Once::new();
        // SAFETY: it was there, and no other reads of it follow, for now there is none.
        Some(unsafe { self.value.get_mut().assume_init_read() })
    }
}

impl<T> Drop for OnceLock<T> {
    #[inline]
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for OnceLock<T> {
    #[inline]
    fn default() -> Self {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let cell = OnceLock::new();
        let set = cell.set(value);
        debug_assert!(set.is_ok());
        cell
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        self.get().cloned().map_or_else(Self::new, Self::from)
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => tuple.field(value),
            None => tuple.field(&format_args!("<uninit>")),
        };
        tuple.finish()
    }
}
