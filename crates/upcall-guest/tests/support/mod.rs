//! An ELF file as an image, without loading it; and another decoder than the one that is tested.
#![allow(dead_code, reason = "not every test uses all")]

pub mod check;

use goblin::elf::program_header::{PF_W, PF_X, PT_GNU_EH_FRAME, PT_LOAD};
use upcall_guest::rewrite::object::{Image, Part};
use yaxpeax_arch::{Decoder, LengthedInstruction, U8Reader};
use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand};

/// The image of the ELF file whose content is `bytes`, at the addresses that the file names.
pub fn image(bytes: &[u8]) -> Image<'_> {
    try_image(bytes).expect("an ELF file")
}

/// As [`image`], of a file that may be anything. What the loader would map over itself is none.
pub fn try_image(bytes: &[u8]) -> Option<Image<'_>> {
    let elf = goblin::elf::Elf::parse(bytes).ok()?;
    let headers = &elf.program_headers;
    let mut parts: Vec<Part<'_>> = headers
        .iter()
        .filter(|h| h.p_type == PT_LOAD && h.p_flags & PF_W == 0)
        .map(|h| {
            let bytes = bytes.get(h.file_range())?;
            (h.p_vaddr as usize).checked_add(bytes.len())?;
            Some(Part {
                start: h.p_vaddr as usize,
                bytes,
                executable: h.p_flags & PF_X != 0,
            })
        })
        .collect::<Option<_>>()?;
    parts.sort_by_key(|part| part.start);
    let apart = |one: &Part<'_>, next: &Part<'_>| one.range().end <= next.start;
    parts.is_sorted_by(apart).then_some(Image {
        parts,
        eh_frame_hdr: headers
            .iter()
            .find(|h| h.p_type == PT_GNU_EH_FRAME)
            .map(|h| h.p_vaddr as usize),
    })
}

/// One instruction as the other decoder sees it.
pub struct Other {
    /// Where it is.
    pub address: usize,
    /// What it is. Where it says how long it is, it means itself without what `length` adds.
    pub instruction: Instruction,
    /// Its bytes in memory.
    pub length: usize,
}

impl Other {
    /// The instruction at `address`, whose bytes `bytes` begin with.
    ///
    /// A REX prefix counts only directly before the opcode, before another prefix it is dead; its
    /// bit R means nothing where the operand is a segment register (Intel SDM, volume 2, section
    /// 2.2.1, and `MOV`). This decoder does not know either, so it is given the bytes without.
    pub fn decode(address: usize, bytes: &[u8]) -> Option<Self> {
        let bytes = &bytes[..bytes.len().min(LONGEST)];
        let rex = |byte: u8| byte & 0xf0 == 0x40;
        let legacy = |byte: u8| {
            matches!(
                byte,
                0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
            )
        };
        let prefixes = bytes.iter().take_while(|&&b| rex(b) || legacy(b)).count();
        let (prefixes, rest) = bytes.split_at(prefixes);
        let mut live = Vec::with_capacity(bytes.len());
        for (at, &prefix) in prefixes.iter().enumerate() {
            let last = at + 1 == prefixes.len();
            match rest {
                _ if rex(prefix) && !last => {}
                [0x8c | 0x8e, ..] if rex(prefix) => live.push(prefix & !0x04),
                _ => live.push(prefix),
            }
        }
        let dropped = prefixes.len() - live.len();
        live.extend_from_slice(rest);
        let decoder = InstDecoder::default();
        let instruction = decoder.decode(&mut U8Reader::new(&live)).ok()?;
        Some(Self {
            address,
            length: instruction.len().to_const() as usize + dropped,
            instruction,
        })
    }

    /// The address of the byte behind it.
    pub fn end(&self) -> usize {
        self.address + self.length
    }

    /// Where it branches to or calls, if it says so itself.
    pub fn target(&self) -> Option<usize> {
        let distance = match self.instruction.operand(0) {
            Operand::ImmediateI8 { imm } => i64::from(imm),
            Operand::ImmediateI32 { imm } => i64::from(imm),
            _ => return None,
        };
        use Opcode::*;
        let branch = matches!(
            self.instruction.opcode(),
            JMP | CALL
                | JO
                | JNO
                | JB
                | JNB
                | JZ
                | JNZ
                | JNA
                | JA
                | JS
                | JNS
                | JP
                | JNP
                | JL
                | JGE
                | JLE
                | JG
                | JRCXZ
                | LOOP
                | LOOPZ
                | LOOPNZ
                | XBEGIN
        );
        branch.then(|| self.end().wrapping_add(distance as usize))
    }
}

/// The most bytes that an instruction has.
const LONGEST: usize = 15;
