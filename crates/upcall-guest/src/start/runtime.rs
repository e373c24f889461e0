//! The start of the runtime, with the program's first thread that creates another; and its end in a process.

use core::ptr;
use core::sync::atomic::Ordering;

use upcall_core::runtime::Order;
use upcall_core::{Errno, Machine};
use upcall_linux::{
    Entered, Hooks, Linux, Runtime, Settings, Thread, affinity, base, descriptors, limits, live,
    memory, placement, preempt, sys, turns,
};

use crate::call::credentials;
use crate::ground::attributes::{self, GuestAttributes};
use crate::ground::entry::Frame;
use crate::ground::mask;
use crate::ground::state::{self, Backend, GUEST, Policy, was_forked_in_handler};
use crate::report::{description, stats, stuck};
use crate::signal::{self, alone, dispatch, masks, pending};
use crate::start::{ready, timeline};
use crate::thread::{agents, lending, lifetime, names, robust, scheduling, shell};

/// Starts the runtime: the caller becomes the first thread on the first activation.
///
/// # Errors
///
/// The kernel's error when it gives no memory, descriptors or threads.
pub fn start() -> Result<&'static Runtime, Errno> {
    ready::make();
    GUEST.starting.store(true, Ordering::Relaxed);
    // libc creates threads with all signals blocked; a filter may trap what is needed here (`mask::ALL`).
    let mask = mask::kernel_mask();
    mask::set_kernel_mask(mask & mask::ALL);
    let started = fresh(mask);
    GUEST.starting.store(false, Ordering::Relaxed);
    if GUEST.runtime().is_none() {
        mask::set_kernel_mask(mask);
        // The next pthread_create tries again.
        descriptors::close_all();
    }
    started
}

/// How long the daemon may take to answer a program that was told to be observed, in milliseconds.
const PATIENCE_MS: i32 = 5000;
/// The exit status of `upcall run` for errors of its own.
const REFUSED: i32 = 125;

const NOT_OBSERVED: [&[u8]; 3] = [
    b"upcall: this process is not observed, and the backend observed was asked for by name\n",
    b"  checked: the upcalld of root does not answer, or not for this process\n",
    b"  try: see what upcall doctor observed and upcalld --log info say; or --backend auto\n",
];
const NOT_SCHEDULED: [&[u8]; 3] = [
    b"upcall: upcalld schedules nothing, and the backend sched_ext was asked for by name\n",
    b"  checked: the upcalld of root does not answer for this process, or its scheduler is off\n",
    b"  try: see what upcall doctor sched_ext and upcalld --log info say; or --backend auto\n",
];

/// A backend that is named is used, or the program is not run.
#[cold]
fn refuse(why: [&[u8]; 3]) -> ! {
    for line in why {
        sys::say(line);
    }
    sys::say(b"  more: upcall help run\n");
    loop {
        // SAFETY: ends the process.
        unsafe { upcall_linux::sys!(libc::SYS_exit_group, REFUSED) };
    }
}

/// `mask`: the signal mask of the kernel thread before.
fn fresh(mask: u64) -> Result<&'static Runtime, Errno> {
    description::keep();
    let attempt = memory::attempt();
    let linux = Linux::open(Settings {
        sentinel: GUEST.sentinel.load(Ordering::Relaxed),
        probe: GUEST.probe.load(Ordering::Relaxed),
        is_observed: GUEST.backend.load(Ordering::Relaxed) != Backend::Standby,
        slice_ns: GUEST.slice_ns.load(Ordering::Relaxed),
        takes_turns: GUEST.takes_turns.load(Ordering::Relaxed),
        adapts: GUEST.adapts(),
        share: GUEST.share(),
        hooks: Hooks {
            may_start: dispatch::may_start,
            starter: agents::starter,
            begin: signal::begin,
            new_thread: attributes::begin,
            begins: shell::begins,
            deferred,
            pass_on: signal::pass_on,
            resting_mask: masks::resting,
            call,
            tick: signal::tick,
            stuck: stuck::look,
            runs: GUEST.names_kernel_threads().then_some(names::follow),
        },
    })?;
    match GUEST.backend.load(Ordering::Relaxed) {
        Backend::Observed if !linux.is_observed_within(PATIENCE_MS) => refuse(NOT_OBSERVED),
        Backend::SchedExt if !linux.is_observed_within(PATIENCE_MS) || !linux.was_scheduled() => {
            refuse(NOT_SCHEDULED);
        }
        _ => {}
    }
    if GUEST.stats.load(Ordering::Relaxed)
        && let Ok(copy) = descriptors::keep_copy(libc::STDERR_FILENO)
    {
        GUEST.report_to.store(copy, Ordering::Relaxed);
    }
    GUEST.pid.store(linux.pid() as u32, Ordering::Relaxed);
    let runtime = Runtime::create(linux)?;
    runtime.set_order(order(GUEST.policy()));
    let robust_list = robust::of_kernel_thread();
    let cleared = lifetime::cleared_by_kernel();
    agents::give_way(runtime)?;
    agents::need_first_starter(runtime)?;
    let kernel = runtime.kernel();
    let mut processors = [0u32; 1024];
    let count = choose_processors(&mut processors);
    let adopted = runtime.adopt(&processors[..count]);
    let (inside, thread) = adopted.inspect_err(|_| kernel.turns().leave(kernel.now()))?;
    attempt.succeeds();
    live::announce(runtime.stats(), runtime.vps().len());
    if was_forked_in_handler() {
        // What is there leads to the parent's runtime.
        base::set(None);
    }
    state::set_forked_in_handler(false);
    runtime
        .kernel()
        .adopt(&inside, thread, mask | alone::hidden());
    let tid = inside.kernel.tid.load(Ordering::Relaxed);
    thread.guest().tid.store(tid, Ordering::Relaxed);
    thread
        .guest()
        .robust_list
        .store(robust_list, Ordering::Relaxed);
    thread.guest().clear_tid.store(cleared, Ordering::Relaxed);
    lifetime::note_first_stack(thread);
    agents::adopt_leader(thread);
    mask::set_kernel_mask(thread.kernel.mask.load(Ordering::Relaxed) & !preempt::OWN);
    masks::start(thread.kernel.mask.load(Ordering::Relaxed));
    signal::altstack::take_back(thread);
    pending::reserve(runtime);
    pending::adopt(&inside, thread, !0);
    names::adopt_first(thread);
    lending::adopt_first(thread);
    scheduling::adopt_first(&inside, thread);
    GUEST.identities.adopt_first(thread);
    GUEST.living.store(1, Ordering::Relaxed);
    GUEST
        .runtime
        .store(ptr::from_ref(runtime).cast_mut(), Ordering::Release);
    signal::descriptors::take_own_signals();
    signal::install_own();
    runtime.kernel().begin_slices(&inside);
    signal::altstack::install(&inside);
    begin_trace(runtime, thread);
    if GUEST.uses_io_uring.load(Ordering::Acquire) {
        runtime.keep_activations();
    }
    // Virtual processors that cannot get a kernel thread now stay idle for ever; the first
    // one works, which is all that the program had.
    let started = runtime.start();
    inside.leave();
    match started {
        // A filter: that does not change.
        Err(Errno(libc::ENOSYS | libc::EPERM | libc::EACCES)) => Ok(runtime),
        started => started.map(|()| runtime),
    }
}

/// See [`Hooks::deferred`].
fn deferred(inside: Entered) {
    timeline::begin_if_asked(&inside);
    signal::deferred(inside);
}

/// Begins to note what happens, if the program was started with that.
fn begin_trace(runtime: &'static Runtime, thread: &'static Thread) {
    let Some(directory) = GUEST.trace() else {
        return;
    };
    match Linux::begin_trace(runtime, directory) {
        Ok(()) => {
            names::note_new(thread);
            live::answer(Ok(()));
        }
        // Nobody reads any more.
        Err(Errno(libc::ENOENT)) => {}
        Err(error) => {
            let text = format!(
                "upcall: not traced: there can be no file in {} (errno {})\n",
                directory.to_string_lossy(),
                error.0
            );
            sys::say(text.as_bytes());
        }
    }
}

/// See [`Hooks::call`].
fn call(thread: &Thread) -> u64 {
    let frame = thread.guest().frame.load(Ordering::Relaxed) as *const Frame;
    // SAFETY: null, or the registers at the site of the call in which the calling thread is.
    let frame = unsafe { frame.as_ref() };
    frame.map_or(u64::from(u32::MAX), |frame| {
        (frame.rax & 0xffff_ffff) | frame.rdi << 32
    })
}

fn choose_processors(processors: &mut [u32; 1024]) -> usize {
    affinity::note();
    let mut mask = [0u64; 128];
    let count = limits::processors_into(&mut mask, processors);
    // SAFETY: asks only.
    let current = unsafe { libc::sched_getcpu() };
    let wanted = match GUEST.vps.load(Ordering::Relaxed) as usize {
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

/// Returns the order in which the core runs ready threads.
fn order(policy: Policy) -> Order {
    match policy {
        Policy::Lifo => Order::Lifo,
        Policy::RoundRobin | Policy::Priority | Policy::Deadline => Order::RoundRobin,
        Policy::Fifo => Order::Fifo,
        Policy::ForkedFirst | Policy::Advised => Order::ForkedFirst,
    }
}

/// See [`crate::ground::hooks::Hooks::in_child`].
pub fn in_child() {
    agents::forget();
    shell::forget();
    stuck::forget();
    credentials::forget();
    turns::registry::forget();
    live::forget();
}

/// See [`crate::ground::state::Guest::report`].
pub fn at_exit() {
    let Some(runtime) = GUEST.runtime() else {
        return;
    };
    let kernel = runtime.kernel();
    kernel.turns().leave(kernel.now());
    if GUEST.stats.load(Ordering::Relaxed) {
        stats::print(runtime, GUEST.report_to.load(Ordering::Relaxed));
    }
}
