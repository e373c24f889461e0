//! Signals of the program that wait for their activation, and the signals that are the runtime's own.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// The signal.
pub const SIGNAL: i32 = libc::SIGURG;
/// What no activation ever blocks for long, whatever its thread blocks: this signal, the faults by
/// which the runtime learns that memory of the program is not there, and the signal by which the
/// layer above catches system calls: the kernel ends a process that blocks it then.
pub const OWN: u64 = bit(SIGNAL) | bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGSYS);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The signals of the program that came while the activation was inside the runtime.
///
/// The first one closes the mask. A section that opens it and had not seen that one yet lets a second
/// through; after that none opens it ([`Linux::set_mask`](crate::state::Linux::set_mask)). What is never blocked
/// ([`OWN`]) may come besides, each number once.
#[derive(Default)]
pub struct Inbox {
    notes: [Noted; 2 + OWN.count_ones() as usize],
}

impl Inbox {
    /// Keeps a signal with its siginfo_t; a standard signal that is there already is not kept twice, as
    /// in the kernel. `false`: there is no room. In a signal handler of the activation.
    pub fn put(&self, signal: i32, information: &[u64; 16]) -> bool {
        const STANDARD: i32 = 31;
        let there = |note: &Noted| signal <= STANDARD && note.signal() == signal;
        self.notes.iter().any(there) || self.notes.iter().any(|note| note.put(signal, information))
    }

    /// Takes the first one out. On the activation, with its signals blocked.
    pub fn take(&self) -> Option<(i32, [u64; 16])> {
        self.notes.iter().find_map(Noted::take)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.notes.iter().any(Noted::is_full)
    }
}

/// Room for one signal with its siginfo_t, for the kernel thread that uses it and its signal handlers.
#[derive(Default)]
pub struct Noted {
    signal: AtomicI32,
    information: [AtomicU64; 16],
}

impl Noted {
    /// Without a signal.
    pub const fn empty() -> Self {
        Self {
            signal: AtomicI32::new(0),
            information: [const { AtomicU64::new(0) }; 16],
        }
    }

    /// Keeps a signal; `false` if there is one already.
    pub fn put(&self, signal: i32, information: &[u64; 16]) -> bool {
        if self.is_full() {
            return false;
        }
        self.put_over(signal, information);
        true
    }

    /// Keeps a signal in place of what was there.
    pub fn put_over(&self, signal: i32, information: &[u64; 16]) {
        for (own, word) in self.information.iter().zip(information) {
            own.store(*word, Ordering::Relaxed);
        }
        // Release: after the words, for a handler that interrupts this.
        self.signal.store(signal, Ordering::Release);
    }

    /// The signal's number; 0 when there is none.
    pub fn signal(&self) -> i32 {
        self.signal.load(Ordering::Acquire)
    }

    /// Takes the signal out.
    pub fn take(&self) -> Option<(i32, [u64; 16])> {
        let signal = self.signal();
        (signal != 0).then(|| {
            let words = core::array::from_fn(|at| self.information[at].load(Ordering::Relaxed));
            // Release: after the words, for a handler that interrupts this and finds it empty.
            self.signal.store(0, Ordering::Release);
            (signal, words)
        })
    }

    /// Whether there is a signal.
    pub fn is_full(&self) -> bool {
        self.signal() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_gives_each_signal_out_once() {
        const REAL_TIME: i32 = 40;
        let inbox = Inbox::default();
        assert!(inbox.is_empty() && inbox.take().is_none());
        assert!(inbox.put(REAL_TIME, &[1; 16]));
        assert!(inbox.put(REAL_TIME, &[2; 16]));
        // What nobody blocks, some of it twice.
        let own = (1..=31).filter(|signal| OWN & 1 << (signal - 1) != 0);
        for signal in own.clone().chain(own) {
            assert!(inbox.put(signal, &[signal as u64; 16]));
        }
        assert!(!inbox.put(REAL_TIME, &[3; 16]), "it is full");
        assert_eq!(inbox.take(), Some((REAL_TIME, [1; 16])));
        assert_eq!(inbox.take(), Some((REAL_TIME, [2; 16])));
        let mut left = 0;
        while let Some((signal, words)) = inbox.take() {
            assert_eq!(words, [signal as u64; 16]);
            left |= 1 << (signal - 1);
        }
        assert_eq!(left, OWN);
    }
}
