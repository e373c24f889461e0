//! Signals that wait in our own memory, with all their information: a list for each thread, and one for the process.
//!
//! All nodes come from one pool, under one lock, which may be taken only inside the runtime. Signal handlers keep their
//! signals in the activation ([`upcall_linux::Inbox`]).

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use upcall_core::{Machine, SpinLock};
use upcall_linux::{Runtime, Thread};

use crate::ground::attributes::GuestAttributes;
use crate::ground::mask;

use mask::bit;

/// siginfo_t: 128 bytes.
pub type Information = [u64; 16];

const CHUNK: usize = 1 << 16;
const FIRST_NODES: usize = 256;

/// Nodes that exist even if the kernel has no memory.
struct Reserve(UnsafeCell<[MaybeUninit<Node>; FIRST_NODES]>);

// SAFETY: the nodes are the pool's, and reached only under its lock.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve(UnsafeCell::new(
    [const { MaybeUninit::uninit() }; FIRST_NODES],
));

struct Node {
    next: *mut Node,
    signal: i32,
    shared: bool,
    information: Information,
}

/// The nodes that are in no list.
pub struct Pool {
    free: *mut Node,
}

// SAFETY: the nodes are reached only under the lock.
unsafe impl Send for Pool {}

/// The holder may look at any list and change it.
pub static POOL: SpinLock<Pool> = SpinLock::new(Pool {
    free: ptr::null_mut(),
});

/// Which signals are in a list, and its first node.
#[derive(Clone, Copy)]
pub struct List {
    numbers: &'static AtomicU64,
    first: &'static AtomicUsize,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// Signals of the process.
pub const PROCESS: List = List {
    numbers: &NUMBERS,
    first: &FIRST,
};

impl List {
    /// Signals for that thread.
    pub fn of(thread: &'static Thread) -> Self {
        List {
            numbers: &thread.kernel.pending,
            first: &thread.guest().queue,
        }
    }

    /// Returns the signals that are in it.
    pub fn numbers(self) -> u64 {
        // SeqCst: a thread that adds a signal looks at masks afterwards, and one that changes a mask looks here afterwards,
        // so one of them sees the other. Pairs with the changes below.
        self.numbers.load(Ordering::SeqCst)
    }

    /// Returns true if another signal of that number is nothing new: of the standard signals one waits, as in the kernel.
    pub fn has_its_one(self, signal: i32) -> bool {
        signal < 32 && self.numbers() & bit(signal) != 0
    }

    fn head(self) -> *mut Node {
        self.first.load(Ordering::Relaxed) as *mut Node
    }
}

impl Pool {
    /// Called when the runtime of this process starts. Makes the nodes that always exist. None of them is in a list.
    pub fn begin(&mut self) {
        self.free = ptr::null_mut();
        // SAFETY: nobody uses them.
        unsafe { self.add(RESERVE.0.get().cast(), FIRST_NODES) };
    }

    /// Maps more nodes, if there is memory.
    fn grow(&mut self, runtime: &'static Runtime) -> bool {
        let Ok(chunk) = runtime.kernel().map(CHUNK) else {
            return false;
        };
        // SAFETY: a new mapping.
        unsafe { self.add(chunk.as_ptr().cast(), CHUNK / size_of::<Node>()) };
        true
    }

    /// # Safety
    ///
    /// There are so many nodes, which nobody else uses.
    unsafe fn add(&mut self, nodes: *mut Node, count: usize) {
        for index in 0..count {
            // SAFETY: the caller's promise.
            unsafe {
                let node = nodes.add(index);
                (&raw mut (*node).next).write(self.free);
                self.free = node;
            }
        }
    }

    /// Adds a signal at the end of a list. Returns false if there is no memory. With `shared` the signal is the process's,
    /// even in a thread's list.
    pub fn append(
        &mut self,
        runtime: &'static Runtime,
        list: List,
        (signal, information): (i32, &Information),
        shared: bool,
    ) -> bool {
        if self.free.is_null() && !self.grow(runtime) {
            return false;
        }
        let node = self.free;
        // SAFETY: a free node of the pool, under its lock; appended behind the list's others.
        unsafe {
            self.free = (*node).next;
            node.write(Node {
                next: ptr::null_mut(),
                signal,
                shared,
                information: *information,
            });
            let mut at = list.head();
            if at.is_null() {
                list.first.store(node as usize, Ordering::Relaxed);
            } else {
                while !(*at).next.is_null() {
                    at = (*at).next;
                }
                (*at).next = node;
            }
        }
        list.numbers.fetch_or(bit(signal), Ordering::SeqCst);
        true
    }

    /// Changes the first entry of that signal for which `change` returns true, and returns true if there is one.
    pub fn change_one(
        &mut self,
        list: List,
        signal: i32,
        change: impl Fn(&mut Information) -> bool,
    ) -> bool {
        let mut at = list.head();
        // SAFETY: null, or a node of the list, under the pool's lock.
        while let Some(node) = unsafe { at.as_mut() } {
            if node.signal == signal && change(&mut node.information) {
                return true;
            }
            at = node.next;
        }
        false
    }

    /// Takes the first signal in `set` out of a list; with `shared`, only one of the process's.
    pub fn remove(&mut self, list: List, set: u64, shared: bool) -> Option<(i32, Information)> {
        let mut before: *mut Node = ptr::null_mut();
        let mut at = list.head();
        let mut found = None;
        let mut others = 0u64;
        while !at.is_null() {
            // SAFETY: nodes of the list, under the pool's lock.
            unsafe {
                let next = (*at).next;
                if found.is_none() && set & bit((*at).signal) != 0 && (!shared || (*at).shared) {
                    found = Some(((*at).signal, (*at).information));
                    if before.is_null() {
                        list.first.store(next as usize, Ordering::Relaxed);
                    } else {
                        (*before).next = next;
                    }
                    (*at).next = self.free;
                    self.free = at;
                } else {
                    others |= bit((*at).signal);
                    before = at;
                }
                at = next;
            }
        }
        list.numbers.store(others, Ordering::SeqCst);
        found
    }

    /// Returns the first signal in `set` of a list, and leaves it there.
    pub fn first(&self, list: List, set: u64) -> Option<(i32, Information)> {
        let mut at = list.head();
        // SAFETY: null, or a node of the list, under the pool's lock.
        while let Some(node) = unsafe { at.as_ref() } {
            if set & bit(node.signal) != 0 {
                return Some((node.signal, node.information));
            }
            at = node.next;
        }
        None
    }
}

/// Called in the child of a fork: nobody holds the pool any more. What it held was the parent's.
///
/// # Safety
///
/// There is one thread, and it is not in this module.
pub unsafe fn forget(runtime: &'static Runtime) {
    // SAFETY: nobody else can be in the section. The nodes may have been left in any state: they
    // stay behind.
    unsafe { POOL.unlock() };
    POOL.lock(runtime.kernel()).free = ptr::null_mut();
    FIRST.store(0, Ordering::Relaxed);
    NUMBERS.store(0, Ordering::Relaxed);
}
