//! Reads that tell that nothing is left, and reads that wait for that reason without being tried
//! (`upcall_linux::poller`, module `drained`).

use core::sync::atomic::{AtomicBool, Ordering};

use upcall_linux::Runtime;
use upcall_linux::poller::{Kind, Watch};

use super::rest;
use crate::ground::entry::Frame;

const PAGE: u64 = 4096;
/// Where the addresses of programs end, at the least.
const END: u64 = 1 << 47;

/// Set if a protocol lies on top of TCP in some socket, which has reads with boundaries.
static LAYERED: AtomicBool = AtomicBool::new(false);

/// Called when the program has put a protocol on top of a socket's own (TCP_ULP).
pub fn gets_layers() {
    LAYERED.store(true, Ordering::Relaxed);
}

/// Returns true if the program has done that with some socket.
#[inline]
pub fn is_layered() -> bool {
    LAYERED.load(Ordering::Relaxed)
}

/// A read of a socket.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    buffer: u64,
    room: u64,
}

impl Reading {
    /// Returns `None` for a call that may have other ends than data or a wait for it.
    #[inline]
    pub(super) fn of(frame: &Frame, kind: Kind) -> Option<Self> {
        let reads = match frame.rax as i64 {
            libc::SYS_read => true,
            libc::SYS_recvfrom => frame.r10 & !rest::MSG_NOSIGNAL == 0,
            _ => false,
        };
        let (buffer, room) = (frame.rsi, frame.rdx);
        // The kernel refuses other addresses at once.
        let is_inside = buffer.checked_add(room).is_some_and(|end| end <= END);
        let reading = Reading { buffer, room };
        (reads && kind == Kind::Socket && room != 0 && is_inside).then_some(reading)
    }

    /// Returns true if the call had better wait for an edge than be tried.
    #[inline]
    pub(super) fn is_vain(runtime: &'static Runtime, watch: &Watch) -> bool {
        let poller = runtime.kernel().poller();
        poller.is_drained(watch) && poller.is_known_to_wait(watch.descriptor) && !is_layered()
    }

    /// Returns true if all was taken that there was. The kernel ends a read, too, where it cannot write to the program's memory:
    /// so the rest of the room must be in a page to which it has written.
    #[inline]
    pub(super) fn takes_all(self, answer: i64) -> bool {
        let count = answer as u64;
        let page = |offset: u64| (self.buffer + offset - 1) / PAGE;
        answer > 0 && count < self.room && page(count) == page(self.room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_in_another_page_may_not_be_there() {
        let reading = |buffer, room| Reading { buffer, room };
        assert!(reading(0x1000, 4096).takes_all(1));
        assert!(reading(0x1000, 4096).takes_all(4095));
        assert!(!reading(0x1000, 4096).takes_all(4096));
        assert!(!reading(0x1000, 4097).takes_all(1));
        assert!(reading(0x1fff, 4097).takes_all(2));
        assert!(!reading(0x1fff, 4097).takes_all(1));
        assert!(!reading(0x1000, 10).takes_all(0));
        assert!(!reading(0x1000, 10).takes_all(-11));
    }
}
