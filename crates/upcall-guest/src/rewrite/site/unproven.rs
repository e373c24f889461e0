//! The bytes of a system call where no function is known: code without unwind entries (assembly by hand, other compilers'
//! runtimes), or data between code (tables of ciphers).
//!
//! Nothing there is rewritten. The only question is if dispatch must be on for it, so both errors are bearable: data that
//! is taken for a call costs a little time at each system call, and a call that is taken for data goes to the kernel
//! unseen. Bytes are taken for a call if the bytes before them, decoded from some start, load at least two of its registers
//! by plain instructions, or its number, and plain instructions follow.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::SYSCALL_LENGTH;
use crate::rewrite::object::Image;

/// How far before the pair its registers are looked for.
const BEFORE: usize = 32;
/// How many instructions before it, and after it.
const LOADS: usize = 8;
const FOLLOWING: usize = 4;
/// What the loads of registers must add up to; the number counts twice.
const ENOUGH: u32 = 2;

/// Returns true if the pair at `address` looks like a system call.
pub fn is_believable(image: &Image<'_>, address: usize) -> bool {
    follows(image, address + SYSCALL_LENGTH)
        && (1..=BEFORE).any(|back| leads(image, address - back, address))
}

fn decode(bytes: &[u8], start: usize) -> impl Iterator<Item = Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, start as u64, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}

fn follows(image: &Image<'_>, start: usize) -> bool {
    let Some(bytes) = image.tail(start) else {
        return true;
    };
    for instruction in decode(&bytes[..bytes.len().min(64)], start).take(FOLLOWING) {
        if !is_plain(&instruction) {
            return false;
        }
        if ends(&instruction) {
            break;
        }
    }
    true
}

fn leads(image: &Image<'_>, start: usize, address: usize) -> bool {
    let Some(bytes) = image.bytes(start..address) else {
        return false;
    };
    let mut loads = Vec::new();
    let mut end = start;
    for instruction in decode(bytes, start) {
        if instruction.is_invalid() || !is_plain(&instruction) {
            return false;
        }
        end = instruction.next_ip() as usize;
        loads.push(weight(&instruction));
        if ends(&instruction) {
            loads.clear();
        }
    }
    let near = loads.len().saturating_sub(LOADS);
    end == address && loads[near..].iter().sum::<u32>() >= ENOUGH
}

/// Returns how much an instruction suggests a system call behind it.
fn weight(instruction: &Instruction) -> u32 {
    let load = matches!(
        instruction.mnemonic(),
        Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Movsxd | Mnemonic::Xor | Mnemonic::Pop
    );
    if !load || instruction.op0_kind() != OpKind::Register {
        return 0;
    }
    let number = instruction.mnemonic() == Mnemonic::Mov
        && matches!(
            instruction.op1_kind(),
            OpKind::Immediate32 | OpKind::Immediate32to64
        )
        && instruction.immediate(1) < 1024;
    match instruction.op0_register().full_register() {
        Register::RAX if number => 2,
        Register::RAX
        | Register::RDI
        | Register::RSI
        | Register::RDX
        | Register::R10
        | Register::R8
        | Register::R9
            if instruction.op0_register().size() >= 4 =>
        {
            1
        }
        _ => 0,
    }
}

fn ends(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    ) || matches!(instruction.mnemonic(), Mnemonic::Hlt | Mnemonic::Ud2)
}

/// What compilers and people write around a system call.
fn is_plain(instruction: &Instruction) -> bool {
    !instruction.has_repe_prefix()
        && !instruction.has_repne_prefix()
        && (instruction.is_jcc_short_or_near()
            || instruction.op_count() == 0 && instruction.mnemonic() == Mnemonic::Ret
            || matches!(
                instruction.mnemonic(),
                Mnemonic::Mov
                    | Mnemonic::Movzx
                    | Mnemonic::Movsx
                    | Mnemonic::Movsxd
                    | Mnemonic::Lea
                    | Mnemonic::Xor
                    | Mnemonic::Or
                    | Mnemonic::And
                    | Mnemonic::Add
                    | Mnemonic::Sub
                    | Mnemonic::Cmp
                    | Mnemonic::Test
                    | Mnemonic::Push
                    | Mnemonic::Pop
                    | Mnemonic::Jmp
                    | Mnemonic::Call
                    | Mnemonic::Nop
                    | Mnemonic::Endbr64
                    | Mnemonic::Shl
                    | Mnemonic::Shr
                    | Mnemonic::Neg
                    | Mnemonic::Not
                    | Mnemonic::Cmpxchg
                    | Mnemonic::Xchg
                    | Mnemonic::Cdqe
                    | Mnemonic::Syscall
                    | Mnemonic::Leave
                    | Mnemonic::Hlt
                    | Mnemonic::Int3
                    | Mnemonic::Ud2
            ))
}
