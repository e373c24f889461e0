//! What a thread is to C: `struct upcall_thread`.
//!
//! The record of a thread in a shell is in the shell's room, and stays there as long as the thread's handle. Any other
//! record is on the heap. That of a thread that libc made for this library has two owners, the thread and its handle.
//! That of a thread that was made elsewhere, and asked for its own handle, is owned by the thread.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use upcall::raw::{self, Deadline};

/// What runs in a thread. An exception, or the unwinding of pthread_exit(3), may leave it all the same: it goes through
/// frames with nothing to clean up, which have unwind tables. (Rust's own word for it, "C-unwind", puts a stop there
/// where panics abort.)
pub type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// Whose thread it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In a shell.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Shell,
    /// Made by pthread_create(3), here.
    Libc,
    /// Made elsewhere, and given a record when it asked for it.
    Adopted,
}

/// What is to be done for a thread that not every thread wants.
pub(crate) mod extra {
    /// It has a name of its own.
    pub const NAMED: u32 = 1;
    /// It waits for its priority before it begins.
    pub const GATED: u32 = 2;
}

/// Which thread has the right to join it.
mod right {
    pub const HANDLE: u32 = 0;
    /// Somebody uses it.
    pub const USED: u32 = 1;
}

/// UPCALL_CANCELED.
const CANCELED: usize = usize::MAX;

const EMPTY: u32 = 0;
const NOTIFIED: u32 = 1;
const PARKED: u32 = 2;

/// The gate of a thread that waits for its priority.
const SHUT: u32 = 0;
const OPEN: u32 = 1;
const CALLED_OFF: u32 = 2;

/// See the module's text.
#[repr(C, align(16))]
pub struct Record {
    pub(crate) kind: Kind,
    right: AtomicU32,
    token: AtomicU32,
    extra: AtomicU32,
    start: Start,
    argument: *mut c_void,
    result: AtomicUsize,
    /// Of a thread that is not in a shell: pthread_self(3), once it is known.
    identity: AtomicUsize,
    owners: AtomicU32,
    gate: AtomicU32,
    name: [AtomicU64; 2],
    /// What the system has called it before it had a name.
    name_before: UnsafeCell<[u8; 16]>,
}

// SAFETY: `start`, `argument` and `name_before` are the thread's.
unsafe impl Sync for Record {}

thread_local! {
    /// The calling thread's record, where it is not in a shell.
    static OWN: Cell<*const Record> = const { Cell::new(ptr::null()) };
    /// Frees it when the thread ends.
    static OWNED: Owned = const { Owned(Cell::new(ptr::null())) };
}

struct Owned(Cell<*const Record>);

impl Drop for Owned {
    fn drop(&mut self) {
        OWN.set(ptr::null());
        // SAFETY: null, or the record that this thread owns.
        unsafe { release(self.0.get()) };
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
    ptr::null_mut()
}

impl Record {
    pub(crate) fn new(kind: Kind, start: Start, argument: *mut c_void, extra: u32) -> Self {
        Record {
            kind,
            right: AtomicU32::new(right::HANDLE),
            token: AtomicU32::new(EMPTY),
            extra: AtomicU32::new(extra),
            start,
            argument,
            result: AtomicUsize::new(CANCELED),
            identity: AtomicUsize::new(0),
            owners: AtomicU32::new(1),
            gate: AtomicU32::new(SHUT),
            name: [const { AtomicU64::new(0) }; 2],
            name_before: UnsafeCell::new([0; 16]),
        }
    }

    /// On the heap, with so many owners.
    pub(crate) fn boxed(self, owners: u32) -> Option<&'static Record> {
        self.owners.store(owners, Ordering::Relaxed);
        // SAFETY: a size that is not zero.
        let memory = unsafe { alloc(Layout::new::<Record>()) }.cast::<Record>();
        if memory.is_null() {
            return None;
        }
        // SAFETY: room for it.
        unsafe {
            memory.write(self);
            memory.as_ref()
        }
    }

    /// Runs it, in the thread.
    #[inline]
    pub(crate) unsafe fn run(&self) {
        if self.extra.load(Ordering::Relaxed) != 0 && !self.begin() {
            return;
        }
        // SAFETY: what upcall_thread_create was given.
        let result = unsafe { (self.start)(self.argument) };
        self.set_result(result);
        if self.extra.load(Ordering::Relaxed) & extra::NAMED != 0 {
            self.give_name_back();
        }
    }

    /// Does what is wanted beside. Returns true if it shall run.
    #[cold]
    fn begin(&self) -> bool {
        let wanted = self.extra.load(Ordering::Relaxed);
        if wanted & extra::GATED != 0 {
            loop {
                // Acquire: pairs with the Release in `open`.
                match self.gate.load(Ordering::Acquire) {
                    SHUT => raw::wait(&self.gate, SHUT, None),
                    OPEN => break,
                    _ => return false,
                };
            }
        }
        if wanted & extra::NAMED != 0 {
            self.show_name(true);
        }
        true
    }

    /// A thread that waits for its priority begins, or never will.
    pub(crate) fn open(&self, begins: bool) {
        let to = if begins { OPEN } else { CALLED_OFF };
        // Release: pairs with the Acquire in `begin`.
        self.gate.store(to, Ordering::Release);
        raw::wake(&self.gate, 1);
    }

    pub(crate) fn set_result(&self, result: *mut c_void) {
        // Relaxed: the thread that joins sees what this thread did.
        self.result
            .store(result.expose_provenance(), Ordering::Relaxed);
    }

    /// What the thread, which has ended, has given.
    pub(crate) fn result(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.result.load(Ordering::Relaxed))
    }

    /// Takes the right to join the thread; returns true if it was there. Not from two threads at the same moment: they
    /// would be told at the next.
    pub(crate) fn take_right(&self) -> bool {
        let is_there =
            self.kind != Kind::Adopted && self.right.load(Ordering::Relaxed) == right::HANDLE;
        self.right.store(right::USED, Ordering::Relaxed);
        is_there
    }

    /// The right was not used.
    pub(crate) fn return_right(&self) {
        self.right.store(right::HANDLE, Ordering::Relaxed);
    }

    pub(crate) fn identity(&self) -> libc::pthread_t {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if self.kind == Kind::Shell {
            let room = ptr::from_ref(self).cast_mut().cast();
            // SAFETY: the record is in the room; the handle is not dropped.
            let handle = unsafe { upcall_guest::shell::Handle::of_room(room) };
            let identity = handle.identity();
            std::mem::forget(handle);
            return identity;
        }
        self.identity.load(Ordering::Relaxed) as libc::pthread_t
    }

    pub(crate) fn set_identity(&self, identity: libc::pthread_t) {
        self.identity.store(identity as usize, Ordering::Relaxed);
    }

    /// Waits for `unpark`; returns true if the deadline did not pass.
    pub(crate) fn park(&self, deadline: Option<Deadline>) -> bool {
        // Acquire: what was done before the `unpark` is seen after this.
        let changed = |from, to| {
            self.token
                .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        if changed(NOTIFIED, EMPTY) {
            return true;
        }
        let mut in_time = true;
        if changed(EMPTY, PARKED) {
            while in_time && self.token.load(Ordering::Relaxed) == PARKED {
                in_time = raw::wait(&self.token, PARKED, deadline);
            }
        }
        // Acquire: as above.
        self.token.swap(EMPTY, Ordering::Acquire) == NOTIFIED || in_time
    }

    pub(crate) fn unpark(&self) {
        // Release: pairs with the Acquire in `park`.
        if self.token.swap(NOTIFIED, Ordering::Release) == PARKED {
            raw::wake(&self.token, 1);
        }
    }

    /// Its name, with zeros at the end.
    pub(crate) fn name(&self) -> [u8; 16] {
        let mut name = [0; 16];
        if self.extra.load(Ordering::Acquire) & extra::NAMED != 0 {
            for (half, word) in name.chunks_exact_mut(8).zip(&self.name) {
                half.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
        }
        name
    }

    /// Notes a name: a string of C's, or as much as is kept of it.
    ///
    /// # Safety
    ///
    /// It is a string of C's.
    pub(crate) unsafe fn note_name(&self, name: *const libc::c_char) {
        let mut bytes = [0u8; 16];
        // SAFETY: the caller's promise.
        let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes();
        let kept = name.len().min(15);
        bytes[..kept].copy_from_slice(&name[..kept]);
        for (word, half) in self.name.iter().zip(bytes.chunks_exact(8)) {
            let half = half.try_into().unwrap_or_default();
            word.store(u64::from_ne_bytes(half), Ordering::Relaxed);
        }
    }

    /// The calling thread's own record has another name: so has the thread for the system.
    pub(crate) fn rename(&self) {
        // Release: pairs with the Acquire in `name`.
        let before = self.extra.fetch_or(extra::NAMED, Ordering::Release);
        self.show_name(before & extra::NAMED == 0);
    }

    fn show_name(&self, first: bool) {
        let name = self.name();
        // SAFETY: the calling thread; sixteen bytes, which are the thread's.
        unsafe {
            let own = libc::pthread_self();
            let before = self.name_before.get();
            if first {
                libc::pthread_getname_np(own, before.cast(), size_of_val(&*before));
            }
            libc::pthread_setname_np(own, name.as_ptr().cast());
        }
    }

    #[cold]
    fn give_name_back(&self) {
        // SAFETY: the calling thread; a name that it has had.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), self.name_before.get().cast()) };
    }
}

/// One owner less.
///
/// # Safety
///
/// Null, or a record on the heap that the caller owns.
pub(crate) unsafe fn release(record: *const Record) {
    // SAFETY: the caller's promise.
    let Some(owned) = (unsafe { record.as_ref() }) else {
        return;
    };
    // AcqRel: the last one sees what the others did.
    if owned.owners.fetch_sub(1, Ordering::AcqRel) == 1 {
        // SAFETY: as `boxed` asked for it; there is no other owner.
        unsafe { dealloc(record.cast_mut().cast(), Layout::new::<Record>()) };
    }
}

/// The calling thread runs this record, which it owns.
pub(crate) fn adopt(record: &'static Record) {
    // SAFETY: asks only.
    record.set_identity(unsafe { libc::pthread_self() });
    OWN.set(record);
    // Where the thread's storage is being destroyed the record stays.
    let _ = OWNED.try_with(|owned| owned.0.set(record));
}

/// The calling thread's record, if it has one.
#[inline]
pub(crate) fn own() -> Option<&'static Record> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if let Some(room) = upcall_guest::shell::own_room() {
        // SAFETY: all shells of this library's run threads of this library's: the record is there while they do.
        return unsafe { room.cast::<Record>().as_ref() };
    }
    // SAFETY: null, or there as long as the thread.
    unsafe { OWN.get().as_ref() }
}

/// The calling thread's record, made if need be.
pub(crate) fn current() -> Option<&'static Record> {
    own().or_else(|| {
        let record = Record::new(Kind::Adopted, nothing, ptr::null_mut(), 0).boxed(1)?;
        adopt(record);
        Some(record)
    })
}
