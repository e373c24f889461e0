//! Reads small files of the kernel, without libc and without allocating memory.

use core::ffi::CStr;

use crate::sys::{self, descriptors, error};

/// A path put together from words and numbers.
pub(crate) struct Path {
    bytes: [u8; 96],
    len: usize,
}

impl Path {
    /// An empty path.
    pub(crate) fn new() -> Self {
        Path {
            bytes: [0; 96],
            len: 0,
        }
    }

    /// With these bytes at its end. What does not fit is cut off, and the path names nothing.
    pub(crate) fn text(mut self, text: &[u8]) -> Self {
        // One byte stays zero.
        let take = text.len().min(self.bytes.len() - 1 - self.len);
        self.bytes[self.len..self.len + take].copy_from_slice(&text[..take]);
        self.len += take;
        self
    }

    /// The path.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Where it begins; a zero byte ends it.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// With this number at its end.
    pub(crate) fn number(self, number: u32) -> Self {
        let mut digits = [0u8; 10];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.text(&digits[at..])
    }
}

/// Reads a file piece by piece, until `take` says that it has enough. Returns true if it could be read.
pub(crate) fn read_by_pieces<const SIZE: usize>(
    path: &Path,
    mut take: impl FnMut(&[u8]) -> bool,
) -> bool {
    let _opening = descriptors::opening();
    // SAFETY: the path ends with a zero byte; reads into a buffer of ours; closes what it opened.
    unsafe {
        let file = sys!(
            sys::SYS_openat,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC
        );
        if error(file).is_some() {
            return false;
        }
        let mut buffer = [0u8; SIZE];
        loop {
            let read = sys!(libc::SYS_read, file, buffer.as_mut_ptr(), SIZE);
            if read <= 0 || !take(&buffer[..read as usize]) {
                break;
            }
        }
        sys!(sys::SYS_close, file);
    }
    true
}

/// Reads the first bytes of a file. Returns how many; 0 if it cannot be read.
pub(crate) fn read_start(path: &CStr, into: &mut [u8]) -> usize {
    let _opening = descriptors::opening();
    // SAFETY: the path ends with a zero byte; reads into the caller's buffer; closes what it opened.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = sys!(sys::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        if error(file).is_some() {
            return 0;
        }
        let read = sys!(libc::SYS_read, file, into.as_mut_ptr(), into.len());
        sys!(sys::SYS_close, file);
        usize::try_from(read).unwrap_or(0)
    }
}

/// The first numbers of a small file; how many there were.
pub(crate) fn numbers(path: &Path, into: &mut [u64]) -> usize {
    let mut found = 0;
    let mut number: Option<u64> = None;
    read_by_pieces::<128>(path, |bytes| {
        for &byte in bytes {
            if byte.is_ascii_digit() {
                let before = number.unwrap_or(0);
                number = Some(before.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')));
            } else if let Some(value) = number.take() {
                if found == into.len() {
                    return false;
                }
                into[found] = value;
                found += 1;
            }
        }
        true
    });
    if let (Some(value), Some(place)) = (number, into.get_mut(found)) {
        *place = value;
        found += 1;
    }
    found
}

/// Returns true if a filter (seccomp(2)) may end the process for a system call that it has not made so far, and where /proc
/// does not say.
pub fn may_be_filtered() -> bool {
    let path = Path::new().text(b"/proc/self/status");
    let mut is_free = false;
    const NONE: &[u8] = b"\nSeccomp:\t0\n";
    let mut tail = [0u8; 2 * 2048];
    let mut kept = 0;
    read_by_pieces::<2048>(&path, |piece| {
        tail[kept..kept + piece.len()].copy_from_slice(piece);
        let end = kept + piece.len();
        is_free = tail[..end].windows(NONE.len()).any(|text| text == NONE);
        // What begins at the end of this piece ends in the next one.
        kept = end.min(NONE.len());
        tail.copy_within(end - kept..end, 0);
        !is_free
    });
    !is_free
}

/// The signals that are pending for the calling kernel thread alone; none where /proc is missing. Uses little of the stack.
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
pub fn own_pending() -> u64 {
    let path = Path::new().text(b"/proc/thread-self/status");
    let mut pending = SetAfter::new(b"\nSigPnd:\t");
    read_by_pieces::<256>(&path, |bytes| pending.look(bytes));
    pending.set
}

/// The hexadecimal number after some words, whose first byte is nowhere else in them.
struct SetAfter {
    words: &'static [u8],
    matched: usize,
    set: u64,
}

impl SetAfter {
    const fn new(words: &'static [u8]) -> Self {
        SetAfter {
            words,
            matched: 0,
            set: 0,
        }
    }

    /// Looks at the next bytes of the text. Returns true if more are wanted.
    fn look(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| {
            if let Some(&next) = self.words.get(self.matched) {
                self.matched = match byte == next {
                    true => self.matched + 1,
                    false => usize::from(byte == self.words[0]),
                };
                return true;
            }
            let digit = char::from(byte).to_digit(16);
            self.set = digit.map_or(self.set, |digit| self.set << 4 | u64::from(digit));
            digit.is_some()
        })
    }
}

/// The hexadecimal number after these words.
#[cfg(any(test, fuzzing))]
pub(crate) fn set_in(text: &[u8], words: &'static [u8]) -> u64 {
    let mut after = SetAfter::new(words);
    after.look(text);
    after.set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_parts() {
        let path = Path::new()
            .text(b"/proc/")
            .number(0)
            .text(b"/")
            .number(4_294_967_295);
        assert_eq!(&path.bytes[..path.len], b"/proc/0/4294967295");
        let long = Path::new().text(&[b'x'; 200]);
        assert_eq!(long.bytes.last(), Some(&0));
    }

    #[test]
    fn a_set_is_found_by_its_name() {
        let text = b"SigQ:\t0/1\nSigPnd:\t0000000000000a00\nShdPnd:\t00000000000000ff\n";
        assert_eq!(set_in(text, b"SigPnd:\t"), 0xa00);
        assert_eq!(set_in(text, b"SigCgt:\t"), 0);
        for piece in 1..text.len() {
            let mut after = SetAfter::new(b"\nSigPnd:\t");
            let enough = text.chunks(piece).any(|bytes| !after.look(bytes));
            assert!(enough && after.set == 0xa00, "in pieces of {piece}");
        }
    }

    #[test]
    fn numbers_are_found_between_other_things() {
        let file = std::env::temp_dir().join(format!("upcall-procfs-{}", std::process::id()));
        let path = Path::new().text(file.as_os_str().as_encoded_bytes());
        std::fs::write(&file, "0-3,17 x\n9").expect("writable");
        let mut into = [0; 8];
        let found = numbers(&path, &mut into);
        assert_eq!(&into[..found], [0, 3, 17, 9]);
        assert_eq!(numbers(&path, &mut into[..2]), 2);
        std::fs::remove_file(&file).expect("removable");
        assert_eq!(numbers(&path, &mut into), 0);
    }

    proptest::proptest! {
        #[test]
        fn a_set_in_any_text_is_the_number_or_nothing(
            before in proptest::collection::vec(proptest::num::u8::ANY, 0..50),
            set in proptest::num::u64::ANY,
        ) {
            let mut text = before;
            set_in(&text, b"SigPnd:\t");
            text.extend(format!("\nSigPnd:\t{set:016x}\n").bytes());
            let found = set_in(&text, b"SigPnd:\t");
            proptest::prop_assert_eq!(found, set);
        }
    }
}
