//! Any bytes as unwind tables, and any as the code that they describe.
//!
//! An input is the length of the tables (two bytes, little-endian), the tables with `.eh_frame_hdr`
//! first, and the code.
#![no_main]

#[path = "../../crates/upcall-guest/tests/support/mod.rs"]
mod support;

use upcall_guest::rewrite::object::{Image, Part};
use upcall_guest::rewrite::unwind::Tables;

const TABLES: usize = 0x1000;
const CODE: usize = 0x20_0000;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let length = usize::from(u16::from_le_bytes(*length));
    let (tables, code) = rest.split_at(length.min(rest.len()));
    let part = |start, bytes, executable| Part {
        start,
        bytes,
        executable,
    };
    let image = Image {
        parts: vec![part(TABLES, tables, false), part(CODE, code, true)],
        eh_frame_hdr: Some(TABLES),
    };
    support::check::check_scan(&image);
    if let Some(tables) = Tables::new(&image) {
        let ends = [0, 1, TABLES, CODE, usize::MAX - 64, usize::MAX];
        for address in ends.into_iter().chain(CODE..CODE + code.len().min(64)) {
            let function = tables.function_at(address);
            assert!(function.is_none_or(|f| f.range.contains(&address)));
            let before = tables.function_before(address);
            assert!(before.is_none_or(|f| f.range.contains(&address)));
        }
    }
});
