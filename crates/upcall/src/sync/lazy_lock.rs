//! A value that is made when it is first wanted.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::Once;

/// A value that is made when it is first wanted, by whoever wants it first; the others wait meanwhile. As
/// [`std::sync::LazyLock`].
///
/// ```
/// use upcall::sync::LazyLock;
///
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..10).map(|n| n * n).collect());
/// assert_eq!(SQUARES[9], 81);
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    /// Completed: it is made.
    once: Once,
    value: UnsafeCell<Value<T, F>>,
}

enum Value<T, F> {
    Wanting(F),
    Made(T),
    /// Being made, or who made it has panicked.
    None,
}

// SAFETY: threads that share it share the value; the function goes to whichever calls it.
unsafe impl<T: Sync + Send, F: Send> Sync for LazyLock<T, F> {}

impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    constant! {
        /// A value that `f` will make.
        #[inline]
        pub const fn new(f: F) -> Self {
            LazyLock {
                once: Once::new(),
                value: UnsafeCell::new(Value::Wanting(f)),
            }
        }
    }

    /// The value, made now if it was not yet.
    ///
    /// # Panics
    ///
    /// If the function does, now or earlier.
    #[inline]
    #[track_caller]
    pub fn force(this: &Self) -> &T {
        this.once.call_once(|| {
            // SAFETY: one thread at a time is here, once, and nobody reads before the end.
            let value = unsafe { &mut *this.value.get() };
            if let Value::Wanting(f) = std::mem::replace(value, Value::None) {
                *value = Value::Made(f());
            }
        });
        LazyLock::get(this).expect("completed with a value")
    }

    /// The value, made now if it was not yet, to change it.
    ///
    /// # Panics
    ///
    /// As [`LazyLock::force`].
    #[track_caller]
    pub fn force_mut(this: &mut Self) -> &mut T {
        LazyLock::force(this);
        LazyLock::get_mut(this).expect("completed with a value")
    }
}

impl<T, F> LazyLock<T, F> {
    /// The value if it was made.
    #[inline]
    pub fn get(this: &Self) -> Option<&T> {
        if !this.once.is_completed() {
            return None;
        }
        // SAFETY: nobody writes after the end.
        match unsafe { &*this.value.get() } {
            Value::Made(value) => Some(value),
            _ => None,
        }
    }

    /// The value if it was made, to change it.
    #[inline]
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        match this.value.get_mut() {
            Value::Made(value) => Some(value),
            _ => None,
        }
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    /// The value, made now if it was not yet.
    ///
    /// # Panics
    ///
    /// As [`LazyLock::force`].
    #[inline]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("LazyLock");
        match LazyLock::get(self) {
            Some(value) => tuple.field(value),
            None => tuple.field(&format_args!("<uninit>")),
        };
        tuple.finish()
    }
}
