//! Signals on their way to a thread that is not running.
//!
//! A signal for a parked thread is kept with the thread ([`lists`](crate::signal::lists)) and interrupts its wait. When the
//! thread leaves the runtime the signal is queued to the activation's kernel thread (rt_tgsigqueueinfo(2), with all of its
//! information), and the kernel delivers it at once. For a running thread the activation is interrupted, so that it leaves
//! the runtime anew.
//!
//! A receiver is named by its id as well: [`Thread`] objects are recycled, and a signal for a thread that ends at this
//! moment must not reach the next one. Queueing and the end are decided under one lock, as is all else that one thread does
//! to another by its id ([`while_it_lives`]).
//!
//! A signal for the process that an activation has taken goes to a thread that accepts it. If that thread blocks it before
//! it has seen it, or ends, it goes to the next one. A signal that nobody accepts goes back to the kernel, and waits there.
//!
//! The kernel may have no room for it any more (RLIMIT_SIGPENDING). A signal that is about to be delivered is then sent in
//! the one way that needs no room and carries no information, and completed when it comes ([`queued`]). A real-time signal
//! that nobody accepts waits in the process's own list until the kernel has room: only there signalfd(2) and the next
//! program see it. Every thread that opens its mask or waits for signals looks in that list. *Rejected:* the number alone
//! in the kernel, and its information here. Numbers merge, also with a signal that was queued, and nobody can tell how
//! often one was sent. *Not done:* a standard signal of sigqueue(3) that nobody accepts loses its value there, unreported.
//! If there is no memory either, the number waits alone.

use core::ptr;
use core::sync::atomic::Ordering;

use upcall_core::Claim;
use upcall_core::Machine;
use upcall_core::kernel::Vessels;
use upcall_linux::{Activation, Inside, Runtime, Thread, preempt};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::raw_syscall;
use crate::ground::mask::{self, bit};
use crate::ground::state::GUEST;
use crate::signal::lists::{List, POOL, PROCESS};
use crate::signal::{self, Disposition, carried, descriptors, masks, queued, receivers, timers};

pub use crate::signal::lists::{Information, forget};

/// Returns what waits for the thread, for itself and for the process.
#[inline]
pub fn for_thread(thread: &'static Thread) -> u64 {
    List::of(thread).numbers() | PROCESS.numbers()
}

/// Returns true if something waits for the thread itself.
#[inline]
pub fn has_some(thread: &'static Thread) -> bool {
    List::of(thread).numbers() != 0
}

/// Returns true if a signal is pending for which the thread waits, or is about to wait.
pub fn are_waited_for(thread: &'static Thread) -> bool {
    for_thread(thread) & thread.guest().waited_for.load(Ordering::SeqCst) != 0
}

/// Called when the runtime starts. Gets some memory for signals, in case there is none later.
pub fn reserve(runtime: &'static Runtime) {
    POOL.lock(runtime.kernel()).begin();
}

/// Returns a siginfo_t for a signal that one thread of this process sends, by a call with that code.
pub fn from_self(signal: i32, code: i32) -> Information {
    let mut information = [0; 16];
    information[0] = signal as u32 as u64;
    information[1] = code as u32 as u64;
    // SAFETY: asks only.
    let uid = unsafe { raw_syscall(libc::SYS_getuid, [0; 6]) } as u32;
    information[2] = u64::from(GUEST.pid.load(Ordering::Relaxed)) | u64::from(uid) << 32;
    information
}

/// What became of a signal for a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is on its way, or ignored, or merged with one that waits.
    Yes,
    /// The thread has ended.
    Gone,
    /// There is no memory for it.
    Full,
}

/// Returns true if the object still is the thread of that id.
fn is_thread(thread: &'static Thread, id: i32) -> bool {
    thread.guest().tid.load(Ordering::SeqCst) == id
}

/// Adds a signal to what the thread has not seen yet and, if it `interrupts`, claims the thread. Returns true if the caller
/// must make it ready. With `shared` the signal was sent to the process.
fn enqueue(
    runtime: &'static Runtime,
    (thread, id): (&'static Thread, i32),
    (signal, information): (i32, &Information),
    shared: bool,
    interrupts: impl FnOnce() -> bool,
) -> Result<bool, Sent> {
    let mut pool = POOL.lock(runtime.kernel());
    if !is_thread(thread, id) {
        return Err(Sent::Gone);
    }
    let outside = thread.guest().outside_tid.load(Ordering::SeqCst);
    if outside != 0 {
        // Under the lock, without which the thread cannot end.
        return Err(send_outside(outside, id, signal, information));
    }
    let list = List::of(thread);
    // As in the kernel, a timer's signal merges with the same timer's alone.
    let merges = if !shared && timers::is_of_timer(information) {
        pool.change_one(list, signal, |waiting| timers::merge(waiting, information))
    } else {
        list.has_its_one(signal)
    };
    if merges {
        return Err(Sent::Yes);
    }
    if !pool.append(runtime, list, (signal, information), shared) {
        return Err(Sent::Full);
    }
    if !interrupts() {
        return Err(Sent::Yes);
    }
    // Under the lock, without which the thread cannot end.
    Ok(runtime.interrupt(thread) == Claim::Ready)
}

/// Returns the one of these signals that comes first, as a set: one that an instruction may have caused, else the lowest
/// number.
fn first_of(set: u64) -> u64 {
    const CAUSED: u64 = bit(libc::SIGSEGV)
        | bit(libc::SIGBUS)
        | bit(libc::SIGILL)
        | bit(libc::SIGTRAP)
        | bit(libc::SIGFPE)
        | bit(libc::SIGSYS);
    let set = if set & CAUSED != 0 { set & CAUSED } else { set };
    set & set.wrapping_neg()
}

/// Takes the first signal in `set` that the thread has not seen, one for itself before one for the
/// process.
pub fn dequeue(
    runtime: &'static Runtime,
    thread: &'static Thread,
    set: u64,
) -> Option<(i32, Information)> {
    if for_thread(thread) & set == 0 {
        return None;
    }
    let mut pool = POOL.lock(runtime.kernel());
    let found = [List::of(thread), PROCESS]
        .into_iter()
        .find_map(|list| pool.remove(list, first_of(list.numbers() & set), false));
    if let Some((_, information)) = &found {
        timers::taken(information);
    }
    found
}

/// Looks at the thread with that id, or changes it, while it cannot end. Returns `None` if it has ended. Called outside the
/// runtime; `act` runs inside it, on this activation, under the lock of signals.
pub fn while_it_lives<R>(
    runtime: &'static Runtime,
    (thread, id): (&'static Thread, i32),
    act: impl FnOnce(&Inside) -> R,
) -> Option<R> {
    let inside = runtime.enter();
    let done = {
        let _pool = POOL.lock(runtime.kernel());
        is_thread(thread, id).then(|| act(&inside))
    };
    inside.leave();
    done
}

/// Does something for the thread with that id, while it cannot end. Returns true if it had not ended yet. Inside the
/// runtime.
pub fn holds_while(
    runtime: &'static Runtime,
    (thread, id): (&'static Thread, i32),
    act: impl FnOnce() -> bool,
) -> bool {
    let _pool = POOL.lock(runtime.kernel());
    is_thread(thread, id) && act()
}

/// From now on the thread's signals go to the kernel thread of that id, the calling one, which blocks all of them. Signals
/// that wait for the thread move there.
pub fn move_outside(runtime: &'static Runtime, thread: &'static Thread, kernel_id: i32) {
    {
        let _pool = POOL.lock(runtime.kernel());
        thread
            .guest()
            .outside_tid
            .store(kernel_id, Ordering::SeqCst);
    }
    loop {
        let list = List::of(thread);
        let first = POOL.lock(runtime.kernel()).remove(list, !0, false);
        let Some((signal, information)) = first else {
            return;
        };
        queued::queue_to(kernel_id, signal, &information);
    }
}

/// Sends a signal to a bound thread. The kernel keeps it with the thread's kernel thread.
fn send_outside(kernel_id: i32, id: i32, signal: i32, information: &Information) -> Sent {
    let pid = u64::from(GUEST.pid.load(Ordering::Relaxed));
    let answer = match information[1] as u32 as i32 {
        queued::SI_TKILL if information[2] as u32 != pid as u32 => {
            carried::queue_to(kernel_id, id, signal, information)
        }
        // Only to itself may a kernel thread send such a one with its information, which says no more.
        queued::SI_TKILL => {
            let words = [pid, kernel_id as u64, signal as u64, 0, 0, 0];
            // SAFETY: no memory of ours is involved.
            (unsafe { raw_syscall(libc::SYS_tgkill, words) }) as i64
        }
        _ => queued::queue_to(kernel_id, signal, information),
    };
    const EAGAIN: i64 = -(libc::EAGAIN as i64);
    const ESRCH: i64 = -(libc::ESRCH as i64);
    match answer {
        EAGAIN => Sent::Full,
        ESRCH => Sent::Gone,
        _ => Sent::Yes,
    }
}

/// Called when the thread does not accept the signals in `set` any more: those for the process go to others.
pub fn pass_shared(inside: &Inside, thread: &'static Thread, set: u64) {
    while List::of(thread).numbers() & set != 0 {
        let shared = POOL
            .lock(inside.runtime().kernel())
            .remove(List::of(thread), set, true);
        let Some((signal, information)) = shared else {
            return;
        };
        pass(inside, signal, &information);
    }
}

/// Called when a thread has ended. Nothing is queued to it any more, and signals for it alone are
/// dropped.
pub fn close(inside: &Inside, thread: &'static Thread) {
    {
        let _pool = POOL.lock(inside.runtime().kernel());
        thread.guest().tid.store(0, Ordering::SeqCst);
    }
    pass_shared(inside, thread, !0);
    let list = List::of(thread);
    while list.numbers() != 0 {
        POOL.lock(inside.runtime().kernel()).remove(list, !0, false);
    }
}

/// Sends a signal to the thread with that id.
pub fn send(
    inside: &Inside,
    receiver: (&'static Thread, i32),
    signal: i32,
    information: &Information,
) -> Sent {
    let signal = (signal, information);
    send_to(inside.runtime(), Some(inside), receiver, signal, false)
}

/// As [`send`], by an outside kernel thread, with its signals blocked.
pub fn send_from_outside(
    runtime: &'static Runtime,
    receiver: (&'static Thread, i32),
    signal: i32,
    information: &Information,
) -> Sent {
    send_to(runtime, None, receiver, (signal, information), false)
}

/// As [`send`], for a signal that was sent to the process.
pub fn send_shared(
    inside: &Inside,
    receiver: (&'static Thread, i32),
    signal: i32,
    information: &Information,
) -> Sent {
    let signal = (signal, information);
    send_to(inside.runtime(), Some(inside), receiver, signal, true)
}

/// `shared`: it was sent to the process. `inside`: where the caller is, if it is on an activation.
fn send_to(
    runtime: &'static Runtime,
    inside: Option<&Inside>,
    (thread, id): (&'static Thread, i32),
    (signal, information): (i32, &Information),
    shared: bool,
) -> Sent {
    let blocked = signal::blocked_by(thread) & bit(signal) != 0;
    // Looked at afterwards: if it is the thread still, the mask was its own.
    if !is_thread(thread, id) {
        return Sent::Gone;
    }
    match signal::disposition(signal) {
        Disposition::Ignored if !blocked => return Sent::Yes,
        Disposition::Default if !blocked => {
            // Ends or stops the whole process: the kernel's business, here and now.
            signal::take_default(signal);
            let Some(inside) = inside else {
                let pid = u64::from(GUEST.pid.load(Ordering::Relaxed));
                // SAFETY: no memory of ours is involved.
                unsafe { raw_syscall(libc::SYS_kill, [pid, signal as u64, 0, 0, 0, 0]) };
                return Sent::Yes;
            };
            let own = inside.kernel.mask.load(Ordering::Relaxed);
            mask::set_kernel_mask(own & !bit(signal));
            queued::queue_to_kernel(inside, signal, information);
            mask::set_kernel_mask(own);
            return Sent::Yes;
        }
        _ => {}
    }
    if blocked
        && !shared
        && let Some(inside) = inside
        && inside.thread().is_some_and(|own| ptr::eq(own, thread))
        && leave_to_descriptors(inside, signal, information)
    {
        return Sent::Yes;
    }
    // Asked anew when it is in the list: a thread that has opened its mask meanwhile may have looked there before.
    let interrupts =
        || receivers::awaits(thread, signal) || signal::blocked_by(thread) & bit(signal) == 0;
    match enqueue(
        runtime,
        (thread, id),
        (signal, information),
        shared,
        interrupts,
    ) {
        Ok(true) => match inside {
            Some(inside) => inside.make_ready(thread),
            None => runtime.make_ready_from_outside(thread),
        },
        Ok(false) => call_carrier(runtime, thread),
        Err(answer) => return answer,
    }
    Sent::Yes
}

/// Leaves a signal that the calling thread was sent, or has sent itself, to the process, in the kernel, if only a
/// descriptor can find it before some thread opens its mask. Returns true if it has done so. There it looks as if
/// kill(2) had sent it: what comes for one thread from the kernel is for the first.
fn leave_to_descriptors(inside: &Inside, signal: i32, information: &Information) -> bool {
    let is_given = descriptors::given() & bit(signal) != 0;
    // Overruns are counted in the thread's list.
    if !is_given || timers::is_of_timer(information) || is_awaited(signal) {
        return false;
    }
    let accepts = || receivers::first_of_all(signal);
    if masks::find_or_close(signal, accepts).is_some() {
        return false;
    }
    let mut information = *information;
    if information[1] as u32 as i32 == queued::SI_TKILL {
        information[1] &= !0xffff_ffff;
    }
    queued::queue_to_process(inside, signal, &information)
}

/// Returns true if some thread waits for the signal.
fn is_awaited(signal: i32) -> bool {
    let mut awaited = false;
    GUEST.identities.each(|thread| {
        awaited = receivers::awaits(thread, signal);
        !awaited
    });
    awaited
}

/// Leaves to descriptors what waits for the thread, the calling one, and may be given by one that is new.
pub fn offer_to_descriptors(inside: &Inside, thread: &'static Thread) {
    let kernel = inside.runtime().kernel();
    let list = List::of(thread);
    let mut left = descriptors::given();
    loop {
        let found = POOL.lock(kernel).first(list, left);
        let Some((signal, information)) = found else {
            return;
        };
        if leave_to_descriptors(inside, signal, &information) {
            POOL.lock(kernel).remove(list, bit(signal), false);
        } else {
            left &= !bit(signal);
        }
    }
}

/// The thread must look at what waits for it. One that waits for it in the kernel, or is about to, may
/// have looked already, and be carried by nobody before its call: that must not wait any more.
fn call_carrier(runtime: &'static Runtime, thread: &'static Thread) {
    // After `waited_for` was seen: each wait begins with 0 before that.
    thread.guest().forbidden.store(1, Ordering::SeqCst);
    // Running, or about to: the activation that installs it looks at its pending signals after
    // it has noted itself as carrier. A trip through the kernel makes both stores visible.
    for _ in 0..2 {
        if let Some(carrier) = thread.carrier() {
            carrier.attend(Activation::DEFERRED);
            runtime.kernel().interrupt(carrier);
            break;
        }
        runtime.kernel().yield_processor();
    }
}

/// Keeps a signal that has come for the activation with the thread that it runs. Where there is no memory it waits
/// in the kernel.
pub fn hold(
    activation: &Activation,
    thread: &'static Thread,
    signal: i32,
    information: &Information,
) {
    let id = thread.guest().tid.load(Ordering::Relaxed);
    let found = (signal, information);
    if enqueue(activation.runtime(), (thread, id), found, true, || false) == Err(Sent::Full) {
        queued::queue_to_kernel(activation, signal, information);
    }
}

/// Queues the first signal that `mask` lets through to the activation's kernel thread. One at a
/// time: the handler may migrate, and what the kernel still held would meet another thread.
pub fn queue_one(activation: &Activation, thread: &'static Thread, mask: u64) {
    if let Some((signal, information)) = dequeue(activation.runtime(), thread, !mask) {
        queued::queue_to_kernel(activation, signal, &information);
    }
}

/// As [`queue_one`]. A signal that was taken back from the kernel was the first one, and about to be delivered.
pub fn queue_first(
    activation: &Activation,
    thread: &'static Thread,
    taken: Option<(i32, Information)>,
    mask: u64,
) {
    match taken {
        Some((signal, information)) => queued::queue_to_kernel(activation, signal, &information),
        None => queue_one(activation, thread, mask),
    }
}

/// Handles a signal that came inside the runtime, when the activation leaves with this thread. It goes to the thread or, if
/// it is another's, to where it waits.
pub fn restore(
    inside: &Inside,
    thread: &'static Thread,
    signal: i32,
    information: &Information,
    mask: u64,
) {
    if is_own(thread, signal, information, mask) {
        queued::queue_to_kernel(inside, signal, information);
    } else {
        pass(inside, signal, information);
    }
}

/// Returns true if a signal that has come to the kernel thread of a thread with this mask is that thread's.
pub fn is_own(thread: &'static Thread, signal: i32, information: &Information, mask: u64) -> bool {
    mask & bit(signal) == 0 && !receivers::is_of_another(thread, signal, information)
}

/// Passes a signal that an activation has taken to a thread that accepts it, or leaves it pending: in the kernel, or in the
/// process's own list if the runtime uses that signal itself. Called with all of the program's signals blocked.
pub fn pass(inside: &Inside, signal: i32, information: &Information) {
    if information[1] as u32 as i32 == queued::SI_TKILL
        && let Some(first) = GUEST.identities.first()
    {
        // From another process, which knows the first thread's id only.
        let id = GUEST.pid.load(Ordering::Relaxed) as i32;
        send(inside, (first, id), signal, information);
        return;
    }
    // No kernel thread blocks the others: it would come again at once.
    let goes_to_kernel = preempt::OWN & bit(signal) == 0;
    let mut information = *information;
    loop {
        let find = || receivers::find(inside.runtime(), signal, &information);
        let receiver = masks::find_or_close(signal, find);
        let list = match receiver {
            Some(to) => {
                match send_to(
                    inside.runtime(),
                    Some(inside),
                    to,
                    (signal, &information),
                    true,
                ) {
                    Sent::Yes if receivers::accepts(to.0, signal) => return,
                    Sent::Yes if receivers::awaits(to.0, signal) => return,
                    // It blocks it by now, perhaps without having seen it.
                    Sent::Yes => Some(List::of(to.0)),
                    // It has ended just now, and is in nobody's list.
                    Sent::Gone => continue,
                    Sent::Full => None,
                }
            }
            None => None,
        };
        let list = match list {
            Some(list) => list,
            None if goes_to_kernel && queued::queue_to_process(inside, signal, &information) => {
                return;
            }
            None if keep(inside.runtime(), signal, &information) => {
                if receivers::first_of_all(signal).is_none() {
                    return;
                }
                // A thread has opened its mask, perhaps without having seen it.
                PROCESS
            }
            None => {
                if goes_to_kernel {
                    queued::queue_to_process(inside, signal, &queued::bare(signal));
                }
                return;
            }
        };
        let again = POOL
            .lock(inside.runtime().kernel())
            .remove(list, bit(signal), true);
        let Some((_, kept)) = again else {
            return;
        };
        information = kept;
    }
}

/// Adds a signal to what waits for the process, and tells its waiters. Returns false if there is no memory.
fn keep(runtime: &'static Runtime, signal: i32, information: &Information) -> bool {
    let kept = {
        let mut pool = POOL.lock(runtime.kernel());
        PROCESS.has_its_one(signal) || pool.append(runtime, PROCESS, (signal, information), true)
    };
    if kept {
        GUEST.identities.each(|thread| {
            if receivers::awaits(thread, signal) {
                call_carrier(runtime, thread);
            }
            true
        });
    }
    kept
}

/// Gives the kernel the signals that are kept here because it had no room, as far as it has room by now.
pub fn return_kept(inside: &Inside) {
    if PROCESS.numbers() & !preempt::OWN == 0 {
        return;
    }
    let mut pool = POOL.lock(inside.runtime().kernel());
    while let Some((signal, information)) = pool.first(PROCESS, !preempt::OWN)
        && queued::queue_to_process(inside, signal, &information)
    {
        pool.remove(PROCESS, bit(signal), false);
    }
}

/// Takes the signals in `set` that wait for the calling kernel thread alone, and that the thread blocks: they wait for the
/// thread from here on, which may be carried by another activation soon. Called with all signals blocked.
// Not inlined: its frame would be part of every stopped thread's, on stacks that may be small.
#[inline(never)]
pub fn adopt(activation: &Activation, thread: &'static Thread, set: u64) {
    let id = thread.guest().tid.load(Ordering::Relaxed);
    let set = set & thread.kernel.mask.load(Ordering::Relaxed);
    // The kernel tells at once what waits, and only procfs tells for whom.
    while in_kernel() & set != 0 {
        let own = upcall_linux::own_pending() & set;
        let Some((signal, information)) = (own != 0).then(|| queued::take(own)).flatten() else {
            return;
        };
        let found = (signal, &information);
        let runtime = activation.runtime();
        if enqueue(runtime, (thread, id), found, false, || false) == Err(Sent::Full) {
            // There is no memory: this and the others stay where they were.
            queued::queue_to_kernel(activation, signal, &information);
            return;
        }
    }
}

/// Returns the signals that the kernel keeps for the calling kernel thread and for the process.
pub fn in_kernel() -> u64 {
    let mut set = 0u64;
    let words = [(&raw mut set) as u64, 8, 0, 0, 0, 0];
    // SAFETY: writes eight bytes.
    unsafe { raw_syscall(libc::SYS_rt_sigpending, words) };
    set
}

/// Takes the process's signals in `set` and passes each on.
pub fn pass_pending(inside: &Inside, set: u64) {
    let mut left = set;
    while let Some((signal, information)) = queued::take(left) {
        // In any case it is not taken twice in a row.
        left &= !bit(signal);
        pass(inside, signal, &information);
    }
}
