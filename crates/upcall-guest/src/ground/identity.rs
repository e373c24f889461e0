//! The ids of threads: numbers beyond any kernel thread's, and the threads that have them.
//!
//! libc keeps a thread's id in its control block and in mutexes (30 bits), and the program passes it to tgkill(2) and
//! others. Kernel ids end at 2^22, so ids from 2^28 on cannot be confused with one. The first thread keeps the process's
//! id, and a thread that has an agent ([`agents`](crate::thread::agents)) has the agent's. Approach rejected: the id of the
//! activation, which changes whenever the thread migrates.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use upcall_core::Slot;
use upcall_linux::{Inside, Runtime, Thread, sys};

use crate::ground::attributes::GuestAttributes;

/// The first id of a user-level thread.
pub const FIRST: i32 = 1 << 28;
/// How many places the table has.
pub const MOST: usize = 1 << 22;

/// Threads by id.
pub struct Identities {
    table: AtomicPtr<Slot<Thread>>,
    /// For each id of an agent the number of its thread's place in the table, plus one.
    agents: AtomicPtr<AtomicU32>,
    /// How many ids were tried. It does not wrap around, or [`Identities::each`] would stop too early.
    next: AtomicU64,
    first: Slot<Thread>,
}

impl Identities {
    /// No threads.
    pub const fn new() -> Self {
        Identities {
            table: AtomicPtr::new(core::ptr::null_mut()),
            agents: AtomicPtr::new(core::ptr::null_mut()),
            next: AtomicU64::new(0),
            first: Slot::empty(),
        }
    }

    /// Returns where the address of the first thread is, that of the table, and how many ids were tried. For debuggers.
    pub const fn words(&'static self) -> [*const u8; 3] {
        [
            (&raw const self.first).cast(),
            (&raw const self.table).cast(),
            (&raw const self.next).cast(),
        ]
    }

    fn table(&self) -> Option<&'static [Slot<Thread>]> {
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: null, or MOST slots mapped for ever.
        (!table.is_null()).then(|| unsafe { core::slice::from_raw_parts(table, MOST) })
    }

    /// Returns the word of a kernel thread's id, if threads have agents.
    fn place_of(&self, id: i32) -> Option<&'static AtomicU32> {
        let agents = self.agents.load(Ordering::Acquire);
        if agents.is_null() {
            return None;
        }
        // SAFETY: MOST words mapped for ever.
        unsafe { core::slice::from_raw_parts(agents, MOST) }.get(usize::try_from(id).ok()?)
    }

    /// Notes the thread that is there when the runtime starts.
    pub fn adopt_first(&self, thread: &'static Thread) {
        self.first.set(Some(thread), Ordering::Release);
    }

    /// Returns the first thread, while it lives.
    pub fn first(&self) -> Option<&'static Thread> {
        self.first.get(Ordering::Acquire)
    }

    /// Called in the child of a fork, which has no such threads.
    pub fn forget(&self) {
        self.first.set(None, Ordering::Relaxed);
        self.table.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.agents.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Makes sure that the table at `own` is mapped. Returns `None` if there is no memory.
    fn mapped<T>(own: &AtomicPtr<T>, runtime: &'static Runtime) -> Option<()> {
        if own.load(Ordering::Acquire).is_null() {
            let memory = upcall_core::Machine::map(runtime.kernel(), MOST * size_of::<T>());
            let memory = memory.ok()?.as_ptr().cast::<T>();
            // Another thread may have been first; then this mapping stays unused.
            let _ = own.compare_exchange(
                core::ptr::null_mut(),
                memory,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
        Some(())
    }

    /// Gives a new thread an id: its agent's, if it has one. `None` when memory or ids are
    /// exhausted.
    pub fn assign(
        &self,
        inside: &Inside,
        thread: &'static Thread,
        agent: Option<i32>,
    ) -> Option<i32> {
        let runtime = inside.runtime();
        Self::mapped(&self.table, runtime)?;
        if agent.is_some() {
            Self::mapped(&self.agents, runtime)?;
        }
        let table = self.table()?;
        for _ in 0..MOST {
            let index = self.next.fetch_add(1, Ordering::Relaxed) as usize % MOST;
            if table[index].replace_if(None, Some(thread)) {
                let id = agent.unwrap_or(FIRST + index as i32);
                thread.guest().tid.store(id, Ordering::Relaxed);
                if let Some(place) = self.place_of(id) {
                    // Release: pairs with the Acquire in `index_of`.
                    place.store(index as u32 + 1, Ordering::Release);
                }
                return Some(id);
            }
        }
        None
    }

    /// Takes a thread's id back, if it still has one.
    pub fn release(&self, thread: &'static Thread) {
        let id = thread.guest().tid.load(Ordering::Relaxed);
        if self.first.replace_if(Some(thread), None) {
            return;
        }
        if let (Some(table), Some(index)) = (self.table(), self.index_of(id))
            && table[index].replace_if(Some(thread), None)
            && let Some(place) = self.place_of(id)
        {
            place.store(0, Ordering::Release);
        }
    }

    /// Returns the place in the table of the thread with that id, which is not the first one.
    fn index_of(&self, id: i32) -> Option<usize> {
        if id >= FIRST {
            return Some((id - FIRST) as usize);
        }
        // Acquire: pairs with the Release in `assign`.
        let number = self.place_of(id)?.load(Ordering::Acquire);
        (number as usize).checked_sub(1)
    }

    pub fn find(&self, id: i32) -> Option<&'static Thread> {
        let has_it = |thread: &&Thread| thread.guest().tid.load(Ordering::Relaxed) == id;
        if id < FIRST
            && let Some(first) = self.first().filter(has_it)
        {
            return Some(first);
        }
        let slot = self.table()?.get(self.index_of(id)?)?;
        slot.get(Ordering::Acquire)
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

/// Returns the id of the calling kernel thread.
pub fn kernel_tid() -> i32 {
    // SAFETY: asks only.
    (unsafe { upcall_linux::sys!(sys::SYS_gettid) }) as i32
}
