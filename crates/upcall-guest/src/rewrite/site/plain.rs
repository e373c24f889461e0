//! The instructions that stand beside most system calls: moves between registers, constants, plain arithmetic.
//!
//! The decoder's library builds its tables with its first use, half a megabyte. A program that only needs windows that
//! were chosen before need not wait for that, if all their instructions are of these forms (Intel SDM, volume 2, appendix
//! B). What is not known here is left to the library.

/// An instruction that means the same at another address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plain {
    /// How many bytes it has.
    pub length: usize,
    /// What happens behind it.
    pub then: Then,
}

/// See [`Plain::then`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The next instruction is executed.
    Next,
    /// The kernel is called.
    Call,
    /// It is only there to be skipped.
    Padding,
    /// The function returns.
    Return,
    /// The next instruction is executed, also after an indirect jump to this one.
    Landing,
}

/// Returns the instruction at the beginning of `bytes`, if it is of a known form.
pub fn decode(bytes: &[u8]) -> Option<Plain> {
    let plain = |length: usize, then| (length <= bytes.len()).then_some(Plain { length, then });
    if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        return plain(4, Then::Landing);
    }
    if let Some(length) = padding(bytes) {
        return plain(length, Then::Padding);
    }
    // The segment of thread-local storage, and REX.
    let segment = usize::from(bytes.first() == Some(&0x64));
    let rex = bytes
        .get(segment)
        .filter(|byte| matches!(byte, 0x40..=0x4f));
    let is_wide = rex.is_some_and(|rex| rex & 8 != 0);
    let prefix = segment + usize::from(rex.is_some());
    let rest = &bytes[prefix..];
    let operand = |immediate: usize| {
        let length = prefix + 1 + memory(rest.get(1..)?)? + immediate;
        plain(length, Then::Next)
    };
    match (*rest.first()?, rest.get(1)) {
        (0x0f, Some(0x05)) if prefix == 0 => plain(2, Then::Call),
        (0xc3, _) if prefix == 0 => plain(1, Then::Return),
        // add, or, and, sub, xor, cmp, test, mov, lea, between a register and a register or memory.
        (0x01 | 0x03 | 0x09 | 0x0b | 0x21 | 0x23 | 0x29 | 0x2b | 0x31 | 0x33, _) => operand(0),
        (0x39 | 0x3b | 0x84 | 0x85 | 0x88 | 0x89 | 0x8a | 0x8b, _) => operand(0),
        // The second operand is memory, or it is no instruction.
        (0x8d, Some(modes)) if modes >> 6 != 3 => operand(0),
        // movsxd
        (0x63, _) if is_wide => operand(0),
        // The same arithmetic with a constant.
        (0x80 | 0x83, _) => operand(1),
        (0x81, _) => operand(4),
        (0x05 | 0x0d | 0x25 | 0x2d | 0x35 | 0x3d | 0xa9, _) => plain(prefix + 5, Then::Next),
        // A shift by a constant; mov of a constant to memory or a register.
        (0xc0 | 0xc1, _) => operand(1),
        (0xc6, Some(modes)) if modes >> 3 & 7 == 0 => operand(1),
        (0xc7, Some(modes)) if modes >> 3 & 7 == 0 => operand(4),
        (0xb8..=0xbf, _) => plain(prefix + if is_wide { 9 } else { 5 }, Then::Next),
        // cdqe, cqo
        (0x98 | 0x99, _) => plain(prefix + 1, Then::Next),
        // movups, movaps; cmovcc; setcc; movzx and movsx
        (
            0x0f,
            Some(0x10 | 0x11 | 0x28 | 0x29 | 0x40..=0x4f | 0x90..=0x9f | 0xb6 | 0xb7 | 0xbe | 0xbf),
        ) => {
            let length = prefix + 2 + memory(rest.get(2..)?)?;
            plain(length, Then::Next)
        }
        _ => None,
    }
}

/// Returns the length of an instruction that compilers and linkers fill gaps with: `int3`, and `nop` of any length.
fn padding(bytes: &[u8]) -> Option<usize> {
    const LONGEST: usize = 15;
    if bytes.first() == Some(&0xcc) {
        return Some(1);
    }
    let prefixes = bytes
        .iter()
        .take_while(|&&byte| matches!(byte, 0x66 | 0x2e))
        .count();
    let length = prefixes
        + match bytes.get(prefixes..)? {
            [0x90, ..] => 1,
            [0x0f, 0x1f, modes, ..] if modes >> 3 & 7 == 0 => 2 + memory(&bytes[prefixes + 2..])?,
            _ => return None,
        };
    (length <= LONGEST).then_some(length)
}

/// Returns the length of a ModRM byte and what belongs to it, unless it names memory by its distance.
fn memory(bytes: &[u8]) -> Option<usize> {
    const FOUR_BYTES: u8 = 0b101;
    const SCALED: u8 = 0b100;
    let modes = *bytes.first()?;
    let (mode, register) = (modes >> 6, modes & 7);
    if mode == 3 {
        return Some(1);
    }
    let (index, base) = if register == SCALED {
        (1, *bytes.get(1)? & 7)
    } else {
        (0, register)
    };
    let distance = match mode {
        0 if base == FOUR_BYTES && index == 0 => return None,
        0 if base == FOUR_BYTES => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(1 + index + distance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Mnemonic};
    use proptest::prelude::*;

    fn by_library(bytes: &[u8]) -> Option<Plain> {
        let instruction = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        let moves = !instruction.is_invalid() && !instruction.is_ip_rel_memory_operand();
        moves.then(|| Plain {
            length: instruction.len(),
            then: match instruction.flow_control() {
                _ if instruction.code() == Code::Endbr64 => Then::Landing,
                FlowControl::Next if instruction.mnemonic() == Mnemonic::Nop => Then::Padding,
                FlowControl::Next => Then::Next,
                FlowControl::Return => Then::Return,
                FlowControl::Interrupt => Then::Padding,
                FlowControl::Call if instruction.code() == Code::Syscall => Then::Call,
                other => panic!("{:?} at {bytes:x?}: {other:?}", instruction.code()),
            },
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn what_is_known_is_what_the_library_sees(
            prefix in prop_oneof![
                (0x40u8..=0x4f).prop_map(|rex| vec![rex]),
                (0x40u8..=0x4f).prop_map(|rex| vec![0x64, rex]),
                Just(vec![0x64]),
                prop::collection::vec(prop::sample::select(vec![0x66u8, 0x2e]), 0..4),
            ],
            opcode in prop_oneof![
                any::<u8>(),
                prop::sample::select(vec![
                    0x0f, 0x90, 0xcc, 0xf3, 0x89, 0x8b, 0x8d, 0x63, 0x80, 0x81, 0x83, 0xb8, 0x3d, 0x31, 0xc0, 0xc1, 0xc6, 0xc7,
                    0x98, 0x0f, 0x0f,
                ]),
            ],
            second in prop_oneof![any::<u8>(), Just(0x05), Just(0x1f)],
            rest in prop::array::uniform14(any::<u8>()),
        ) {
            let bytes: Vec<u8> = prefix.into_iter().chain([opcode, second]).chain(rest).collect();
            if let Some(found) = decode(&bytes) {
                prop_assert_eq!(Some(found), by_library(&bytes));
                for length in 0..found.length {
                    prop_assert_eq!(decode(&bytes[..length]), None);
                }
            }
        }
    }
}
