//! Calls that every kernel thread of the process must make: setuid(2) and others, Syscall User Dispatch, ptrace(2).

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use upcall_core::{Machine, SpinLock};
use upcall_linux::{Activation, Runtime, preempt, spawn};

use crate::ground::caller;
use crate::ground::entry::{Frame, pass_through, raw_syscall};
use crate::ground::hooks::hooks;

/// The signal by which libc asks its threads to take part (SIGSETXID).
pub const SETXID: i32 = 33;
/// The signal by which libc cancels a thread.
pub const CANCEL: i32 = 32;

/// A call that every kernel thread of the process must make.
struct Everywhere {
    number: AtomicI64,
    words: [AtomicU64; 6],
    /// The first kernel thread's answer.
    expected: AtomicI64,
    /// Another kernel thread's different answer.
    answer: AtomicI64,
}

static EVERYWHERE: Everywhere = Everywhere {
    number: AtomicI64::new(0),
    words: [const { AtomicU64::new(0) }; 6],
    expected: AtomicI64::new(0),
    answer: AtomicI64::new(0),
};

static ONE_AT_A_TIME: SpinLock<()> = SpinLock::new(());

/// Makes a call that changes the calling kernel thread on every activation: its identity, as
/// setuid(2) requires of a process, or whether calls are dispatched. `call`: its number and words. In
/// program context.
pub fn everywhere(runtime: &'static Runtime, call: [u64; 7]) -> i64 {
    one_at_a_time(runtime, |activation| make(runtime, activation, call))
}

/// As [`everywhere`], but `decide` gets the call as a function to make or not, and returns the answer. No other thread
/// decides meanwhile.
pub fn change(
    runtime: &'static Runtime,
    call: [u64; 7],
    decide: impl FnOnce(&dyn Fn() -> i64) -> i64,
) -> i64 {
    one_at_a_time(runtime, |activation| {
        decide(&|| make(runtime, activation, call))
    })
}

/// Makes the call on every activation, in [`one_at_a_time`].
fn make(runtime: &'static Runtime, activation: Option<&Activation>, call: [u64; 7]) -> i64 {
    // First here: if this is not allowed, no other makes it.
    let (first, other) = ask_all(runtime, activation, call, 0);
    if first == 0 && other != 0 {
        // As glibc: a process with two identities must not go on.
        runtime
            .kernel()
            .broken("a kernel thread could not make a call that the others have made");
    }
    first
}

/// ptrace(2). The kernel takes requests only from the kernel thread that is the tracer, and the thread may have become the
/// tracer on another activation. No two activations trace the same process.
pub fn trace(runtime: &'static Runtime, frame: &Frame) -> i64 {
    const NOT_THE_TRACER: i64 = -(libc::ESRCH as i64);
    let (first, other) = ask(runtime, frame.words(), NOT_THE_TRACER);
    if first == NOT_THE_TRACER {
        other
    } else {
        first
    }
}

/// Makes a call here and, if the answer is this one, on every other activation. Returns the answer here, and the one
/// elsewhere that differs, if any.
fn ask(runtime: &'static Runtime, call: [u64; 7], expected: i64) -> (i64, i64) {
    one_at_a_time(runtime, |activation| {
        ask_all(runtime, activation, call, expected)
    })
}

/// Calls `act` while no other thread does so; with the calling activation, if it is one.
fn one_at_a_time<R>(runtime: &'static Runtime, act: impl FnOnce(Option<&Activation>) -> R) -> R {
    // A helper is not inside the runtime and need not leave.
    let inside = (!caller::is_outside()).then(|| runtime.enter());
    let guard = ONE_AT_A_TIME.lock(runtime.kernel());
    let result = act(inside.as_deref().map(|inside| &**inside));
    drop(guard);
    if let Some(inside) = inside {
        inside.leave();
    }
    result
}

/// As [`ask`], in [`one_at_a_time`].
fn ask_all(
    runtime: &'static Runtime,
    activation: Option<&Activation>,
    call: [u64; 7],
    expected: i64,
) -> (i64, i64) {
    let [number, words @ ..] = call;
    let number = number as i64;
    // SAFETY: the program's own arguments, or those of `sud::request`.
    let first = unsafe { raw_syscall(number, words) } as i64;
    let mut other = expected;
    if first == expected {
        EVERYWHERE.number.store(number, Ordering::Relaxed);
        for (own, word) in EVERYWHERE.words.iter().zip(words) {
            own.store(word, Ordering::Relaxed);
        }
        EVERYWHERE.expected.store(expected, Ordering::Relaxed);
        EVERYWHERE.answer.store(expected, Ordering::Relaxed);
        // No kernel thread may be started meanwhile by one that has not changed yet.
        let starts = spawn::STARTS.lock(runtime.kernel());
        preempt::new_call(activation);
        runtime.each_activation(|other| {
            if preempt::owes_call(other) {
                preempt::request_call(runtime.kernel().pid(), other);
            }
        });
        runtime.each_activation(|other| {
            while preempt::owes_call(other) {
                runtime.kernel().yield_processor();
            }
        });
        if number != libc::SYS_ptrace {
            (hooks().call_of_agents)(runtime);
        }
        drop(starts);
        other = EVERYWHERE.answer.load(Ordering::Relaxed);
    } else if number == libc::SYS_ptrace
        && let Some(activation) = activation
    {
        // Perhaps a tracer now, as long as it lives.
        activation.stay();
    }
    (first, other)
}

/// Called in the handler, on each of the other activations.
pub fn make_requested_call(activation: &Activation) {
    if !preempt::owes_call(activation) {
        return;
    }
    make_call_of_all();
    preempt::note_call(activation);
}

/// Makes the call that every kernel thread of the process must make.
pub fn make_call_of_all() {
    let words = core::array::from_fn(|index| EVERYWHERE.words[index].load(Ordering::Relaxed));
    // SAFETY: the program's own call with its own arguments.
    let answer = unsafe { pass_through(EVERYWHERE.number.load(Ordering::Relaxed), words) } as i64;
    if answer != EVERYWHERE.expected.load(Ordering::Relaxed) {
        EVERYWHERE.answer.store(answer, Ordering::Relaxed);
    }
}

/// The child of a fork makes none.
///
/// # Safety
///
/// The only thread of the process: the holder of the lock stayed in the parent.
pub unsafe fn forget() {
    // SAFETY: the caller's promise.
    unsafe { ONE_AT_A_TIME.unlock() };
}
