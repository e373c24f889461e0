//! A kernel whose processors are the threads of a model.

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::collections::HashMap;
use std::vec::Vec;

#[cfg(loom)]
use loom::{sync::Condvar, sync::Mutex, thread};
#[cfg(shuttle)]
use shuttle::{sync::Condvar, sync::Mutex, thread};

use crate::kernel::{Attributes, Poll, Share, Trace, Vessels, Watch};
use crate::machine::{Errno, Machine};
use crate::state::activation::Activation;
use crate::state::thread::{Thread, ThreadList};
use crate::state::vp::Vp;
use crate::sync::{AtomicBool, AtomicU32, UnsafeCell, light_barrier};

std::thread_local! {
    /// Memory of the execution, given back when the next one begins: nothing refers to it then.
    static MAPPED: RefCell<Vec<(*mut u8, Layout)>> = const { RefCell::new(Vec::new()) };
    /// Who is which activation.
    static ACTING: RefCell<HashMap<thread::ThreadId, usize>> = RefCell::new(HashMap::new());
    static NR_ACTIVATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The most activations of a model.
const BEDS: usize = 6;

pub(super) struct Checked {
    beds: Vec<(Mutex<()>, Condvar)>,
    /// Asked by [`Poll::wants_poller`](crate::kernel::Poll::wants_poller).
    pub(super) wants_poller: AtomicBool,
    /// Touched by the activation that sits in [`Poll::poll`](crate::kernel::Poll::poll).
    pub(super) seat: UnsafeCell<u32>,
    /// There are visits to the poller: not asked in other models.
    is_visited: Cell<bool>,
    /// Not 0: the bed of who sits in the poller, plus one.
    sits: AtomicU32,
    /// Who sits in the poller was to be woken, and nobody has seen that yet, as an eventfd in an epoll instance, edge-triggered.
    kick: (Mutex<bool>, Condvar),
    /// Interruptions sent.
    pub(super) interrupted: AtomicU32,
    /// Virtual processors can lose their processors: not asked in other models.
    may_lose: Cell<bool>,
    /// Those that have, by number.
    taken: AtomicU32,
}

// SAFETY: the checkers run all threads of a model on one kernel thread, and loom watches the cell that is its own.
unsafe impl Sync for Checked {}

/// What a model keeps with a thread.
#[derive(Default)]
pub(super) struct Note(pub(super) AtomicU32);

/// Which of the kernel's beds is the activation's.
pub(super) struct Bed(usize);

impl Default for Bed {
    fn default() -> Self {
        NR_ACTIVATIONS.with(|count| {
            count.set(count.get() + 1);
            Bed(count.get() - 1)
        })
    }
}

impl Checked {
    /// For one execution, whose last one is over.
    pub(super) fn new() -> Self {
        MAPPED.with_borrow_mut(|mapped| {
            for (memory, layout) in mapped.drain(..) {
                // SAFETY: allocated with this layout by `map`; see `MAPPED`.
                unsafe { dealloc(memory, layout) };
            }
        });
        ACTING.with_borrow_mut(HashMap::clear);
        NR_ACTIVATIONS.set(0);
        Checked {
            beds: (0..BEDS)
                .map(|_| (Mutex::new(()), Condvar::new()))
                .collect(),
            wants_poller: AtomicBool::new(false),
            seat: UnsafeCell::new(0),
            is_visited: Cell::new(false),
            sits: AtomicU32::new(0),
            kick: (Mutex::new(false), Condvar::new()),
            interrupted: AtomicU32::new(0),
            may_lose: Cell::new(false),
            taken: AtomicU32::new(0),
        }
    }

    /// From here on activations may visit the poller.
    #[cfg(loom)]
    pub(super) fn is_visited(&self) {
        self.is_visited.set(true);
    }

    fn kick(&self) {
        let (kicked, bell) = &self.kick;
        *kicked.lock().unwrap() = true;
        bell.notify_one();
    }

    /// As who sits in the poller, on `bed`, and is woken by kicks alone.
    fn await_kick(&self, bed: usize, activation: &Activation<Self>, seen: u32) {
        self.sits.store(bed as u32 + 1, Ordering::SeqCst);
        if activation.wake.load(Ordering::SeqCst) == seen {
            let (kicked, bell) = &self.kick;
            let mut kicked = kicked.lock().unwrap();
            while !core::mem::take(&mut *kicked) {
                kicked = bell.wait(kicked).unwrap();
            }
        }
        self.sits.store(0, Ordering::SeqCst);
    }

    /// From here on [`Checked::take`] may be called.
    #[cfg(loom)]
    pub(super) fn may_lose(&self) {
        self.may_lose.set(true);
    }

    /// The processor of a virtual processor is another address space's.
    #[cfg(loom)]
    pub(super) fn take(&self, vp: &Vp<Self>) {
        self.taken.fetch_or(1 << vp.index(), Ordering::SeqCst);
    }

    /// It is ours again.
    #[cfg(loom)]
    pub(super) fn give_back(&self, vp: &Vp<Self>) {
        self.taken.fetch_and(!(1 << vp.index()), Ordering::SeqCst);
    }
}

/// The calling thread of the model is the kernel thread of `activation` from here on.
pub(super) fn act_as(activation: &Activation<Checked>) {
    let id = thread::current().id();
    let address = core::ptr::from_ref(activation) as usize;
    ACTING.with_borrow_mut(|acting| acting.insert(id, address));
}

// SAFETY: memory stays for the execution.
unsafe impl Machine for Checked {
    type ActivationState = Bed;
    type ThreadState = Note;

    fn yield_processor(&self) {
        thread::yield_now();
    }

    fn map(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        let layout = Layout::from_size_align(length, 4096).unwrap();
        // SAFETY: the length is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        MAPPED.with_borrow_mut(|mapped| mapped.push((memory, layout)));
        Ok(NonNull::new(memory).unwrap())
    }

    fn has_barriers(&self) -> bool {
        true
    }

    fn pass_barriers(&self) -> bool {
        light_barrier();
        true
    }

    fn broken(&self, what: &str) -> ! {
        panic!("{what}")
    }
}

// SAFETY: each thread of a model says which activation it is.
unsafe impl Vessels for Checked {
    fn current(&self) -> &'static Activation<Self> {
        let id = thread::current().id();
        let address = ACTING.with_borrow(|acting| acting[&id]);
        // SAFETY: `act_as` put a reference there.
        unsafe { &*(address as *const Activation<Self>) }
    }

    fn set_inside(&self) {
        self.current().inside.store(1, Ordering::Relaxed);
    }

    fn clear_inside(&self) -> bool {
        self.current().inside.store(0, Ordering::Release);
        self.current().attention.load(Ordering::Relaxed) != 0
    }

    fn sleep(&self, activation: &Activation<Self>, seen: u32) {
        let (lock, bell) = &self.beds[activation.kernel.0];
        let mut guard = lock.lock().unwrap();
        while activation.wake.load(Ordering::SeqCst) == seen {
            guard = bell.wait(guard).unwrap();
        }
    }

    fn wake(&self, activation: &Activation<Self>) {
        let bed = activation.kernel.0;
        if self.is_visited.get() && self.sits.load(Ordering::SeqCst) == bed as u32 + 1 {
            return self.kick();
        }
        let (lock, bell) = &self.beds[bed];
        drop(lock.lock().unwrap());
        bell.notify_one();
    }

    fn interrupt(&self, _: &Activation<Self>) {
        self.interrupted.fetch_add(1, Ordering::SeqCst);
    }
}

impl Attributes for Checked {
    fn begin(&self, thread: &Thread<Self>, _: &Thread<Self>) {
        thread.kernel.0.store(0, Ordering::SeqCst);
    }

    fn is_interrupted(&self, thread: &'static Thread<Self>) -> bool {
        thread.kernel.0.load(Ordering::SeqCst) != 0
    }
}

impl Poll for Checked {
    fn poll(&self, activation: &Activation<Self>, wait: Option<u32>) -> ThreadList<Self> {
        let Some(seen) = wait else {
            let kicked = core::mem::take(&mut *self.kick.0.lock().unwrap());
            if kicked && activation.runtime().seat_is_taken() {
                self.kick();
            }
            return ThreadList::new();
        };
        // SAFETY: one sits here at a time; that is what the model is about.
        unsafe { *self.seat.get() += 1 };
        match self.is_visited.get() {
            true => self.await_kick(activation.kernel.0, activation, seen),
            false => self.sleep(activation, seen),
        }
        ThreadList::new()
    }

    fn wants_poller(&self) -> bool {
        self.wants_poller.load(Ordering::SeqCst)
    }
}

impl Watch for Checked {
    /// As soon as it may be said.
    fn is_blocked(&self, _: &Activation<Self>, cheap_doubt: bool) -> bool {
        cheap_doubt
    }
}

impl Trace for Checked {}

impl Share for Checked {
    fn may_run(&self, vp: &'static Vp<Self>) -> bool {
        !self.may_lose.get() || self.taken.load(Ordering::SeqCst) & 1 << vp.index() == 0
    }
}
