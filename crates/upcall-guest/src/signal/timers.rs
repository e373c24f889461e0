//! POSIX timers that signal one thread (SIGEV_THREAD_ID), for threads that the kernel does not know.
//!
//! Such a timer sends the process the runtime's own signal, which is never blocked, with a value that names a slot here.
//! The handler notes that the timer has fired, and the program's signal is sent to the thread like any other. As in the
//! kernel, one signal of a timer waits at most. Until the thread takes it, further expiries are counted in it as overruns.
//!
//! A slot also remembers whose processor time a timer counts. The kernel counts that of the kernel thread to which the
//! thread is bound, so a point in time that the program names is earlier there, by what the thread has used before.
//!
//! Approach rejected: the program's own signal, sent to the process and redirected by its timer id. If all running threads
//! block it, nobody would see it before the thread itself runs.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use upcall_linux::{Activation, Inside, Thread, cpu_time, preempt};

use crate::ground::access;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::mask::bit;
use crate::ground::state::GUEST;
use crate::signal::pending::{self, Information};

const SIGEV_SIGNAL: u32 = 0;
const SIGEV_THREAD_ID: u32 = 4;
const SI_TIMER: i32 = -2;
const SLOTS: usize = 1024;
/// In place of the thread that is signalled, where the kernel sends the signal as the program wants it.
const NONE: i32 = -1;

/// What the slot's timer is for; `thread` 0 while it is free.
struct Slot {
    thread: AtomicI32,
    /// The thread whose processor time it counts, or 0.
    counted: AtomicI32,
    signal: AtomicI32,
    value: AtomicU64,
    /// The kernel's number plus one; 0 until it is known.
    timer: AtomicI32,
    fired: AtomicU32,
    /// Of the signal that was taken last.
    overruns: AtomicU32,
}

static TIMERS: [Slot; SLOTS] = [const {
    Slot {
        thread: AtomicI32::new(0),
        counted: AtomicI32::new(0),
        signal: AtomicI32::new(0),
        value: AtomicU64::new(0),
        timer: AtomicI32::new(0),
        fired: AtomicU32::new(0),
        overruns: AtomicU32::new(0),
    }
}; SLOTS];
/// One more than the highest slot that was ever used.
static USED: AtomicU32 = AtomicU32::new(0);
/// Some slot has fired.
static FIRED: AtomicU32 = AtomicU32::new(0);

/// The signals of the program's timers that count processor time (timer_create(2)).
static COUNTING: AtomicU64 = AtomicU64::new(0);

/// Returns the signals that the kernel gives to the thread that has just used processor time.
pub fn about_processor_time() -> u64 {
    const ALWAYS: u64 = bit(libc::SIGPROF) | bit(libc::SIGVTALRM) | bit(libc::SIGXCPU);
    ALWAYS | COUNTING.load(Ordering::Relaxed)
}

/// Called when a timer is made that signals the process: it may count processor time.
fn note_counting(frame: &Frame) {
    let clock = frame.rdi as i32;
    // Negative: the clock of a process or of a thread, by its id.
    if clock >= 0 && clock != libc::CLOCK_PROCESS_CPUTIME_ID {
        return;
    }
    let signal = match frame.rsi as usize {
        0 => libc::SIGALRM as u32,
        at => access::load_u32(at + 8).unwrap_or(0),
    };
    if (1..=64).contains(&signal) {
        COUNTING.fetch_or(bit(signal as i32), Ordering::Relaxed);
    }
}

/// Returns true if the program has timers of its own, of whatever kind: a signal may come.
pub fn are_there() -> bool {
    let is_set = |which: i32| {
        let mut timer = libc::itimerval {
            it_interval: libc::timeval {
                tv_sec: 0,
                tv_usec: 0,
            },
            it_value: libc::timeval {
                tv_sec: 0,
                tv_usec: 0,
            },
        };
        let words = [which as u64, (&raw mut timer) as u64, 0, 0, 0, 0];
        // SAFETY: writes the structure.
        unsafe { raw_syscall(libc::SYS_getitimer, words) };
        timer.it_value.tv_sec != 0 || timer.it_value.tv_usec != 0
    };
    USED.load(Ordering::SeqCst) != 0
        || [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF]
            .into_iter()
            .any(is_set)
}

/// timer_create(2): `make` makes the call, as it stands or with an event of ours. `counted`: the thread whose processor time
/// the timer is to count, if it is one of ours.
pub fn create_by(frame: &Frame, counted: Option<i32>, make: impl FnOnce([u64; 7]) -> i64) -> i64 {
    let mut call = frame.words();
    let event = Event::of(frame.rsi as usize);
    if event.is_none() {
        note_counting(frame);
        if counted.is_none() {
            return make(call);
        }
    }
    let receiver = event.as_ref().map_or(NONE, |event| event.thread);
    let Some(index) = take(receiver, counted.unwrap_or(0)) else {
        return -i64::from(libc::EAGAIN);
    };
    let slot = &TIMERS[index];
    let mut own = [0u64; 8];
    if let Some(Event { value, signal, .. }) = event {
        slot.signal.store(signal as i32, Ordering::Relaxed);
        slot.value.store(value, Ordering::Relaxed);
        own[0] = preempt::timer_mark(index as u32) as u64;
        own[1] = preempt::SIGNAL as u64 | u64::from(SIGEV_SIGNAL) << 32;
        call[2] = own.as_ptr() as u64;
    }
    let answer = make(call);
    core::hint::black_box(&own);
    match access::load_u32(frame.rdx as usize) {
        Ok(timer) if answer == 0 => slot.timer.store(timer as i32 + 1, Ordering::Release),
        _ => slot.thread.store(0, Ordering::Release),
    }
    answer
}

/// A signal for one of our threads, as a timer is to send it.
struct Event {
    value: u64,
    signal: u32,
    thread: i32,
}

impl Event {
    /// Returns what stands at this address, or `None` if the kernel must serve the call.
    fn of(address: usize) -> Option<Self> {
        if address == 0 {
            return None;
        }
        let value = access::load_u64(address).ok()?;
        let signal = access::load_u32(address + 8).ok()?;
        let notify = access::load_u32(address + 12).ok()?;
        let thread = access::load_u32(address + 16).ok()? as i32;
        let is_ours = notify == SIGEV_THREAD_ID && (1..=64).contains(&signal);
        GUEST.identities.find(thread).filter(|_| is_ours)?;
        Some(Self {
            value,
            signal,
            thread,
        })
    }
}

fn take(thread: i32, counted: i32) -> Option<usize> {
    let index = TIMERS.iter().position(|slot| {
        slot.thread
            .compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    })?;
    let slot = &TIMERS[index];
    slot.timer.store(0, Ordering::Relaxed);
    slot.counted.store(counted, Ordering::Relaxed);
    slot.fired.store(0, Ordering::Relaxed);
    slot.overruns.store(0, Ordering::Relaxed);
    USED.fetch_max(index as u32 + 1, Ordering::Relaxed);
    Some(index)
}

/// Returns the slot of the timer that the kernel knows by this number.
fn slot_of(timer: i32) -> Option<&'static Slot> {
    let named = timer.checked_add(1).filter(|&named| named > 0)?;
    let used = USED.load(Ordering::Relaxed) as usize;
    TIMERS[..used].iter().find(|slot| {
        slot.timer.load(Ordering::Acquire) == named && slot.thread.load(Ordering::Relaxed) != 0
    })
}

/// timer_delete(2) is about to be made.
pub fn delete(frame: &Frame) {
    if let Some(slot) = slot_of(frame.rdi as i32) {
        slot.timer.store(0, Ordering::Relaxed);
        slot.thread.store(0, Ordering::Release);
    }
}

/// timer_settime(2), which forgets overruns: `make` makes the call.
pub fn set_by(frame: &Frame, make: impl FnOnce([u64; 7]) -> i64) -> i64 {
    const NS: u64 = 1_000_000_000;
    let mut call = frame.words();
    let mut own = [0u64; 4];
    if let Some(slot) = slot_of(frame.rdi as i32) {
        slot.overruns.store(0, Ordering::Relaxed);
        let is_point = frame.rsi & libc::TIMER_ABSTIME as u64 != 0;
        let counted = GUEST.identities.find(slot.counted.load(Ordering::Relaxed));
        if let Some(thread) = counted.filter(|_| is_point)
            && let Some((interval, point)) = setting(frame.rdx as usize)
        {
            // Of one that is over, the least that the kernel does not take for none.
            let point = point.saturating_sub(cpu_time::of(thread)).max(1);
            own = [interval[0], interval[1], point / NS, point % NS];
            call[3] = own.as_ptr() as u64;
        }
    }
    let answer = make(call);
    core::hint::black_box(&own);
    answer
}

/// Returns the interval and the time of an `itimerspec`, unless it cannot be read, or stops the timer.
fn setting(address: usize) -> Option<([u64; 2], u64)> {
    let interval = [
        access::load_u64(address).ok()?,
        access::load_u64(address + 8).ok()?,
    ];
    let time = access::nanoseconds(address + 16).ok()?;
    (time != 0).then_some((interval, time))
}

/// timer_getoverrun(2). Returns `None` if the kernel must serve it.
pub fn overruns(frame: &Frame) -> Option<i64> {
    let slot = slot_of(frame.rdi as i32)?;
    let is_ours = slot.thread.load(Ordering::Relaxed) != NONE;
    is_ours.then(|| slot.overruns.load(Ordering::Relaxed).into())
}

/// A thread has taken this signal, which a timer may have sent.
pub fn taken(information: &Information) {
    if is_of_timer(information)
        && let Some(slot) = slot_of(information[2] as i32)
    {
        slot.overruns
            .store((information[2] >> 32) as u32, Ordering::Relaxed);
    }
}

/// Returns true if a timer has sent this signal.
pub fn is_of_timer(information: &Information) -> bool {
    information[1] as i32 == SI_TIMER
}

/// Counts the expiry in `new` as overruns in `waiting`, if both are of one timer. Returns true if it did.
pub fn merge(waiting: &mut Information, new: &Information) -> bool {
    const MOST: u64 = i32::MAX as u64;
    let is_same = is_of_timer(waiting) && waiting[2] as u32 == new[2] as u32;
    if is_same {
        let overruns = (waiting[2] >> 32) + (new[2] >> 32) + 1;
        waiting[2] = u64::from(waiting[2] as u32) | overruns.min(MOST) << 32;
    }
    is_same
}

/// Called in the child of a fork, which has no timers.
pub fn forget() {
    COUNTING.store(0, Ordering::Relaxed);
    for slot in &TIMERS[..USED.swap(0, Ordering::Relaxed) as usize] {
        slot.thread.store(0, Ordering::Relaxed);
    }
}

/// A timer has expired so often. [`pass_on`] must follow.
fn note(index: u32, times: u32) {
    if let Some(slot) = TIMERS.get(index as usize) {
        slot.fired.fetch_add(times, Ordering::SeqCst);
        FIRED.store(1, Ordering::SeqCst);
    }
}

/// Called in the handler, on an activation, when a timer has expired so often. [`pass_on`] will follow.
pub fn expired(activation: &Activation, index: u32, times: u32) {
    note(index, times);
    activation.attend(Activation::DEFERRED);
    activation.wake_word().fetch_add(1, Ordering::SeqCst);
}

/// Sends the signals of the timers that have fired.
pub fn pass_on(inside: &Inside) {
    if FIRED.load(Ordering::Relaxed) == 0 || FIRED.swap(0, Ordering::SeqCst) == 0 {
        return;
    }
    let used = USED.load(Ordering::Relaxed) as usize;
    for slot in &TIMERS[..used] {
        let count = slot.fired.swap(0, Ordering::SeqCst);
        let id = slot.thread.load(Ordering::Acquire);
        if count != 0
            && let Some(thread) = GUEST.identities.find(id)
        {
            ring(inside, (thread, id), slot, count);
        }
    }
}

fn ring(inside: &Inside, receiver: (&'static Thread, i32), slot: &Slot, count: u32) {
    let signal = slot.signal.load(Ordering::Relaxed);
    let timer = slot.timer.load(Ordering::Relaxed).wrapping_sub(1);
    let mut information: Information = [0; 16];
    information[0] = signal as u64;
    information[1] = u64::from(SI_TIMER as u32);
    information[2] = u64::from(timer as u32) | u64::from(count - 1) << 32;
    information[3] = slot.value.load(Ordering::Relaxed);
    pending::send(inside, receiver, signal, &information);
}
