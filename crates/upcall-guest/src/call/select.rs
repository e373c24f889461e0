//! The sets of select(2) and pselect6(2).
//!
//! The kernel changes the sets in place. So a call that is tried first gets copies, and the program's own sets are written
//! when there is an answer.

use upcall_linux::poller::Wants;

use crate::call::poll::Watches;
use crate::ground::access;
use crate::ground::entry::Frame;

/// 1024 descriptors, as libc's.
const WORDS: usize = 16;

/// The three sets of a call: read, write, exceptional.
pub struct Sets {
    places: [u64; 3],
    words: [[u64; WORDS]; 3],
    /// The sets as the last try left them.
    answer: [[u64; WORDS]; 3],
    descriptors: u64,
    count: usize,
    no_time: [u64; 2],
}

impl Sets {
    /// Reads the sets, and adds their descriptors to `watches`. Returns `None` for a call that the kernel can judge more
    /// simply.
    // Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
    #[inline(never)]
    pub fn read(frame: &Frame, watches: &mut Watches) -> Option<Self> {
        let descriptors = usize::try_from(frame.rdi as i32).ok()?;
        let count = descriptors.div_ceil(64);
        if count > WORDS {
            return None;
        }
        let places = [frame.rsi, frame.rdx, frame.r10];
        let mut words = [[0; WORDS]; 3];
        for (set, place) in words.iter_mut().zip(places) {
            if place != 0 {
                for (index, word) in set[..count].iter_mut().enumerate() {
                    *word = access::load_u64(place as usize + 8 * index).ok()?;
                }
            }
        }
        for descriptor in 0..descriptors {
            let bit = 1 << (descriptor % 64);
            let [read, write, except] = words.map(|set| set[descriptor / 64] & bit != 0);
            if read || write || except {
                let mut wants = Wants::ERRORS;
                if read || except {
                    wants = wants.or(Wants::IN);
                }
                if write {
                    wants = wants.or(Wants::OUT);
                }
                watches.add(descriptor as i32, wants)?;
            }
        }
        Some(Sets {
            places,
            words,
            answer: [[0; WORDS]; 3],
            descriptors: descriptors as u64,
            count,
            no_time: [0; 2],
        })
    }

    /// Returns the number and the words of a call that does not wait, on copies of the sets.
    pub fn words(&mut self) -> [u64; 7] {
        self.answer = self.words;
        self.no_time = [0; 2];
        let [read, write, except] = core::array::from_fn(|index| {
            if self.places[index] == 0 {
                0
            } else {
                self.answer[index].as_mut_ptr() as u64
            }
        });
        [
            libc::SYS_pselect6 as u64,
            self.descriptors,
            read,
            write,
            except,
            self.no_time.as_ptr() as u64,
            0,
        ]
    }

    /// Writes the program's sets, all empty if the answer is 0.
    pub fn write(&self, answer: i64) -> i64 {
        for (set, place) in self.answer.iter().zip(self.places) {
            for (index, word) in set[..self.count].iter().enumerate() {
                let word = if answer == 0 { 0 } else { *word };
                if place != 0 && access::store_u64(place as usize + 8 * index, word).is_err() {
                    return -i64::from(libc::EFAULT);
                }
            }
        }
        answer
    }
}
