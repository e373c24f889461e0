//! The records of bound threads: each has a kernel thread of its own (`thread::bound`).

use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering,
};

use upcall_linux::{Activation, Thread, base};

use crate::ground::attributes::GuestAttributes;
use crate::ground::caller;
use crate::ground::identity::kernel_tid;

/// One such kernel thread's record. It lies at the start of its memory, and is never unmapped.
#[repr(C)]
pub struct Bound {
    /// Where the pseudo-register leads: see [`caller`].
    pub(crate) mark: AtomicPtr<Activation>,
    pub(crate) state: AtomicU32,
    /// The kernel thread's id, which the kernel clears when it is gone.
    pub(crate) tid: AtomicI32,
    pub(crate) thread: AtomicPtr<Thread>,
    pub(crate) call: [AtomicU64; 7],
    pub(crate) answer: AtomicI64,
    pub(crate) next: AtomicPtr<Bound>,
    /// The one that was made before it.
    pub(crate) before: AtomicPtr<Bound>,
    /// True if the kernel thread has a table of descriptors of its own.
    pub(crate) has_descriptors: AtomicBool,
}

/// The last one that was made. They are never unmapped.
pub(crate) static LAST: AtomicPtr<Bound> = AtomicPtr::new(core::ptr::null_mut());

impl Bound {
    /// Returns the thread that it carries, or is about to.
    pub fn thread(&self) -> Option<&'static Thread> {
        // SAFETY: null, or a thread, whose memory is there for ever.
        unsafe { self.thread.load(Ordering::Relaxed).as_ref() }
    }

    /// Makes the pseudo-register lead to its mark.
    pub fn set_mark(&self) {
        // SAFETY: made with the record, and never unmapped.
        base::set(unsafe { self.mark.load(Ordering::Relaxed).as_ref() });
    }
}

/// Returns the calling kernel thread's record, if it carries a thread that is bound to it.
#[inline]
pub fn current() -> Option<&'static Bound> {
    if !base::is_set() {
        return None;
    }
    // SAFETY: the pseudo-register is set; the word is a record's address, or that of none.
    let record = caller::record_of(unsafe { base::current() });
    // SAFETY: records are never unmapped.
    unsafe { (record as *const Bound).as_ref() }
}

/// Returns the thread that the calling kernel thread carries, if that is bound to it.
#[inline]
pub fn current_thread() -> Option<&'static Thread> {
    current()?.thread()
}

/// Returns a thread's record, if it is bound, or about to be.
pub fn of(thread: &'static Thread) -> Option<&'static Bound> {
    let record = thread.guest().bound.load(Ordering::Acquire) as *const Bound;
    // SAFETY: 0, or a record, which is never unmapped.
    unsafe { record.as_ref() }
}

/// Returns the id of the kernel thread to which a thread is bound, or about to be.
pub fn kernel_id(thread: &'static Thread) -> Option<i32> {
    of(thread).map(|record| record.tid.load(Ordering::Relaxed))
}

/// Makes the pseudo-register lead to the mark of the calling kernel thread, if that is a bound thread's. Returns true if it
/// is.
pub fn mark_own() -> bool {
    let own = kernel_tid();
    // SAFETY: null, or a record, which is never unmapped.
    let mut at = unsafe { LAST.load(Ordering::Acquire).as_ref() };
    while let Some(record) = at {
        if record.tid.load(Ordering::Relaxed) == own {
            record.set_mark();
            return true;
        }
        // SAFETY: as above.
        at = unsafe { record.before.load(Ordering::Relaxed).as_ref() };
    }
    false
}
