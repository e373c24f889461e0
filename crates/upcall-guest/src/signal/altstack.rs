//! Alternate signal stacks: sigaltstack(2). See docs/adr/0010.
//!
//! The thread's stack is kept here, under the kernel's rules. The kernel knows only the activation's own stack, which it is
//! told once for each activation. That stack is empty while a thread runs. A signal that meets the runtime there is put
//! below what is in use. `place` moves the frame to where the thread wants it.
//!
//! A frame may be continued on another activation, and must not take its first activation's stack along. So rt_sigreturn(2)
//! finds no valid stack in it: the kernel ignores flags that it does not know there. A handler of the program finds the
//! thread's stack in the frame, and what it leaves there becomes the thread's.
//!
//! In a process without a runtime, and on outside kernel threads, the kernel keeps the stack. A bound thread takes its
//! stack to its kernel thread and back.

use core::sync::atomic::Ordering;

use upcall_linux::{Activation, Runtime, Thread};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::mask::set_kernel_mask;
use crate::ground::{access, arch};

/// A flag: the stack is disabled while a handler runs.
const SS_AUTODISARM: i32 = 1 << 31;
/// The kernel's own least size. `libc::MINSIGSTKSZ` is the same.
const LEAST: usize = 2048;
/// Flags that no kernel takes.
const NO_CHANGE: i32 = i32::MAX;

const NONE: libc::stack_t = libc::stack_t {
    ss_sp: core::ptr::null_mut(),
    ss_flags: libc::SS_DISABLE,
    ss_size: 0,
};

/// Returns the alternate stack of a thread, as it was set.
pub(super) fn of(thread: &Thread) -> libc::stack_t {
    let [address, size, flags] = thread
        .guest()
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
    for (slot, word) in thread.guest().altstack.iter().zip(words) {
        slot.store(word, Ordering::Relaxed);
    }
}

/// Returns true if the stack is disabled while a handler runs.
pub(super) fn disarms(stack: &libc::stack_t) -> bool {
    stack.ss_flags & SS_AUTODISARM != 0
}

/// Returns true if the stack pointer is on the stack, by the kernel's rules.
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
        0 | libc::SS_ONSTACK => keep(thread, new),
        _ => return Err(libc::EINVAL),
    }
    Ok(())
}

/// sigaltstack(2) of a thread.
pub fn sigaltstack(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let inside = runtime.enter();
    let answer = call(thread, frame).err().unwrap_or(0);
    inside.leave();
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

/// sigaltstack(2) in a process without a runtime, as the kernel answers it. A dispatched call is served in a handler, which
/// may be on the alternate stack itself, and then the kernel would refuse the change.
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

/// Tells the kernel the activation's own stack, for the calling kernel thread, inside the runtime. It is called on another
/// stack, because the thread may be using the one that the kernel knew before.
pub fn install(activation: &Activation) {
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

/// Called when the calling kernel thread has become a process with this thread. It is on the thread's stack.
pub fn give_back(thread: &Thread) {
    let stack = of(thread);
    // SAFETY: reads the structure; the kernel knows the activation's stack so far, where nobody is.
    unsafe {
        let from = (&raw const stack) as u64;
        raw_syscall(libc::SYS_sigaltstack, [from, 0, 0, 0, 0, 0])
    };
}

/// Called when a kernel thread stops carrying this thread alone, on the thread's stack. Makes the kernel's stack the
/// thread's.
pub fn take_back(thread: &Thread) {
    let mut stack = NONE;
    // SAFETY: writes the structure.
    unsafe {
        let to = (&raw mut stack) as u64;
        raw_syscall(libc::SYS_sigaltstack, [0, to, 0, 0, 0, 0])
    };
    // That it may be in use is no part of it.
    stack.ss_flags &= !libc::SS_ONSTACK;
    keep(thread, &stack);
}

/// Shows a handler of the program's, in the frame, its thread's stack; then disables it if the thread wants that.
pub(super) fn show(thread: &'static Thread, context: *mut libc::ucontext_t) {
    let stack = of(thread);
    // SAFETY: the kernel's frame.
    unsafe { (*context).uc_stack = stack };
    if disarms(&stack) {
        keep(thread, &NONE);
    }
}

/// Called at the end of a handler of the program's. The stack that it has left in the frame becomes its thread's, if it is
/// valid. As the kernel since Linux 6.12, this compares the stack pointer of the handler, not of the code that it has
/// interrupted: while that is on the stack nothing changes.
pub(super) fn restore(thread: &'static Thread, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's frame.
    let stack = unsafe { (*context).uc_stack };
    // The kernel does not say what is wrong with it either.
    let _ = set(thread, &stack, context as usize);
    leave_as_it_is(context);
}

/// The kernel thread that continues the frame keeps the stack that it has.
pub(super) fn leave_as_it_is(context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's frame.
    unsafe { (*context).uc_stack.ss_flags = NO_CHANGE };
}
