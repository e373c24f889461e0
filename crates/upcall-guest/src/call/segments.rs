//! arch_prctl(2): the segment bases belong to the thread, on every kernel thread that carries it.
//!
//! The kernel decides which values are valid. So the call is made, and then the register gets back the value that it must
//! have in the runtime. No signal may land in between.

use core::sync::atomic::Ordering;

use upcall_linux::{Thread, base};

use crate::call::of_bound::raw;
use crate::ground::entry::Frame;
use crate::ground::{access, mask};

/// Sets the GS base.
pub const ARCH_SET_GS: i32 = 0x1001;
const ARCH_SET_FS: i32 = 0x1002;
/// The request for the GS base.
pub const ARCH_GET_GS: i32 = 0x1004;

/// arch_prctl(2).
pub fn arch_prctl(thread: &'static Thread, frame: &Frame) -> i64 {
    let state = &thread.kernel;
    match frame.rdi as i32 {
        ARCH_SET_GS => set(frame, |wanted| {
            state.program_base.store(wanted, Ordering::Relaxed)
        }),
        ARCH_SET_FS => set(frame, |wanted| {
            // SAFETY: on an activation, where the thread stays meanwhile.
            let activation = unsafe { base::current() };
            activation.kernel.note_thread_pointer(thread, wanted);
        }),
        ARCH_GET_GS => answer(frame, state.program_base.load(Ordering::Relaxed)),
        _ => raw(frame),
    }
}

/// Serves [`ARCH_GET_GS`], where the program's value is `own`.
pub fn answer(frame: &Frame, own: usize) -> i64 {
    match access::store_u64(frame.rsi as usize, own as u64) {
        Ok(()) => 0,
        Err(access::Fault) => -i64::from(libc::EFAULT),
    }
}

/// Makes the call. If the kernel accepts the value, `keep` stores it.
fn set(frame: &Frame, keep: impl FnOnce(usize)) -> i64 {
    let mask = mask::change_kernel_mask(mask::ALL);
    let ours = base::read();
    let answer = raw(frame);
    // SAFETY: restores the value that was there, on the same kernel thread.
    unsafe { base::write(ours) };
    if answer == 0 {
        keep(frame.rsi as usize);
    }
    mask::set_kernel_mask(mask);
    answer
}

/// pkey_alloc(2). There are no keys. A register (PKRU), which threads write without the kernel, holds what a key allows. A
/// switch at user level does not save it, so a thread would get another one's access. Programs that use keys must work
/// without them where the processor has none.
pub fn allocate_key(frame: &Frame) -> i64 {
    const RIGHTS: u64 = 3;
    let (flags, rights) = (frame.rdi, frame.rsi);
    if flags != 0 || rights & !RIGHTS != 0 {
        return -i64::from(libc::EINVAL);
    }
    -i64::from(libc::ENOSPC)
}
