//! The time limits of sockets: SO_RCVTIMEO and SO_SNDTIMEO.

use upcall_core::Machine;
use upcall_linux::Runtime;
use upcall_linux::poller::{Kind, Wants};

use crate::ground::entry::raw_syscall;

/// When a call that waits for a socket gives up.
#[derive(Clone, Copy)]
pub(super) struct Limit(pub(super) Option<u64>);

impl Limit {
    /// Returns `None` if the limit could not be learned.
    pub(super) fn of(
        runtime: &'static Runtime,
        descriptor: i32,
        kind: Kind,
        wants: Wants,
    ) -> Option<Self> {
        const ENOTSOCK: i64 = -(libc::ENOTSOCK as i64);
        let poller = runtime.kernel().poller();
        let may_have_one = matches!(kind, Kind::Socket | Kind::Unknown);
        if !may_have_one || poller.is_known_endless(descriptor, wants) {
            return Some(Limit(None));
        }
        let option = if wants == Wants::OUT {
            libc::SO_SNDTIMEO
        } else {
            libc::SO_RCVTIMEO
        };
        let mut time = [0u64; 2];
        let mut length = size_of_val(&time) as u32;
        // SAFETY: writes at most the length given.
        let answer = unsafe {
            raw_syscall(
                libc::SYS_getsockopt,
                [
                    descriptor as u64,
                    libc::SOL_SOCKET as u64,
                    option as u64,
                    time.as_mut_ptr() as u64,
                    (&raw mut length) as u64,
                    0,
                ],
            )
        };
        match answer as i64 {
            0 if time == [0, 0] => {
                poller.note_endless(descriptor, wants);
                Some(Limit(None))
            }
            0 => {
                let limit = time[0] * 1_000_000_000 + time[1] * 1000;
                Some(Limit(Some(runtime.kernel().now().saturating_add(limit))))
            }
            ENOTSOCK => Some(Limit(None)),
            _ => None,
        }
    }
}
