//! capget(2), capset(2). Their header names a thread by its id. The kernel does not know the ids of most threads, and knows
//! that of the first one for another kernel thread, if it is bound.

use core::sync::atomic::Ordering;

use upcall_linux::{Runtime, Thread};

use crate::call::credentials;
use crate::call::of_bound::raw;
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::Frame;
use crate::ground::state::GUEST;
use crate::ground::{access, record};

const EFAULT: i64 = -(libc::EFAULT as i64);
/// The kernel's name for the calling thread.
const SELF: i32 = 0;

/// Serves either call of a bound thread, and capget(2) of one on an activation. `None`: the kernel's answer is right.
pub fn serve(thread: &'static Thread, frame: &Frame) -> Option<i64> {
    with_kernel_id(thread, frame, raw)
}

/// Serves capset(2) of a thread on an activation. The change binds the thread.
pub fn set(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let change = |frame: &Frame| credentials::change_own(runtime, thread, frame);
    with_kernel_id(thread, frame, change).unwrap_or_else(|| change(frame))
}

/// Makes the call with the kernel's id for the thread that its header names. Returns `None` if it names none by an id, or
/// none of this process.
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
fn with_kernel_id(
    caller: &'static Thread,
    frame: &Frame,
    call: impl FnOnce(&Frame) -> i64,
) -> Option<i64> {
    let at = frame.rdi as usize;
    let (version, id) = access::load_u64(at)
        .map(|header| (header as u32, (header >> 32) as i32))
        .ok()?;
    let named = GUEST.identities.find(id)?;
    let kernel_id = if id == caller.guest().tid.load(Ordering::Relaxed) {
        SELF
    } else {
        // All activations have the same, and the process's first kernel thread is one.
        let process = GUEST.pid.load(Ordering::Relaxed) as i32;
        record::kernel_id(named).unwrap_or(process)
    };
    let mut header = [version, kernel_id as u32];
    let mut asked = frame.clone();
    asked.rdi = (&raw mut header) as u64;
    let answer = call(&asked);
    // The kernel tells its own version where it does not know the program's.
    // SAFETY: the header is alive. The kernel may have written to it, of which the compiler knows nothing.
    let told = unsafe { (&raw const header[0]).read_volatile() };
    if told != version && access::store_u32(at, told).is_err() {
        return Some(EFAULT);
    }
    Some(answer)
}
