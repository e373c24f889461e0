//! Connections of TCP that a read has emptied: the next read waits without being tried.
//!
//! A read that gets less from a TCP connection than there is room for has taken all (epoll(7), questions and answers). What
//! comes later is an edge. So:
//!
//! 1. A reader notes the edges ([`Poller::watch`]), reads, and if that has emptied the connection it notes this with the edges
//!    from before its read ([`Poller::note_drained`]).
//! 2. A reader that finds as many edges ([`Poller::is_drained`]) waits for another one. If data has come since, its edge
//!    was not collected yet: either it will be, or the descriptor is not registered, and registering it reports what is
//!    there.
//!
//! It does not matter who else reads: the connection was empty once, and all that came later is an edge. After an edge for
//! an end, an error or urgent data nothing is noted, because there may be no second one. With TCP's protocols on top (TLS in
//! the kernel) reads have boundaries, as they have with Unix's sockets and with pipes into which a writer puts packets
//! (O_DIRECT). So the kernel is asked once what a socket is, after some reads in vain.

use core::sync::atomic::Ordering;

use super::{Poller, Watch};
use crate::state::Runtime;
use crate::sys::error;

/// With it, the low half is the number of edges at which it was empty.
const EMPTY: u64 = 1 << 32;
/// It is a TCP connection, of plain bytes.
const GLUES: u64 = 1 << 33;
/// It is something else.
const OTHER: u64 = 1 << 34;
/// One read in vain. They are counted while it is not known what it is.
const VAIN: u64 = 1 << 40;
/// After so many the kernel is asked: a connection with a request or two is not worth it.
const ASKS: u64 = 3 * VAIN;

impl Poller {
    /// Returns true if nothing was left to read when a watch was made, and nothing has come since but what is still an edge to
    /// come.
    #[inline]
    pub fn is_drained(&self, watch: &Watch) -> bool {
        let Some(known) = self.known.get(watch.descriptor as usize) else {
            return false;
        };
        known.drained.load(Ordering::Relaxed) == GLUES | EMPTY | u64::from(watch.seen())
    }

    /// Called when a read has got less than there was room for, or would have waited, after the watch was made.
    #[inline]
    pub fn note_drained(&self, watch: &Watch) {
        let Some(known) = self.known.get(watch.descriptor as usize) else {
            return;
        };
        let before = known.drained.load(Ordering::Relaxed);
        if before & GLUES != 0 && self.is_plain(watch) {
            let now = GLUES | EMPTY | u64::from(watch.seen());
            // If the number is another file's by now, this is 0 again, or there were edges since.
            let _ =
                known
                    .drained
                    .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Called when a read of a socket would have waited, after the watch was made.
    #[inline]
    pub fn note_vain(&self, runtime: &'static Runtime, watch: &Watch) {
        let Some(known) = self.known.get(watch.descriptor as usize) else {
            return;
        };
        let before = known.drained.load(Ordering::Relaxed);
        if before & (GLUES | OTHER) != 0 {
            return;
        }
        if before >= ASKS {
            self.learn_what_it_is(runtime, watch);
        } else {
            let (kept, dropped) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = known
                .drained
                .compare_exchange(before, before + VAIN, kept, dropped);
        }
    }

    #[cold]
    #[inline(never)]
    fn learn_what_it_is(&self, runtime: &'static Runtime, watch: &Watch) {
        let glues = glues(watch.descriptor);
        let inside = runtime.enter();
        {
            let _state = self.entries[watch.descriptor as usize].lock(runtime.kernel());
            let known = &self.known[watch.descriptor as usize];
            // A number that was closed in between has edges since. One that is being closed is forgotten afterwards.
            if known.edges.seen() == watch.seen() {
                known
                    .drained
                    .store(if glues { GLUES } else { OTHER }, Ordering::Relaxed);
            }
        }
        inside.leave();
    }
}

/// Whether it is a connection of TCP without a protocol on top.
fn glues(descriptor: i32) -> bool {
    let mut name = [0u8; 16];
    option(descriptor, libc::SOL_SOCKET, libc::SO_PROTOCOL, &mut name) == Some(4)
        && name[..4] == libc::IPPROTO_TCP.to_ne_bytes()
        && option(descriptor, libc::SOL_TCP, libc::TCP_ULP, &mut name) == Some(0)
}

/// How long the value of a socket's option is.
fn option(descriptor: i32, level: i32, option: i32, value: &mut [u8]) -> Option<u32> {
    let mut length = value.len() as u32;
    // SAFETY: writes at most as many bytes as there are.
    let answer = unsafe {
        sys!(
            libc::SYS_getsockopt,
            descriptor,
            level,
            option,
            value.as_mut_ptr(),
            &raw mut length
        )
    };
    error(answer).is_none().then_some(length)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_tcp_glues() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        assert!(glues(listener.as_raw_fd()));
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(!glues(datagrams.as_raw_fd()));
        let (one, _other) = UnixStream::pair().expect("sockets");
        assert!(!glues(one.as_raw_fd()));
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert!(!glues(reader.as_raw_fd()));
        assert!(!glues(-1));
    }
}
