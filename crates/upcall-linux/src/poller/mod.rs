//! Parks threads that wait for descriptors on one epoll instance, so that they block no activation.
//!
//! A descriptor is registered once, edge-triggered for everything. It stays registered until it is closed, or until it
//! brings edges that nobody waits for. A wait for one descriptor or several goes like this:
//! 1. The thread notes how many edges each of its descriptors has seen ([`Poller::watch`]).
//! 2. It tries its call without blocking (`RWF_NOWAIT`, `MSG_DONTWAIT`, or a poll(2) or epoll_wait(2) that does not
//!    wait). The flags of the file description are never changed, because other processes may share it. If the call would
//!    block, the thread calls [`Poller::wait`]. A read that is known to be vain is not tried (`drained`).
//! 3. It enters the list of each descriptor and declares itself findable. Then it looks whether an edge has come since
//!    step 1. If so it tries again at once. If not it parks.
//! 4. The activation that collects an edge counts it first. Then it wakes all threads that wait for such an edge, and each
//!    tries again. So the thread sees an edge between steps 1 and 3, and a later edge finds the thread.
//!
//! The program's own epoll instances are descriptors like others: our watch is one more level of nesting, and the
//! program's registrations keep the kernel's meaning (EPOLLET, EPOLLONESHOT). The kernel limits the nesting. Where our
//! watch would break the program's registration, it is removed ([`Poller::give_way`]).
//!
//! The same instance has a timerfd for the deadlines of all threads, and an eventfd that wakes the activation in it.

pub mod choice;
mod drained;
mod forget;
mod known;
pub mod prepared;
mod wait;

pub use crate::state::Poller;
pub use forget::When;
pub use known::Kind;
pub use wait::{Readiness, Wants, Watch, pause};

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use libc::epoll_event;
use upcall_core::{Errno, Slot, SpinLock, ThreadList};

use crate::state::{DESCRIPTORS, Descriptor, Entry, Known, Linux, READERS, Runtime, Waiters};
use crate::sys::{self, memory, vdso};

const EPOLL_CTL_ADD: usize = 1;
const EPOLL_CTL_DEL: usize = 2;
const EPOLLIN: u32 = 1;
const EPOLLOUT: u32 = 4;
const EPOLLRDNORM: u32 = 0x40;
const EPOLLERR: u32 = 8;
const EPOLLHUP: u32 = 16;
const EPOLLWRNORM: u32 = 0x100;
const EPOLLWRBAND: u32 = 0x200;
const EPOLLET: u32 = 1 << 31;
/// All that poll(2) may ask for: IN, PRI, OUT, the normal and band variants, MSG and RDHUP.
const EVERYTHING: u32 = 0x27c7;
const EVENTS: usize = 64;

/// Edges, and blocking calls, since anybody last waited for a descriptor, after which nobody is woken
/// for it any more.
const UNWANTED: u32 = 4;

const KICK: u64 = u64::MAX;
const ALARM: u64 = u64::MAX - 1;

/// What an edge says that is for data only.
const PLAIN: u32 = EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;

/// What an edge is for: bits of [`Wants`].
fn meaning(events: u32) -> u32 {
    const OUT: u32 = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
    if events & (EPOLLERR | EPOLLHUP) != 0 {
        return wait::ANY;
    }
    let out = if events & OUT != 0 { Wants::OUT.0 } else { 0 };
    let within = if events & !OUT != 0 { Wants::IN.0 } else { 0 };
    out | within
}

impl Poller {
    pub(crate) fn open() -> Result<Self, Errno> {
        let [epoll, kick, alarm] = prepared::take()?;
        // SAFETY: a new mapping, zeroed, of which only touched pages cost memory.
        let (entries, known) = unsafe {
            let memory = memory::map(DESCRIPTORS * (size_of::<Entry>() + size_of::<Known>()))?;
            // An all-zero entry is an open lock around an unregistered descriptor.
            let entries = core::slice::from_raw_parts(memory as *const Entry, DESCRIPTORS);
            let behind = memory + size_of_val(entries);
            let known = core::slice::from_raw_parts(behind as *const Known, DESCRIPTORS);
            (entries, known)
        };
        Ok(Poller {
            epoll,
            kick,
            alarm,
            entries,
            known,
            readers: [const { AtomicU32::new(0) }; READERS],
            nodes: SpinLock::new(Slot::empty()),
            waiters: Waiters::default(),
            alarm_ns: AtomicU64::new(0),
            highest: AtomicU32::new(0),
            flags_epoch: AtomicU32::new(0),
            writes: AtomicU32::new(0),
            shallow: AtomicU32::new(0),
            disturbed: AtomicBool::new(false),
            has_no_alarm: AtomicBool::new(false),
        })
    }

    fn control(&self, operation: usize, descriptor: i32, events: u32, data: u64) -> sys::Answer {
        control(self.epoll, operation, descriptor, events, data)
    }

    /// Makes the activation that sits in [`Poller::collect`] return.
    pub(crate) fn kick(&self) {
        let one = 1u64;
        // SAFETY: reads eight bytes.
        unsafe { sys!(sys::SYS_write, self.kick, &raw const one, 8) };
    }

    /// Whether a thread waits for a descriptor.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.are_there()
    }

    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiters.wait() || self.alarm_ns.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_alarm(&self, deadline: u64) {
        if deadline == u64::MAX {
            self.alarm_ns.store(0, Ordering::Relaxed);
            return;
        }
        self.alarm_ns.store(deadline.max(1), Ordering::Relaxed);
        let time = libc::timespec {
            tv_sec: (deadline / 1_000_000_000) as i64,
            // Zero would disarm.
            tv_nsec: (deadline % 1_000_000_000).max(1) as i64,
        };
        let setting = [
            libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            time,
        ];
        // SAFETY: reads two timespecs.
        let answer = unsafe {
            sys!(
                sys::SYS_timerfd_settime,
                self.alarm,
                libc::TFD_TIMER_ABSTIME,
                setting.as_ptr(),
                0
            )
        };
        if answer < 0 {
            // A filter of the program's forbids it. An activation that sits there already must not sit too long.
            self.has_no_alarm.store(true, Ordering::SeqCst);
            self.kick();
        }
    }

    /// How long to wait for events, if the alarm does not ring.
    #[cold]
    fn until_alarm(&self, timeout_ms: isize) -> isize {
        let alarm = self.alarm_ns.load(Ordering::SeqCst);
        if alarm == 0 {
            return timeout_ms;
        }
        let left_ms = alarm
            .saturating_sub(vdso::monotonic_ns())
            .div_ceil(1_000_000);
        let left_ms = left_ms.min(i32::MAX as u64) as isize;
        if timeout_ms < 0 {
            left_ms
        } else {
            timeout_ms.min(left_ms)
        }
    }

    /// The threads whose descriptors or deadlines have come; waits up to `timeout_ms` for some event (-1: for ever).
    /// A `visitor` does not sit in the seat: what it finds of wake-ups is meant for another.
    pub(crate) fn collect(
        &self,
        runtime: &'static Runtime,
        visitor: bool,
        timeout_ms: isize,
    ) -> ThreadList<Linux> {
        // Not initialised: each look would write all of it.
        let mut events = [const { MaybeUninit::<epoll_event>::uninit() }; EVENTS];
        let mut list = ThreadList::new();
        let timeout_ms = if self.has_no_alarm.load(Ordering::SeqCst) {
            self.until_alarm(timeout_ms)
        } else {
            timeout_ms
        };
        // SAFETY: writes at most EVENTS events.
        let count = unsafe {
            sys!(
                sys::SYS_epoll_pwait,
                self.epoll,
                events.as_mut_ptr(),
                EVENTS,
                timeout_ms,
                0,
                8
            )
        };
        let mut expire = false;
        for event in &events[..count.max(0) as usize] {
            // SAFETY: the kernel has filled in so many.
            let epoll_event {
                events: bits,
                u64: data,
            } = unsafe { event.assume_init() };
            match data {
                // The edge is gone for the activation that sleeps in the seat, if there is another one.
                KICK if visitor && runtime.seat_is_taken() => self.kick(),
                KICK => {}
                ALARM => expire = true,
                descriptor => self.fire(runtime, descriptor as usize, bits, &mut list),
            }
        }
        // Acquire: pairs with the Release in `disturb_from_outside`.
        if self.disturbed.load(Ordering::Relaxed) && self.disturbed.swap(false, Ordering::Acquire) {
            for descriptor in 0..=self.highest.load(Ordering::Relaxed) as usize {
                let state = self.entries[descriptor].lock(runtime.kernel());
                self.edge(descriptor, &state, wait::ANY, &mut list);
            }
        }
        let alarm = self.alarm_ns.load(Ordering::Relaxed);
        if expire || (alarm != 0 && vdso::monotonic_ns() >= alarm) {
            runtime.expire(&mut list);
        }
        list
    }

    fn fire(
        &self,
        runtime: &'static Runtime,
        descriptor: usize,
        bits: u32,
        list: &mut ThreadList<Linux>,
    ) {
        if let Some(entry) = self.entries.get(descriptor) {
            let mut state = entry.lock(runtime.kernel());
            if bits & !PLAIN != 0 {
                self.known[descriptor]
                    .eventful
                    .store(true, Ordering::Relaxed);
            }
            self.edge(descriptor, &state, meaning(bits), list);
            self.count_unwanted(descriptor as i32, &mut state);
        }
    }

    fn count_unwanted(&self, descriptor: i32, state: &mut Descriptor) {
        state.unwanted += 1;
        if state.unwanted > UNWANTED && state.first.get(Ordering::Relaxed).is_none() {
            self.unregister(descriptor);
        }
    }

    /// A thread is about to block its activation in a call on the descriptor. If that goes on, nobody
    /// is woken for its edges any more: the activation that sits here would find the file drained, and the
    /// kernel does not even let it return to say so. Outside the runtime.
    #[inline]
    pub fn goes_unwanted(&self, runtime: &'static Runtime, descriptor: i32) {
        let registered = |known: &Known| known.registered.load(Ordering::Relaxed);
        if self.known.get(descriptor as usize).is_some_and(registered) {
            self.neglect(runtime, descriptor);
        }
    }

    #[cold]
    fn neglect(&self, runtime: &'static Runtime, descriptor: i32) {
        let inside = runtime.enter();
        let mut state = self.entries[descriptor as usize].lock(runtime.kernel());
        self.count_unwanted(descriptor, &mut state);
        drop(state);
        inside.leave();
    }
}

fn control(epoll: i32, operation: usize, descriptor: i32, events: u32, data: u64) -> sys::Answer {
    let event = epoll_event {
        events: events | EPOLLET,
        u64: data,
    };
    // SAFETY: reads the structure.
    unsafe {
        sys!(
            sys::SYS_epoll_ctl,
            epoll,
            operation,
            descriptor,
            &raw const event
        )
    }
}

fn slot(inode: u64) -> usize {
    (inode.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - READERS.trailing_zeros())) as usize
}
