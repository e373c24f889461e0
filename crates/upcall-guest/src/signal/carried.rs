//! Signals for threads of another process whose ids the kernel does not know: a child of fork(2) signals its parent's
//! threads.
//!
//! 1. The sender queues a *carrier* to the process. That is the signal by which libc changes identities: libc never blocks
//!    it, it queues, and libc's handler ignores it from other processes. The kernel asks the same permission as for the
//!    signal itself. Nothing is sent to a process that does not catch the carrier, since that would end it.
//! 2. The carrier names the thread and the signal, in words behind what a queued signal uses itself.
//! 3. In the other process some kernel thread meets the carrier: an activation, a bound thread's or a helper. It sends the
//!    signal on instead of entering libc's handler ([`open`]). For an id that nobody has any more nothing happens.
//! 4. The kernel lets a kernel thread send information like that of another process's tgkill(2) only to itself. So such a
//!    signal goes to a bound thread in a carrier again ([`queue_to`]), which its kernel thread opens.
//!
//! *Not done:* tkill(2), which does not name the process. ESRCH for an id that nobody has any more, and for a process that
//! is not under the runtime but catches the carrier. An error when the user's signals are too many for the signal itself.
//!
//! *Rejected:* passing a carrier that a bound thread meets on to an activation, since an activation without a thread may
//! block it; visiting the runtime from the handler, since an outside kernel thread can send the signal itself.

use core::sync::atomic::Ordering;

use upcall_linux::Thread;

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::identity::{FIRST, kernel_tid};
use crate::ground::state::GUEST;
use crate::ground::text::after;
use crate::ground::{file, record};
use crate::signal::pending::{self, Information};
use crate::signal::{everywhere, queued, send};

const EINVAL: i64 = -(libc::EINVAL as i64);
const EFAULT: i64 = -(libc::EFAULT as i64);
const EPERM: i64 = -(libc::EPERM as i64);
const ESRCH: i64 = -(libc::ESRCH as i64);
/// In the upper half of the word after the value; the id is in the lower.
const MARK: u64 = 0x5550_4341;
/// The words that a carrier adds to the signal's information: the mark and the id; the signal's number and its code.
const ADDED: [usize; 2] = [4, 5];

/// tgkill(2) and rt_tgsigqueueinfo(2) with such an id. Returns `None` if the kernel must serve it, or it is about this
/// process.
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
pub fn send(frame: &Frame) -> Option<i64> {
    let (process, id, signal) = (frame.rdi as i32, frame.rsi as i32, frame.rdx as i32);
    if id < FIRST || process <= 0 || process == own_process() {
        return None;
    }
    Some(carry(frame, process, id, signal).unwrap_or_else(|error| error))
}

fn carry(frame: &Frame, process: i32, id: i32, signal: i32) -> Result<i64, i64> {
    let information = if frame.rax as i64 == libc::SYS_tgkill {
        let mut information = pending::from_self(signal, queued::SI_TKILL);
        information[2] = information[2] & !0xffff_ffff | u64::from(own_process() as u32);
        information
    } else {
        let information = send::read(frame.r10 as usize, signal).map_err(|_| EFAULT)?;
        if send::is_privileged(&information) {
            return Err(EPERM);
        }
        information
    };
    if !(0..=64).contains(&signal) {
        return Err(EINVAL);
    }
    if !catches_carriers(process) {
        return Err(ESRCH);
    }
    if signal == 0 {
        // SAFETY: asks for the permission only.
        return Ok(unsafe { raw_syscall(libc::SYS_kill, [process as u64, 0, 0, 0, 0, 0]) } as i64);
    }
    let carrier = carrier(id, signal, &information);
    let at = carrier.as_ptr() as u64;
    let words = [process as u64, everywhere::SETXID as u64, at, 0, 0, 0];
    // SAFETY: reads 128 bytes.
    Ok((unsafe { raw_syscall(libc::SYS_rt_sigqueueinfo, words) }) as i64)
}

/// Returns the carrier of a signal for the thread with that id.
fn carrier(id: i32, signal: i32, information: &Information) -> Information {
    let mut carrier = *information;
    carrier[ADDED[0]] = MARK << 32 | u64::from(id as u32);
    carrier[ADDED[1]] = information[1] << 32 | u64::from(signal as u32);
    carrier[0] = everywhere::SETXID as u64;
    carrier[1] = information[1] & !0xffff_ffff | u64::from(queued::SI_QUEUE as u32);
    carrier[6..].fill(0);
    carrier
}

/// Sends a bound thread's kernel thread, in a carrier, a signal that another process's tgkill(2) has sent: only that kernel
/// thread may send itself such information.
pub fn queue_to(kernel_id: i32, id: i32, signal: i32, information: &Information) -> i64 {
    let carrier = carrier(id, signal, information);
    queued::queue_to(kernel_id, everywhere::SETXID, &carrier)
}

/// Returns the calling process, which may be a child that the runtime does not know.
fn own_process() -> i32 {
    // SAFETY: asks only.
    (unsafe { raw_syscall(libc::SYS_getpid, [0; 6]) }) as i32
}

/// Returns true if a carrier does not end the process.
fn catches_carriers(process: i32) -> bool {
    let mut path = [0u8; 32];
    let mut length = 0;
    let mut number = [0u8; 12];
    let digits = crate::ground::text::put_number(&mut number, process as u32);
    for part in [b"/proc/", &number[..digits], b"/status"] {
        path[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    }
    let mut text = [0u8; 2048];
    let length = file::read_file(libc::AT_FDCWD, &path, &mut text);
    let Some(caught) = after(&text[..length], b"\nSigCgt:\t") else {
        return false;
    };
    let digits = caught
        .iter()
        .map_while(|&byte| char::from(byte).to_digit(16));
    let set = digits.fold(0u64, |set, digit| set << 4 | u64::from(digit));
    set & 1 << (everywhere::SETXID - 1) != 0
}

/// What a carrier carries.
pub struct Carried {
    id: i32,
    signal: i32,
    information: Information,
}

/// Returns what the signal carries, if it is a carrier.
pub fn open(signal: i32, information: &Information) -> Option<Carried> {
    let is_one = signal == everywhere::SETXID
        && information[1] as u32 as i32 == queued::SI_QUEUE
        && information[ADDED[0]] >> 32 == MARK;
    if !is_one {
        return None;
    }
    let [id, about] = ADDED.map(|index| information[index]);
    let mut carried = *information;
    for index in ADDED {
        carried[index] = 0;
    }
    let signal = about as u32;
    carried[0] = carried[0] & !0xffff_ffff | u64::from(signal);
    carried[1] = carried[1] & !0xffff_ffff | about >> 32;
    Some(Carried {
        id: id as u32 as i32,
        signal: signal as i32,
        information: carried,
    })
}

impl Carried {
    /// Sends it on. The caller runs as a handler of the thread's, on an activation.
    pub fn deliver(&self, thread: &'static Thread) {
        // As a wait that a signal of the runtime's own has disturbed.
        thread.guest().disturbed.store(true, Ordering::Relaxed);
        self.send_on();
    }

    /// As [`Carried::deliver`], in the handler on an outside kernel thread.
    pub fn deliver_from_outside(&self) {
        match record::current_thread() {
            Some(own) if own.guest().tid.load(Ordering::Relaxed) == self.id => {
                // To itself a kernel thread may send any information.
                queued::queue_to(kernel_tid(), self.signal, &self.information);
            }
            // A child of vfork(2) has none of these threads.
            _ if own_process() == GUEST.pid.load(Ordering::Relaxed) as i32 => self.send_on(),
            _ => {}
        }
    }

    fn send_on(&self) {
        if let (Some(runtime), Some(receiver)) = (GUEST.runtime(), GUEST.identities.find(self.id)) {
            let to = (receiver, self.id);
            send::send(runtime, to, self.signal, &self.information);
        }
    }
}
