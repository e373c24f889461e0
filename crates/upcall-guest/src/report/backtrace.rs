//! Finds where a parked thread is, from outside: its frames by the unwind tables (DWARF 5, section 6.4; gimli reads them).

use gimli::{
    CfaRule, Encoding, Expression, Operation, Register, RegisterRule, UnwindContext,
    UnwindExpression,
};

use crate::ground::access;
use crate::rewrite::unwind::{Bytes, Tables};

/// Frames that are shown at most.
const DEEPEST: usize = 64;
/// How many registers have numbers in the tables, the return address among them (System V ABI for x86-64, figure 3.36).
const REGISTERS: usize = 17;
const BX: usize = 3;
const BP: usize = 6;
const SP: usize = 7;
const IP: usize = 16;
/// Those that a function gives back as it has found them.
const KEPT: [usize; 6] = [BX, BP, 12, 13, 14, 15];

/// The known registers in one frame.
#[derive(Clone, Copy)]
struct Registers([Option<usize>; REGISTERS]);

impl Registers {
    fn get(&self, register: Register) -> Option<usize> {
        *self.0.get(usize::from(register.0))?
    }
}

fn load(address: usize) -> Option<usize> {
    access::load_u64(address).ok().map(|word| word as usize)
}

/// Returns the value of an expression, of those that compilers and we write: addresses in the frame, and what is there.
fn evaluate(
    expression: Expression<Bytes<'_>>,
    encoding: Encoding,
    registers: &Registers,
) -> Option<usize> {
    let mut value: Option<usize> = None;
    let mut operations = expression.operations(encoding);
    while let Some(operation) = operations.next().ok()? {
        value = Some(match operation {
            Operation::Address { address } => address as usize,
            Operation::RegisterOffset {
                register, offset, ..
            } => registers
                .get(register)?
                .checked_add_signed(offset as isize)?,
            Operation::PlusConstant { value: more } => value?.checked_add_signed(more as isize)?,
            Operation::Deref { .. } => load(value?)?,
            _ => return None,
        });
    }
    value
}

/// Returns the instructions at which a saved thread is, the innermost first.
pub fn frames(saved: upcall_core::arch::Saved, tables: &[Tables<'_>]) -> Vec<usize> {
    let mut registers = Registers([None; REGISTERS]);
    for (at, value) in [
        (IP, saved.ip),
        (SP, saved.sp),
        (BP, saved.bp),
        (BX, saved.bx),
    ] {
        registers.0[at] = Some(value);
    }
    let mut frames = Vec::new();
    while let Some(ip) = registers.0[IP].filter(|&ip| ip != 0) {
        frames.push(ip);
        // A return address is behind the call.
        let called_at = ip - usize::from(frames.len() > 1);
        let caller = tables
            .iter()
            .find_map(|tables| caller(tables, called_at, &registers));
        // A stack grows downwards: it ends there.
        match caller.filter(|caller| caller.0[SP] > registers.0[SP] && frames.len() < DEEPEST) {
            Some(caller) => registers = caller,
            None => break,
        }
    }
    frames
}

fn caller(tables: &Tables<'_>, ip: usize, registers: &Registers) -> Option<Registers> {
    let entry = tables.entry(ip).filter(|entry| entry.contains(ip as u64))?;
    let mut context = UnwindContext::new();
    let row = entry
        .unwind_info_for_address(&tables.frames, &tables.bases, &mut context, ip as u64)
        .ok()?;
    let compute = |expression: &UnwindExpression<usize>| {
        let expression = expression.get(&tables.frames).ok()?;
        evaluate(expression, entry.cie().encoding(), registers)
    };
    let frame = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => registers
            .get(*register)?
            .checked_add_signed(*offset as isize)?,
        CfaRule::Expression(expression) => compute(expression)?,
    };
    let mut caller = *registers;
    for number in 0..REGISTERS {
        caller.0[number] = match row.register(Register(number as u16)) {
            Some(RegisterRule::Offset(offset)) => load(frame.checked_add_signed(offset as isize)?),
            Some(RegisterRule::Expression(expression)) => load(compute(&expression)?),
            Some(RegisterRule::ValExpression(expression)) => compute(&expression),
            Some(RegisterRule::Register(other)) => registers.get(other),
            Some(RegisterRule::SameValue) => registers.0[number],
            None if KEPT.contains(&number) => registers.0[number],
            _ => None,
        };
    }
    caller.0[SP] = Some(frame);
    Some(caller)
}
