//! A place for one reference to an object that lives as long as the runtime.
//!
//! Threads, activations and virtual processors come from memory that is never given back while
//! the runtime exists (see `memory`), so a reference to one is `&'static` and links between them
//! are safe code. Approach rejected: raw pointers in the structures, which would spread `unsafe`
//! over every list operation.

use crate::sync::{AtomicPtr, Ordering};
use core::marker::PhantomData;
use core::ptr;

/// Holds an `Option<&'static T>` that several kernel threads may read and write.
pub struct Slot<T: 'static>(AtomicPtr<T>, PhantomData<&'static T>);

impl<T: 'static> Slot<T> {
    /// A slot that holds nothing.
    pub const fn empty() -> Self {
        Slot(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }

    /// What the slot holds.
    #[inline]
    pub fn get(&self, order: Ordering) -> Option<&'static T> {
        let pointer = self.0.load(order);
        // SAFETY: only `set` and `replace_if` store here, and they store null or a `&'static T`.
        unsafe { pointer.as_ref() }
    }

    /// Stores `value`.
    #[inline]
    pub fn set(&self, value: Option<&'static T>, order: Ordering) {
        self.0.store(address(value), order);
    }

    /// Stores `new` if the slot holds `old`. Returns true if it did. SeqCst on success.
    #[inline]
    pub fn replace_if(&self, old: Option<&'static T>, new: Option<&'static T>) -> bool {
        self.0
            .compare_exchange(
                address(old),
                address(new),
                Ordering::SeqCst,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Returns true if the slot holds exactly this object.
    #[inline]
    pub fn holds(&self, object: &'static T, order: Ordering) -> bool {
        ptr::eq(self.0.load(order), object)
    }
}

impl<T: 'static> Default for Slot<T> {
    fn default() -> Self {
        Slot::empty()
    }
}

fn address<T>(value: Option<&'static T>) -> *mut T {
    value.map_or(ptr::null_mut(), |object| ptr::from_ref(object).cast_mut())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_holds_what_was_put_there() {
        static ONE: u8 = 1;
        static TWO: u8 = 2;
        let slot: Slot<u8> = Slot::empty();
        assert!(slot.get(Ordering::Relaxed).is_none());
        assert!(!slot.replace_if(Some(&ONE), Some(&TWO)));
        assert!(slot.replace_if(None, Some(&ONE)));
        assert!(slot.holds(&ONE, Ordering::Relaxed) && !slot.holds(&TWO, Ordering::Relaxed));
        slot.set(Some(&TWO), Ordering::Relaxed);
        assert!(core::ptr::eq(slot.get(Ordering::Relaxed).unwrap(), &TWO));
        assert!(slot.replace_if(Some(&TWO), None));
        assert!(slot.get(Ordering::Relaxed).is_none());
    }
}
