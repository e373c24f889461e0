//! Outside kernel threads, and processes that share the memory of the process: helpers, and children on a stack of their
//! own.

use core::mem::size_of;
use core::sync::atomic::Ordering;

use upcall_linux::{Activation, Thread, affinity, base, clone};

use crate::ground::entry::{self, Frame, mode};
use crate::ground::{caller, mask, record};
use crate::signal::dispatch;
use crate::thread::lifetime::Request;
use crate::thread::listed::Place;
use crate::thread::scheduling;

/// Returns the activation on whose kernel thread, or on the copy of one in a child, the call is made: it is bound to the
/// processor of its virtual processor. None without a runtime, and on a helper.
pub fn bound() -> Option<&'static Activation> {
    // SAFETY: the pseudo-register is set.
    let activation = base::is_set().then(|| unsafe { base::current() })?;
    (!caller::is_mark(activation)).then_some(activation)
}

/// What is put on the stack of a child that shares the memory.
#[repr(C)]
struct Start {
    frame: Frame,
    /// True if its creator is bound to a processor; and its thread, which knows what it has asked for.
    bound: bool,
    thread: Option<&'static Thread>,
    /// What a thread that a bound thread makes has in the register that the program may write.
    program_base: usize,
    /// Of a helper.
    listed: Option<Place>,
}

/// Starts an outside kernel thread, or a process that shares the memory. It continues at the site like the child of the
/// real call, and is marked for [`caller::is_outside`].
pub fn start(frame: &Frame, request: &Request, flags: u64) -> i64 {
    caller::prepare();
    let place = (request.stack - size_of::<Start>()) & !63;
    let bound = bound().is_some();
    let creator = request
        .is_thread()
        .then(record::current_thread)
        .flatten()
        .map(|thread| &thread.kernel.program_base);
    let listed = request.is_thread().then(Place::take).flatten();
    let mut frame = frame.clone();
    frame.rax = 0;
    frame.rsp = request.stack as u64;
    frame.mode = mode::RELOAD;
    frame.wide = core::ptr::null_mut();
    // SAFETY: the program gives the stack to the child, which has nothing there before it runs.
    let answer = unsafe {
        (place as *mut Start).write(Start {
            frame,
            bound,
            thread: if bound {
                caller::current_thread()
            } else {
                None
            },
            program_base: creator.map_or(0, |own| own.load(Ordering::Relaxed)),
            listed,
        });
        clone::raw(
            flags as usize,
            place,
            request.parent_tid,
            request.child_tid,
            request.tls,
            if request.is_thread() {
                begin_helper
            } else {
                begin_child
            },
            place,
        ) as i64
    };
    if let Some(listed) = listed {
        listed.made(answer);
    }
    answer
}

extern "C" fn begin_helper(start: usize) -> ! {
    caller::mark_outside(true);
    mask::set_kernel_mask(dispatch::blockable(mask::kernel_mask()));
    dispatch::begin();
    // SAFETY: `start` put it there.
    unsafe {
        if let Some(listed) = (*(start as *const Start)).listed {
            listed.begin();
        }
        begin(start)
    }
}

extern "C" fn begin_child(start: usize) -> ! {
    if let Some(parent) = bound() {
        parent.stay();
    }
    caller::mark_outside(false);
    // SAFETY: `start` put it there.
    unsafe { begin(start) }
}

/// # Safety
///
/// `start` is a [`Start`] for the calling kernel thread.
unsafe fn begin(start: usize) -> ! {
    let start = start as *const Start;
    // SAFETY: the caller's promise.
    unsafe {
        if (*start).bound {
            affinity::release((*start).thread.map(|thread| &thread.kernel.asked));
        }
        if let Some(thread) = (*start).thread {
            scheduling::pass_on(thread);
        }
        if (*start).program_base != 0 {
            base::write((*start).program_base);
        }
        entry::resume(&raw const (*start).frame)
    }
}
