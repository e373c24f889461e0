//! Readers of bytes that others wrote, which are private otherwise. `fuzz/` calls them. Compiled only with
//! `--cfg fuzzing`.

use std::io::Write;
use std::os::fd::AsRawFd;

use crate::blocked::observe::{state_in, went_to_sleep};
use crate::processors::load::Parser;
use crate::sys::procfs::{Path, numbers, set_in};

pub use crate::turns::registry::fuzzing::live_among;

/// Files of procfs and sysfs with this content.
pub fn files(text: &[u8]) {
    set_in(text, b"SigPnd:\t");
    if let Some(state) = state_in(text) {
        assert!(text.contains(&state));
    }
    let ends = text.iter().filter(|&&byte| byte == b'\n').count();
    let (mut parser, mut lines) = (Parser::default(), 0);
    for &byte in text {
        if !parser.feed(byte, |_, _| lines += 1) {
            break;
        }
    }
    assert!(lines <= ends);
    for length in [0, 1, 2, 8] {
        found_again(text, length);
    }
}

/// The first numbers of the text, read from a file as they are in it.
fn found_again(text: &[u8], length: usize) {
    // SAFETY: the name is a string; a new descriptor, which the file owns.
    let mut file = unsafe {
        use std::os::fd::FromRawFd;
        std::fs::File::from_raw_fd(libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC))
    };
    file.write_all(text).expect("memory");
    let path = Path::new()
        .text(b"/proc/self/fd/")
        .number(file.as_raw_fd() as u32);
    let mut into = vec![0; length];
    let found = numbers(&path, &mut into);
    let expected: Vec<u64> = text
        .split(|byte| !byte.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .map(|digits| {
            digits.iter().fold(0u64, |number, digit| {
                number
                    .wrapping_mul(10)
                    .wrapping_add(u64::from(digit - b'0'))
            })
        })
        .take(length)
        .collect();
    assert_eq!(into[..found], expected);
}

/// A switch ring whose two pages hold this; what is missing is zero.
pub fn ring(bytes: &[u8]) -> bool {
    #[repr(C, align(4096))]
    struct Pages([u8; 8192]);
    let mut pages = Box::new(Pages([0; 8192]));
    // The head first, which decides where it reads.
    let (head, rest) = bytes.split_at(bytes.len().min(8));
    pages.0[1024..1024 + head.len()].copy_from_slice(head);
    let records = rest.len().min(4096);
    pages.0[4096..4096 + records].copy_from_slice(&rest[..records]);
    // SAFETY: two pages.
    unsafe { went_to_sleep((&raw const *pages) as usize) }
}
