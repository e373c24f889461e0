//! Finds who makes a call: a thread on an activation, or an outside kernel thread.
//!
//! Helpers, and children that share the memory, run the same rewritten code. Their pseudo-register leads to a mark: memory
//! that looks like an activation inside the runtime, without a thread.
//!
//! A program may use that register itself (GS on x86-64: sandboxes do). Its value belongs to the thread:
//!
//! 1. Wherever code of the program has run, the register is trusted only if it leads to the activation that carries the
//!    calling thread ([`base::program_thread`]). Otherwise the kernel thread's id tells which activation this is
//!    ([`identify`]). The value is then kept with the thread, and the register set to the activation's.
//! 2. The last step before code of the program goes on is [`give_back`]: it writes the thread's value, if it has one.
//!    Handlers do the same: the kernel starts them with the register as it is, and they may change it for the code that
//!    they have interrupted.
//! 3. A signal between these steps and the program finds the program's value in the register, and leaves it there.
//!
//! A bound thread is no activation's. While it is in the runtime its value is kept with the thread, too, and its kernel
//! thread has its record's mark in the register.
//!
//! A value that is one of ours is not the program's: it has read it there and written it back. A thread that has no value
//! of its own reads an activation's address. Children that share the memory begin without a value.

use core::sync::atomic::{AtomicUsize, Ordering};

use upcall_linux::{Activation, Runtime, Thread, activations, base};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{self, Frame, raw_syscall};
use crate::ground::identity::kernel_tid;
use crate::ground::state::{self, GUEST};
use crate::ground::{caller, mask, record};

/// The record number in the marks of kernel threads without a record of their own ([`record_of`]).
const ANYBODY: usize = 1;

/// One mark for processes that share the memory, one for threads.
static OUTSIDE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Makes the marks, once. While there is one kernel thread: before the second one, or a process that shares the memory.
pub fn prepare() {
    if OUTSIDE[0].load(Ordering::Relaxed) != 0 {
        return;
    }
    const ALIGNMENT: usize = align_of::<Activation>();
    let size = size_of::<Activation>().next_multiple_of(ALIGNMENT);
    let memory = vec![0u8; OUTSIDE.len() * size + ALIGNMENT].leak();
    let first = (memory.as_mut_ptr() as usize).next_multiple_of(ALIGNMENT);
    activations::note_marks(first..first + OUTSIDE.len() * size);
    for (index, own) in OUTSIDE.iter().enumerate() {
        let address = first + index * size;
        make_mark(address, ANYBODY);
        own.store(address, Ordering::Relaxed);
    }
}

/// Makes a mark of zeroed memory that has the size and alignment of an activation, for a kernel thread with that record
/// (`ANYBODY`: without one).
pub fn make_mark(address: usize, record: usize) {
    let mark = address as *mut Activation;
    // SAFETY: inside that memory; the words that are read through the pseudo-register.
    unsafe {
        ((address + Activation::OFFSET_THIS) as *mut usize).write(address);
        ((address + Activation::OFFSET_INSIDE) as *mut u32).write(1);
        (*mark).kernel.outside = AtomicUsize::new(record);
    }
}

/// Returns the record behind a mark; 0 for an activation, and for a mark without one.
#[inline]
pub fn record_of(activation: &Activation) -> usize {
    match activation.kernel.outside.load(Ordering::Relaxed) {
        ANYBODY => 0,
        record => record,
    }
}

/// Marks the calling kernel thread; `helper`: it is a thread of this process.
pub fn mark_outside(helper: bool) {
    let mark = OUTSIDE[usize::from(helper)].load(Ordering::Relaxed) as *const Activation;
    // SAFETY: leaked, and as large as an activation.
    base::set(unsafe { mark.as_ref() });
}

/// Returns true if the calling kernel thread is an outside one of this process.
pub fn is_helper() -> bool {
    base::is_set() && {
        // SAFETY: the pseudo-register is set.
        let own = unsafe { base::current() };
        is_mark(own) && core::ptr::from_ref(own) as usize != OUTSIDE[0].load(Ordering::Relaxed)
    }
}

/// Returns true if the calling kernel thread is an outside one, or runs on borrowed memory.
#[inline]
pub fn is_outside() -> bool {
    if !base::is_set() {
        return true;
    }
    // SAFETY: the pseudo-register is set.
    match unsafe { base::current_thread() } {
        Some(thread) => thread.guest().lent.load(Ordering::Relaxed),
        // A mark has none.
        // SAFETY: as above.
        None => is_mark(unsafe { base::current() }),
    }
}

/// Returns true if this is a mark in place of an activation.
pub fn is_mark(activation: &Activation) -> bool {
    activation.kernel.outside.load(Ordering::Relaxed) != 0
}

/// Returns the thread that makes the call.
#[inline]
pub fn current_thread() -> Option<&'static Thread> {
    // SAFETY: called for threads only.
    unsafe { base::current_thread() }
}

/// Returns the calling thread, if it runs on an activation and its memory is not lent.
#[inline]
pub fn own_thread() -> Option<&'static Thread> {
    if !base::is_set() {
        return None;
    }
    current_thread().filter(|thread| !thread.guest().lent.load(Ordering::Relaxed))
}

/// What runs on the calling kernel thread, whatever its register holds.
pub enum Caller {
    /// An activation with this thread; true if the program had written the register.
    Thread(&'static Thread, bool),
    /// An activation of which no thread's code runs.
    Activation,
    /// No activation. What the register holds, unless that is a mark.
    Outside(Option<usize>),
}

/// Finds out what runs here by the kernel thread's id. On an activation the register leads to that afterwards, and the
/// program's value is kept with the thread.
#[cold]
#[inline(never)]
pub fn identify(runtime: &'static Runtime) -> Caller {
    if activations::is_mark(base::read()) {
        return Caller::Outside(None);
    }
    // Until the register leads to it the thread must stay on the activation.
    let mask = mask::change_kernel_mask(mask::ALL);
    let (id, mut found) = (kernel_tid(), None);
    runtime.each_activation(|activation| {
        if activation.kernel.tid.load(Ordering::Relaxed) == id {
            found = Some(activation);
        }
    });
    let caller = match found {
        Some(activation) => claim(activation),
        None => Caller::Outside(Some(base::read())),
    };
    mask::set_kernel_mask(mask);
    caller
}

/// Makes the register lead to this activation, which the calling kernel thread is. All signals are blocked.
fn claim(activation: &Activation) -> Caller {
    let value = base::read();
    let is_right = value == core::ptr::from_ref(activation) as usize;
    base::set(Some(activation));
    let Some(thread) = activation.thread() else {
        return Caller::Activation;
    };
    if !is_right {
        let own = base::of_program(value);
        thread.kernel.program_base.store(own, Ordering::Relaxed);
    }
    if !activation.is_inside() {
        // The program may write that register, too.
        let pointer = base::thread_pointer();
        activation.kernel.note_thread_pointer(thread, pointer);
    }
    Caller::Thread(thread, !is_right)
}

/// Called when the thread's code goes on: the register gets the program's value. While a child runs on the thread's memory
/// (`lent`) it does not: `process::after` does it then.
#[inline(always)]
pub fn give_back(thread: &Thread) {
    let own = thread.kernel.program_base.load(Ordering::Relaxed);
    if own != 0 && !thread.guest().lent.load(Ordering::Relaxed) {
        // SAFETY: the program's code runs next.
        unsafe { base::write(own) };
    }
}

/// Called when a call begins with the activation's address in the register: the program has no value there any more. Not
/// for a child on lent memory, nor for a call of libc's that the runtime makes.
#[cold]
#[inline(never)]
pub fn forget_base(thread: &Thread) {
    // SAFETY: the thread was found by the register.
    if !thread.guest().lent.load(Ordering::Relaxed) && !unsafe { base::is_inside() } {
        thread.kernel.program_base.store(0, Ordering::Relaxed);
    }
}

/// For [`leave`]: there is nothing to do.
pub const NOTHING: usize = 0;
/// For [`leave`]: the thread's own value goes into the register. Any other number is the value of an outside kernel thread.
pub const OF_THREAD: usize = 1;

/// Called in a handler, or in code that the program calls: the register is ours until [`leave`], which takes the answer.
#[inline]
pub fn enter() -> usize {
    match GUEST.runtime() {
        Some(runtime) if base::program_thread().is_none() => enter_slowly(runtime),
        _ => NOTHING,
    }
}

#[cold]
#[inline(never)]
fn enter_slowly(runtime: &'static Runtime) -> usize {
    match identify(runtime) {
        Caller::Thread(_, true) => OF_THREAD,
        Caller::Outside(Some(own)) => match mark_as_it_is() {
            Some(thread) => {
                thread
                    .kernel
                    .program_base
                    .store(base::of_program(own), Ordering::Relaxed);
                OF_THREAD
            }
            None => own,
        },
        _ => NOTHING,
    }
}

/// Ends what [`enter`] began.
#[inline]
pub fn leave(entered: usize) {
    match entered {
        NOTHING => {}
        OF_THREAD => {
            let carried = base::is_set().then(current_thread).flatten();
            // It may have gone to a kernel thread of its own meanwhile.
            if let Some(thread) = carried.or_else(record::current_thread) {
                give_back(thread);
            }
        }
        // SAFETY: what the program had there.
        own => unsafe { base::write(own) },
    }
}

/// Called when an outside kernel thread makes a call with this in its register (`None`: a mark).
#[cold]
#[inline(never)]
pub fn serve_outside(frame: &mut Frame, own: Option<usize>, serve: fn(&mut Frame)) {
    let bound = match own {
        Some(_) => mark_as_it_is(),
        None => record::current_thread(),
    };
    if let Some(thread) = bound {
        // In a call it is libc, called by the runtime.
        if thread.guest().frame.load(Ordering::Relaxed) == 0 {
            let own = own.map_or(0, base::of_program);
            thread.kernel.program_base.store(own, Ordering::Relaxed);
            serve(frame);
            give_back(thread);
        } else {
            serve(frame);
        }
        return;
    }
    match own {
        Some(own) if frame.rax as i64 == libc::SYS_arch_prctl => {
            leave(own);
            // SAFETY: the entry's own frame; the call finds the program's register.
            unsafe { entry::native(frame) };
        }
        Some(own) => {
            serve(frame);
            leave(own);
        }
        None => serve(frame),
    }
}

/// Marks the calling kernel thread for what it is. Returns the thread that is bound to it.
fn mark_as_it_is() -> Option<&'static Thread> {
    if record::mark_own() {
        return record::current_thread();
    }
    // SAFETY: asks only.
    let process = unsafe { raw_syscall(libc::SYS_getpid, [0; 6]) } as u32;
    mark_outside(process == GUEST.pid.load(Ordering::Relaxed));
    None
}

/// Called when a handler of the program's has ended, that began on `activation` with the thread's own value. What it left
/// in the register becomes the thread's.
pub fn take_back(activation: &Activation, thread: &'static Thread) {
    let word = &thread.kernel.program_base;
    match GUEST.runtime() {
        Some(_) if base::program_thread().is_some() => word.store(0, Ordering::Relaxed),
        Some(runtime) => {
            identify(runtime);
        }
        None if state::was_forked_in_handler() => {
            // It returns into the runtime of the parent, as far as it is here.
            word.store(base::of_program(base::read()), Ordering::Relaxed);
            base::set(Some(activation));
        }
        None => {}
    }
}

/// Called in the child of a fork, which has no runtime.
pub fn give_up(thread: Option<&'static Thread>) {
    if base::is_set() {
        let own = thread.map_or(0, |thread| {
            thread.kernel.program_base.load(Ordering::Relaxed)
        });
        // SAFETY: without a runtime the register is the program's.
        unsafe { base::write(own) };
    }
}

/// Returns the runtime to a thread of it; `None` without a runtime, and to an outside kernel thread.
#[inline]
pub fn runtime() -> Option<&'static Runtime> {
    GUEST.runtime().filter(|_| !caller::is_outside())
}

/// Does something with the runtime from an outside kernel thread. Its signals are blocked while it holds the runtime's locks,
/// because a handler might want the same locks for a wake-up of its own.
pub fn outside_with<R>(body: impl FnOnce() -> R) -> R {
    let before = mask::change_kernel_mask(mask::ALL);
    let result = body();
    mask::set_kernel_mask(before);
    result
}
