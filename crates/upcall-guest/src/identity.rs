//! The ids of threads: numbers beyond any kernel thread's, and who they belong to.
//!
//! libc keeps a thread's id in its control block and in mutexes (30 bits), the program passes it to
//! tgkill(2) and friends. Kernel ids end at 2^22, so ids from 2^28 on cannot be confused with one.
//! The first thread keeps the process's id. Approach rejected: the id of the activation, which
//! changes whenever the thread migrates.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use upcall_core::Slot;
use upcall_linux::{Runtime, Thread, sys};

/// The first id of a user-level thread.
pub const FIRST: i32 = 1 << 28;
const MOST: usize = 1 << 22;

/// Threads by id.
pub struct Identities {
    table: AtomicPtr<Slot<Thread>>,
    /// How many ids were tried; it does not come round, or [`Identities::each`] would stop short.
    next: AtomicU64,
    first: Slot<Thread>,
}

impl Identities {
    /// No threads.
    pub const fn new() -> Self {
        Identities {
            table: AtomicPtr::new(core::ptr::null_mut()),
            next: AtomicU64::new(0),
            first: Slot::empty(),
        }
    }

    fn table(&self) -> Option<&'static [Slot<Thread>]> {
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: null, or MOST slots mapped for ever.
        (!table.is_null()).then(|| unsafe { core::slice::from_raw_parts(table, MOST) })
    }

    /// Notes the thread that is there when the runtime starts.
    pub fn adopt_first(&self, thread: &'static Thread) {
        self.first.set(Some(thread), Ordering::Release);
    }

    /// The first thread, while it lives.
    pub fn first(&self) -> Option<&'static Thread> {
        self.first.get(Ordering::Acquire)
    }

    /// The child of a fork knows nobody.
    pub fn forget(&self) {
        self.first.set(None, Ordering::Relaxed);
        self.table.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Gives a new thread an id. Inside the runtime. `None` when memory or ids are exhausted.
    pub fn assign(&self, runtime: &'static Runtime, thread: &'static Thread) -> Option<i32> {
        if self.table().is_none() {
            let memory = upcall_core::Kernel::map(runtime.kernel(), MOST * size_of::<usize>());
            let memory = memory.ok()?.as_ptr().cast::<Slot<Thread>>();
            // Somebody else may have been first; then this mapping stays unused.
            let _ = self.table.compare_exchange(
                core::ptr::null_mut(),
                memory,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
        let table = self.table()?;
        for _ in 0..MOST {
            let index = self.next.fetch_add(1, Ordering::Relaxed) as usize % MOST;
            if table[index].replace_if(None, Some(thread)) {
                let id = FIRST + index as i32;
                thread.kernel.tid.store(id, Ordering::Relaxed);
                return Some(id);
            }
        }
        None
    }

    /// Takes a thread's id back.
    pub fn release(&self, thread: &'static Thread) {
        let id = thread.kernel.tid.load(Ordering::Relaxed);
        if id >= FIRST {
            if let Some(table) = self.table() {
                table[(id - FIRST) as usize].set(None, Ordering::Release);
            }
        } else {
            self.first.set(None, Ordering::Release);
        }
    }

    /// The thread with that id.
    pub fn find(&self, id: i32) -> Option<&'static Thread> {
        if id < FIRST {
            return self
                .first()
                .filter(|first| first.kernel.tid.load(Ordering::Relaxed) == id);
        }
        self.table()?
            .get((id - FIRST) as usize)?
            .get(Ordering::Acquire)
    }

    /// Calls `visit` with every thread until it says stop (`false`).
    pub fn each(&self, mut visit: impl FnMut(&'static Thread) -> bool) {
        if let Some(first) = self.first()
            && !visit(first)
        {
            return;
        }
        let Some(table) = self.table() else { return };
        let used = (self.next.load(Ordering::Relaxed) as usize).min(MOST);
        for slot in &table[..used] {
            if let Some(thread) = slot.get(Ordering::Acquire)
                && !visit(thread)
            {
                return;
            }
        }
    }
}

impl Default for Identities {
    fn default() -> Self {
        Self::new()
    }
}

/// The id of the calling kernel thread.
pub fn kernel_tid() -> i32 {
    // SAFETY: asks only.
    (unsafe { upcall_linux::sys!(sys::SYS_gettid) }) as i32
}
