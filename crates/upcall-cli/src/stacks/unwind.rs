//! The frames of a thread, by the unwind tables of the objects that are mapped (DWARF 5, section 6.4; gimli reads them).
//!
//! Code without tables (made at run time) is taken to keep frame pointers. A frame that is found so is marked: it may be
//! wrong.
//!
//! Rejected: framehop. It follows rsp and rbp only, and no expression that reads memory. The rules of signal frames and of
//! the entry into the runtime are such expressions.

use std::collections::HashMap;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, Encoding, EndianSlice, EvaluationResult,
    Expression, LittleEndian, Location, Register, RegisterRule, UnwindContext, UnwindSection,
    Value,
};
use object::{Object, ObjectSection};

use super::memory::Memory;
use super::objects::{Image, Objects};

/// Frames that are shown at most.
const DEEPEST: usize = 256;
/// The largest frame that is believed of code without tables.
const LARGEST: u64 = 1 << 20;

pub const BX: usize = 3;
pub const BP: usize = 6;
pub const SP: usize = 7;
pub const IP: usize = 16;
/// Those that a function gives back as it has found them.
const KEPT: [usize; 6] = [BX, BP, 12, 13, 14, 15];

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// What is known of the registers in one frame, by their numbers in the tables (System V ABI for x86-64, figure 3.36); the
/// last one is the return address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers(pub [Option<u64>; 17]);

/// One frame, without those that are inlined in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The next instruction.
    pub ip: u64,
    /// An instruction of the call, or the next one if nothing was called.
    pub at: u64,
    /// Found by a frame pointer.
    pub is_guess: bool,
}

/// The tables of one object.
struct Tables<'a> {
    bias: u64,
    bases: BaseAddresses,
    frames: EhFrame<Bytes<'a>>,
    header: Option<gimli::ParsedEhFrameHdr<Bytes<'a>>>,
}

impl<'a> Tables<'a> {
    fn new(image: &'a Image<'a>) -> Option<Self> {
        let section = |name| {
            let section = image.file.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        let (address, data) = section(".eh_frame")?;
        let mut bases = BaseAddresses::default().set_eh_frame(address);
        if let Some(text) = image.file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        let header = section(".eh_frame_hdr").and_then(|(address, data)| {
            bases = bases.clone().set_eh_frame_hdr(address);
            EhFrameHdr::new(data, LittleEndian).parse(&bases, 8).ok()
        });
        Some(Tables {
            bias: image.bias,
            bases,
            frames: EhFrame::new(data, LittleEndian),
            header,
        })
    }

    fn entry(&self, at: u64) -> Option<gimli::FrameDescriptionEntry<Bytes<'a>>> {
        let cie = EhFrame::cie_from_offset;
        let table = self.header.as_ref().and_then(|header| header.table());
        let entry = match table {
            Some(table) => table.fde_for_address(&self.frames, &self.bases, at, cie),
            None => self.frames.fde_for_address(&self.bases, at, cie),
        };
        entry.ok()
    }
}

/// Finds frames.
pub struct Unwinder<'a> {
    memory: &'a Memory,
    objects: &'a Objects<'a>,
    tables: HashMap<u64, Option<Tables<'a>>>,
}

/// What the tables say of the caller of a frame.
enum Caller {
    /// The registers there, and whether it was interrupted and has called nothing.
    Known(Box<Registers>, bool),
    /// It is the outermost frame, or its rules cannot be followed.
    End,
    /// There are no tables for the code.
    NoTables,
}

impl<'a> Unwinder<'a> {
    pub fn new(memory: &'a Memory, objects: &'a Objects<'a>) -> Self {
        Unwinder {
            memory,
            objects,
            tables: HashMap::new(),
        }
    }

    /// The frames, the innermost first.
    pub fn frames(&mut self, mut registers: Registers) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut is_exact = true;
        let mut is_guess = false;
        while let Some(ip) = registers.0[IP].filter(|&ip| ip != 0) {
            // A return address is behind the call.
            let at = ip - u64::from(!is_exact);
            frames.push(Frame { ip, at, is_guess });
            if frames.len() == DEEPEST {
                break;
            }
            let caller = match self.caller(at, &registers) {
                Caller::Known(caller, interrupted) => {
                    if let Some(last) = frames.last_mut().filter(|_| interrupted) {
                        // A handler returns to the beginning of a function.
                        last.at = ip;
                    }
                    (is_exact, is_guess) = (interrupted, false);
                    *caller
                }
                Caller::NoTables => match self.by_frame_pointer(&registers) {
                    Some(caller) => {
                        (is_exact, is_guess) = (false, true);
                        caller
                    }
                    None => break,
                },
                Caller::End => break,
            };
            // A stack grows downwards, but a handler may have a stack of its own.
            if caller == registers || !is_exact && caller.0[SP] <= registers.0[SP] {
                break;
            }
            registers = caller;
        }
        frames
    }

    fn caller(&mut self, at: u64, registers: &Registers) -> Caller {
        let Some(image) = self.objects.at(at) else {
            return Caller::NoTables;
        };
        let tables = self
            .tables
            .entry(image.bias)
            .or_insert_with(|| Tables::new(image));
        let Some(tables) = tables else {
            return Caller::NoTables;
        };
        let at = at.wrapping_sub(tables.bias);
        let Some(entry) = tables.entry(at).filter(|entry| entry.contains(at)) else {
            return Caller::NoTables;
        };
        let found = apply(self.memory, tables, &entry, at, registers);
        found.map_or(Caller::End, |caller| {
            Caller::Known(Box::new(caller), entry.cie().is_signal_trampoline())
        })
    }

    fn by_frame_pointer(&self, registers: &Registers) -> Option<Registers> {
        let (sp, bp) = (registers.0[SP]?, registers.0[BP]?);
        if bp < sp || bp - sp > LARGEST || bp % 8 != 0 {
            return None;
        }
        let behind = bp.checked_add(16)?;
        let ip = self.memory.u64(bp + 8).ok()?;
        if !self.memory.mapping(ip)?.runs {
            return None;
        }
        let mut caller = Registers::default();
        caller.0[BP] = self.memory.u64(bp).ok();
        caller.0[SP] = Some(behind);
        caller.0[IP] = Some(ip);
        Some(caller)
    }
}

fn apply(
    memory: &Memory,
    tables: &Tables<'_>,
    entry: &gimli::FrameDescriptionEntry<Bytes<'_>>,
    at: u64,
    registers: &Registers,
) -> Option<Registers> {
    let mut context = UnwindContext::new();
    let row = entry
        .unwind_info_for_address(&tables.frames, &tables.bases, &mut context, at)
        .ok()?;
    let encoding = entry.cie().encoding();
    let compute = |expression: &gimli::UnwindExpression<usize>, start| {
        let expression = expression.get(&tables.frames).ok()?;
        evaluate(memory, expression, encoding, registers, start)
    };
    let frame = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            register_of(registers, *register)?.checked_add_signed(*offset)?
        }
        CfaRule::Expression(expression) => compute(expression, None)?,
    };
    let load = |address: Option<u64>| memory.u64(address?).ok();
    let mut caller = Registers::default();
    for number in 0..caller.0.len() {
        let offset = |offset: &i64| frame.checked_add_signed(*offset);
        caller.0[number] = match row.register(Register(number as u16)) {
            Some(RegisterRule::Offset(by)) => load(offset(&by)),
            Some(RegisterRule::ValOffset(by)) => offset(&by),
            Some(RegisterRule::Expression(expression)) => load(compute(&expression, Some(frame))),
            Some(RegisterRule::ValExpression(expression)) => compute(&expression, Some(frame)),
            Some(RegisterRule::Register(other)) => register_of(registers, other),
            Some(RegisterRule::Constant(value)) => Some(value),
            Some(RegisterRule::SameValue) => registers.0[number],
            None if number == SP => Some(frame),
            None if KEPT.contains(&number) => registers.0[number],
            _ => None,
        };
    }
    Some(caller)
}

fn register_of(registers: &Registers, register: Register) -> Option<u64> {
    *registers.0.get(usize::from(register.0))?
}

/// The value of an expression that begins with this one on its stack.
fn evaluate(
    memory: &Memory,
    expression: Expression<Bytes<'_>>,
    encoding: Encoding,
    registers: &Registers,
    start: Option<u64>,
) -> Option<u64> {
    let mut evaluation = expression.evaluation(encoding);
    if let Some(start) = start {
        evaluation.set_initial_value(start);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = Value::Generic(register_of(registers, register)?);
                evaluation.resume_with_register(value).ok()?
            }
            EvaluationResult::RequiresMemory { address, size, .. } => {
                let mut bytes = [0; 8];
                memory
                    .read(address, bytes.get_mut(..usize::from(size))?)
                    .ok()?;
                let value = Value::Generic(u64::from_le_bytes(bytes));
                evaluation.resume_with_memory(value).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result().last()?.location {
        Location::Address { address } => Some(address),
        _ => None,
    }
}
