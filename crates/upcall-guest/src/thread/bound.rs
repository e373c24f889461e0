//! Bound threads: threads with a kernel thread of their own.
//!
//! Some attributes of a kernel thread cannot be shared by threads, nor go with a thread from activation to activation:
//! identity, capabilities, filters, real-time policies, nice values. A thread that changes one of them for itself leaves
//! the virtual processors, and runs on its own kernel thread from then on. Its id, name, thread pointer, mask, stacks and
//! locks go with it, so the program notices nothing.
//!
//! | actor | action |
//! |---|---|
//! | the thread that asks for a change ([`change`]) | starts the kernel thread for the thread that is to change, and lets it make the call; if the kernel refuses, that is all |
//! | the thread to change, at the end of its call ([`go`]) | is saved, and continued by its kernel thread |
//! | a thread that another one binds, and that makes no such call ([`go_stopped`]) | goes from the handler of the runtime's own signal that has stopped it in the program's code |
//! | the bound thread, later | makes its calls there ([`crate::call::of_bound`]); visits the runtime for what only that can do ([`visit`]), and ends there |
//!
//! Protocol. The word `state` tells what the kernel thread must do, and who may touch the rest:
//!
//! ```text
//!   IDLE ──▶ CALL ──▶ IDLE      a thread has it make a call, and waits
//!   IDLE ──▶ CARRY ──▶ AWAY     the thread is saved; the kernel thread continues it
//!   AWAY ──▶ IDLE               the thread is saved on its way back, not ready yet
//!   IDLE ──▶ END                the thread has ended, or was refused; the kernel clears `tid` when all is over
//! ```
//!
//! Signals for the thread go to the kernel thread from the moment at which `outside_tid` is set, under the lock of signals.
//! While the thread is not there it blocks all signals, so that they wait in the kernel.
//!
//! Rejected: to let the activation stay with the thread. Before it carries another thread it would have to undo the changes
//! of its kernel thread, which the kernel does not allow.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::Ordering;

use upcall_core::kernel::Vessels;
use upcall_core::{Errno, Machine, SpinLock};
use upcall_linux::{Activation, Inside, Runtime, Thread, activations, affinity, clone, spawn};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{NEVER, program_call, raw_syscall};
use crate::ground::record::{Bound, LAST, of};
use crate::ground::state::GUEST;
use crate::ground::{caller, mask};
use crate::signal::{self, dispatch, pending};
use crate::thread::{agents, lifetime, names};

pub const CLONE_FILES: u64 = libc::CLONE_FILES as u64;

const IDLE: u32 = 0;
const CALL: u32 = 1;
const CARRY: u32 = 2;
/// The kernel thread runs the thread.
pub const AWAY: u32 = 3;
const END: u32 = 4;

/// A record with the kernel thread's own stack behind it.
const SIZE: usize = 64 << 10;

/// Room for a mark, and the largest number of records.
const MARK: usize = size_of::<Activation>().next_multiple_of(PAGE);
const MOST: usize = 1 << 14;
const PAGE: usize = 4096;

/// All that were made, and those whose kernel thread has ended, or is about to.
struct Records {
    count: usize,
    free: Option<&'static Bound>,
}

static RECORDS: SpinLock<Records> = SpinLock::new(Records {
    count: 0,
    free: None,
});
impl Bound {
    fn stack_top(&'static self) -> usize {
        ptr::from_ref(self) as usize + SIZE
    }

    fn set_state(&self, state: u32) {
        // Release: what was written for the other side before.
        self.state.store(state, Ordering::Release);
        let words = [self.state.as_ptr() as u64, WAKE_PRIVATE, 1, 0, 0, 0];
        // SAFETY: wakes only.
        unsafe { raw_syscall(libc::SYS_futex, words) };
    }

    /// Has the kernel thread make a call, and waits for the answer.
    fn call(&'static self, runtime: &'static Runtime, call: [u64; 7]) -> i64 {
        for (own, word) in self.call.iter().zip(call) {
            own.store(word, Ordering::Relaxed);
        }
        self.set_state(CALL);
        while self.state.load(Ordering::Acquire) == CALL {
            runtime.kernel().yield_processor();
        }
        self.answer.load(Ordering::Relaxed)
    }
}

const WAIT_PRIVATE: u64 = 128;
const WAKE_PRIVATE: u64 = 129;

/// Returns a record for a thread, with a kernel thread that waits.
fn start(runtime: &'static Runtime, thread: &'static Thread) -> Result<&'static Bound, Errno> {
    dispatch::may_start()?;
    agents::need_starter(runtime)?;
    let record = take(runtime)?;
    record
        .thread
        .store(ptr::from_ref(thread).cast_mut(), Ordering::Relaxed);
    record.state.store(IDLE, Ordering::Relaxed);
    record.has_descriptors.store(false, Ordering::Relaxed);
    let new = clone::Start {
        stack: record.stack_top(),
        tid: record.tid.as_ptr() as usize,
        thread_pointer: thread.kernel.thread_pointer.load(Ordering::Relaxed),
        begin,
        argument: ptr::from_ref(record) as usize,
    };
    // SAFETY: the stack is the record's own and free; its id word is there for ever; `begin` does not return.
    match unsafe { spawn::start(runtime, &new, || {}) } {
        Ok(()) => Ok(record),
        Err(error) => {
            give(runtime, record);
            Err(error)
        }
    }
}

fn take(runtime: &'static Runtime) -> Result<&'static Bound, Errno> {
    let mut records = RECORDS.lock(runtime.kernel());
    if let Some(record) = records.free
        && record.tid.load(Ordering::Acquire) == 0
    {
        // SAFETY: null, or a record.
        records.free = unsafe { record.next.load(Ordering::Relaxed).as_ref() };
        return Ok(record);
    }
    if records.count == MOST {
        return Err(Errno(libc::EAGAIN));
    }
    let marks = activations::reserve_bound_marks(MOST * MARK)?;
    let mark = marks + records.count * MARK;
    activations::open_marks(mark, MARK)?;
    let memory = runtime.kernel().map(SIZE)?.cast::<Bound>();
    // SAFETY: new memory, all zero, which is what a record begins with; it is never unmapped.
    let record = unsafe { memory.as_ref() };
    caller::make_mark(mark, memory.as_ptr() as usize);
    record
        .mark
        .store(mark as *mut Activation, Ordering::Relaxed);
    record
        .before
        .store(LAST.load(Ordering::Relaxed), Ordering::Relaxed);
    LAST.store(memory.as_ptr(), Ordering::Release);
    records.count += 1;
    Ok(record)
}

fn give(runtime: &'static Runtime, record: &'static Bound) {
    record.thread.store(ptr::null_mut(), Ordering::Relaxed);
    let mut records = RECORDS.lock(runtime.kernel());
    let next = records
        .free
        .map_or(ptr::null_mut(), |next| ptr::from_ref(next).cast_mut());
    record.next.store(next, Ordering::Relaxed);
    records.free = Some(record);
}

/// Called when its kernel thread has no thread to carry any more.
fn end(runtime: &'static Runtime, record: &'static Bound) {
    record.set_state(END);
    give(runtime, record);
}

/// Takes the first steps of the kernel thread, with all signals blocked.
extern "C" fn begin(record: usize) -> ! {
    // SAFETY: `start` passes its record.
    let record = unsafe { &*(record as *const Bound) };
    record.set_mark();
    dispatch::begin();
    if let Some(thread) = record.thread() {
        affinity::release(Some(&thread.kernel.asked));
    }
    serve(ptr::from_ref(record) as usize, 0, 0)
}

/// The kernel thread without its thread, on its own stack, from the top each time.
extern "C" fn serve(record: usize, thread: usize, _: usize) -> ! {
    // SAFETY: `begin` and `come_back` pass the record; `thread` is none, or one that was just saved here.
    let (record, came_back) = unsafe {
        (
            &*(record as *const Bound),
            (thread as *const Thread).as_ref(),
        )
    };
    if let (Some(thread), Some(runtime)) = (came_back, GUEST.runtime()) {
        // Before others can find it, and send it here again.
        record.state.store(IDLE, Ordering::Release);
        runtime.make_ready_from_outside(thread);
    }
    loop {
        match record.state.load(Ordering::Acquire) {
            CALL => {
                let [number, words @ ..] = record
                    .call
                    .each_ref()
                    .map(|word| word.load(Ordering::Relaxed));
                // SAFETY: the program's own call, on behalf of the thread for which it was made.
                let answer = unsafe { raw_syscall(number as i64, words) } as i64;
                record.answer.store(answer, Ordering::Relaxed);
                record.set_state(IDLE);
            }
            CARRY => carry(record),
            END => loop {
                // SAFETY: ends the kernel thread, on whose stack nothing is needed any more.
                unsafe { raw_syscall(libc::SYS_exit, [0; 6]) };
            },
            state => {
                let words = [
                    record.state.as_ptr() as u64,
                    WAIT_PRIVATE,
                    state.into(),
                    0,
                    0,
                    0,
                ];
                // SAFETY: reads the word.
                unsafe { raw_syscall(libc::SYS_futex, words) };
            }
        }
    }
}

/// Continues the thread, which is saved.
fn carry(record: &'static Bound) -> ! {
    let (Some(thread), Some(runtime)) = (record.thread(), GUEST.runtime()) else {
        upcall_linux::sys::say(
            b"upcall: a bound kernel thread without a thread: this is a bug in upcall\n",
        );
        std::process::abort()
    };
    record.state.store(AWAY, Ordering::Relaxed);
    signal::altstack::give_back(thread);
    names::give_back(thread);
    pending::move_outside(runtime, thread, record.tid.load(Ordering::Relaxed));
    // SAFETY: it was saved before its record said so, and nobody else knows it.
    unsafe { runtime.carry_outside(thread) }
}

/// Notes that a bound thread has got a table of descriptors of its own.
pub fn has_got_descriptors(thread: &'static Thread) {
    if let Some(record) = of(thread) {
        record.has_descriptors.store(true, Ordering::Relaxed);
    }
}

/// Returns true if a bound thread has a table of descriptors of its own, of which the poller knows nothing.
pub fn has_descriptors(thread: &'static Thread) -> bool {
    of(thread).is_some_and(|record| record.has_descriptors.load(Ordering::Relaxed))
}

/// Makes calls that change a kernel thread for a thread that must keep the change, and binds that thread if the kernel does
/// not refuse the first. `whose` is that thread, with its id. If it is the caller it leaves at the end of this call, else
/// at the end of its next call, or when it is stopped in the program's code. Returns the last call's answer.
///
/// `calls` has the number and the words of each, as the thread would make the call for itself. If a filter traps the first
/// one on the new kernel thread, it traps it on the calling one too, where the program's handler answers it.
pub fn change(runtime: &'static Runtime, whose: (&'static Thread, i32), calls: &[[u64; 7]]) -> i64 {
    let inside = runtime.enter();
    let (answer, is_trapped) = bind(runtime, Some(&inside), whose, calls);
    inside.leave();
    match calls {
        // SAFETY: the program's own call, which the same filters meet again.
        [first, ..] if is_trapped => unsafe { program_call(first, &Cell::new(0), &NEVER) as i64 },
        _ => answer,
    }
}

/// As [`change`], by an outside kernel thread.
pub fn change_from_outside(
    runtime: &'static Runtime,
    whose: (&'static Thread, i32),
    calls: &[[u64; 7]],
) -> i64 {
    // While it holds the runtime's locks no handler may run, which might want the same locks.
    let before = mask::change_kernel_mask(mask::ALL);
    let (answer, _) = bind(runtime, None, whose, calls);
    mask::set_kernel_mask(before);
    answer
}

/// Makes the calls on a new kernel thread, and binds the thread to that. Returns the last call's answer, and true if a
/// filter has trapped the first one. `own`: the caller's activation, if it is on one.
fn bind(
    runtime: &'static Runtime,
    own: Option<&Activation>,
    (thread, id): (&'static Thread, i32),
    calls: &[[u64; 7]],
) -> (i64, bool) {
    const TRAPPED: i64 = -(libc::ENOSYS as i64);
    const NO_SUCH_THREAD: i64 = -(libc::ESRCH as i64);
    // A thread of the crate: its shell, which runs other threads after it, must stay on activations.
    if thread.guest().shell.load(Ordering::Relaxed) != 0 {
        return (-i64::from(libc::EPERM), false);
    }
    let record = match start(runtime, thread) {
        Err(Errno(number)) => return (-i64::from(number), false),
        Ok(record) => record,
    };
    let mut answers = calls.iter().map(|&call| record.call(runtime, call));
    let answer = answers.next().unwrap_or(0);
    let bound = answer >= 0
        && pending::holds_while(runtime, (thread, id), || {
            let own = ptr::from_ref(record) as usize;
            let (set, get) = (Ordering::AcqRel, Ordering::Relaxed);
            let is_first = thread.guest().bound.compare_exchange(0, own, set, get);
            is_first.is_ok()
        });
    if !bound {
        end(runtime, record);
        let answer = if answer < 0 { answer } else { NO_SUCH_THREAD };
        return (answer, answer == TRAPPED);
    }
    // The thread may never make a call. One that is installed later looks at the end of its time slice.
    let is_own = |carrier: &Activation| own.is_some_and(|own| ptr::eq(own, carrier));
    if let Some(carrier) = thread.carrier().filter(|&carrier| !is_own(carrier)) {
        carrier.attend(Activation::DEFERRED);
        runtime.kernel().interrupt(carrier);
    }
    let has = calls.iter().any(unshares_descriptors);
    record.has_descriptors.store(has, Ordering::Relaxed);
    (answers.last().unwrap_or(answer), false)
}

/// Moves a thread that makes no call to a kernel thread of its own. Not in a handler that returns into the runtime.
#[inline(never)]
pub fn go(runtime: &'static Runtime, thread: &'static Thread) {
    let Some(record) = of(thread).filter(|_| !signal::is_called_back(thread)) else {
        return;
    };
    depart(runtime, record, thread);
    // What has come meanwhile comes now.
    mask::set_kernel_mask(dispatch::blockable(
        thread.kernel.mask.load(Ordering::Relaxed),
    ));
}

/// As [`go`], for a thread that was stopped in the program's code, and that another one has bound. Returns true if it went:
/// then all signals are blocked. A thread that visits the runtime is not sent back from here.
pub fn go_stopped(runtime: &'static Runtime, thread: &'static Thread) -> bool {
    let was_there = thread.guest().outside_tid.load(Ordering::Relaxed) != 0;
    match of(thread).filter(|_| !was_there && !signal::is_called_back(thread)) {
        Some(record) => {
            depart(runtime, record, thread);
            true
        }
        None => false,
    }
}

/// Saves the thread, which goes on on its own kernel thread, where all signals are blocked.
fn depart(runtime: &'static Runtime, record: &'static Bound, thread: &'static Thread) {
    // There it has its mask.
    thread.kernel.has_lazy_mask.store(false, Ordering::Relaxed);
    // It goes on where nobody is inside.
    let _ = runtime.enter().park(
        |_, _, record| {
            // SAFETY: as passed below.
            unsafe { &*(record as *const Bound) }.set_state(CARRY);
            None
        },
        ptr::from_ref(record) as usize,
    );
}

/// Leaves the kernel thread, for an activation. Signals are blocked on both, since no handler of the thread may run on an
/// activation, without its attributes. One exception: a call that a filter traps there is answered by the thread's handler,
/// unless the thread itself has blocked that signal.
fn come_back(runtime: &'static Runtime, record: &'static Bound, thread: &'static Thread) {
    mask::set_kernel_mask(mask::ALL);
    signal::altstack::take_back(thread);
    let own = thread.kernel.mask.load(Ordering::Relaxed);
    thread.kernel.mask.store(mask::ALL | own, Ordering::Relaxed);
    // SAFETY: the stack is free while the thread is away from it; `serve` does not return.
    let inside = unsafe {
        runtime.return_from_outside(
            thread,
            record.stack_top(),
            land,
            ptr::from_ref(record) as usize,
        )
    };
    inside.leave();
}

/// The thread was just saved, on its way back.
extern "C" fn land(record: usize, _: usize, _: usize) -> ! {
    // SAFETY: `come_back` passes its record.
    let thread = unsafe { &*(record as *const Bound) }
        .thread
        .load(Ordering::Relaxed);
    serve(record, thread as usize, 0)
}

/// Lets a bound thread do something in the runtime, on an activation. It must not wait for long.
pub fn visit<R>(thread: &'static Thread, act: impl FnOnce(&'static Runtime) -> R) -> Option<R> {
    let (Some(record), Some(runtime)) = (of(thread), GUEST.runtime()) else {
        return None;
    };
    let mask = thread.kernel.mask.load(Ordering::Relaxed);
    come_back(runtime, record, thread);
    let result = act(runtime);
    thread.kernel.mask.store(mask, Ordering::Relaxed);
    go(runtime, thread);
    Some(result)
}

/// exit(2) of a bound thread, which ends as any other.
pub fn exit(thread: &'static Thread, status: u64) -> ! {
    if let (Some(record), Some(runtime)) = (of(thread), GUEST.runtime()) {
        come_back(runtime, record, thread);
        lifetime::exit(runtime, thread, status);
    }
    upcall_linux::sys::say(b"upcall: a bound thread without a runtime: this is a bug in upcall\n");
    std::process::abort()
}

/// Called when a thread begins, in a block that may have been another's.
pub fn forget(thread: &'static Thread) {
    thread.guest().bound.store(0, Ordering::Relaxed);
    thread.guest().outside_tid.store(0, Ordering::Relaxed);
}

/// Called when a thread has ended. Its kernel thread ends too.
pub fn ended(inside: &Inside, thread: &'static Thread) {
    if let Some(record) = of(thread) {
        forget(thread);
        end(inside.runtime(), record);
    }
}

/// The child of a fork has none.
///
/// # Safety
///
/// The only thread of the process: the holder of the lock stayed in the parent.
pub unsafe fn forget_all(runtime: &'static Runtime) {
    LAST.store(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { RECORDS.unlock() };
    // The marks stay where they are; what has one is forgotten.
    RECORDS.lock(runtime.kernel()).free = None;
}

/// Returns true if a call with these words gives the calling kernel thread a table of descriptors of its own.
pub fn unshares_descriptors(words: &[u64; 7]) -> bool {
    words[0] as i64 == libc::SYS_unshare && words[1] & CLONE_FILES != 0
}
