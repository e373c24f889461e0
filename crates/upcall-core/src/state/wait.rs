//! What a thread waits for, in one word.

use crate::sync::{AtomicUsize, Ordering};

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Nothing, or what only the backend knows.
    Nothing,
    /// The word at this address, which is a multiple of four.
    Word(usize),
    /// Its deadline. The address is the thread's own: nobody wakes that.
    Sleep(usize),
    /// The end of another thread: the address of its [`Ending`](crate::ending::Ending).
    End(usize),
    /// The word at this address, which is a multiple of eight, and in which the thread hangs (`runtime::lone`).
    Alone(usize),
}

/// The bits of the word that are not the address, and their values.
const KIND: usize = 3;
const SLEEP: usize = 1;
const END: usize = 2;
const ALONE: usize = 3;

impl Wait {
    /// The word. That of a `Word` or a `Sleep` is the thread's *key*: it hangs in the key's bucket
    /// (`runtime/futex.rs`).
    #[inline(always)]
    pub(crate) const fn bits(self) -> usize {
        match self {
            Wait::Nothing => 0,
            Wait::Word(address) => address,
            Wait::Sleep(address) => address | SLEEP,
            Wait::End(address) => address | END,
            Wait::Alone(address) => address | ALONE,
        }
    }

    #[inline(always)]
    const fn of(bits: usize) -> Self {
        match bits & KIND {
            _ if bits == 0 => Wait::Nothing,
            0 => Wait::Word(bits),
            SLEEP => Wait::Sleep(bits & !KIND),
            END => Wait::End(bits & !KIND),
            _ => Wait::Alone(bits & !KIND),
        }
    }
}

/// Holds a [`Wait`].
pub(crate) struct WaitWord(AtomicUsize);

impl WaitWord {
    pub(crate) const fn none() -> Self {
        WaitWord(AtomicUsize::new(Wait::Nothing.bits()))
    }

    #[inline(always)]
    pub(crate) fn load(&self, order: Ordering) -> Wait {
        Wait::of(self.0.load(order))
    }

    #[inline(always)]
    pub(crate) fn store(&self, wait: Wait, order: Ordering) {
        self.0.store(wait.bits(), order);
    }

    /// The thread's key, if it has one.
    #[inline(always)]
    pub(crate) fn key(&self, order: Ordering) -> Option<usize> {
        let bits = self.0.load(order);
        matches!(Wait::of(bits), Wait::Word(_) | Wait::Sleep(_)).then_some(bits)
    }

    /// Returns true if this is its key. The caller holds the lock of that key's bucket.
    #[inline(always)]
    pub(crate) fn has_key(&self, key: usize) -> bool {
        self.0.load(Ordering::Relaxed) == key
    }

    /// As `store`, by the key.
    #[inline(always)]
    pub(crate) fn set_key(&self, key: usize, order: Ordering) {
        self.0.store(key, order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_a_thread_waits_for() {
        let word = WaitWord::none();
        assert_eq!(word.load(Ordering::Relaxed), Wait::Nothing);
        let has_key = [Wait::Word(0x1004), Wait::Sleep(0x1000)];
        let has_none = [Wait::End(0x1000), Wait::Alone(0x1000), Wait::Nothing];
        for wait in has_key.into_iter().chain(has_none) {
            word.store(wait, Ordering::Relaxed);
            assert_eq!(word.load(Ordering::Relaxed), wait);
            let key = has_key.contains(&wait).then(|| wait.bits());
            assert_eq!(word.key(Ordering::Relaxed), key);
        }
    }
}
