//! Sends a signal to one thread of this process.

use upcall_linux::{Runtime, Thread};

use crate::ground::{access, caller, mask};
use crate::signal::pending::{self, Information, Sent};

const EINVAL: i64 = -(libc::EINVAL as i64);
const ESRCH: i64 = -(libc::ESRCH as i64);
const SI_TKILL: i32 = -6;

/// Sends a signal to a thread of this process.
pub fn send(
    runtime: &'static Runtime,
    receiver: (&'static Thread, i32),
    number: i32,
    information: &pending::Information,
) -> i64 {
    if !(0..=64).contains(&number) {
        return EINVAL;
    }
    let mut sent = Sent::Yes;
    if number != 0 && caller::is_outside() {
        let before = mask::change_kernel_mask(mask::ALL);
        sent = pending::send_from_outside(runtime, receiver, number, information);
        mask::set_kernel_mask(before);
    } else if number != 0 {
        // The last wait is over; a signal to oneself is delivered when the runtime is left.
        let inside = runtime.enter();
        sent = pending::send(&inside, receiver, number, information);
        inside.leave();
    }
    match sent {
        Sent::Yes => 0,
        Sent::Gone => ESRCH,
        Sent::Full => -i64::from(libc::EAGAIN),
    }
}

/// Returns the program's siginfo_t, as the kernel takes it.
pub fn read(at: usize, signal: i32) -> Result<Information, access::Fault> {
    let mut information: Information = [0; 16];
    for (index, word) in information.iter_mut().enumerate() {
        *word = access::load_u64(at + 8 * index)?;
    }
    information[0] = information[0] & !0xffff_ffff | signal as u32 as u64;
    Ok(information)
}

/// Returns true if only the thread itself may send this to itself: it looks as if kill(2) or the kernel had sent it.
pub fn is_privileged(information: &Information) -> bool {
    let code = information[1] as u32 as i32;
    code >= 0 || code == SI_TKILL
}
