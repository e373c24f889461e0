//! The number of threads in `/proc/self/status` (`Threads:`) and `/proc/self/stat` (the twentieth field). In the text that
//! a read has brought, the kernel's number is replaced by the program's.
//!
//! A read of the beginning of the file is changed, by whatever descriptor. All other text is the kernel's, and new at each
//! read. If the new number is longer and the text fills the program's memory, the descriptor's position goes back by the
//! bytes that are pushed out.
//!
//! *Not done:* vectors; pread(2) where the text fills the memory; the files of single threads; `/proc/PID` as others read
//! it.

use core::ffi::CStr;

use crate::ground::access::{self, Fault};
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::text::{leading_number, put_number};

use super::{File, count, file};

/// The number stands within this many bytes of the beginning.
const HEAD: usize = 1024;
/// A shorter text has no number.
const LEAST: i64 = 32;
/// How many blanks of `stat` stand between the end of the name and the number.
const BLANKS: usize = 18;
const STATUS: (&CStr, &[u8]) = (c"/proc/self/status", b"Name:\t");
const STAT: &CStr = c"/proc/self/stat";
const THREADS: &[u8] = b"\nThreads:\t";

/// Called when a read of a file has brought `answer` bytes. Returns the program's answer.
#[inline]
pub fn read(frame: &Frame, answer: i64) -> i64 {
    if answer < LEAST || !matches!(frame.rax as i64, libc::SYS_read | libc::SYS_pread64) {
        return answer;
    }
    let Ok(word) = access::load_u64(frame.rsi as usize) else {
        return answer;
    };
    let bytes = word.to_le_bytes();
    if bytes.starts_with(STATUS.1) {
        replace(frame, answer as usize, STATUS.0, number_of_status) as i64
    } else if bytes[0].is_ascii_digit() && bytes[1..].contains(&b' ') {
        replace(frame, answer as usize, STAT, number_of_stat) as i64
    } else {
        answer
    }
}

/// Replaces the number that `find` finds, if this is the file. Returns how many bytes the text has now.
#[cold]
#[inline(never)]
fn replace(
    frame: &Frame,
    length: usize,
    path: &'static CStr,
    find: fn(&[u8]) -> Option<usize>,
) -> usize {
    let descriptor = frame.rdi as i32;
    let Some(asked) = file(libc::S_IFREG, descriptor, c"") else {
        return length;
    };
    let own: Option<File> = file(libc::S_IFREG, libc::AT_FDCWD, path);
    if own != Some(asked) {
        return length;
    }
    let text = Text {
        at: frame.rsi as usize,
        length,
        room: frame.rdx as usize,
        may_seek: frame.rax as i64 == libc::SYS_read,
    };
    let (length, pushed_out) = text.put(count(), find).unwrap_or((length, 0));
    if pushed_out > 0 {
        let back = -(pushed_out as i64);
        let words = [frame.rdi, back as u64, libc::SEEK_CUR as u64, 0, 0, 0];
        // SAFETY: moves the position of the program's descriptor, which has just been read.
        unsafe { raw_syscall(libc::SYS_lseek, words) };
    }
    length
}

fn number_of_status(text: &[u8]) -> Option<usize> {
    let at = text.windows(THREADS.len()).position(|part| part == THREADS);
    Some(at? + THREADS.len())
}

fn number_of_stat(text: &[u8]) -> Option<usize> {
    // The name may contain anything.
    let name = text.iter().rposition(|&byte| byte == b')')?;
    let blanks = text[name..].iter().enumerate();
    let mut blanks = blanks.filter(|(_, byte)| **byte == b' ');
    Some(name + blanks.nth(BLANKS - 1)?.0 + 1)
}

/// A text in the program's memory.
struct Text {
    at: usize,
    length: usize,
    room: usize,
    /// True if bytes that are pushed out can be read again.
    may_seek: bool,
}

impl Text {
    /// Puts a number where `find` finds one. Returns the text's new length, and how many bytes no longer had room.
    fn put(&self, number: u32, find: fn(&[u8]) -> Option<usize>) -> Option<(usize, usize)> {
        let mut head = [0u8; HEAD];
        let head = &mut head[..self.length.min(HEAD)];
        access::load(self.at, head).ok()?;
        let start = find(head)?;
        let before = head[start..].iter().take_while(|b| b.is_ascii_digit());
        let end = start + before.count();
        // Only if all of its digits are here.
        leading_number(&head[start..]).filter(|_| end < head.len())?;
        let mut digits = [0u8; 12];
        let size = put_number(&mut digits, number);
        let length = self.length + size - (end - start);
        let pushed_out = length.saturating_sub(self.room);
        if pushed_out > 0 && !self.may_seek || start + size > self.room {
            return None;
        }
        let rest = self.length - end - pushed_out;
        self.shift(end, start + size, rest).ok()?;
        access::store(self.at + start, &digits[..size]).ok()?;
        Some((length - pushed_out, pushed_out))
    }

    /// Moves a part of the text to another place.
    fn shift(&self, from: usize, to: usize, count: usize) -> Result<(), Fault> {
        let mut block = [0u8; 64];
        let mut moved = 0;
        while moved < count && from != to {
            let size = (count - moved).min(block.len());
            // Bytes that are overwritten have been moved before.
            let offset = if to < from {
                moved
            } else {
                count - moved - size
            };
            access::load(self.at + from + offset, &mut block[..size])?;
            access::store(self.at + to + offset, &block[..size])?;
            moved += size;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(text: &str, room: usize, number: u32, find: fn(&[u8]) -> Option<usize>) -> String {
        let mut memory = text.as_bytes().to_vec();
        memory.resize(room.max(text.len()) + 8, b'#');
        let place = Text {
            at: memory.as_mut_ptr() as usize,
            length: text.len(),
            room,
            may_seek: true,
        };
        let Some((length, pushed_out)) = place.put(number, find) else {
            return String::from("unchanged");
        };
        assert!(
            memory[room.max(text.len())..]
                .iter()
                .all(|&byte| byte == b'#')
        );
        let text = String::from_utf8_lossy(&memory[..length]);
        format!("{text}|{pushed_out}")
    }

    #[test]
    fn the_number_of_threads_is_replaced() {
        let status = "Name:\tx\nThreads:\t12\nSigQ:\t0/9\n";
        let put_status = |room, number| put(status, room, number, number_of_status);
        assert_eq!(put_status(99, 3), "Name:\tx\nThreads:\t3\nSigQ:\t0/9\n|0");
        assert_eq!(put_status(99, 34), "Name:\tx\nThreads:\t34\nSigQ:\t0/9\n|0");
        assert_eq!(
            put_status(99, 3456),
            "Name:\tx\nThreads:\t3456\nSigQ:\t0/9\n|0"
        );
        let full = put_status(status.len(), 3456);
        assert_eq!(full, "Name:\tx\nThreads:\t3456\nSigQ:\t0/|2");
    }

    #[test]
    fn the_field_of_stat_is_behind_the_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20";
        let expected = stat.replace(" 17 ", " 4 ");
        assert_eq!(put(stat, 99, 4, number_of_stat), format!("{expected}|0"));
        assert_eq!(put("7 (a) S 1 2", 99, 4, number_of_stat), "unchanged");
    }

    #[test]
    fn long_texts_move_without_loss() {
        let rest: String = (0..300).map(|n| format!("{n} ")).collect();
        for (before, number) in [("1", 123), ("12345", 1)] {
            let text = format!("Name:\tx\nThreads:\t{before}\n{rest}");
            let expected = format!("Name:\tx\nThreads:\t{number}\n{rest}|0");
            assert_eq!(put(&text, 4096, number, number_of_status), expected);
        }
    }
}
