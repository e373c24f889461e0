//! Objects that live as long as the runtime, from pages that the kernel gives.
//!
//! A slab never returns memory: threads and activations are recycled, and a stale reference to
//! one still points at an object of its type. That is what lets wake-ups race with exits safely.

use core::mem::{align_of, size_of};
use core::ptr::NonNull;

use crate::list::{Linked, Stack};
use crate::lock::SpinLock;
use crate::machine::{Errno, Machine};

/// Bytes asked from the kernel at a time.
const CHUNK: usize = 1 << 18;

/// An object that a slab can hold.
pub(crate) trait Recycled: Linked {
    /// A new object in its initial state.
    fn initial() -> Self;
    /// Memory for more of them.
    fn map<K: Machine>(kernel: &K, length: usize) -> Result<NonNull<u8>, Errno> {
        kernel.map(length)
    }
}

struct Free<T: 'static> {
    list: Stack<T>,
    next: usize,
    end: usize,
}

/// A pool of recycled objects.
pub(crate) struct Slab<T: 'static>(SpinLock<Free<T>>);

impl<T: Recycled> Slab<T> {
    pub(crate) const fn new() -> Self {
        Slab(SpinLock::new(Free {
            list: Stack::new(),
            next: 0,
            end: 0,
        }))
    }

    /// An object: a recycled one as it was left, or a new one. Says which (`true`: new).
    ///
    /// # Errors
    ///
    /// What [`Machine::map`] reports when memory is exhausted.
    pub(crate) fn take<K: Machine>(&self, kernel: &K) -> Result<(&'static T, bool), Errno> {
        let mut free = self.0.lock(kernel);
        if let Some(object) = free.list.pop() {
            return Ok((object, false));
        }
        if free.end - free.next < size_of::<T>() {
            let chunk = T::map(kernel, CHUNK)?.as_ptr() as usize;
            free.next = chunk.next_multiple_of(align_of::<T>());
            free.end = chunk + CHUNK;
        }
        let place = free.next as *mut T;
        free.next += size_of::<T>();
        // SAFETY: the place lies inside a chunk that is mapped for ever, is aligned, and was
        // handed out to nobody before.
        let object = unsafe {
            place.write(T::initial());
            &*place
        };
        Ok((object, true))
    }

    /// Makes a new object at this place, which is the pool's from then on.
    ///
    /// # Safety
    ///
    /// There is room for an object, aligned, mapped for ever, and nobody else uses it.
    pub(crate) unsafe fn place(place: NonNull<u8>) -> &'static T {
        let place = place.cast::<T>();
        // SAFETY: the caller's promise.
        unsafe {
            place.write(T::initial());
            place.as_ref()
        }
    }

    /// Gives an object back. The caller keeps no right to it.
    pub(crate) fn give<K: Machine>(&self, kernel: &K, object: &'static T) {
        self.0.lock(kernel).list.push(object);
    }
}
