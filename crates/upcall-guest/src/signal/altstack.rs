//! Alternate signal stacks: sigaltstack(2).
//!
//! A thread's is kept here, with the kernel's rules. What the kernel knows is, for each activation and
//! once, the activation's own stack: nothing is there while a thread runs, and a signal that meets the
//! runtime there is put below what it has. `place` moves the frame to where the thread wants it.
//!
//! A frame may be continued on another activation than the one that took it, and must not carry that
//! one's stack along. What rt_sigreturn(2) finds in it is therefore no stack at all: the kernel ignores
//! flags that it does not know there. What the program's handler finds is the thread's, and
//! what it leaves is the thread's afterwards.
//!
//! A process without a runtime, and kernel threads that are no activations, have the kernel's. A bound thread takes its own
//! to its kernel thread and back.
//!
//! Rejected: telling the kernel the stack of each thread when it runs. Every switch between a thread
//! that has one and one that has none was a system call or two, and the stack of a
//! parked thread had to be kept from whatever met its activation meanwhile.

use core::sync::atomic::{AtomicBool, Ordering};

use upcall_linux::{Activation, Runtime, Thread};

use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::mask::set_kernel_mask;
use crate::ground::state::GUEST;
use crate::ground::{access, arch};

/// The stack is taken away while a handler runs.
const SS_AUTODISARM: i32 = 1 << 31;
/// The kernel's own least size. `libc::MINSIGSTKSZ` is the same.
const LEAST: usize = 2048;
/// Flags that no kernel takes.
const NO_CHANGE: i32 = i32::MAX;

/// What the runtime's own signal needs there: the frame with all vector registers, the runtime's
/// calls, and the same again for a handler of the program. Those of 8 KiB are there for faults only.
const ROOM: usize = 12 << 10;

static WANTED: AtomicBool = AtomicBool::new(false);
static SHARED: AtomicBool = AtomicBool::new(false);

const NONE: libc::stack_t = libc::stack_t {
    ss_sp: core::ptr::null_mut(),
    ss_flags: libc::SS_DISABLE,
    ss_size: 0,
};

/// The alternate stack of a thread, as it was set.
pub(super) fn of(thread: &Thread) -> libc::stack_t {
    let [address, size, flags] = thread
        .kernel
        .altstack
        .each_ref()
        .map(|word| word.load(Ordering::Relaxed));
    libc::stack_t {
        ss_sp: address as *mut _,
        ss_flags: flags as i32,
        ss_size: size,
    }
}

fn keep(thread: &Thread, stack: &libc::stack_t) {
    let words = [
        stack.ss_sp as usize,
        stack.ss_size,
        stack.ss_flags as u32 as usize,
    ];
    for (slot, word) in thread.kernel.altstack.iter().zip(words) {
        // SeqCst: as `want` says.
        slot.store(word, Ordering::SeqCst);
    }
}

/// Returns true if the stack is taken away while a handler runs.
pub(super) fn disarms(stack: &libc::stack_t) -> bool {
    stack.ss_flags & SS_AUTODISARM != 0
}

/// Returns true if the stack pointer is on the stack, as far as the kernel says so.
pub(super) fn is_on(stack: &libc::stack_t, stack_pointer: usize) -> bool {
    let base = stack.ss_sp as usize;
    !disarms(stack) && stack_pointer > base && stack_pointer - base <= stack.ss_size
}

/// Sets a thread's stack, as sigaltstack(2) with this stack pointer.
fn set(thread: &'static Thread, new: &libc::stack_t, stack_pointer: usize) -> Result<(), i32> {
    let before = of(thread);
    if is_on(&before, stack_pointer) {
        return Err(libc::EPERM);
    }
    let same = |of: fn(&libc::stack_t) -> usize| of(&before) == of(new);
    match new.ss_flags & !SS_AUTODISARM {
        0 | libc::SS_ONSTACK | libc::SS_DISABLE
            if same(|s| s.ss_sp as usize)
                && same(|s| s.ss_size)
                && same(|s| s.ss_flags as usize) => {}
        libc::SS_DISABLE => keep(
            thread,
            &libc::stack_t {
                ss_flags: new.ss_flags,
                ..NONE
            },
        ),
        0 | libc::SS_ONSTACK if new.ss_size < LEAST => return Err(libc::ENOMEM),
        0 | libc::SS_ONSTACK => {
            keep(thread, new);
            judge(thread);
        }
        _ => return Err(libc::EINVAL),
    }
    Ok(())
}

/// The program has a handler that it wants on the alternate stack, for signals that anybody may send. It has
/// threads on stacks without room for a frame (coroutines, Erlang's processes, Go): from now on the
/// runtime's own signal goes there too.
pub(super) fn want() {
    if WANTED.load(Ordering::Relaxed) {
        return;
    }
    // SeqCst: who sets an alternate stack looks here afterwards, and who wants it looks at all
    // stacks afterwards: one of them sees that two share one. Pairs with `judge`.
    WANTED.store(true, Ordering::SeqCst);
    GUEST.identities.each(|thread| {
        judge(thread);
        true
    });
}

/// A thread has another stack. One that is preempted stays on its own while others run.
fn judge(thread: &'static Thread) {
    // SeqCst: pairs with `want`.
    if WANTED.load(Ordering::SeqCst) && is_shared(thread) {
        SHARED.store(true, Ordering::Relaxed);
    }
}

/// Returns true if the runtime's own signal goes to this stack, of a thread that has it.
pub(super) fn takes_own(stack: &libc::stack_t) -> bool {
    WANTED.load(Ordering::Relaxed) && !SHARED.load(Ordering::Relaxed) && stack.ss_size >= ROOM
}

/// Returns true if another thread's alternate stack lies in this thread's. A program may do that whose handlers end the
/// process.
fn is_shared(thread: &'static Thread) -> bool {
    let range = |of: &'static Thread| {
        // SeqCst: as `want` says.
        let [start, size, _] = of
            .kernel
            .altstack
            .each_ref()
            .map(|w| w.load(Ordering::SeqCst));
        start..start.saturating_add(size)
    };
    let own = range(thread);
    let mut shared = false;
    GUEST.identities.each(|other| {
        let its = range(other);
        shared = !core::ptr::eq(other, thread) && own.start < its.end && its.start < own.end;
        !shared
    });
    shared
}

/// sigaltstack(2) of a thread.
pub fn sigaltstack(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let activation = runtime.enter();
    let answer = call(thread, frame).err().unwrap_or(0);
    runtime.leave(activation);
    -i64::from(answer)
}

fn call(thread: &'static Thread, frame: &Frame) -> Result<(), i32> {
    let fault = |_| libc::EFAULT;
    let (new, old) = (frame.rdi as usize, frame.rsi as usize);
    let stack_pointer = frame.rsp as usize;
    let before = of(thread);
    if new != 0 {
        let word = |index: usize| access::load_u64(new + 8 * index).map_err(fault);
        let wanted = libc::stack_t {
            ss_sp: word(0)? as *mut _,
            ss_flags: word(1)? as i32,
            ss_size: word(2)? as usize,
        };
        set(thread, &wanted, stack_pointer)?;
    }
    if old != 0 {
        let state = if before.ss_size == 0 {
            libc::SS_DISABLE
        } else if is_on(&before, stack_pointer) {
            libc::SS_ONSTACK
        } else {
            0
        };
        let flags = (state | before.ss_flags & SS_AUTODISARM) as u32;
        let words = [before.ss_sp as u64, flags.into(), before.ss_size as u64];
        for (index, word) in words.into_iter().enumerate() {
            access::store_u64(old + 8 * index, word).map_err(fault)?;
        }
    }
    Ok(())
}

/// sigaltstack(2) as the kernel answers it to the program where it stands, without a runtime. A
/// dispatched call is served in a handler, which is on the alternate stack itself if the program's
/// SIGSYS is: the kernel would not let it be changed.
pub fn call_of_kernel(frame: &Frame) -> i64 {
    let (all, mut mask) = (!0u64, 0u64);
    // SAFETY: reads and writes eight bytes. In one call: a signal that is deferred before it
    // changes the mask.
    unsafe {
        let words = [&raw const all as u64, &raw mut mask as u64];
        let how = libc::SIG_SETMASK as u64;
        raw_syscall(libc::SYS_rt_sigprocmask, [how, words[0], words[1], 8, 0, 0]);
    }
    // SAFETY: the program's own arguments; all signals are blocked.
    let answer =
        unsafe { arch::raw_syscall_at(frame.rsp, libc::SYS_sigaltstack, [frame.rdi, frame.rsi]) };
    set_kernel_mask(mask);
    answer as i64
}

/// The first thread keeps the alternate stack that it has set before there was a runtime.
pub fn adopt(thread: &'static Thread) {
    if take_back(thread).ss_size != 0 {
        judge(thread);
    }
}

/// Tells the kernel the activation's own stack, for the calling kernel thread, inside the runtime. What it knew
/// before may be in use by the thread that calls this: it is asked from elsewhere.
pub fn install(activation: &'static Activation) {
    let own = activation.own_stack();
    let stack = libc::stack_t {
        ss_sp: own.start as *mut _,
        ss_flags: 0,
        ss_size: own.len(),
    };
    let at = (&raw const stack) as u64;
    if own.contains(&(at as usize)) {
        // A new activation, which runs there: a frame at the end of the stack would lie over what it needs.
        // SAFETY: reads the structure.
        unsafe { raw_syscall(libc::SYS_sigaltstack, [at, 0, 0, 0, 0, 0]) };
        return;
    }
    // SAFETY: reads the structure. What lands there meanwhile is on the activation's own stack, where nothing is: it
    // returns on the spot.
    unsafe { arch::raw_syscall_at(own.end as u64, libc::SYS_sigaltstack, [at, 0]) };
}

/// The calling kernel thread is no activation any more, but a process with this thread. On its stack.
pub fn give_back(thread: &Thread) {
    let stack = of(thread);
    // SAFETY: reads the structure; the kernel knows the activation's stack so far, where nobody is.
    unsafe {
        let from = (&raw const stack) as u64;
        raw_syscall(libc::SYS_sigaltstack, [from, 0, 0, 0, 0, 0])
    };
}

/// The kernel thread that carries this thread alone does so no more, on the thread's stack: the stack that the kernel has is
/// the thread's. Returns it.
pub fn take_back(thread: &Thread) -> libc::stack_t {
    let mut stack = NONE;
    // SAFETY: writes the structure.
    unsafe {
        let to = (&raw mut stack) as u64;
        raw_syscall(libc::SYS_sigaltstack, [0, to, 0, 0, 0, 0])
    };
    // That it may be in use is no part of it.
    stack.ss_flags &= !libc::SS_ONSTACK;
    keep(thread, &stack);
    stack
}

/// Shows a handler of the program's, in the frame, the stack of its thread; this takes it away if the
/// thread has said so.
pub(super) fn show(thread: &'static Thread, context: *mut libc::ucontext_t) {
    let stack = of(thread);
    // SAFETY: the kernel's frame.
    unsafe { (*context).uc_stack = stack };
    if disarms(&stack) {
        keep(thread, &NONE);
    }
}

/// The end of a handler of the program's: what it has left in the frame is its thread's, if that may be. As
/// the kernel since Linux 6.12, which takes the stack pointer for that of the handler, not of what
/// it has interrupted: on the stack it changes nothing.
pub(super) fn restore(thread: &'static Thread, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's frame.
    let stack = unsafe { (*context).uc_stack };
    // The kernel does not say what is wrong with it either.
    let _ = set(thread, &stack, context as usize);
    leave_as_it_is(context);
}

/// Whatever kernel thread continues the frame keeps the stack that it has.
pub(super) fn leave_as_it_is(context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's frame.
    unsafe { (*context).uc_stack.ss_flags = NO_CHANGE };
}
