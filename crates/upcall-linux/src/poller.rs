//! Threads that wait for descriptors: parked on one epoll instance instead of blocking an
//! activation each.
//!
//! A descriptor is registered once, edge-triggered for both directions, and stays registered
//! until it is closed. Protocol of a wait:
//! 1. The thread tries its call without blocking (`RWF_NOWAIT`, `MSG_DONTWAIT`, poll(2)): the flags of
//!    the file description, which other processes may share, are never changed. Only when
//!    the call would block does it come here.
//! 2. Under the entry's lock: if an edge has come since the last wait, it is consumed and the
//!    thread tries again; else the thread enters the entry's list and parks.
//! 3. Whoever collects events takes all waiters of a direction; each tries again. An edge without
//!    waiters is kept in the entry.
//!
//! Deadlines of all threads ring through a timerfd in the same instance; wake-ups of the activation
//! that sits in the poller, through an eventfd. Approach rejected: one-shot registrations, which
//! need a system call a wait.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use upcall_core::thread::Claim;
use upcall_core::{Errno, Slot, SpinLock, ThreadList, WakeReason};

use crate::kernel::Linux;
use crate::sys::{self, error};
use crate::{Activation, Runtime, Thread, descriptors, vdso};

const EPOLL_CTL_ADD: usize = 1;
const EPOLL_CTL_DEL: usize = 2;
const EPOLLIN: u32 = 1;
const EPOLLOUT: u32 = 4;
const EPOLLERR: u32 = 8;
const EPOLLHUP: u32 = 16;
const EPOLLRDHUP: u32 = 0x2000;
const EPOLLET: u32 = 1 << 31;
const EVENTS: usize = 64;
/// Descriptors above this are not parked on; they block an activation.
const DESCRIPTORS: usize = 1 << 20;

const READERS: usize = 256;

const KICK: u64 = u64::MAX;
const ALARM: u64 = u64::MAX - 1;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Something to read, accept, or end of file.
    In,
    /// Room to write, or connected.
    Out,
}

/// What waiting for a descriptor ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// Try the call again.
    Try,
    /// The deadline passed.
    TimedOut,
    /// A signal for the thread came.
    Interrupted,
    /// The descriptor cannot be polled: block on it.
    NotPollable,
}

#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Event {
    events: u32,
    data: u64,
}

/// What is known about a descriptor. A hint: other processes and unseen calls may have changed
/// what the number means, and every use survives that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Kind {
    /// Nothing yet.
    #[default]
    Unknown = 0,
    /// A pipe or FIFO.
    Pipe = 1,
    /// A socket.
    Socket = 2,
    /// A regular file, directory or block device: its calls do not wait for anybody.
    File = 3,
    /// Anything else.
    Other = 4,
}

struct State {
    registered: bool,
    refused: bool,
    edge_in: bool,
    edge_out: bool,
    first_in: Slot<Thread>,
    first_out: Slot<Thread>,
    /// The pipe's inode number.
    inode: u64,
}

/// What may be read of an entry without its lock.
#[derive(Default)]
///
/// The low byte is the [`Kind`]; above it, 1 + the epoch of file flags in which the descriptor was
/// seen without O_NONBLOCK.
struct Known(AtomicU32);

const KIND: u32 = 0xff;
const EPOCH_SHIFT: u32 = 8;

impl Known {
    fn kind(&self) -> Kind {
        match self.0.load(Ordering::Relaxed) & KIND {
            1 => Kind::Pipe,
            2 => Kind::Socket,
            3 => Kind::File,
            4 => Kind::Other,
            _ => Kind::Unknown,
        }
    }
}

type Entry = SpinLock<State>;

/// The poller of a runtime.
pub struct Poller {
    epoll: i32,
    kick: i32,
    alarm: i32,
    entries: &'static [Entry],
    known: &'static [Known],
    /// The last descriptor on which a thread waited for a pipe, by the pipe's inode number.
    readers: [AtomicU32; READERS],
    waiters: AtomicU32,
    alarm_ns: AtomicU64,
    /// The largest number that was ever registered.
    highest: AtomicU32,
    /// Counts the program's changes of file flags.
    flags_epoch: AtomicU32,
}

impl Poller {
    pub(crate) fn open() -> Result<Self, Errno> {
        // SAFETY: new descriptors; a new mapping, zeroed, of which only touched pages cost memory.
        let (epoll, kick, alarm, entries, known) = unsafe {
            let epoll = descriptors::keep(sys!(sys::SYS_epoll_create1, libc::EPOLL_CLOEXEC))?;
            let kick = descriptors::keep(sys!(
                sys::SYS_eventfd2,
                0,
                libc::EFD_CLOEXEC | libc::EFD_NONBLOCK
            ))?;
            let alarm = descriptors::keep(sys!(
                sys::SYS_timerfd_create,
                libc::CLOCK_MONOTONIC,
                libc::TFD_CLOEXEC | libc::TFD_NONBLOCK
            ))?;
            let memory = sys!(
                sys::SYS_mmap,
                0,
                DESCRIPTORS * (size_of::<Entry>() + size_of::<Known>()),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                usize::MAX,
                0
            );
            if let Some(number) = error(memory) {
                return Err(Errno(number));
            }
            // An all-zero entry is an open lock around an unregistered descriptor.
            let entries = core::slice::from_raw_parts(memory as *const Entry, DESCRIPTORS);
            let behind = memory as usize + size_of_val(entries);
            let known = core::slice::from_raw_parts(behind as *const Known, DESCRIPTORS);
            (epoll, kick, alarm, entries, known)
        };
        let poller = Poller {
            epoll,
            kick,
            alarm,
            entries,
            known,
            readers: [const { AtomicU32::new(0) }; READERS],
            waiters: AtomicU32::new(0),
            alarm_ns: AtomicU64::new(0),
            highest: AtomicU32::new(0),
            flags_epoch: AtomicU32::new(0),
        };
        for (descriptor, data) in [(kick, KICK), (alarm, ALARM)] {
            if let Some(number) = error(poller.control(EPOLL_CTL_ADD, descriptor, EPOLLIN, data)) {
                return Err(Errno(number));
            }
        }
        Ok(poller)
    }

    fn control(&self, operation: usize, descriptor: i32, events: u32, data: u64) -> sys::Answer {
        let event = Event {
            events: events | EPOLLET,
            data,
        };
        // SAFETY: reads twelve bytes.
        unsafe {
            sys!(
                sys::SYS_epoll_ctl,
                self.epoll,
                operation,
                descriptor,
                &raw const event
            )
        }
    }

    /// Makes the one who sits in [`Poller::collect`] return.
    pub(crate) fn kick(&self) {
        let one = 1u64;
        // SAFETY: reads eight bytes.
        unsafe { sys!(sys::SYS_write, self.kick, &raw const one, 8) };
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0 || self.alarm_ns.load(Ordering::Relaxed) != 0
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
        unsafe {
            sys!(
                sys::SYS_timerfd_settime,
                self.alarm,
                libc::TFD_TIMER_ABSTIME,
                setting.as_ptr(),
                0
            )
        };
    }

    /// The threads whose descriptors or deadlines have come; waits for some event so long (-1: for ever). A
    /// `visitor` does not sit in the seat: what it finds of wake-ups is meant for another.
    pub(crate) fn collect(
        &self,
        runtime: &'static Runtime,
        visitor: bool,
        timeout_ms: isize,
    ) -> ThreadList<Linux> {
        let mut events = [Event { events: 0, data: 0 }; EVENTS];
        let mut list = ThreadList::new();
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
            let (bits, data) = (event.events, event.data);
            match data {
                // The edge is gone for the one who sleeps in the seat: another.
                KICK if visitor => self.kick(),
                KICK => {}
                ALARM => expire = true,
                descriptor => self.fire(runtime, descriptor as usize, bits, &mut list),
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
        let Some(entry) = self.entries.get(descriptor) else {
            return;
        };
        let mut state = entry.lock(runtime.kernel());
        let both = bits & (EPOLLERR | EPOLLHUP) != 0;
        if both || bits & (EPOLLIN | EPOLLRDHUP) != 0 {
            state.edge_in |= !claim_all(&state.first_in, list);
        }
        if both || bits & EPOLLOUT != 0 {
            state.edge_out |= !claim_all(&state.first_out, list);
        }
    }

    /// Whether the descriptor was seen without O_NONBLOCK since the program last changed any file
    /// flags. Another process that shares the description may have changed them: then the thread
    /// waits where it would have got EAGAIN.
    pub fn is_known_to_wait(&self, descriptor: i32) -> bool {
        self.known.get(descriptor as usize).is_some_and(|known| {
            known.0.load(Ordering::Relaxed) >> EPOCH_SHIFT == self.epoch_mark()
        })
    }

    /// The descriptor has no O_NONBLOCK.
    pub fn note_waits(&self, descriptor: i32) {
        if let Some(known) = self.known.get(descriptor as usize) {
            let kind = known.0.load(Ordering::Relaxed) & KIND;
            // What is not known at all is not remembered: it would not be forgotten at close.
            if kind != 0 {
                let mark = self.epoch_mark() << EPOCH_SHIFT;
                known.0.store(mark | kind, Ordering::Relaxed);
            }
        }
    }

    /// The program has changed some description's flags.
    pub fn flags_change(&self) {
        self.flags_epoch.fetch_add(1, Ordering::Relaxed);
    }

    fn epoch_mark(&self) -> u32 {
        (self.flags_epoch.load(Ordering::Relaxed) & (u32::MAX >> EPOCH_SHIFT >> 1)) + 1
    }

    /// What kind of descriptor it is; asks the kernel the first time.
    pub fn kind(&self, runtime: &'static Runtime, descriptor: i32) -> Kind {
        let Some(known) = self.known.get(descriptor as usize) else {
            return Kind::Other;
        };
        match known.kind() {
            Kind::Unknown => self.learn_kind(runtime, descriptor),
            kind => kind,
        }
    }

    #[cold]
    fn learn_kind(&self, runtime: &'static Runtime, descriptor: i32) -> Kind {
        // SAFETY: an all-zero stat is valid; fstat fills it in.
        let (answer, status) = unsafe {
            let mut status: libc::stat = core::mem::zeroed();
            (sys!(libc::SYS_fstat, descriptor, &raw mut status), status)
        };
        if answer != 0 {
            return Kind::Other;
        }
        let kind = match status.st_mode & libc::S_IFMT {
            libc::S_IFIFO => Kind::Pipe,
            libc::S_IFSOCK => Kind::Socket,
            libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => Kind::File,
            _ => Kind::Other,
        };
        let activation = runtime.enter();
        {
            let mut state = self.entries[descriptor as usize].lock(runtime.kernel());
            state.inode = if kind == Kind::Pipe { status.st_ino } else { 0 };
            self.highest.fetch_max(descriptor as u32, Ordering::Relaxed);
            self.known[descriptor as usize]
                .0
                .store(kind as u32, Ordering::Relaxed);
        }
        runtime.leave(activation);
        kind
    }

    /// The program has written to a pipe: threads of this process that wait for it are made
    /// ready at once. The event reaches the poller as well; whoever finds nothing waits again.
    pub fn written(&self, runtime: &'static Runtime, descriptor: i32) {
        if self.waiters.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(entry) = self.entries.get(descriptor as usize) else {
            return;
        };
        let activation = runtime.enter();
        let inode = entry.lock(runtime.kernel()).inode;
        let reader = self.readers[slot(inode)].load(Ordering::Relaxed) as usize;
        let mut list = ThreadList::new();
        if inode != 0
            && let Some(entry) = self.entries.get(reader)
        {
            let state = entry.lock(runtime.kernel());
            if state.inode == inode {
                claim_all(&state.first_in, &mut list);
            }
        }
        while let Some(thread) = list.pop_front() {
            runtime.make_ready(activation, thread);
        }
        runtime.leave(activation);
    }

    /// Parks the current thread until `descriptor` may be ready. Called from the thread's own code,
    /// outside the runtime, after the call itself would have blocked.
    pub fn wait(
        &'static self,
        runtime: &'static Runtime,
        descriptor: i32,
        direction: Direction,
        deadline: Option<u64>,
    ) -> Readiness {
        let Some(entry) = self.entries.get(descriptor as usize) else {
            return Readiness::NotPollable;
        };
        let activation = runtime.enter();
        let mut state = entry.lock(runtime.kernel());
        if !state.registered {
            let answer = if state.refused {
                -1
            } else {
                self.control(
                    EPOLL_CTL_ADD,
                    descriptor,
                    EPOLLIN | EPOLLOUT | EPOLLRDHUP,
                    descriptor as u64,
                )
            };
            if answer != 0 && error(answer) != Some(libc::EEXIST) {
                state.refused = error(answer) == Some(libc::EPERM);
                self.highest.fetch_max(descriptor as u32, Ordering::Relaxed);
                drop(state);
                runtime.leave(activation);
                return Readiness::NotPollable;
            }
            state.registered = true;
            self.highest.fetch_max(descriptor as u32, Ordering::Relaxed);
        }
        let edge = match direction {
            Direction::In => core::mem::take(&mut state.edge_in),
            Direction::Out => core::mem::take(&mut state.edge_out),
        };
        let Some(thread) = activation.thread() else {
            drop(state);
            runtime.leave(activation);
            return Readiness::NotPollable;
        };
        if edge {
            drop(state);
            runtime.leave(activation);
            return Readiness::Try;
        }
        if state.inode != 0 && direction == Direction::In {
            self.readers[slot(state.inode)].store(descriptor as u32, Ordering::Relaxed);
        }
        runtime.begin_park(thread);
        let first = match direction {
            Direction::In => &state.first_in,
            Direction::Out => &state.first_out,
        };
        thread.link_waiter(first);
        self.waiters.fetch_add(1, Ordering::Relaxed);
        runtime.stats().polled.add();
        core::mem::forget(state);
        let timed = deadline.is_none_or(|deadline| runtime.arm(thread, deadline).is_ok());
        if !timed {
            thread.claim(WakeReason::Interrupted);
        }
        let activation = runtime.park(activation, open_entry, core::ptr::from_ref(entry) as usize);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        let reason = thread.wake_reason();
        if reason != WakeReason::Woken {
            let state = entry.lock(runtime.kernel());
            let first = match direction {
                Direction::In => &state.first_in,
                Direction::Out => &state.first_out,
            };
            thread.unlink_waiter(first);
        }
        runtime.disarm(thread);
        runtime.leave(activation);
        match reason {
            WakeReason::Woken => Readiness::Try,
            WakeReason::TimedOut => Readiness::TimedOut,
            WakeReason::Interrupted => Readiness::Interrupted,
        }
    }

    /// The program is about to close a descriptor, or to replace it: forgets it, and lets its
    /// waiters try again. Called from a thread's own code, outside the runtime.
    pub fn forget(&self, runtime: &'static Runtime, descriptor: i32) {
        let Some(entry) = self.entries.get(descriptor as usize) else {
            return;
        };
        if descriptor as u32 > self.highest.load(Ordering::Relaxed) {
            return;
        }
        let activation = runtime.enter();
        let mut list = ThreadList::new();
        {
            let mut state = entry.lock(runtime.kernel());
            if state.registered {
                self.control(EPOLL_CTL_DEL, descriptor, 0, 0);
            }
            claim_all(&state.first_in, &mut list);
            claim_all(&state.first_out, &mut list);
            state.registered = false;
            state.inode = 0;
            self.known[descriptor as usize]
                .0
                .store(0, Ordering::Relaxed);
            state.refused = false;
            state.edge_in = false;
            state.edge_out = false;
        }
        while let Some(thread) = list.pop_front() {
            runtime.make_ready(activation, thread);
        }
        runtime.leave(activation);
    }
}

impl Poller {
    /// As [`Poller::forget`], for every descriptor from `first` to `last` that was ever registered.
    pub fn forget_range(&self, runtime: &'static Runtime, first: u32, last: u32) {
        let highest = self.highest.load(Ordering::Relaxed);
        for descriptor in first..=last.min(highest) {
            self.forget(runtime, descriptor as i32);
        }
    }
}

fn slot(inode: u64) -> usize {
    (inode.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - READERS.trailing_zeros())) as usize
}

/// Claims every waiter of a list, which is empty afterwards; says whether there was one.
fn claim_all(first: &Slot<Thread>, list: &mut ThreadList<Linux>) -> bool {
    let mut any = false;
    while let Some(thread) = first.get(Ordering::Relaxed) {
        thread.unlink_waiter(first);
        match thread.claim(WakeReason::Woken) {
            Claim::Ready => {
                list.push_back(thread);
                any = true;
            }
            Claim::Soon => any = true,
            Claim::Lost => {}
        }
    }
    any
}

fn open_entry(
    runtime: &'static Runtime,
    activation: &'static Activation,
    thread: &'static Thread,
    entry: usize,
) -> Option<&'static Thread> {
    // SAFETY: `wait` passes the address of an entry whose guard it forgot.
    unsafe { (*(entry as *const Entry)).unlock() };
    runtime.finish_park(activation, thread);
    None
}
