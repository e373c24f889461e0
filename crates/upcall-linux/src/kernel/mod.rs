//! Implements the kernel trait ([`Kernel`](upcall_core::Kernel)) on Linux with what an unprivileged process may use.

pub mod affinity;
pub(crate) mod pace;
mod trace;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use upcall_core::kernel::{Attributes, Poll, Share, Vessels};
use upcall_core::{Activity, Errno, Machine, Slot, ThreadList, Vp, Waiting};

use crate::activation::{preempt, spawn};
use crate::blocked::page::Scheduler;
use crate::blocked::watch::Watch;
use crate::poller::choice;
use crate::processors::quota::Quota;
use crate::record::Recorder;
use crate::state::barriers::Barriers;
use crate::state::{
    Activation, Entered, Inside, Linux, LinuxActivation, LinuxThread, Poller, Runtime, Settings,
    Sleeps, Thread, activations, base, cpu_time, follows, kernel_slices,
};
use crate::sys::procfs::may_be_filtered;
use crate::sys::{self, descriptors, live, memory, vdso};
use crate::turns::Turns;

const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;
const MADV_GUARD_INSTALL: usize = 102;
const PAGE: usize = 4096;

impl Linux {
    /// Opens the backend for the calling process.
    ///
    /// # Errors
    ///
    /// The kernel's error when it gives no epoll, event or timer descriptor.
    pub fn open(settings: Settings) -> Result<Self, Errno> {
        base::detect();
        vdso::detect();
        activations::forget();
        if settings.hooks.runs.is_some() {
            follows::begin(follows::HOOK);
        }
        let filtered = may_be_filtered();
        kernel_slices::look(filtered);
        // SAFETY: asks only.
        let pid = unsafe { sys!(sys::SYS_getpid) } as i32;
        Ok(Linux {
            settings,
            pid,
            // First, since it may fail, and a place among the others would be kept.
            poller: Poller::open()?,
            sentinels: AtomicBool::new(settings.sentinel),
            watch: Watch::default(),
            first: Slot::empty(),
            quota: Quota::new(),
            // Without a registry the kernel alone divides the processors; the counters and `doctor` say why.
            turns: if settings.takes_turns {
                Turns::join(pid, settings.adapts, settings.share)
            } else {
                Turns::none()
            },
            recorder: Recorder::default(),
            filtered: AtomicBool::new(filtered),
            barriers: Barriers::new(filtered),
            scheduler: if settings.is_observed {
                Scheduler::ask(vdso::monotonic_ns())
            } else {
                Scheduler::default()
            },
        })
    }

    /// Returns true if standbys are sentinels. A sentinel is in the idle scheduling class, runs no threads, and
    /// may not get to run for long.
    #[inline]
    pub(crate) fn uses_sentinels(&self) -> bool {
        self.sentinels.load(Ordering::Relaxed)
    }

    /// From now on standbys are sentinels. The present ones become sentinels where they are, at
    /// their next look at the owner.
    #[cold]
    pub(crate) fn use_sentinels(&self) {
        self.sentinels.store(true, Ordering::Relaxed);
    }

    /// Binds the calling activation after something else has changed its mask.
    pub fn bind_again(&self, activation: &Activation) {
        activation.kernel.binding.forget();
        self.bind(activation);
    }

    /// The calling activation, which is inside the runtime, is about to wait for something from outside. In one of many waits it
    /// roams: the kernel chooses where it wakes. Returns true if this is one: then [`Linux::end_roaming`] must follow.
    fn begin_wait(&self, activation: &Activation) -> bool {
        self.may_roam(activation)
            && activation.kernel.binding.counts_wait()
            && self.begin_roaming(activation)
    }

    /// The same in a thread's own code.
    pub(crate) fn begin_wait_of_thread(&self, runtime: &'static Runtime) -> bool {
        // A hint: the thread may be on another activation next.
        if !self.current().kernel.binding.counts_wait() {
            return false;
        }
        let inside = runtime.enter();
        let roams = self.may_roam(&inside) && self.begin_roaming(&inside);
        inside.leave();
        roams
    }

    #[cold]
    fn begin_roaming(&self, activation: &Activation) -> bool {
        let roams = activation.kernel.binding.begins_to_roam();
        if roams && !self.may_roam(activation) {
            // Who has begun to stand by meanwhile may have found it bound.
            self.bind(activation);
        }
        roams
    }

    /// The same at its end. The thread may be on another activation now: the one with which it waited has bound itself then.
    #[cold]
    pub(crate) fn end_wait_of_thread(&self, runtime: &'static Runtime) {
        let inside = runtime.enter();
        if inside.kernel.binding.roams() {
            self.end_roaming(&inside);
        }
        inside.leave();
    }

    /// Returns true if the activation owns its virtual processor, and nobody stands by there who would have to be on the same
    /// processor.
    fn may_roam(&self, activation: &Activation) -> bool {
        let vp = activation.vp();
        activation.runtime().is_unwatched(vp)
            && vp.word().is_owned_by(activation)
            && !self.uses_sentinels()
            && !self.turns.is_contended()
            && !self.filtered.load(Ordering::Relaxed)
    }

    /// The calling activation, which is inside the runtime, has roamed: its virtual processor follows to where it is.
    #[cold]
    fn end_roaming(&self, activation: &Activation) {
        let binding = &activation.kernel.binding;
        if !affinity::is_ours(activation) {
            // The mask that somebody has given it meanwhile would be lost.
            return affinity::refresh(activation);
        }
        let moves = binding.roams() && self.may_roam(activation);
        binding.has_roamed(moves && pace::settle(activation));
        self.bind(activation);
    }

    /// How long the poller may sleep, milliseconds; -1 for ever.
    fn pause(&self, waits_for_turn: bool) -> isize {
        if waits_for_turn {
            // Those that ring for a turn do not know of this sleep.
            1
        } else if self.uses_sentinels() {
            self.watch.pause(self.now())
        } else {
            -1
        }
    }

    /// Whether the activation has a virtual processor that waits for its turn. For want of spares it may sit in
    /// the poller.
    fn waits_for_turn(&self, activation: &Activation) -> bool {
        let vp = activation.vp();
        !self.may_run(vp) && vp.word().is_owned_by(activation)
    }

    /// A standby looks at an owner where standbys are sentinels. An ordinary one becomes a sentinel.
    #[cold]
    fn look_as_sentinel(&self, owner: &Activation) {
        // SAFETY: activations call this.
        let standby = unsafe { base::current() };
        let state = &standby.kernel;
        if !state.sentinel.load(Ordering::Relaxed) {
            if standby.activity() == Activity::Standby {
                state.sentinel.store(true, Ordering::Relaxed);
                spawn::become_sentinel();
            }
        } else if state
            .glance
            .is_late(owner.kernel.tid.load(Ordering::Relaxed), self.now())
        {
            self.watch_owners(self.now());
        }
    }

    /// Others keep a processor busy.
    pub(crate) fn watch_owners(&self, now: u64) {
        if self.watch.begin(now) && self.uses_sentinels() {
            // The activation in it sleeps without end so far.
            self.poller.kick();
        }
    }

    /// Prepares a sleep: whether nothing has come that forbids it.
    fn lie_down(&self, activation: &Activation, how: Sleeps) -> bool {
        let state = &activation.kernel;
        // First the mark, then the mask: a thread that changes what the mask depends on looks at the mark.
        state.waiting.store(how, Ordering::SeqCst);
        self.set_resting_mask(activation);
        if !state.inbox.is_empty() {
            state.waiting.store(Sleeps::Nowhere, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Sleeps while the wake word is `seen`, for so many nanoseconds at most.
    fn sleep_in_futex(&self, activation: &Activation, seen: u32, limit_ns: Option<u64>) {
        if !self.lie_down(activation, Sleeps::InFutex) {
            return;
        }
        let limit = limit_ns.map(|ns| libc::timespec {
            tv_sec: 0,
            tv_nsec: ns as i64,
        });
        // SAFETY: the word lives as long as the activation, and the limit, if any, until the call returns.
        unsafe {
            sys!(
                sys::SYS_futex,
                activation.wake_word().as_ptr(),
                FUTEX_WAIT_PRIVATE,
                seen,
                limit
                    .as_ref()
                    .map_or(core::ptr::null(), core::ptr::from_ref)
            )
        };
        activation
            .kernel
            .waiting
            .store(Sleeps::Nowhere, Ordering::Relaxed);
    }

    /// A program that goes on with fewer virtual processors uses as many as its quota comes to.
    fn follow_quota(&self, activation: &Activation) {
        let runtime = activation.runtime();
        let vps = runtime.vps();
        let least = self.settings.adapts;
        if least == 0 {
            return;
        }
        let Some((before, after)) = self.quota.look(self.now(), least, vps.len() as u32) else {
            return;
        };
        self.turns.use_at_most(after);
        let (before, after) = (before as usize, after as usize);
        // The caller looks by itself.
        let others = |vp: &&'static Vp<Self>| !core::ptr::eq(*vp, activation.vp());
        for vp in vps.get(after..before).unwrap_or(&[]).iter().filter(others) {
            runtime.recall(vp);
        }
        let back = vps.get(before..after).unwrap_or(&[]);
        if !back.is_empty() {
            runtime.added(back.iter());
        }
        for vp in back {
            let owner = vp.word().owner();
            owner.wake_word().fetch_add(1, Ordering::SeqCst);
            self.wake(owner);
        }
    }
}

impl Drop for Linux {
    /// There was no memory for the runtime: the others need not wait for this process.
    fn drop(&mut self) {
        self.turns.leave(vdso::monotonic_ns());
    }
}

// SAFETY: `map` never unmaps.
unsafe impl Machine for Linux {
    type ActivationState = LinuxActivation;
    type ThreadState = LinuxThread;

    #[inline]
    fn now(&self) -> u64 {
        vdso::monotonic_ns()
    }

    fn yield_processor(&self) {
        sys::yield_processor();
    }

    /// The holder may be a sentinel, or the one that waits a kernel thread with a real-time policy, which is no activation:
    /// the one never runs beside one that only yields, nor does an ordinary kernel thread beside the other.
    fn await_holder(&self) {
        if !self.uses_sentinels() && !activations::is_mark(base::read()) {
            self.yield_processor();
            return;
        }
        let moment = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1,
        };
        // SAFETY: reads the structure.
        unsafe { sys!(libc::SYS_nanosleep, &raw const moment, 0) };
    }

    fn map(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        NonNull::new(memory::map(length)? as *mut u8).ok_or(Errno(libc::ENOMEM))
    }

    fn map_activations(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        NonNull::new(activations::map(length)? as *mut u8).ok_or(Errno(libc::ENOMEM))
    }

    fn map_stacks(&self, length: usize) -> Result<NonNull<u8>, Errno> {
        NonNull::new(memory::map_apart(length)? as *mut u8).ok_or(Errno(libc::ENOMEM))
    }

    fn share(&self, page: NonNull<u8>) {
        live::share(page.as_ptr() as usize);
    }

    fn guard(&self, page: NonNull<u8>, length: usize) {
        // SAFETY: the caller owns the pages, which hold nothing yet.
        unsafe {
            if sys!(sys::SYS_madvise, page.as_ptr(), length, MADV_GUARD_INSTALL) < 0 {
                // Before Linux 6.13: a mapping of its own, or, out of mappings, no guard.
                sys!(
                    sys::SYS_mprotect,
                    page.as_ptr(),
                    length.max(PAGE),
                    libc::PROT_NONE
                );
            }
        }
    }

    fn advice_is_late(&self) {
        static SAID: AtomicBool = AtomicBool::new(false);
        if !SAID.swap(true, Ordering::Relaxed) {
            sys::say(b"upcall: the policy has taken longer than a time slice; threads go on without it\n");
        }
    }

    fn has_barriers(&self) -> bool {
        self.barriers.begin()
    }

    fn pass_barriers(&self) -> bool {
        self.barriers.pass()
    }

    fn broken(&self, what: &str) -> ! {
        sys::say(b"upcall: broken invariant: ");
        sys::say(what.as_bytes());
        sys::say(b"\nupcall: this is a bug in upcall; the process is stopped before it computes nonsense\n");
        descriptors::abort()
    }
}

// SAFETY: `current` reads the pseudo-register that each activation's kernel thread sets before
// anything else; activations start on their own stacks (`spawn`).
unsafe impl Vessels for Linux {
    #[inline(always)]
    fn current(&self) -> &'static Activation {
        // SAFETY: only activations run the runtime.
        unsafe { base::current() }
    }

    #[inline(always)]
    fn set_inside(&self) {
        // SAFETY: only activations run the runtime.
        unsafe { base::set_inside() }
    }

    #[inline(always)]
    fn clear_inside(&self) -> bool {
        // SAFETY: only activations run the runtime.
        unsafe { base::clear_inside() }
    }

    fn sleep(&self, activation: &Activation, seen: u32) {
        activation.kernel.glance.forget();
        self.sleep_in_futex(activation, seen, None);
    }

    fn wake(&self, activation: &Activation) {
        match activation.kernel.waiting.load(Ordering::SeqCst) {
            Sleeps::InFutex => {
                // SAFETY: wakes on an address; touches no memory.
                unsafe {
                    sys!(
                        sys::SYS_futex,
                        activation.wake_word().as_ptr(),
                        FUTEX_WAKE_PRIVATE,
                        1
                    )
                };
            }
            Sleeps::InPoll => self.poller.kick(),
            Sleeps::InTurn => self.turns.wake(),
            Sleeps::Nowhere => {}
        }
    }

    fn interrupt(&self, activation: &Activation) {
        preempt::interrupt(self.pid, activation);
    }

    fn spawn(&self, activation: &'static Activation, watches: bool) -> Result<(), Errno> {
        (self.settings.hooks.may_start)()?;
        activation.kernel.sentinel.store(watches, Ordering::Relaxed);
        spawn::spawn(activation)
    }

    fn exit_activation(&self, inside: &Inside) -> ! {
        // With its mask open it has perhaps taken one more signal: nothing may be left with it.
        (self.settings.hooks.pass_on)(inside);
        inside.kernel.observer.close();
        preempt::end_slices(inside);
        loop {
            // SAFETY: ends the calling kernel thread, whose stack nobody reuses before the kernel
            // has cleared its id.
            unsafe { sys!(sys::SYS_exit, 0) };
        }
    }

    fn is_gone(&self, activation: &Activation) -> bool {
        activation.kernel.tid.load(Ordering::Acquire) == 0
    }

    #[inline]
    fn bind(&self, activation: &Activation) {
        kernel_slices::stand_by(activation);
        let vp = activation.vp();
        if activation.kernel.binding.bind(vp.processor()) {
            self.note_place(vp);
        }
    }

    #[inline]
    fn hold(&self, vp: &'static Vp<Self>) {
        let owner = vp.word().owner();
        if owner.kernel.binding.roams() {
            let tid = owner.kernel.tid.load(Ordering::Relaxed);
            owner.kernel.binding.bind_other(tid, vp.processor());
        }
    }

    fn look_for_deadlock(&self, inside: &Inside) {
        if !self.poller.has_waiters() {
            (self.settings.hooks.stuck)(inside);
        }
    }
}

impl Attributes for Linux {
    fn begin(&self, thread: &Thread, creator: &Thread) {
        thread.kernel.begin(&creator.kernel);
        (self.settings.hooks.new_thread)(thread, creator);
    }

    #[inline(always)]
    fn install(&self, activation: &Activation, thread: &'static Thread) {
        follows::install(activation, thread);
        let state = &activation.kernel;
        let pointer = thread.kernel.thread_pointer.load(Ordering::Relaxed);
        if state.thread_pointer.load(Ordering::Relaxed) != pointer {
            state.thread_pointer.store(pointer, Ordering::Relaxed);
            // SAFETY: it belongs to the thread that is about to run.
            unsafe { base::set_thread_pointer(activation, pointer) };
        }
        let mask = thread.kernel.mask.load(Ordering::Relaxed) & !preempt::OWN;
        self.install_mask(activation, thread, mask);
        if thread.kernel.pending.load(Ordering::Relaxed) & !mask != 0 {
            activation.attend(Activation::DEFERRED);
        }
    }

    #[inline]
    fn begins(&self, inside: &Inside, ticket: &'static Thread) -> &'static Thread {
        (self.settings.hooks.begins)(inside, ticket)
    }

    #[inline]
    fn uninstall(&self, activation: &Activation, thread: &'static Thread) {
        if base::rest(activation) {
            activation.kernel.thread_pointer.store(0, Ordering::Relaxed);
        }
        cpu_time::ends(activation, thread);
    }

    #[inline]
    fn is_interrupted(&self, thread: &'static Thread) -> bool {
        let state = &thread.kernel;
        state.pending.load(Ordering::SeqCst) & !state.mask.load(Ordering::Relaxed) != 0
    }

    fn deferred(&self, inside: Entered) {
        (self.settings.hooks.deferred)(inside);
    }

    fn pass_on(&self, inside: &Inside) {
        (self.settings.hooks.pass_on)(inside);
    }
}

impl Poll for Linux {
    fn poll(&self, activation: &Activation, wait: Option<u32>) -> ThreadList<Self> {
        let runtime = activation.runtime();
        let Some(seen) = wait else {
            return self.poller.collect(runtime, true, 0);
        };
        if !self.lie_down(activation, Sleeps::InPoll) {
            return self.poller.collect(runtime, false, 0);
        }
        let waiting = &activation.kernel.waiting;
        let block = activation.wake_word().load(Ordering::SeqCst) == seen;
        let waits_for_turn = block && self.waits_for_turn(activation);
        let timeout_ms = if block { self.pause(waits_for_turn) } else { 0 };
        let roams = block && self.begin_wait(activation);
        let list = self.poller.collect(runtime, false, timeout_ms);
        if roams {
            self.end_roaming(activation);
        }
        waiting.store(Sleeps::Nowhere, Ordering::Relaxed);
        if waits_for_turn {
            // Perhaps nobody else is awake to find out that the turn has come.
            self.turns.look(activation, &activation.kernel.sleeps);
        }
        list
    }

    #[inline(always)]
    fn wants_poller(&self) -> bool {
        self.poller.is_wanted() || (self.watch.is_on() && self.uses_sentinels())
    }

    fn set_alarm(&self, deadline: u64) {
        self.poller.set_alarm(deadline);
    }

    fn slack(&self, thread: &'static Thread) -> u64 {
        thread.kernel.slack.ns()
    }
}

impl upcall_core::kernel::Watch for Linux {
    fn is_blocked(&self, activation: &Activation, cheap_doubt: bool) -> bool {
        // SAFETY: activations call this.
        let own = &unsafe { base::current() }.kernel;
        own.slice.stands_by();
        if self.uses_sentinels() {
            self.look_as_sentinel(activation);
        }
        if activation.kernel.timer.load(Ordering::Relaxed) == 0 {
            preempt::start_slices(activation, self.now(), self.settings.slice_ns);
        }
        let tid = activation.kernel.tid.load(Ordering::Relaxed);
        self.scheduler.count();
        activation.kernel.observer.is_blocked(tid, cheap_doubt, || {
            self.scheduler
                .says_blocked(tid, own.tid.load(Ordering::Relaxed), &own.seen)
        })
    }

    fn waits_for_events(&self, owner: &Activation) -> bool {
        choice::blocks(owner)
    }

    fn nap_ns(
        &self,
        standby: &Activation,
        only_events: bool,
        quiet_ns: impl FnOnce() -> u64,
    ) -> Option<u64> {
        kernel_slices::nap_ns(standby, only_events, quiet_ns)
            .filter(|_| !self.uses_sentinels() && !self.turns.is_contended())
    }

    fn nap(&self, standby: &Activation, seen: u32, ns: u64) {
        self.sleep_in_futex(standby, seen, Some(ns));
    }

    fn computes(&self, owner: &Activation, dispatches: u64) {
        preempt::end_late_slice(self.pid, owner, dispatches, self.settings.slice_ns);
    }

    fn waiting(&self, activation: &Activation) -> Waiting {
        activation
            .kernel
            .observer
            .waiting(activation.kernel.tid.load(Ordering::Relaxed))
    }

    #[cold]
    fn overdue(&self) {
        self.watch_owners(self.now());
    }

    #[inline]
    fn needs_heirs(&self) -> bool {
        self.uses_sentinels()
    }
}

impl Share for Linux {
    fn tick(&self, inside: &Inside, thread: &'static Thread) {
        let activation: &Activation = inside;
        self.bind(activation);
        affinity::tick(activation);
        self.scheduler.tick(self.now());
        let spent = pace::tick(activation, self.turns.is_contended());
        cpu_time::slice(thread, self.settings.slice_ns);
        (self.settings.hooks.tick)(inside, thread);
        self.follow_quota(activation);
        let in_section = thread.is_in_section();
        self.turns
            .tick(activation, &activation.kernel.sleeps, spent, in_section);
    }

    #[inline]
    fn crowded(&self) -> bool {
        self.watch.is_on()
    }

    #[inline]
    fn may_run(&self, vp: &'static Vp<Self>) -> bool {
        vp.index() < self.quota.in_use() && self.turns.may_run(vp.processor())
    }

    fn may_finish(&self, _vp: &'static Vp<Self>) -> bool {
        self.turns.may_finish()
    }

    fn await_turn(&self, activation: &Activation, seen: u32) {
        if activation.vp().index() >= self.quota.in_use() {
            return self.sleep(activation, seen);
        }
        if !self.lie_down(activation, Sleeps::InTurn) {
            return;
        }
        let waiting = &activation.kernel.waiting;
        self.turns.sleep(activation, &activation.kernel.sleeps, || {
            activation.wake_word().load(Ordering::SeqCst) != seen
        });
        waiting.store(Sleeps::Nowhere, Ordering::Relaxed);
        if self.may_run(activation.vp()) {
            let state = &activation.kernel;
            let tid = state.tid.load(Ordering::Relaxed);
            state.slice.begins(tid, self.now());
        }
    }

    #[inline]
    fn is_contended(&self) -> bool {
        self.turns.is_contended()
    }

    #[inline]
    fn resting(&self, activation: &Activation) {
        self.turns.resting(activation, activation.vp().processor());
    }
}
