//! What is counted of an instruction.

use std::collections::HashMap;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use crate::workload::counted::MARK;

/// The longest instruction, in bytes.
pub const LONGEST: usize = 15;

/// What an instruction is to the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One as any other.
    Plain,
    /// No other processor comes in between: with a lock prefix, or an exchange with memory.
    Locked,
    /// Sets the FS base, the thread pointer, without the kernel.
    FsWrite,
    /// Enters the kernel.
    Call,
    /// A mark of the program's.
    Mark,
}

/// The instructions that were met, by their addresses. What is stepped is not rewritten meanwhile.
#[derive(Default)]
pub struct Known(HashMap<u64, Kind>);

impl Known {
    /// What is at `address`; `read` reads there.
    pub fn at<E>(
        &mut self,
        address: u64,
        read: impl FnOnce() -> Result<[u8; LONGEST], E>,
    ) -> Result<Kind, E> {
        if let Some(kind) = self.0.get(&address) {
            return Ok(*kind);
        }
        let kind = kind(&read()?);
        self.0.insert(address, kind);
        Ok(kind)
    }
}

/// What the first of these bytes are.
fn kind(bytes: &[u8]) -> Kind {
    let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    let has_memory =
        |one: &Instruction| (0..one.op_count()).any(|index| one.op_kind(index) == OpKind::Memory);
    match instruction.mnemonic() {
        Mnemonic::Nop
            if instruction.code() == Code::Nop_rm32
                && instruction.memory_displacement32() == MARK =>
        {
            Kind::Mark
        }
        Mnemonic::Syscall => Kind::Call,
        Mnemonic::Wrfsbase | Mnemonic::Lfs => Kind::FsWrite,
        // A selector brings its descriptor's base.
        Mnemonic::Mov | Mnemonic::Pop if instruction.op0_register() == Register::FS => {
            Kind::FsWrite
        }
        Mnemonic::Xchg if has_memory(&instruction) => Kind::Locked,
        _ if instruction.has_lock_prefix() => Kind::Locked,
        _ => Kind::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_ones_fs_writes_and_calls_are_told_from_others() {
        let cases: &[(&[u8], Kind)] = &[
            (b"\xf0\x48\x0f\xb1\x0f", Kind::Locked), // lock cmpxchg [rdi], rcx
            (b"\x48\x87\x07", Kind::Locked),         // xchg [rdi], rax
            (b"\x48\x87\xc8", Kind::Plain),          // xchg rax, rcx
            (b"\x48\x0f\xb1\x0f", Kind::Plain),      // cmpxchg [rdi], rcx
            (b"\x0f\x05", Kind::Call),               // syscall
            (b"\xf3\x48\x0f\xae\xd0", Kind::FsWrite), // wrfsbase rax
            (b"\xf3\x0f\xae\xd7", Kind::FsWrite),    // wrfsbase edi
            (b"\xf3\x48\x0f\xae\xc0", Kind::Plain),  // rdfsbase rax
            (b"\xf3\x48\x0f\xae\xd8", Kind::Plain),  // wrgsbase rax
            (b"\x8e\xe0", Kind::FsWrite),            // mov fs, eax
            (b"\x8e\xe8", Kind::Plain),              // mov gs, eax
            (b"\x8c\xe0", Kind::Plain),              // mov eax, fs
            (b"\x0f\xa1", Kind::FsWrite),            // pop fs
            (b"\x0f\xa0", Kind::Plain),              // push fs
            (b"\x0f\xb4\x07", Kind::FsWrite),        // lfs eax, [rdi]
            (b"\x64\x48\x89\x07", Kind::Plain),      // mov fs:[rdi], rax
            (b"\xf3\x48\xa5", Kind::Plain),          // rep movsq
            (b"\x0f\x1f\x80mark", Kind::Mark),
            (b"\x0f\x1f\x80\0\0\0\0", Kind::Plain),
        ];
        for (bytes, expected) in cases {
            assert_eq!(kind(bytes), *expected, "{bytes:x?}");
        }
    }
}
