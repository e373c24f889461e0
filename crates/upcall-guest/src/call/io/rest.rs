//! Makes what is left of a call that moves bytes as a call of its own.
//!
//! The kernel continues a write to a pipe or a stream, and a receive that waits for all bytes, until all are moved, an
//! error comes or a handler of the program has run. A call that was tried without waiting, or that a signal of the
//! runtime's own has cut short, continues here with the bytes that are left:
//!
//! - Addresses and ancillary data go with the first bytes only, and so does the notice of MSG_ZEROCOPY.
//! - SIGPIPE does not come for the rest of what goes to a socket: the kernel raises it for a call that has moved nothing.
//! - A vector is continued by copies of some of its entries. If they are not the last ones, flags for the last byte
//!   (MSG_OOB, MSG_EOR) wait.
//!
//! A datagram is never continued, since the kernel takes all of it or nothing.

use upcall_linux::poller::Kind;

use crate::call::poll;
use crate::ground::access;
use crate::ground::entry::{Frame, raw_syscall};

const SYS_PREADV2: i64 = libc::SYS_preadv2;
const SYS_PWRITEV2: i64 = libc::SYS_pwritev2;
/// The position that means the file's own.
const NO_POSITION: u64 = u64::MAX;
pub(super) const RWF_NOWAIT: u64 = 8;
pub(super) const MSG_DONTWAIT: u64 = libc::MSG_DONTWAIT as u64;
pub(super) const MSG_WAITALL: u64 = libc::MSG_WAITALL as u64;
pub(super) const MSG_FASTOPEN: u64 = libc::MSG_FASTOPEN as u64;
const MSG_PEEK: u64 = libc::MSG_PEEK as u64;
pub(super) const MSG_NOSIGNAL: u64 = libc::MSG_NOSIGNAL as u64;
const MSG_MORE: u64 = libc::MSG_MORE as u64;
const FIRST_ONLY: u64 = libc::MSG_ZEROCOPY as u64 | MSG_FASTOPEN;
const LAST_ONLY: u64 = (libc::MSG_OOB | libc::MSG_EOR) as u64;
/// The most that one call moves.
const MOST: usize = 0x7fff_f000;
/// The most entries of a vector (IOV_MAX).
const ENTRIES: u64 = 1024;
/// How many entries one call for the rest has.
const PIECES: usize = 8;

/// Offsets in a `struct msghdr`.
const VECTOR: usize = 16;
const CONTROL: usize = 32;
const CONTROL_LENGTH: usize = 40;
const FLAGS: usize = 48;

/// Returns true if the call moves bytes out of the program.
pub(super) fn is_output(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_write | libc::SYS_writev | SYS_PWRITEV2 | libc::SYS_sendto | libc::SYS_sendmsg
    )
}

/// Returns the flags of a call that has them (MSG_DONTWAIT and others).
pub(super) fn flags(frame: &Frame) -> Option<u64> {
    match frame.rax as i64 {
        libc::SYS_recvfrom | libc::SYS_sendto => Some(frame.r10),
        libc::SYS_recvmsg | libc::SYS_sendmsg => Some(frame.rdx),
        _ => None,
    }
}

/// Returns true if the kernel continues the call until all bytes are moved, unless a signal comes.
pub(super) fn moves_all(frame: &Frame, kind: Kind) -> bool {
    match frame.rax as i64 {
        _ if has_position(frame) => false,
        number if is_output(number) => true,
        // But not what others fill.
        libc::SYS_read | libc::SYS_readv | SYS_PREADV2 => kind == Kind::File,
        _ => flags(frame).is_some_and(|flags| flags & (MSG_WAITALL | MSG_PEEK) == MSG_WAITALL),
    }
}

/// Returns true if the call has a position of its own. It is then about a file, and waits for nobody.
pub(super) fn has_position(frame: &Frame) -> bool {
    matches!(frame.rax as i64, SYS_PREADV2 | SYS_PWRITEV2) && frame.r10 != NO_POSITION
}

/// Returns the vector of a call that has one, and its number of entries.
fn vector(frame: &Frame) -> Option<(usize, u64)> {
    let at = frame.rsi as usize;
    let (vector, count) = match frame.rax as i64 {
        libc::SYS_readv | libc::SYS_writev | SYS_PREADV2 | SYS_PWRITEV2 => (at, frame.rdx),
        libc::SYS_sendmsg | libc::SYS_recvmsg => (
            access::load_u64(at + VECTOR).ok()? as usize,
            access::load_u64(at + VECTOR + 8).ok()?,
        ),
        _ => return None,
    };
    Some((vector, count.min(ENTRIES)))
}

/// Calls `visit` with each non-empty entry of a vector, until it returns false.
fn each_entry((vector, count): (usize, u64), mut visit: impl FnMut(u64, usize) -> bool) {
    for index in 0..count as usize {
        let at = vector + 16 * index;
        let (Ok(base), Ok(length)) = (access::load_u64(at), access::load_u64(at + 8)) else {
            return;
        };
        if length != 0 && !visit(base, length as usize) {
            return;
        }
    }
}

/// Returns how many bytes the call is asked to move.
pub(super) fn total(frame: &Frame) -> usize {
    let has_one = !matches!(
        frame.rax as i64,
        libc::SYS_read | libc::SYS_write | libc::SYS_recvfrom | libc::SYS_sendto
    );
    if !has_one {
        return (frame.rdx as usize).min(MOST);
    }
    let mut total = 0usize;
    if let Some(vector) = vector(frame) {
        each_entry(vector, |_, length| {
            total = total.saturating_add(length);
            total < MOST
        });
    }
    total.min(MOST)
}

/// The memory for a call that moves the rest.
pub(super) struct Rest {
    pieces: [[u64; 2]; PIECES],
    header: [u64; 7],
    /// How many bytes it asks for.
    pub(super) asked: usize,
}

impl Rest {
    pub(super) fn empty() -> Self {
        Rest {
            pieces: [[0; 2]; PIECES],
            header: [0; 7],
            asked: 0,
        }
    }

    /// Fills the pieces with what comes after `moved` bytes. Returns how many there are, and if they are all.
    fn fill(&mut self, frame: &Frame, moved: usize) -> (u64, bool) {
        let mut skip = moved;
        let mut left = total(frame) - moved;
        let mut count = 0;
        let mut add = |base: u64, length: usize| {
            let skipped = skip.min(length);
            skip -= skipped;
            let length = (length - skipped).min(left);
            if length == 0 {
                return left != 0;
            }
            let Some(piece) = self.pieces.get_mut(count) else {
                return false;
            };
            *piece = [base + skipped as u64, length as u64];
            count += 1;
            left -= length;
            left != 0
        };
        match vector(frame) {
            Some(vector) => each_entry(vector, add),
            None => {
                add(frame.rsi, frame.rdx as usize);
            }
        }
        self.asked = total(frame) - moved - left;
        (count as u64, left == 0)
    }

    /// Returns the number and words of the call on `descriptor`, of which `moved` bytes are done. With `waits` the call may
    /// wait.
    pub(super) fn words(
        &mut self,
        frame: &Frame,
        descriptor: i32,
        (kind, moved): (Kind, usize),
        waits: bool,
    ) -> [u64; 7] {
        let number = frame.rax as i64;
        let mut words = frame.words();
        words[1] = descriptor as u64;
        let dont_wait = if waits { 0 } else { MSG_DONTWAIT };
        // The calls of files have flags.
        let has_flags = matches!(number, SYS_PREADV2 | SYS_PWRITEV2);
        let own = if has_flags { words[6] } else { 0 };
        let reads = matches!(number, libc::SYS_read | libc::SYS_readv | SYS_PREADV2);
        let of_files = |vector: [u64; 2]| {
            let number = if reads { SYS_PREADV2 } else { SYS_PWRITEV2 };
            let plain = if reads {
                libc::SYS_readv
            } else {
                libc::SYS_writev
            };
            let [at, count] = vector;
            match waits && !has_flags {
                true => [plain as u64, words[1], at, count, 0, 0, 0],
                false => {
                    let flags = if waits { own } else { own | RWF_NOWAIT };
                    [number as u64, words[1], at, count, NO_POSITION, 0, flags]
                }
            }
        };
        if moved == 0 {
            self.asked = usize::MAX;
            match number {
                _ if waits => {}
                libc::SYS_read | libc::SYS_write => {
                    self.pieces[0] = [frame.rsi, frame.rdx];
                    words = of_files([self.pieces.as_ptr() as u64, 1]);
                }
                libc::SYS_readv | libc::SYS_writev | SYS_PREADV2 | SYS_PWRITEV2 => {
                    words = of_files([words[2], words[3]]);
                }
                libc::SYS_sendto | libc::SYS_recvfrom => words[4] |= dont_wait,
                _ => words[3] |= dont_wait,
            }
            return words;
        }
        let (count, last) = self.fill(frame, moved);
        let pieces = self.pieces.as_ptr() as u64;
        let is_call_of_sockets = flags(frame).is_some();
        if !is_call_of_sockets && (reads || has_flags || kind != Kind::Socket) {
            return of_files([pieces, count]);
        }
        self.header = [0, 0, pieces, count, 0, 0, 0];
        let mut flags = flags(frame).unwrap_or(0) | dont_wait;
        if is_output(number) {
            flags = (flags | MSG_NOSIGNAL) & !FIRST_ONLY;
            if !last {
                flags = (flags | MSG_MORE) & !LAST_ONLY;
            }
            let header = self.header.as_ptr() as u64;
            return [libc::SYS_sendmsg as u64, words[1], header, flags, 0, 0, 0];
        }
        if number == libc::SYS_recvmsg {
            let control = access::load_u64(frame.rsi as usize + CONTROL);
            self.header[4] = control.unwrap_or(0);
        }
        let header = self.header.as_ptr() as u64;
        [libc::SYS_recvmsg as u64, words[1], header, flags, 0, 0, 0]
    }

    /// Makes room for the ancillary data of the rest, as much as the program gave.
    pub(super) fn take_control(&mut self, capacity: u64) {
        self.header[5] = if self.header[4] == 0 { 0 } else { capacity };
    }

    /// Tells the program what came with the rest beside the bytes.
    pub(super) fn give_control(&self, frame: &Frame) {
        if frame.rax as i64 == libc::SYS_recvmsg {
            let at = frame.rsi as usize;
            // An address that cannot be written is left out.
            let _ = access::store_u64(at + CONTROL_LENGTH, self.header[5]);
            if let Ok(flags) = access::load_u32(at + FLAGS) {
                let _ = access::store_u32(at + FLAGS, flags | self.header[6] as u32);
            }
        }
    }
}

/// Returns how much room for ancillary data the program gives; 0 if none.
pub(super) fn control_capacity(frame: &Frame) -> u64 {
    if frame.rax as i64 != libc::SYS_recvmsg {
        return 0;
    }
    access::load_u64(frame.rsi as usize + CONTROL_LENGTH).unwrap_or(0)
}

/// Returns true if a receive that a signal of the runtime's own has cut short must continue. It must on a stream, unless
/// something came with the bytes, which ends it in the kernel too.
pub(super) fn receives_on(frame: &Frame, descriptor: i32) -> bool {
    let (mut kind, mut length) = (0i32, 4u32);
    // SAFETY: writes at most the length given.
    let answer = unsafe {
        raw_syscall(
            libc::SYS_getsockopt,
            [
                descriptor as u64,
                libc::SOL_SOCKET as u64,
                libc::SO_TYPE as u64,
                (&raw mut kind) as u64,
                (&raw mut length) as u64,
                0,
            ],
        )
    };
    answer == 0 && kind == libc::SOCK_STREAM && control_capacity(frame) == 0
}

/// Returns true if a connection has failed. The call that has moved some bytes then ends with these, and the next call gets
/// the error.
pub(super) fn has_failed(descriptor: i32, kind: Kind) -> bool {
    const BOTH: i16 = libc::POLLERR | libc::POLLHUP;
    kind == Kind::Socket && poll::events(descriptor, 0) & BOTH == BOTH
}
