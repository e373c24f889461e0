//! Threads that libc makes: where there is no runtime, or another copy of it serves the process, or the stack is too
//! large for a shell.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use super::record::{self, Kind, Record};
use super::{Plan, STACK};

extern "C" fn main(record: *mut c_void) -> *mut c_void {
    // SAFETY: `create` passes it, and this thread owns it.
    let record: &'static Record = unsafe { &*record.cast::<Record>() };
    record::adopt(record);
    // SAFETY: in the thread.
    unsafe { record.run() };
    ptr::null_mut()
}

unsafe extern "C" {
    fn pthread_tryjoin_np(thread: libc::pthread_t, result: *mut *mut c_void) -> c_int;
}

#[cold]
pub(super) fn create(plan: &Plan<'_>, made: impl FnOnce(*mut Record)) -> Result<(), c_int> {
    let size = match plan.attributes.stack_size {
        0 => STACK,
        size => size.max(libc::PTHREAD_STACK_MIN),
    };
    let record = plan.record(Kind::Libc).boxed(2).ok_or(libc::ENOMEM)?;
    let address = ptr::from_ref(record).cast_mut();
    made(address);
    let mut attributes = MaybeUninit::uninit();
    let mut thread: libc::pthread_t = 0;
    // SAFETY: attributes that are made here; the thread gets a record that it owns.
    let refusal = unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        let refusal = match libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), size) {
            0 => libc::pthread_create(&raw mut thread, attributes.as_ptr(), main, address.cast()),
            number => number,
        };
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        refusal
    };
    if refusal != 0 {
        // SAFETY: both are ours: there is no thread.
        unsafe {
            record::release(address);
            record::release(address);
        }
        return Err(refusal);
    }
    // The thread says so too.
    record.set_identity(thread);
    Ok(())
}

/// What it has given; `None`: it has not ended, and `waits` is not wanted.
pub(super) fn join(record: &Record, waits: bool) -> Option<*mut c_void> {
    // SAFETY: the right to the thread is the caller's.
    let answer = unsafe {
        match waits {
            true => libc::pthread_join(record.identity(), ptr::null_mut()),
            false => pthread_tryjoin_np(record.identity(), ptr::null_mut()),
        }
    };
    if answer == libc::EBUSY {
        return None;
    }
    let result = record.result();
    // SAFETY: what the handle owned.
    unsafe { record::release(record) };
    Some(result)
}

pub(super) fn detach(record: &Record) {
    // SAFETY: as above.
    unsafe {
        libc::pthread_detach(record.identity());
        record::release(record);
    }
}
