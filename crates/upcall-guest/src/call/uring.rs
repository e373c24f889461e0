//! io_uring(7) for threads that change their kernel thread.
//!
//! The kernel ties parts of a ring to the kernel thread that uses it. The library removes such a tie where a thread would
//! meet it on another kernel thread:
//!
//! | tied | here |
//! |---|---|
//! | requests in flight end with the kernel thread that has submitted them | from the first submission on no activation ends |
//! | IORING_SETUP_SINGLE_ISSUER: others may not submit | not passed on; the program is not told |
//! | IORING_SETUP_DEFER_TASKRUN, …COOP_TASKRUN: completions wait until the submitter enters the kernel | not passed on: the thread that waits for them may run elsewhere |
//! | registered ring descriptors: another kernel thread does not know them | the thread that registers one is bound ([`crate::thread::bound`]); a ring that has no other descriptor is made there, with all its flags |
//!
//! The flags are hints: without them completions arrive earlier, and the kernel interrupts for them.
//!
//! Not changed: when a thread ends, the kernel would cancel its requests; here they go on. IORING_REGISTER_IOWQ_AFF says
//! where the kernel's workers for the calling kernel thread run, and stays valid for that kernel thread only.

use core::sync::atomic::Ordering;

use upcall_linux::{Runtime, Thread};

use crate::call::io;
use crate::ground::access::{self, Fault};
use crate::ground::entry::{Frame, pass_through};
use crate::ground::state::GUEST;
use crate::signal;

const SETUP_SQPOLL: u32 = 1 << 1;
const SETUP_COOP_TASKRUN: u32 = 1 << 8;
const SETUP_TASKRUN_FLAG: u32 = 1 << 9;
const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
/// A flag: the answer is the number of a registered descriptor.
const SETUP_REGISTERED_FD_ONLY: u32 = 1 << 15;

const REGISTER_RING_FDS: u32 = 20;
/// A flag beside the operation: the ring is named by its registered number.
const REGISTER_USE_REGISTERED_RING: u32 = 1 << 31;

/// The number of 64-bit words in `struct io_uring_params`. The flags are the third 32-bit word.
const PARAMETERS: usize = 15;
const FLAGS_AT: usize = 8;

const EINTR: i64 = -(libc::EINTR as i64);
const EFAULT: i64 = -(libc::EFAULT as i64);

/// Called before an io_uring_enter(2).
pub fn enter() {
    if !GUEST.uses_io_uring.load(Ordering::Relaxed) {
        if let Some(runtime) = GUEST.runtime() {
            runtime.keep_activations();
        }
        // Pairs with the loads where a runtime or an agent starts: it then sees that the activations stay.
        GUEST.uses_io_uring.store(true, Ordering::Release);
    }
}

/// io_uring_enter(2). If a signal of the runtime's own has cut a call short, its requests are submitted, and only its wait
/// remains. The kernel counts all completions, early or late.
pub fn wait(runtime: &'static Runtime, thread: &'static Thread, frame: &mut Frame) -> i64 {
    let submits = frame.rsi;
    let mut submitted = 0;
    let answer = loop {
        io::begin_undisturbed();
        let answer = signal::enter_ring(runtime, thread, frame);
        let waits = frame.r10 & signal::ENTER_GETEVENTS != 0 && frame.rdx as u32 != 0;
        let goes_on = answer == EINTR && submitted > 0 || answer > 0 && answer as u64 == submits;
        if answer > 0 {
            submitted = answer;
        }
        if !waits || !goes_on || !io::was_disturbed() {
            break answer;
        }
        frame.rsi = 0;
    };
    frame.rsi = submits;
    if submitted > 0 { submitted } else { answer }
}

fn passed_on(flags: u32) -> u32 {
    let has = |some: u32| flags & some != 0;
    // The kernel refuses wrong combinations.
    let refused = has(SETUP_DEFER_TASKRUN) && !has(SETUP_SINGLE_ISSUER)
        || has(SETUP_TASKRUN_FLAG) && !has(SETUP_COOP_TASKRUN | SETUP_DEFER_TASKRUN)
        || has(SETUP_SQPOLL) && has(SETUP_COOP_TASKRUN | SETUP_DEFER_TASKRUN | SETUP_TASKRUN_FLAG);
    if refused {
        return flags;
    }
    flags & !(SETUP_COOP_TASKRUN | SETUP_TASKRUN_FLAG | SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN)
}

/// io_uring_setup(2) for a ring that all threads can name.
pub fn setup(frame: &Frame) -> i64 {
    setup_at(frame.rdi, frame.rsi as usize).unwrap_or(EFAULT)
}

fn setup_at(entries: u64, parameters: usize) -> Result<i64, Fault> {
    let asked = access::load_u32(parameters + FLAGS_AT)?;
    let mut own = [0u64; PARAMETERS];
    for (index, word) in own.iter_mut().enumerate() {
        *word = access::load_u64(parameters + 8 * index)?;
    }
    let flags = FLAGS_AT / 8;
    own[flags] = own[flags] & !0xffff_ffff | u64::from(passed_on(asked));
    // SAFETY: the parameters are ours and as large as the kernel's.
    let answer = unsafe {
        pass_through(
            libc::SYS_io_uring_setup,
            [entries, own.as_mut_ptr() as u64, 0, 0, 0, 0],
        )
    } as i64;
    if answer >= 0 {
        own[flags] = own[flags] & !0xffff_ffff | u64::from(asked);
        for (index, word) in own.iter().enumerate() {
            access::store_u64(parameters + 8 * index, *word)?;
        }
    }
    Ok(answer)
}

/// Returns true if io_uring_setup(2) or io_uring_register(2) registers a descriptor of a ring, which only the kernel
/// thread that has made the call can name afterwards.
pub fn is_for_one(frame: &Frame) -> bool {
    if frame.rax as i64 == libc::SYS_io_uring_setup {
        access::load_u32(frame.rsi as usize + FLAGS_AT)
            .is_ok_and(|flags| flags & SETUP_REGISTERED_FD_ONLY != 0)
    } else {
        frame.rsi as u32 & !REGISTER_USE_REGISTERED_RING == REGISTER_RING_FDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ties_a_ring_to_a_kernel_thread_is_left_out() {
        let tied = SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN | SETUP_TASKRUN_FLAG;
        assert_eq!(passed_on(tied | 8), 8);
        assert_eq!(passed_on(SETUP_COOP_TASKRUN), 0);
        assert_eq!(passed_on(SETUP_SQPOLL | SETUP_SINGLE_ISSUER), SETUP_SQPOLL);
        assert_eq!(passed_on(0xff), 0xff);
    }

    #[test]
    fn what_the_kernel_refuses_it_is_asked_for() {
        for flags in [
            SETUP_DEFER_TASKRUN,
            SETUP_TASKRUN_FLAG,
            SETUP_SQPOLL | SETUP_COOP_TASKRUN,
        ] {
            assert_eq!(passed_on(flags), flags);
        }
    }
}
