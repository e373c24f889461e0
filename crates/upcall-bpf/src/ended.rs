//! What is known of the scheduler: what it has done, and how it has ended.

use std::fmt;

/// As in the object: `struct scheduler_end`.
const CODE: usize = 0;
const KIND: usize = 8;
const REASON: usize = 12;
const MESSAGE: usize = 76;
const LENGTH: usize = 204;

/// `enum scx_exit_kind` of the kernel.
const BY_SYSRQ: u32 = 67;
const ERROR: u32 = 1024;
/// SCX_ECODE_ACT_RESTART, in the code of one that the kernel has ended: it may be loaded again.
const RESTART: u64 = 1 << 48;

/// What the scheduler has done since it was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// A kernel thread that had given way was run because no other one of its space could run there.
    pub upcalls: u64,
    /// A kernel thread that woke was run at once, in its space's turn.
    pub at_once: u64,
    /// One that had given way was run because it had waited for long.
    pub overdue: u64,
}

/// What the kernel says of the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    kind: u32,
    code: u64,
    reason: String,
    message: String,
}

/// What is to be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It can be loaded again at once: processors have come or gone.
    Again,
    /// It was at fault, by the kernel's account: loaded again, it may be so again.
    Later,
    /// Somebody has ended it who may.
    Never,
}

impl Ended {
    /// What the object has written; `None`: it is something else.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..LENGTH)?;
        let text = |part: &[u8]| {
            let end = part
                .iter()
                .position(|&byte| byte == 0)
                .unwrap_or(part.len());
            String::from_utf8_lossy(&part[..end]).trim().to_owned()
        };
        Some(Ended {
            kind: u32::from_ne_bytes(bytes[KIND..KIND + 4].try_into().ok()?),
            code: u64::from_ne_bytes(bytes[CODE..CODE + 8].try_into().ok()?),
            reason: text(&bytes[REASON..MESSAGE]),
            message: text(&bytes[MESSAGE..]),
        })
    }

    /// What is to be done.
    pub fn then(&self) -> Then {
        match self.kind {
            ERROR.. => Then::Later,
            BY_SYSRQ => Then::Never,
            _ if self.code & RESTART != 0 => Then::Again,
            _ => Then::Never,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ended {
            reason, message, ..
        } = self;
        match message.is_empty() {
            true => write!(f, "{reason}"),
            false => write!(f, "{reason} ({message})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: u32, code: u64, message: &str) -> Ended {
        let mut bytes = [0; LENGTH + 4];
        bytes[CODE..CODE + 8].copy_from_slice(&code.to_ne_bytes());
        bytes[KIND..KIND + 4].copy_from_slice(&kind.to_ne_bytes());
        bytes[REASON..REASON + 5].copy_from_slice(b"stall");
        bytes[MESSAGE..MESSAGE + message.len()].copy_from_slice(message.as_bytes());
        Ended::read(&bytes).expect("it is long enough")
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        let ended = of(1026, 0, "cc[7] failed to run for 10.000s");
        assert_eq!(ended.to_string(), "stall (cc[7] failed to run for 10.000s)");
        assert_eq!(ended.then(), Then::Later);
        assert_eq!(of(1024, 0, "").to_string(), "stall");
        assert_eq!(Ended::read(&[0; LENGTH - 1]), None);
    }

    #[test]
    fn who_was_ended_by_an_administrator_stays_off() {
        assert_eq!(of(67, 0, "").then(), Then::Never);
        assert_eq!(of(64, 0, "").then(), Then::Never);
        assert_eq!(of(66, RESTART | 1 << 32, "").then(), Then::Again);
    }
}
