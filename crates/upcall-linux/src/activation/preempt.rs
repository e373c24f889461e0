//! Time slices and the interrupt downcall. Both use one signal, SIGURG, with a mark of our own.
//!
//! Each activation has a timer that counts its own processor time. An activation that does not run costs nothing. One
//! that computes is interrupted at the end of its slice. By then the kernel has put the complete register state, vector
//! registers included, on the thread's stack. The thread parks inside the handler. Any activation may continue it:
//! returning from the handler restores everything (rt_sigreturn(2)). The mask in the frame is the thread's own.
//!
//! A process ignores SIGURG by default, so a late one does no harm. The program may use the signal too: one without our
//! mark is the program's.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use upcall_core::Errno;

use crate::state::Activation;
use crate::state::cpu_time;
pub use crate::state::{OWN, SIGNAL};
use crate::sys::{self, error};

const MARK_TICK: usize = 0x5550_4341_4c4c_0001;
const MARK_INTERRUPT: usize = 0x5550_4341_4c4c_0002;
const MARK_CALL: usize = 0x5550_4341_4c4c_0003;
const MARK_WATCH: usize = 0x5550_4341_4c4c_0004;
const MARK_TIMER: usize = 0x5550_4341_4c00_0000;
/// The part of a timer's mark that is its number.
const NUMBER: usize = 0xffff;
const SI_USER: i32 = 0;
const SI_QUEUE: i32 = -1;
const SI_TKILL: i32 = -6;
const SI_TIMER: i32 = -2;
const SIGEV_THREAD_ID: i32 = 4;

/// The first slice of an activation, in nanoseconds. It is short, so that one that computes is known early.
const FIRST_SLICE_NS: u64 = 1_000_000;

/// The fields of siginfo_t that a queued signal or a timer sets.
#[repr(C)]
struct Information {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    pid_or_timer: i32,
    uid_or_overrun: i32,
    value: usize,
    rest: [u64; 12],
}

#[repr(C)]
struct Event {
    value: usize,
    signal: i32,
    notify: i32,
    tid: i32,
    rest: [i32; 11],
}

/// What a signal of number [`SIGNAL`] means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// The activation's time slice is over.
    Tick,
    /// [`upcall_core::kernel::Vessels::interrupt`], or critical code is watched: an interruption that comes while one of these is pending is
    /// dropped, so whatever it was for is looked at.
    Interrupt,
    /// [`request_call`], or [`ask`].
    Call,
    /// A timer of the layer above.
    Timer {
        /// Whose [`timer_mark`] it is.
        number: u32,
        /// How often it has expired since it said so last.
        times: u32,
    },
    /// The program's.
    OfProgram,
}

/// Whose signal it is.
///
/// # Safety
///
/// `information` is the siginfo_t that the kernel passed to a handler.
pub unsafe fn meaning(information: *const libc::siginfo_t) -> Meaning {
    // SAFETY: siginfo_t is 128 bytes with this layout for both codes (sigaction(2)).
    let information = unsafe { &*information.cast::<Information>() };
    match (information.code, information.value) {
        (SI_TIMER | SI_QUEUE, MARK_TICK) => Meaning::Tick,
        (SI_TIMER, value) if value & !NUMBER == MARK_TIMER => Meaning::Timer {
            number: (value & NUMBER) as u32,
            times: (information.uid_or_overrun as u32).saturating_add(1),
        },
        (SI_QUEUE, MARK_INTERRUPT) | (SI_TIMER, MARK_WATCH) => Meaning::Interrupt,
        (SI_QUEUE, MARK_CALL) => Meaning::Call,
        // Without its information: the limit of queued signals is reached. Taken for ours, which
        // come often and would be missed.
        (SI_USER, _) if information.pid_or_timer == 0 => Meaning::Interrupt,
        (SI_TKILL, _) if BY_NUMBER.load(Ordering::Relaxed) => Meaning::Interrupt,
        _ => Meaning::OfProgram,
    }
}

/// The value of a timer of the layer above, which fires with [`SIGNAL`].
pub fn timer_mark(number: u32) -> usize {
    MARK_TIMER | number as usize & NUMBER
}

/// Starts the time slices of an activation, if it has none yet: of the calling one, or of an owner for
/// which the calling one stands by. The kernel may refuse a timer (resource limits): the next activation that looks
/// at the owner tries again, a slice later at the earliest. Until then [`end_late_slice`] ends slices.
pub(crate) fn start_slices(activation: &Activation, now_ns: u64, slice_ns: u64) {
    let state = &activation.kernel;
    if state.timer.load(Ordering::Relaxed) != 0 {
        return;
    }
    let tried = state.timer_tried_ns.load(Ordering::Relaxed);
    if now_ns.wrapping_sub(tried) < slice_ns {
        return;
    }
    state.timer_tried_ns.store(now_ns, Ordering::Relaxed);
    let tid = state.tid.load(Ordering::Relaxed);
    let Some(timer) = make_timer(cpu_time::clock_of(tid), tid, MARK_TICK) else {
        return;
    };
    // Somebody else may have been as quick.
    let first = state
        .timer
        .compare_exchange(0, timer + 1, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok();
    if first {
        set_timer(timer, slice_ns, slice_ns.min(FIRST_SLICE_NS));
    } else {
        delete_timer(timer);
    }
}

/// A timer by this clock that stops the kernel thread, or none.
fn make_timer(clock: i32, tid: i32, mark: usize) -> Option<i32> {
    let event = Event {
        value: mark,
        signal: SIGNAL,
        notify: SIGEV_THREAD_ID,
        tid,
        rest: [0; 11],
    };
    let mut timer = 0i32;
    let create = sys::SYS_timer_create;
    // SAFETY: reads the structure, writes the timer's number.
    let made = unsafe { sys!(create, clock, &raw const event, &raw mut timer) };
    (made == 0).then_some(timer)
}

/// Sets it to expire in `first_ns` nanoseconds, and then in each `period_ns`; never, if these are 0.
fn set_timer(timer: i32, period_ns: u64, first_ns: u64) {
    let time = |ns: u64| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    let setting = [time(period_ns), time(first_ns)];
    // SAFETY: reads the structures.
    unsafe { sys!(sys::SYS_timer_settime, timer, 0, setting.as_ptr(), 0) };
}

fn delete_timer(timer: i32) {
    // SAFETY: a timer of ours.
    unsafe { sys!(libc::SYS_timer_delete, timer) };
}

/// Stops the calling activation in each `period_ns` nanoseconds from now on, until [`end_watch`]. The kernel may refuse.
pub(crate) fn watch(activation: &Activation, period_ns: u64) {
    let state = &activation.kernel;
    if state.watches.load(Ordering::Relaxed) {
        return;
    }
    if state.watch.load(Ordering::Relaxed) == 0 {
        let tid = state.tid.load(Ordering::Relaxed);
        let made = make_timer(libc::CLOCK_MONOTONIC, tid, MARK_WATCH);
        state
            .watch
            .store(made.map_or(0, |timer| timer + 1), Ordering::Relaxed);
    }
    let timer = state.watch.load(Ordering::Relaxed);
    if timer != 0 {
        state.watches.store(true, Ordering::Relaxed);
        set_timer(timer - 1, period_ns, period_ns);
    }
}

/// Ends that, on the activation itself.
#[inline]
pub(crate) fn end_watch(activation: &Activation) {
    let state = &activation.kernel;
    if state.watches.load(Ordering::Relaxed) {
        state.watches.store(false, Ordering::Relaxed);
        set_timer(state.watch.load(Ordering::Relaxed) - 1, 0, 0);
    }
}

/// Ends the time slice of an owner whose own timer has not: the kernel looks at timers of processor time when its clock
/// ticks, and on a busy processor whose programs take turns in the rhythm of that clock, the tick may meet others for
/// seconds. Called by a standby that finds the owner computing after so many dispatches.
pub(crate) fn end_late_slice(pid: i32, owner: &Activation, dispatches: u64, slice_ns: u64) {
    let state = &owner.kernel;
    let now_ns = sys::processor_time(state.tid.load(Ordering::Relaxed));
    if state.watched_dispatches.swap(dispatches, Ordering::Relaxed) != dispatches {
        state.watched_ns.store(now_ns, Ordering::Relaxed);
    }
    // Twice as long, so that the timer comes first where it can.
    let since_ns = now_ns.saturating_sub(state.watched_ns.load(Ordering::Relaxed));
    if since_ns >= 2 * slice_ns {
        state.watched_ns.store(now_ns, Ordering::Relaxed);
        queue(pid, owner, MARK_TICK);
    }
}

/// The calling activation ends: its timers would stay until the process does.
pub(crate) fn end_slices(activation: &Activation) {
    let state = &activation.kernel;
    state.watches.store(false, Ordering::Relaxed);
    for timer in [&state.timer, &state.watch] {
        let timer = timer.swap(0, Ordering::Relaxed);
        if timer != 0 {
            delete_timer(timer - 1);
        }
    }
}

/// Interrupts an activation of this process.
pub(crate) fn interrupt(pid: i32, activation: &Activation) {
    queue(pid, activation, MARK_INTERRUPT);
}

/// The number of the last call that every kernel thread had to make, for the layer above.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// A new call that every activation must make; the caller, if it is one, has made it.
pub fn new_call(activation: Option<&Activation>) {
    let number = CALLS.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
    if let Some(activation) = activation {
        activation.kernel.served.store(number, Ordering::SeqCst);
    }
}

/// Whether an activation has not made the last call yet.
pub fn owes_call(activation: &Activation) -> bool {
    activation.kernel.tid.load(Ordering::SeqCst) != 0
        && activation.kernel.served.load(Ordering::SeqCst) != CALLS.load(Ordering::SeqCst)
}

/// An activation has made the last call, or is new and has what its creator has.
pub fn note_call(activation: &Activation) {
    let number = CALLS.load(Ordering::SeqCst);
    activation.kernel.served.store(number, Ordering::SeqCst);
}

/// Makes an activation look at [`owes_call`] in its handler, wherever it is. The signal may meet
/// another of the same number and be dropped: an activation that has that one pending looks as well.
pub fn request_call(pid: i32, activation: &Activation) {
    queue(pid, activation, MARK_CALL);
}

/// Makes a kernel thread of another process look at what is asked of that ([`crate::live`]).
///
/// # Errors
///
/// The kernel's error: it has ended, is another user's, or has too many signals queued.
pub fn ask(pid: i32, tid: i32) -> Result<(), Errno> {
    let information = information(pid, MARK_CALL);
    let queue = sys::SYS_rt_tgsigqueueinfo;
    // SAFETY: reads 128 bytes.
    let answer = unsafe { sys!(queue, pid, tid, SIGNAL, &raw const information) };
    error(answer).map_or(Ok(()), |number| Err(Errno(number)))
}

fn information(pid: i32, mark: usize) -> Information {
    Information {
        signal: SIGNAL,
        errno: 0,
        code: SI_QUEUE,
        pad: 0,
        pid_or_timer: pid,
        uid_or_overrun: 0,
        value: mark,
        rest: [0; 12],
    }
}

fn queue(pid: i32, activation: &Activation, mark: usize) {
    let information = information(pid, mark);
    let tid = activation.kernel.tid.load(Ordering::Relaxed);
    let queue = sys::SYS_rt_tgsigqueueinfo;
    // SAFETY: reads 128 bytes.
    let answer = unsafe { sys!(queue, pid, tid, SIGNAL, &raw const information) };
    if matches!(
        error(answer),
        Some(libc::ENOSYS | libc::EPERM | libc::EACCES)
    ) {
        // A filter: it comes without a mark.
        BY_NUMBER.store(true, Ordering::Relaxed);
        // SAFETY: a signal of ours to a kernel thread of ours.
        unsafe { sys!(sys::SYS_tgkill, pid, tid, SIGNAL) };
    }
}

/// A filter of the program's forbids rt_tgsigqueueinfo(2). What threads of the program send each other never comes
/// by tgkill(2): each of the signal's number is taken for ours.
static BY_NUMBER: AtomicBool = AtomicBool::new(false);

/// The runtime's part of the handler of [`SIGNAL`]. Runs on a stack of the interrupted thread's; when
/// it returns, perhaps on another activation, the kernel's frame continues the thread.
pub fn handle(activation: &Activation, meaning: Meaning) {
    if activation.is_inside() {
        activation.attend(Activation::RESCHEDULE);
        return;
    }
    activation.runtime().interrupted(meaning == Meaning::Tick);
}
