//! What must hold for every chosen window, in code of all kinds. Used by tests that generate code, and by `fuzz/`, which
//! searches for it.

use upcall_guest::rewrite::code::FunctionCode;
use upcall_guest::rewrite::object::Image;
use upcall_guest::rewrite::site::{Window, choose, scan};
use upcall_guest::rewrite::stub;
use upcall_guest::rewrite::unwind::Function;
use yaxpeax_x86::long_mode::Opcode;

use super::Other;

/// One function at this address, without an unwind table.
pub fn check_function(at: usize, bytes: &[u8]) {
    let image = Image::of_code(at, bytes);
    let function = Function {
        range: at..at + bytes.len(),
        landing_pads: Vec::new(),
        signal_trampoline: false,
        covered: bytes.len(),
    };
    let Some(code) = FunctionCode::decode(&image, &function) else {
        return;
    };
    for (index, instruction) in code.instructions.iter().enumerate() {
        if instruction.code() == iced_x86::Code::Syscall
            && let Ok(window) = choose(&code, index, code.constant_in_eax(index), at)
        {
            check_window(at, bytes, instruction.ip() as usize, &window);
        }
    }
}

/// The window is whole instructions around a system call, for the other decoder too.
fn check_window(start: usize, bytes: &[u8], site: usize, window: &Window) {
    let listing = listing(start, bytes);
    let at = |address: usize| listing.iter().find(|i| i.address == address);
    let known = listing.last().map_or(start, Other::end);
    // It knows fewer instructions (AVX512-FP16 is unknown to it, for one). Where it gives up before
    // the window's end it has no opinion.
    if known < window.range.end {
        return;
    }
    assert!(window.range.contains(&site) && window.range.len() >= 5);
    assert!(window.range.start >= start && window.range.end <= start + bytes.len());
    assert!(
        at(site).is_some_and(|i| i.instruction.opcode() == Opcode::SYSCALL),
        "no call at {site:#x}"
    );
    assert!(
        at(window.range.start).is_some(),
        "starts inside an instruction"
    );
    assert!(
        window.range.end == known || at(window.range.end).is_some(),
        "ends inside an instruction"
    );
    for other in &listing {
        let (address, instruction) = (other.address, &other.instruction);
        if let Some(target) = other.target() {
            assert!(
                target <= window.range.start || target >= window.range.end,
                "{instruction} at {address:#x} leads into {:x?}",
                window.range
            );
        }
        if window.range.contains(&address) {
            assert!(instruction.opcode() != Opcode::CALL, "a call is moved");
        }
    }
    let far = start + 0x10_0000;
    let written = stub::jump(&window.range, far).unwrap();
    assert_eq!(written.len(), window.range.len());
    let original = &bytes[window.range.start - start..window.range.end - start];
    // Refused or made: no third way.
    if let Ok(stub) = stub::build(window, original, far, start + 0xf_0000) {
        assert!(stub.bytes.len() <= stub::LONGEST);
        assert!(stub.range.contains(&stub.resume) && stub.range.contains(&stub.at_site));
        assert!(stub.rows.is_sorted_by_key(|row| row.pc));
    }
}

/// The instructions as the other decoder sees them, as far as it can.
fn listing(start: usize, bytes: &[u8]) -> Vec<Other> {
    let mut at = 0;
    let next = || {
        let decoded = Other::decode(start + at, bytes.get(at..)?)?;
        at += decoded.length;
        Some(decoded)
    };
    std::iter::from_fn(next).collect()
}

/// Whatever an object says of itself, its windows are around system calls and beside one another.
pub fn check_scan(image: &Image<'_>) {
    let scan = scan(image, &[]);
    let mut end = 0;
    for site in &scan.sites {
        assert_eq!(
            image.bytes(site.address..site.address + 2),
            Some(&b"\x0f\x05"[..])
        );
        if let Ok(window) = &site.window {
            assert!(window.range.contains(&site.address));
            assert!(window.range.start >= end && window.range.len() >= 5);
            assert!(image.bytes(window.range.clone()).is_some());
            end = window.range.end;
        }
    }
}
