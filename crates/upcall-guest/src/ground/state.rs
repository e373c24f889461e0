//! The guest's one global object: whether there is a runtime, and what the program was started with.
//!
//! A program begins with one kernel thread and no runtime: its system calls pass through. The
//! first thread that it creates starts the runtime; a program that never creates one pays a few
//! nanoseconds a system call and nothing else. After fork the child is such a program again: its
//! only thread leaves the parent's runtime behind and starts one of its own when it needs it.

use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use upcall_core::runtime::Order;
use upcall_core::{Errno, Kernel};
use upcall_linux::observe::Probe;
use upcall_linux::{
    Hooks, Linux, Runtime, Settings, affinity, base, descriptors, gang, limits, memory, placement,
    preempt,
};

use crate::call::uring;
use crate::ground::identity::Identities;
use crate::process::dispatch;
use crate::report::{stats, stuck};
use crate::signal::{alone, masks, pending};
use crate::thread::{agents, names, robust, scheduling, shell, urgency};
use crate::{process, signal};

/// What `upcall run` decided, from the environment.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Virtual processors; 0: as many as there are allowed processors.
    pub vps: u32,
    /// Print counters at exit.
    pub stats: bool,
    /// Use a sentinel instead of a standby; otherwise as the kernel's scheduler needs.
    pub sentinel: bool,
    /// The probe to use.
    pub probe: Probe,
    /// The time slice in nanoseconds.
    pub slice_ns: u64,
    /// Take turns with the user's other programs under the runtime.
    pub gang: bool,
    /// Which ready thread runs first.
    pub policy: Policy,
}

/// Which ready thread runs first. From [`Policy::Priority`] on by ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Policy {
    /// Threads take turns; a new one of the crate goes first.
    ForkedFirst = 0,
    /// As that, and every new thread goes first.
    Lifo = 1,
    /// Threads take turns.
    RoundRobin = 2,
    /// Threads run until they wait or give way.
    Fifo = 3,
    /// By the scheduling policies and priorities that threads ask for; equals take turns.
    Priority = 4,
    /// By the deadlines that threads ask for; equals, and those without, take turns.
    Deadline = 5,
    /// By what the program's own policy says; equals take turns.
    Advised = 6,
}

impl Policy {
    /// By its name, which is that of `upcall run --policy`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "lifo" => Policy::Lifo,
            "round-robin" => Policy::RoundRobin,
            "fifo" => Policy::Fifo,
            "priority" => Policy::Priority,
            "deadline" => Policy::Deadline,
            _ => return None,
        })
    }

    fn order(self) -> Order {
        match self {
            Policy::Lifo => Order::Lifo,
            Policy::RoundRobin | Policy::Priority | Policy::Deadline => Order::RoundRobin,
            Policy::Fifo => Order::Fifo,
            Policy::ForkedFirst | Policy::Advised => Order::ForkedFirst,
        }
    }
}

/// The guest.
pub struct Guest {
    runtime: AtomicPtr<Runtime>,
    starting: AtomicBool,
    vps: AtomicU32,
    stats: AtomicBool,
    /// Where to print them: standard error as it was when the runtime started, which many programs
    /// close before they end.
    report_to: AtomicI32,
    sentinel: AtomicBool,
    probe: AtomicU32,
    slice_ns: AtomicU64,
    gang: AtomicBool,
    policy: AtomicU32,
    /// The process's own id, which is also its first thread's.
    pub pid: AtomicU32,
    /// Threads of the program by id.
    pub identities: Identities,
    /// Threads that have not called exit(2) yet.
    pub living: AtomicUsize,
    /// The first thread has called it.
    pub first_ended: AtomicBool,
    /// Kernel threads of libc's own that are no activations (timer helpers).
    pub foreign: AtomicUsize,
}

/// The guest of this process.
pub static GUEST: Guest = Guest {
    runtime: AtomicPtr::new(ptr::null_mut()),
    starting: AtomicBool::new(false),
    vps: AtomicU32::new(0),
    stats: AtomicBool::new(false),
    report_to: AtomicI32::new(libc::STDERR_FILENO),
    sentinel: AtomicBool::new(false),
    probe: AtomicU32::new(Probe::Perf as u32),
    slice_ns: AtomicU64::new(5_000_000),
    gang: AtomicBool::new(false),
    policy: AtomicU32::new(Policy::ForkedFirst as u32),
    pid: AtomicU32::new(0),
    identities: Identities::new(),
    living: AtomicUsize::new(0),
    first_ended: AtomicBool::new(false),
    foreign: AtomicUsize::new(0),
};

impl Guest {
    /// Notes the options before the program's own code runs.
    pub fn configure(&self, options: Options) {
        self.vps.store(options.vps, Ordering::Relaxed);
        self.stats.store(options.stats, Ordering::Relaxed);
        self.sentinel.store(options.sentinel, Ordering::Relaxed);
        self.probe.store(options.probe as u32, Ordering::Relaxed);
        self.slice_ns.store(options.slice_ns, Ordering::Relaxed);
        self.gang.store(options.gang, Ordering::Relaxed);
        self.policy.store(options.policy as u32, Ordering::Relaxed);
    }

    /// [`Options::slice_ns`].
    pub fn slice_ns(&self) -> u64 {
        self.slice_ns.load(Ordering::Relaxed)
    }

    /// [`Options::stats`].
    pub fn prints_stats(&self) -> bool {
        self.stats.load(Ordering::Relaxed)
    }

    /// [`Options::policy`].
    #[inline]
    pub fn policy(&self) -> Policy {
        match self.policy.load(Ordering::Relaxed) {
            0 => Policy::ForkedFirst,
            1 => Policy::Lifo,
            2 => Policy::RoundRobin,
            3 => Policy::Fifo,
            4 => Policy::Priority,
            5 => Policy::Deadline,
            _ => Policy::Advised,
        }
    }

    /// Whether it is [`Policy::Priority`].
    pub fn orders_by_priority(&self) -> bool {
        self.policy() == Policy::Priority
    }

    /// The runtime, once the program has created a thread.
    #[inline]
    pub fn runtime(&self) -> Option<&'static Runtime> {
        let runtime = self.runtime.load(Ordering::Acquire);
        // SAFETY: null, or a runtime that lives for ever.
        unsafe { runtime.as_ref() }
    }

    /// Starts the runtime: the caller becomes the first thread on the first activation.
    ///
    /// # Errors
    ///
    /// The kernel's error when it gives no memory, descriptors or threads.
    pub fn start(&self) -> Result<&'static Runtime, Errno> {
        if let Some(runtime) = self.runtime() {
            return Ok(runtime);
        }
        self.starting.store(true, Ordering::Relaxed);
        // libc creates threads with all signals blocked; a filter may trap what is needed here (`signal::ALL`).
        let mask = signal::kernel_mask();
        signal::set_kernel_mask(mask & signal::ALL);
        let started = self.start_fresh(mask);
        self.starting.store(false, Ordering::Relaxed);
        if self.runtime().is_none() {
            signal::set_kernel_mask(mask);
            // The next pthread_create tries again.
            descriptors::close_all();
        }
        started
    }

    /// Whether the runtime is being started.
    pub fn is_starting(&self) -> bool {
        self.starting.load(Ordering::Relaxed)
    }

    /// `mask`: the signal mask of the kernel thread before.
    fn start_fresh(&self, mask: u64) -> Result<&'static Runtime, Errno> {
        let attempt = memory::attempt();
        let linux = Linux::open(Settings {
            sentinel: self.sentinel.load(Ordering::Relaxed),
            probe: match self.probe.load(Ordering::Relaxed) {
                2 => Probe::Proc,
                3 => Probe::Yields,
                _ => Probe::Perf,
            },
            slice_ns: self.slice_ns.load(Ordering::Relaxed),
            gang: self.gang.load(Ordering::Relaxed),
            hooks: Hooks {
                may_start: dispatch::may_start,
                begin: signal::begin,
                deferred: signal::deferred,
                resting_mask: masks::resting,
                tick: signal::tick,
                stuck: stuck::look,
            },
        })?;
        if self.stats.load(Ordering::Relaxed)
            && let Ok(copy) = descriptors::keep_copy(libc::STDERR_FILENO)
        {
            self.report_to.store(copy, Ordering::Relaxed);
        }
        self.pid.store(linux.pid() as u32, Ordering::Relaxed);
        let runtime = Runtime::create(linux)?;
        runtime.set_order(self.policy().order());
        let robust_list = robust::of_kernel_thread();
        agents::give_way(runtime)?;
        let kernel = runtime.kernel();
        let mut processors = [0u32; 1024];
        let count = self.choose_processors(&mut processors);
        let adopted = runtime.adopt(&processors[..count]);
        let (activation, thread) = adopted.inspect_err(|_| kernel.gang().leave(kernel.now()))?;
        attempt.succeeds();
        if process::was_forked_in_handler() {
            // What is there leads to the parent's runtime.
            base::set(None);
        }
        process::has_runtime();
        runtime
            .kernel()
            .adopt(activation, thread, mask | alone::hidden());
        thread
            .kernel
            .robust_list
            .store(robust_list, Ordering::Relaxed);
        agents::adopt_leader(thread);
        signal::set_kernel_mask(thread.kernel.mask.load(Ordering::Relaxed) & !preempt::OWN);
        masks::start(thread.kernel.mask.load(Ordering::Relaxed));
        signal::altstack::adopt(thread);
        pending::reserve(runtime);
        pending::adopt(runtime, activation, thread);
        names::adopt_first(thread);
        urgency::adopt_first(thread);
        scheduling::adopt_first(runtime, activation, thread);
        self.identities.adopt_first(thread);
        self.living.store(1, Ordering::Relaxed);
        self.runtime
            .store(ptr::from_ref(runtime).cast_mut(), Ordering::Release);
        signal::install_own();
        signal::altstack::install(activation);
        if uring::is_used() {
            runtime.keep_activations();
        }
        // Virtual processors that cannot get a kernel thread now stay idle for ever; the first
        // one works, which is all that the program had.
        let started = runtime.start();
        runtime.leave(activation);
        match started {
            // A filter: that does not change.
            Err(Errno(libc::ENOSYS | libc::EPERM | libc::EACCES)) => Ok(runtime),
            started => started.map(|()| runtime),
        }
    }

    fn choose_processors(&self, processors: &mut [u32; 1024]) -> usize {
        affinity::note();
        let mut mask = [0u64; 128];
        let count = limits::processors_into(&mut mask, processors);
        // SAFETY: asks only.
        let current = unsafe { libc::sched_getcpu() };
        let wanted = match self.vps.load(Ordering::Relaxed) as usize {
            0 => count,
            wanted => wanted.min(processors.len()),
        };
        let mut cores = [0u32; 1024];
        for &processor in &processors[..count] {
            cores[processor as usize & 1023] = if wanted > 1 && wanted < count {
                placement::core_of(processor)
            } else {
                processor
            };
        }
        placement::order(
            &mut processors[..count],
            current.unsigned_abs(),
            |processor| cores[processor as usize & 1023],
        );
        for index in count..wanted {
            processors[index] = processors[index % count];
        }
        wanted
    }

    /// The child of a fork: one kernel thread, no runtime.
    pub fn forget_runtime(&self) {
        self.runtime.store(ptr::null_mut(), Ordering::Release);
        self.foreign.store(0, Ordering::Relaxed);
        self.first_ended.store(false, Ordering::Relaxed);
        self.identities.forget();
        agents::forget();
        shell::forget();
        stuck::forget();
        gang::registry::forget();
    }

    /// The process is about to end: says so to the others, and prints the counters if asked to.
    pub fn report(&self) {
        let Some(runtime) = self.runtime() else {
            return;
        };
        let kernel = runtime.kernel();
        kernel.gang().leave(kernel.now());
        if self.stats.load(Ordering::Relaxed) {
            stats::print(runtime, self.report_to.load(Ordering::Relaxed));
        }
    }
}
