//! Bytes of all kinds for the decoder, the window's choice and the readers of unwind tables: no
//! crash, and whatever is chosen is a system call for another decoder too.
//!
//! `PROPTEST_CASES=100000 cargo test --release -p upcall-guest --test fuzz` is a long run.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod support;

use std::sync::LazyLock;

use proptest::prelude::*;
use upcall_guest::code::FunctionCode;
use upcall_guest::object::{Image, loaded};
use upcall_guest::site::{Window, choose, scan};
use upcall_guest::stub;
use upcall_guest::unwind::Function;
use yaxpeax_x86::long_mode::Opcode;

use support::Other;

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

/// The instructions as the other decoder sees them, as far as it can.
fn listing(bytes: &[u8]) -> Vec<Other> {
    let mut at = 0;
    let next = || {
        let decoded = Other::decode(AT + at, bytes.get(at..)?)?;
        at += decoded.length;
        Some(decoded)
    };
    std::iter::from_fn(next).collect()
}

/// The window is whole instructions around a system call, for the other decoder too.
fn check(bytes: &[u8], site: usize, window: &Window) -> Result<(), TestCaseError> {
    let listing = listing(bytes);
    let at = |address: usize| listing.iter().find(|i| i.address == address);
    let known = listing.last().map_or(AT, Other::end);
    // It knows fewer instructions (AVX512-FP16 is unknown to it, for one). Where it gives up before
    // the window's end it has no opinion, and another case is drawn.
    prop_assume!(known >= window.range.end);
    prop_assert!(window.range.contains(&site) && window.range.len() >= 5);
    prop_assert!(window.range.start >= AT && window.range.end <= AT + bytes.len());
    prop_assert!(
        at(site).is_some_and(|i| i.instruction.opcode() == Opcode::SYSCALL),
        "no call at {site:#x}"
    );
    prop_assert!(
        at(window.range.start).is_some(),
        "starts inside an instruction"
    );
    prop_assert!(
        window.range.end == known || at(window.range.end).is_some(),
        "ends inside an instruction"
    );
    for other in &listing {
        let (address, instruction) = (other.address, &other.instruction);
        if let Some(target) = other.target() {
            prop_assert!(
                target <= window.range.start || target >= window.range.end,
                "{instruction} at {address:#x} leads into {:x?}",
                window.range
            );
        }
        if window.range.contains(&address) {
            prop_assert!(instruction.opcode() != Opcode::CALL, "a call is moved");
        }
    }
    let written = stub::jump(&window.range, AT + 0x10_0000).unwrap();
    prop_assert_eq!(written.len(), window.range.len());
    let original = &bytes[window.range.start - AT..window.range.end - AT];
    // Refused or made: no third way.
    if let Ok(stub) = stub::build(window, original, AT + 0x10_0000, AT + 0xf_0000) {
        prop_assert!(stub.bytes.len() <= stub::LONGEST);
        prop_assert!(stub.range.contains(&stub.resume) && stub.range.contains(&stub.at_site));
        prop_assert!(stub.rows.is_sorted_by_key(|row| row.pc));
    }
    Ok(())
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
        let image = Image::of_code(AT, &bytes);
        let function = Function {
            range: AT..AT + bytes.len(),
            landing_pads: Vec::new(),
            signal_trampoline: false,
            covered: bytes.len(),
        };
        let Some(code) = FunctionCode::decode(&image, &function) else {
            return Ok(());
        };
        for (index, instruction) in code.instructions.iter().enumerate() {
            if instruction.code() == iced_x86::Code::Syscall
                && let Ok(window) = choose(&code, index, code.constant_in_eax(index), AT)
            {
                check(&bytes, instruction.ip() as usize, &window)?;
            }
        }
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
        let scan = scan(&image, &[]);
        let mut end = 0;
        for site in &scan.sites {
            prop_assert_eq!(image.bytes(site.address..site.address + 2), Some(&b"\x0f\x05"[..]));
            if let Ok(window) = &site.window {
                prop_assert!(window.range.contains(&site.address));
                prop_assert!(window.range.start >= end && window.range.len() >= 5);
                prop_assert!(image.bytes(window.range.clone()).is_some());
                end = window.range.end;
            }
        }
    }
}
