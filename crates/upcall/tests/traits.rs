//! What the types of `upcall::sync` are beside themselves: exactly what those of `std::sync` are.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;
use std::sync as theirs;

use upcall::sync as ours;

/// Whether a type is something: the method of the type itself goes before that of the trait.
macro_rules! is {
    ($type:ty, $property:path) => {{
        struct Is<T>(PhantomData<T>);
        #[allow(dead_code)]
        trait Otherwise {
            fn answer(&self) -> bool {
                false
            }
        }
        impl<T> Otherwise for Is<T> {}
        impl<T: $property> Is<T> {
            #[allow(dead_code)]
            fn answer(&self) -> bool {
                true
            }
        }
        Is::<$type>(PhantomData).answer()
    }};
}

/// Compares a type of ours with one of theirs.
macro_rules! alike {
    ($($path:ident)::+ $(with $($argument:ty),+)?) => {
        alike!(
            ours::$($path)::+ $(<$($argument),+>)?,
            theirs::$($path)::+ $(<$($argument),+>)?;
            Send, Sync, Unpin, UnwindSafe, RefUnwindSafe, std::fmt::Debug, std::fmt::Display, Default, Clone, Copy,
            PartialEq, Eq
        );
    };
    ($ours:ty, $theirs:ty; $($property:path),*) => {
        $(alike!(is $ours, $theirs, $property);)*
    };
    (is $ours:ty, $theirs:ty, $property:path) => {
        assert_eq!(
            is!($ours, $property),
            is!($theirs, $property),
            "{}: {}",
            stringify!($ours),
            stringify!($property)
        );
    };
}

/// With a value of each kind: shared and sent; sent only; neither; not to be looked at behind a panic.
macro_rules! alike_with_all {
    ($($($path:ident)::+;)*) => {
        $(
            alike!($($path)::+ with u32);
            alike!($($path)::+ with Cell<u32>);
            alike!($($path)::+ with RefCell<u32>);
            alike!($($path)::+ with Rc<u32>);
            alike!($($path)::+ with &'static mut u32);
            alike!($($path)::+ with *const u32);
            // Shared, but freed where it was taken.
            alike!($($path)::+ with theirs::MutexGuard<'static, u32>);
        )*
    };
}

#[test]
fn what_std_has_is_alike() {
    alike_with_all! {
        Mutex; MutexGuard; RwLock; RwLockReadGuard; RwLockWriteGuard;
    }
    alike!(Condvar);
    alike!(Barrier);
    alike!(BarrierWaitResult);
    alike!(WaitTimeoutResult);
}

/// That the question tells one from the other.
#[test]
fn the_comparison_can_fail() {
    assert!(is!(u32, Send) && is!(ours::Mutex<u32>, Sync));
    assert!(!is!(Rc<u32>, Send) && !is!(ours::MutexGuard<'static, u32>, Send));
}

/// Made at compile time.
#[allow(dead_code)]
mod constants {
    use super::ours::*;

    static MUTEX: Mutex<u32> = Mutex::new(1);
    static LOCK: RwLock<u32> = RwLock::new(1);
    static CONDVAR: Condvar = Condvar::new();
    static BARRIER: Barrier = Barrier::new(2);
    static PERMITS: Semaphore = Semaphore::new(1);
}

/// Of types without a size known beforehand.
#[test]
fn locks_hold_what_has_no_size() {
    let mutex: Box<ours::Mutex<[u32]>> = Box::new(ours::Mutex::new([1, 2]));
    mutex.lock().unwrap()[0] = 3;
    assert_eq!(*mutex.lock().unwrap(), [3, 2]);
    let lock: Box<ours::RwLock<dyn std::fmt::Display>> = Box::new(ours::RwLock::new(7));
    assert_eq!(lock.read().unwrap().to_string(), "7");
}
