//! Which constant a register holds at an instruction, if it is the same on every path that leads there.
//!
//! A compiler loads the number of a system call before a loop, or before a branch whose ends meet at the call. The search
//! goes backwards over every edge of the function. It gives up where control may arrive from elsewhere: at the function's
//! start, at a landing pad, through a table, from another function.

use std::collections::BTreeSet;

use crate::rewrite::code::{FunctionCode, ends, near_target};

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// No search visits more.
const MOST: usize = 2000;

/// What an instruction does to a register.
enum Effect {
    Keeps,
    Loads(u32),
    Copies(Register),
    Unknown,
}

/// Returns the constant in eax at instruction `index`. The function's [`entries`](FunctionCode::entries) must include those
/// from other functions.
pub fn constant_in_eax(code: &FunctionCode, index: usize) -> Option<u32> {
    let all = &code.instructions;
    if code.unknown_targets || !code.is_whole {
        return None;
    }
    let jumps: Vec<(u64, usize)> = (0..all.len())
        .filter_map(|at| Some((jump_target(&all[at])?, at)))
        .collect();
    let mut factory = InstructionInfoFactory::new();
    let mut seen = BTreeSet::new();
    let mut due = vec![(index, Register::RAX)];
    let mut found = None;
    while let Some((at, register)) = due.pop() {
        if !seen.insert((at, register as u32)) {
            continue;
        }
        let here = all[at].ip();
        if at == 0 || seen.len() > MOST || code.entries.contains(&(here as usize)) {
            return None;
        }
        let falls = (!ends(&all[at - 1])).then_some(at - 1);
        let jumps = jumps.iter().filter(|(to, _)| *to == here);
        // What nothing leads to is padding.
        for before in falls.into_iter().chain(jumps.map(|(_, from)| *from)) {
            let instruction = &all[before];
            // Between its bytes too: `je 1f; lock; 1: cmpxchg` is decoded as one instruction.
            let inside = instruction.ip() as usize + 1..instruction.next_ip() as usize;
            if code.targets.range(inside).next().is_some() {
                return None;
            }
            match effect(instruction, register, &mut factory) {
                Effect::Keeps => due.push((before, register)),
                Effect::Copies(from) => due.push((before, from)),
                Effect::Loads(number) if found.is_none_or(|found| found == number) => {
                    found = Some(number);
                }
                Effect::Loads(_) | Effect::Unknown => return None,
            }
        }
    }
    found
}

/// Returns where a jump leads that is no call.
pub fn jump_target(instruction: &Instruction) -> Option<u64> {
    let jumps = matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    near_target(instruction).filter(|_| jumps)
}

fn effect(
    instruction: &Instruction,
    register: Register,
    factory: &mut InstructionInfoFactory,
) -> Effect {
    let kept = |is_kept: bool| {
        if is_kept {
            Effect::Keeps
        } else {
            Effect::Unknown
        }
    };
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall
            if instruction.code() == Code::Syscall || instruction.code() == Code::Sysenter =>
        {
            return kept(!matches!(
                register,
                Register::RAX | Register::RCX | Register::R11
            ));
        }
        // What a function returns. Any other register that is read behind a call was either kept by it, as the compiler
        // knows, or the call does not return.
        FlowControl::Call | FlowControl::IndirectCall => {
            return kept(!matches!(register, Register::RAX | Register::RDX));
        }
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {}
        _ => return Effect::Unknown,
    }
    let writes = factory
        .info(instruction)
        .used_registers()
        .iter()
        .any(|used| {
            used.register().full_register() == register
                && !matches!(
                    used.access(),
                    OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
                )
        });
    if !writes {
        return Effect::Keeps;
    }
    let is_wide = instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == register
        && instruction.op0_register().size() >= 4;
    if !is_wide || instruction.op_count() != 2 {
        return Effect::Unknown;
    }
    match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64) => {
            Effect::Loads(instruction.immediate(1) as u32)
        }
        (Mnemonic::Mov, OpKind::Register) if instruction.op1_register().is_gpr() => {
            Effect::Copies(instruction.op1_register().full_register())
        }
        (Mnemonic::Xor | Mnemonic::Sub, OpKind::Register)
            if instruction.op1_register() == instruction.op0_register() =>
        {
            Effect::Loads(0)
        }
        _ => Effect::Unknown,
    }
}
