//! The runtime object: what it owns, and how that comes into being.
//!
//! How a thread enters and leaves it is in `passage.rs`; what runs next, in `schedule.rs`; what happens at
//! upcalls, in `blocked.rs`, `returned.rs`, `preempted.rs` and `taken.rs`; what an activation without a thread does, in `idle.rs`.

use core::ptr::NonNull;

use crate::sync::{AtomicBool, AtomicU64, Ordering};

use crate::arch;
use crate::kernel::Kernel;
use crate::machine::Errno;
use crate::memory::Slab;
use crate::rank::Rank;
use crate::state::activation::Activity;
use crate::state::inside::{Entered, Inside};
use crate::state::thread::Thread;
use crate::state::vp::{State, Vp};
use crate::stats::Stats;
use crate::timer::Timers;
use crate::vp_set::MAX_VPS;

mod activations;
mod blocked;
mod futex;
mod idle;
mod lone;
#[cfg(all(test, any(loom, shuttle)))]
mod models;
mod outside;
mod passage;
mod policy;
mod precedence;
mod preempted;
mod returned;
mod schedule;
mod seat;
mod sections;
mod spares;
mod standby;
mod taken;
mod trace;
mod vps;

use self::activations::Activations;
use self::futex::Futexes;
use self::policy::Policy;
use self::precedence::Ranks;
use self::seat::Seat;
use self::spares::Spares;
use self::trace::Listeners;
use self::vps::Vps;

pub use futex::Waited;
pub use lone::{LONE, Lone};
pub use passage::{After, Step};
pub use policy::{Advice, Order, Transition, Transitions};

/// Threads, virtual processors and activations of one address space.
// In this order: what is used most is at small offsets, and the page of counters behind it.
#[repr(C)]
pub struct Runtime<K: Kernel> {
    kernel: K,
    vps: Vps<K>,
    threads: Slab<Thread<K>>,
    activations: Activations<K>,
    spares: Spares<K>,
    /// See [`Runtime::leave_behind`].
    left: AtomicBool,
    listeners: Listeners,
    ranks: Ranks<K>,
    policy: Policy<K>,
    seat: Seat<K>,
    futexes: Futexes<K>,
    timers: Timers<K>,
    /// When the virtual processors came into being, in nanoseconds.
    started_ns: AtomicU64,
    stats: Stats,
}

impl<K: Kernel> Runtime<K> {
    /// Offset of the address of the first virtual processor; the others are behind it. For debuggers.
    pub const OFFSET_VPS: usize = core::mem::offset_of!(Self, vps) + Vps::<K>::OFFSET_FIRST;
    /// Offset of the 32-bit word that says how many there are. For debuggers.
    pub const OFFSET_NR_VPS: usize = core::mem::offset_of!(Self, vps) + Vps::<K>::OFFSET_COUNT;

    /// A runtime over `kernel`, which lives for ever, with no virtual processor yet.
    ///
    /// # Errors
    ///
    /// What [`Machine::map`](crate::Machine::map) reports when memory is exhausted.
    pub fn create(kernel: K) -> Result<&'static Self, Errno> {
        let futexes = Futexes::new(&kernel)?;
        let timers = Timers::new(&kernel)?;
        let place = kernel.map(size_of::<Self>())?.as_ptr().cast::<Self>();
        // SAFETY: mapped for ever, page-aligned and large enough; written before it is shared.
        unsafe {
            place.write(Runtime {
                kernel,
                vps: Vps::none(),
                threads: Slab::new(),
                activations: Activations::none(),
                spares: Spares::none(),
                left: AtomicBool::new(false),
                listeners: Listeners::none(),
                ranks: Ranks::unused(),
                policy: Policy::new(),
                seat: Seat::empty(),
                futexes,
                timers,
                stats: Stats::default(),
                started_ns: AtomicU64::new(0),
            });
            let runtime = &*place;
            runtime.kernel.share(NonNull::from(&*runtime.stats).cast());
            Ok(runtime)
        }
    }

    /// Makes the calling kernel thread the first activation, with the calling thread on it, and a
    /// virtual processor for each of `processors`. The caller then makes [`Vessels::current`](crate::kernel::Vessels::current)
    /// answer with the activation, and calls [`Runtime::start`].
    ///
    /// # Errors
    ///
    /// `EINVAL` (22) for no or too many processors; what [`Machine::map`](crate::Machine::map) reports.
    pub fn adopt(
        &'static self,
        processors: &[u32],
    ) -> Result<(Entered<K>, &'static Thread<K>), Errno> {
        if processors.is_empty() || processors.len() > MAX_VPS {
            return Err(Errno(22));
        }
        let place = self
            .kernel
            .map(processors.len() * size_of::<Vp<K>>())?
            .as_ptr()
            .cast::<Vp<K>>();
        for (index, &processor) in processors.iter().enumerate() {
            let owner = self.new_activation(None)?;
            // SAFETY: inside the mapping that was sized for all of them; not shared yet.
            unsafe {
                let vp = place.add(index);
                vp.write(Vp::new(index as u32, processor, owner));
                owner.vp.set(Some(&*vp), Ordering::Relaxed);
            }
            owner.set_activity(Activity::Running);
        }
        // SAFETY: written just now, mapped for ever.
        let first = unsafe { &*place };
        self.vps.publish(first, processors.len());
        let has_barriers = self.kernel.has_barriers();
        for vp in self.vps() {
            self.vps.set_unwatched(vp);
            if has_barriers {
                vp.allow_bias();
                vp.ready.allow_free();
            }
        }
        let activation = first.word().owner();
        // Its kernel thread is the process's own.
        activation.stay();
        // All attributes are in their initial state, since no thread was there before.
        let thread = self.take_thread()?;
        activation.thread.set(Some(thread), Ordering::Relaxed);
        thread.carrier.set(Some(activation), Ordering::Relaxed);
        first.set(activation, State::Runtime);
        self.free_list(first, u64::MAX);
        Ok((Entered::on(activation), thread))
    }

    /// Starts the kernel threads of the other virtual processors, which are idle.
    ///
    /// # Errors
    ///
    /// The kernel's error when not even one can be started beside the caller: then nothing but
    /// the caller's virtual processor works.
    pub fn start(&'static self) -> Result<(), Errno> {
        let now = self.kernel.now();
        self.started_ns.store(now, Ordering::Relaxed);
        for vp in self.vps().iter().skip(1) {
            self.begins_rest(vp, now);
            if let Err(error) = self.kernel.spawn(vp.word().owner(), false) {
                self.refused();
                return Err(error);
            }
            self.vps.set_idle(vp);
        }
        Ok(())
    }

    /// The kernel underneath.
    #[inline]
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Threads put on activations so far, on all virtual processors.
    pub fn switches(&self) -> u64 {
        self.vps()
            .iter()
            .map(|vp| vp.dispatches.load(Ordering::Relaxed))
            .sum()
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The virtual processors.
    #[inline]
    pub fn vps(&self) -> &'static [Vp<K>] {
        self.vps.all()
    }

    /// Returns true if any thread waits for a deadline.
    pub fn has_deadlines(&self) -> bool {
        !self.timers.is_empty(&self.kernel)
    }

    /// Claims the threads whose deadline has passed and adds them to `list`. For [`Poll::poll`](crate::kernel::Poll::poll).
    pub fn expire(&self, list: &mut crate::ThreadList<K>) {
        self.timers.expire(&self.kernel, self.kernel.now(), list);
    }

    /// Gives a thread that is about to park a deadline, in nanoseconds of [`Machine::now`](crate::Machine::now).
    pub fn arm(&self, thread: &'static Thread<K>, deadline: u64) {
        self.timers.insert(&self.kernel, thread, deadline);
    }

    /// Takes a thread's deadline back, if it still has one. For the thread itself.
    pub fn disarm(&self, thread: &'static Thread<K>) {
        self.timers.remove(&self.kernel, thread);
    }

    /// Returns true if nothing but the backend's events makes any thread ready: all virtual processors are idle, and
    /// no thread is in the kernel or waits for a time. The answer is certain if it stays the same.
    pub fn is_stuck(&self) -> bool {
        let is_still = |vp: &Vp<K>| {
            vp.word().state() == State::Idle
                && !vp.has_ready()
                && vp.nr_displaced.load(Ordering::SeqCst) == 0
        };
        self.vps().iter().all(is_still)
            && self.stats.absent.get() == 0
            && !self.has_deadlines()
            && !self.ranks.any_held(&self.kernel)
    }

    /// A new thread that runs nothing yet, with what threads inherit from their creator
    /// ([`Attributes::begin`](crate::kernel::Attributes::begin)); see [`Inside::launch`].
    ///
    /// # Errors
    ///
    /// What [`Machine::map`](crate::Machine::map) reports when memory is exhausted.
    pub fn new_thread(&self, creator: &Thread<K>) -> Result<&'static Thread<K>, Errno> {
        let thread = self.take_thread()?;
        self.kernel.begin(thread, creator);
        Ok(thread)
    }

    /// As [`Runtime::new_thread`], with the memory for the thread.
    ///
    /// # Safety
    ///
    /// At `place` there is room for a thread, aligned and mapped for ever, and nobody else uses it, now or later.
    pub unsafe fn new_thread_at(
        &self,
        place: NonNull<u8>,
        creator: &Thread<K>,
    ) -> &'static Thread<K> {
        // SAFETY: the caller's promise.
        let thread = unsafe { Slab::place(place) };
        self.begin_thread(thread);
        self.kernel.begin(thread, creator);
        thread
    }

    /// Memory of a thread. Its attributes are those of the thread that had it before.
    fn take_thread(&self) -> Result<&'static Thread<K>, Errno> {
        let (thread, _) = self.threads.take(&self.kernel)?;
        self.begin_thread(thread);
        Ok(thread)
    }

    fn begin_thread(&self, thread: &Thread<K>) {
        thread.rank.store(Rank::COMMON.0, Ordering::Relaxed);
        thread.sections.begin();
        self.stats.threads.up();
    }

    /// The process has become a copy of the one that this serves (fork(2)), in the middle of a handler that the
    /// runtime has called: the calling activation is the only one, and what is below that handler on its stack
    /// enters and leaves as ever, but nobody else is called any more, and the thread gives way to none. Its virtual
    /// processor is its own, whoever had it in the copy: the parent was in a system call, and others did not wait
    /// for its end.
    pub fn leave_behind(&self) {
        self.left.store(true, Ordering::Relaxed);
        let activation = self.kernel.current();
        activation.set_activity(Activity::Running);
        activation.vp().set(activation, State::User);
        // What is noted would be the parent's.
        self.end_trace();
    }

    /// Returns true if that has happened.
    pub fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Gives back a thread that never ran or has ended.
    pub fn free_thread(&self, thread: &'static Thread<K>) {
        self.stats.threads.down();
        self.threads.give(&self.kernel, thread);
    }
}

impl<K: Kernel> Inside<K> {
    /// Makes a new thread ready: it will call `landing(a, b, c)` on the stack that ends at
    /// `stack`, inside the runtime. `forked`: see [`Inside::make_ready_forked`].
    ///
    /// # Safety
    ///
    /// The stack is writable and used by nothing else until the thread has ended; `landing` does
    /// not return.
    pub unsafe fn launch(
        &self,
        thread: &'static Thread<K>,
        forked: bool,
        stack: usize,
        landing: extern "C" fn(usize, usize, usize) -> !,
        words: [usize; 3],
    ) {
        let runtime = self.runtime();
        let [a, b, c] = words;
        // SAFETY: the caller vouches for stack and landing.
        let context = unsafe { arch::prepare(stack, landing, a, b, c) };
        thread.context.store(context, Ordering::Relaxed);
        runtime.stats.created.add();
        runtime.make_ready_new(self, thread, forked);
    }
}
