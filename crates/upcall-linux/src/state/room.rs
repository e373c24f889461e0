//! Room for what the layer above keeps with a thread.
//!
//! Approach rejected: a type parameter of the backend. Every type and function that names a thread would name it, too.

use core::mem::needs_drop;
use core::sync::atomic::AtomicU64;

const WORDS: usize = 37;

/// Memory of a thread that the layer above gives a type. It holds zeros when the memory of the thread is new, and
/// afterwards what the layer above has put there.
pub struct Room([AtomicU64; WORDS]);

// What is there is found by the room's own offset.
const _: () = assert!(core::mem::offset_of!(Room, 0) == 0);

impl Default for Room {
    fn default() -> Self {
        Room([const { AtomicU64::new(0) }; WORDS])
    }
}

impl Room {
    /// What the layer above keeps there.
    ///
    /// # Safety
    ///
    /// All callers in the process name the same type, and zeros are a value of it.
    #[inline]
    pub unsafe fn of<T: Sync>(&self) -> &T {
        const {
            assert!(size_of::<T>() <= size_of::<Room>() && align_of::<T>() <= align_of::<Room>());
            assert!(!needs_drop::<T>());
        }
        // SAFETY: large enough and aligned, as asserted. It holds zeros or what a caller has put there, and any number of
        // threads may share the type.
        unsafe { &*self.0.as_ptr().cast() }
    }
}
