//! Random bytes for the decoder, the choice of windows and the readers of unwind tables. Nothing may crash, and everything
//! that is chosen must be a system call for another decoder too.
//!
//! `PROPTEST_CASES=100000 cargo test --release -p upcall-guest --test fuzz` is a long run.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod support;

use std::sync::LazyLock;

use proptest::prelude::*;
use upcall_guest::rewrite::object::{Image, loaded};
use upcall_guest::rewrite::site::scan;

use support::check::{check_function, check_scan};

const AT: usize = 0x10_0000;

/// What compilers put around system calls, and what must not be moved.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let fixed = prop::sample::select(vec![
        &b"\x0f\x05"[..],
        b"\x0f\x05",
        b"\x0f\x05",
        b"\xb8\x27\0\0\0",
        b"\x48\xc7\xc0\x0f\0\0\0",
        b"\x48\x3d\x01\xf0\xff\xff",
        b"\x73\x01",
        b"\xc3",
        b"\x90",
        b"\xf3\x0f\x1e\xfa",
        b"\x49\x89\xca",
        b"\x31\xc0",
        b"\x53",
        b"\x0f\xae\xf0",
        b"\xc5\xf8\x77",
        b"\xcc",
        b"\x64\x48\x8b\x04\x25\0\0\0\0",
        b"\xf0\x0f\xb1\x37",
    ]);
    let distance = any::<i8>();
    prop_oneof![
        6 => fixed.prop_map(<[u8]>::to_vec),
        1 => (prop::sample::select(vec![0xebu8, 0x74, 0x75, 0xe2, 0xe3]), distance)
            .prop_map(|(opcode, to)| vec![opcode, (to / 4) as u8]),
        1 => (prop::sample::select(vec![0xe8u8, 0xe9]), -64i32..64)
            .prop_map(|(opcode, to)| [&[opcode][..], &to.to_le_bytes()].concat()),
        1 => (-64i32..64).prop_map(|to| [&b"\x0f\x84"[..], &to.to_le_bytes()].concat()),
        1 => any::<i32>().prop_map(|to| [&b"\x48\x8d\x05"[..], &to.to_le_bytes()].concat()),
        1 => prop::collection::vec(any::<u8>(), 1..8),
        1 => prop::sample::select(vec![0x66u8, 0x67, 0xf2, 0xf3, 0x2e, 0x48]).prop_map(|byte| vec![byte]),
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 1..24).prop_map(|pieces| pieces.concat())
}

/// The loader: the smallest object that has all there is.
static LOADER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let objects = loaded();
    let loader = objects.iter().find(|o| o.path.contains("/ld-linux"));
    std::fs::read(&loader.expect("the test is linked with glibc").path).expect("readable")
});

proptest! {
    #[test]
    fn a_window_of_any_function_is_whole_instructions_that_nothing_leads_into(bytes in body()) {
        check_function(AT, &bytes);
    }

    #[test]
    fn nothing_is_rewritten_where_no_function_is_known(bytes in body()) {
        for site in scan(&Image::of_code(AT, &bytes), &[]).sites {
            prop_assert!(site.window.is_err());
            prop_assert_eq!(&bytes[site.address - AT..][..2], b"\x0f\x05");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(48)
    ))]

    /// A real object with some bytes of its headers, its unwind tables or its code replaced.
    #[test]
    fn a_damaged_object_is_an_answer_and_no_crash(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..60),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut bytes = LOADER.clone();
        let table = support::try_image(&bytes).and_then(|i| {
            let at = i.eh_frame_hdr?;
            let part = i.parts.iter().find(|p| p.range().contains(&at))?;
            let offset = part.bytes.as_ptr() as usize - bytes.as_ptr() as usize + at - part.start;
            Some(offset..offset + (part.range().end - at))
        });
        let table = table.expect("ld.so has a table");
        for (place, value, kind) in changes {
            let place = match kind {
                0 => place.index(1024.min(bytes.len())),
                // The table's head, where the encodings are.
                1 => table.start + place.index(24),
                2 => table.start + place.index(table.len()),
                _ => place.index(bytes.len()),
            };
            bytes[place] = value;
        }
        if let Some(cut) = cut {
            let length = cut.index(bytes.len());
            bytes.truncate(length);
        }
        let Some(image) = support::try_image(&bytes) else {
            return Ok(());
        };
        check_scan(&image);
    }
}
