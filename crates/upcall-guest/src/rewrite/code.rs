//! One function, decoded: its instructions and every place in it where control can arrive.
//!
//! A window may be overwritten only if nothing jumps into its middle, so the set of targets may be too large but never too
//! small: direct branches, jump tables, landing pads, `endbr64`, and every address inside the function that some
//! instruction takes. [`incoming`] adds branches from other functions (a `.cold` part returning to its hot part, for one).

use std::collections::BTreeSet;
use std::ops::Range;

use crate::ground::arch;
use crate::rewrite::object::{Image, Part};
use crate::rewrite::reaching::jump_target;
use crate::rewrite::unwind::{Function, Tables};

use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Mnemonic,
    OpKind, Register,
};

/// A decoded function.
#[derive(Clone, Debug)]
pub struct FunctionCode {
    /// Its code.
    pub range: Range<usize>,
    /// Its instructions from the first byte on. They stop early where the bytes make no sense.
    pub instructions: Vec<Instruction>,
    /// Addresses inside the function where control may arrive other than by falling through.
    pub targets: BTreeSet<usize>,
    /// Those of them at which control may arrive other than by a jump of the function's own.
    pub entries: BTreeSet<usize>,
    /// A jump through a table that could not be found, or bytes that are no instruction, behind
    /// which jumps are not seen: any instruction may be a target.
    pub unknown_targets: bool,
    /// Some instruction uses vector state beyond xmm (VEX, EVEX), x87 or MMX.
    pub wide_state: bool,
    /// Some instruction uses AMX tiles, which no frame saves.
    pub tiles: bool,
    /// It is the return from a signal handler.
    pub signal_trampoline: bool,
    /// All that its unwind entry covers was decoded.
    pub is_whole: bool,
}

impl FunctionCode {
    /// Decodes `function`.
    pub fn decode(image: &Image<'_>, function: &Function) -> Option<Self> {
        let mut code = Self::instructions_of(image, function, None)?;
        code.analyse(image);
        Some(code)
    }

    /// Returns the instructions of `function`, not analysed yet. Those behind the address `call` only if there is a system
    /// call: what looks like one is mostly a part of something else, and functions can be large.
    pub fn instructions_of(
        image: &Image<'_>,
        function: &Function,
        call: Option<usize>,
    ) -> Option<Self> {
        let bytes = image.bytes(function.range.clone())?;
        let start = function.range.start as u64;
        let covered = start + function.covered as u64;
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut instructions = Vec::with_capacity((bytes.len() / 4).min(1024));
        let mut unknown_targets = false;
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                unknown_targets = instruction.ip() < covered;
                break;
            }
            instructions.push(instruction);
            let over =
                |call: usize| (instruction.ip()..instruction.next_ip()).contains(&(call as u64));
            if call.is_some_and(over)
                && instruction.code() != Code::Syscall
                && instruction.next_ip() <= covered
            {
                break;
            }
        }
        let mut code = Self {
            range: function.range.clone(),
            instructions,
            targets: function.landing_pads.iter().copied().collect(),
            entries: function.landing_pads.iter().copied().collect(),
            unknown_targets,
            wide_state: false,
            tiles: false,
            signal_trampoline: function.signal_trampoline,
            is_whole: false,
        };
        code.drop_unproven(function.range.start + function.covered);
        let last = code.instructions.last();
        code.is_whole = last.is_some_and(|last| last.next_ip() >= covered);
        Some(code)
    }

    /// Returns true if the byte pair at `address` is, or is a part of, another instruction than a system call.
    pub fn is_other(&self, address: usize) -> bool {
        match self.index_of(address) {
            Some(index) => self.instructions[index].code() != Code::Syscall,
            None => {
                let last = self.instructions.last();
                last.is_some_and(|last| last.next_ip() > address as u64)
            }
        }
    }

    /// Finds the targets and the state that the instructions use.
    pub fn analyse(&mut self, image: &Image<'_>) {
        self.find_targets(image);
        self.find_state();
    }

    /// Returns the index of the instruction that starts at `address`.
    pub fn index_of(&self, address: usize) -> Option<usize> {
        self.instructions
            .binary_search_by_key(&(address as u64), Instruction::ip)
            .ok()
    }

    /// Returns the constant in eax at instruction `index`, where straight-line code shows it.
    pub fn constant_in_eax(&self, index: usize) -> Option<u32> {
        let mut wanted = Register::RAX;
        for instruction in self.instructions[..index].iter().rev() {
            let from = instruction.ip() as usize + 1;
            if self
                .targets
                .range(from..=instruction.next_ip() as usize)
                .next()
                .is_some()
            {
                return None;
            }
            match instruction.flow_control() {
                FlowControl::Next | FlowControl::ConditionalBranch => {}
                _ => return None,
            }
            if instruction.op_count() == 0 || !writes(instruction, wanted) {
                continue;
            }
            match (instruction.mnemonic(), instruction.op1_kind()) {
                (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate32to64) => {
                    return Some(instruction.immediate(1) as u32);
                }
                (Mnemonic::Mov, OpKind::Register) => {
                    wanted = instruction.op1_register().full_register();
                }
                (Mnemonic::Xor | Mnemonic::Sub, OpKind::Register)
                    if instruction.op1_register() == instruction.op0_register() =>
                {
                    return Some(0);
                }
                _ => return None,
            }
        }
        None
    }

    /// Behind `covered`, where the unwind entry ends, instructions are believed only as far as
    /// control falls through to them.
    fn drop_unproven(&mut self, covered: usize) {
        let mut whole = true;
        let proven = self.instructions.iter().position(|i| {
            let boundary = i.ip() as usize >= covered;
            if boundary && !whole {
                return true;
            }
            whole = !ends(i) && (boundary || i.next_ip() as usize <= covered);
            false
        });
        self.instructions
            .truncate(proven.unwrap_or(self.instructions.len()));
    }

    fn find_targets(&mut self, image: &Image<'_>) {
        let mut bases = Vec::new();
        let mut tables = false;
        for (index, instruction) in self.instructions.iter().enumerate() {
            let mut add_target = |address: u64| {
                let is_inside = self.range.contains(&(address as usize));
                if is_inside {
                    self.targets.insert(address as usize);
                }
                is_inside
            };
            if let Some(target) = jump_target(instruction) {
                add_target(target);
            }
            let mut add = |address: u64| {
                if add_target(address) {
                    self.entries.insert(address as usize);
                }
            };
            if instruction.code() == Code::Endbr64 {
                add(instruction.ip());
            }
            if jump_target(instruction).is_none()
                && let Some(target) = near_target(instruction)
            {
                add(target);
            }
            if instruction.is_ip_rel_memory_operand() {
                let address = instruction.ip_rel_memory_address();
                add(address);
                if instruction.mnemonic() == Mnemonic::Lea {
                    bases.push(address as usize);
                }
            }
            if instruction.flow_control() == FlowControl::IndirectBranch
                && through_table(&self.instructions[..=index])
            {
                bases.push(instruction.memory_displacement64() as usize);
                tables = true;
            }
        }
        if tables {
            let mut found = false;
            for base in bases {
                let mut targets = BTreeSet::new();
                found |= read_table(image, base, &self.range, &mut targets);
                self.enter_at(&targets);
            }
            self.unknown_targets |= !found;
        }
    }

    /// Notes places where control may arrive from elsewhere.
    pub fn enter_at(&mut self, places: &BTreeSet<usize>) {
        let inside = places.range(self.range.clone());
        self.targets.extend(inside.clone().copied());
        self.entries.extend(inside.copied());
    }

    fn find_state(&mut self) {
        for instruction in &self.instructions {
            if matches!(
                instruction.encoding(),
                EncodingKind::Legacy | EncodingKind::D3NOW
            ) {
                self.wide_state = self.wide_state || uses_old_unit(instruction);
                continue;
            }
            self.wide_state |= uses_vectors(instruction);
            self.tiles |= instruction
                .op_kinds()
                .enumerate()
                .any(|(i, k)| k == OpKind::Register && instruction.op_register(i as u32).is_tmm());
        }
    }
}

/// x87 and MMX registers. Control words alone are no reason to save the registers: a handler leaves those words alone, and
/// each thread has its own. swapcontext(3) loads and stores them around its system call.
fn uses_old_unit(instruction: &Instruction) -> bool {
    let is_of_environment = matches!(
        instruction.mnemonic(),
        Mnemonic::Fnstenv
            | Mnemonic::Fldenv
            | Mnemonic::Fnstcw
            | Mnemonic::Fldcw
            | Mnemonic::Fnclex
            | Mnemonic::Wait
    );
    if is_of_environment {
        return false;
    }
    instruction.cpuid_features().iter().any(|f| {
        matches!(
            f,
            CpuidFeature::FPU
                | CpuidFeature::FPU287
                | CpuidFeature::FPU387
                | CpuidFeature::MMX
                | CpuidFeature::D3NOW
        )
    })
}

/// VEX also encodes integer instructions (BMI), which leave the vectors alone.
fn uses_vectors(instruction: &Instruction) -> bool {
    let integer = |r: Register| r.is_gpr() || r == Register::None;
    instruction.op_count() == 0
        || instruction
            .op_kinds()
            .enumerate()
            .any(|(i, k)| k == OpKind::Register && !integer(instruction.op_register(i as u32)))
}

/// Returns true if the first operand is a part of `register` and written. Operands that are only read (`cmp`, `test`,
/// `push`) do not count; unusual writers (`cpuid`, `mul`) end a search elsewhere.
fn writes(instruction: &Instruction, register: Register) -> bool {
    let only_reads = matches!(
        instruction.mnemonic(),
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt
    );
    !only_reads
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == register
}

/// Returns true if control never falls through to the next instruction.
pub fn ends(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Exception
    ) || instruction.code() == Code::Hlt
}

/// Returns the target of a direct branch or call.
pub fn near_target(instruction: &Instruction) -> Option<u64> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
            if instruction.op_count() > 0 =>
        {
            Some(instruction.near_branch_target())
        }
        _ => None,
    }
}

/// Returns true if the indirect jump that ends `code` goes through a table and not to another function: its address is
/// scaled, or its register was just computed by an addition.
fn through_table(code: &[Instruction]) -> bool {
    let Some((jump, before)) = code.split_last() else {
        return false;
    };
    if jump.op0_kind() == OpKind::Memory {
        return jump.memory_index() != Register::None;
    }
    let register = jump.op0_register().full_register();
    let writer = before.iter().rev().take(12).find(|i| {
        i.op_count() > 0
            && i.op0_kind() == OpKind::Register
            && i.op0_register().full_register() == register
    });
    match writer {
        Some(writer) => match writer.mnemonic() {
            Mnemonic::Add => true,
            Mnemonic::Mov | Mnemonic::Movsxd => {
                writer.op1_kind() == OpKind::Memory && writer.memory_index() != Register::None
            }
            Mnemonic::Lea => writer.memory_index() != Register::None,
            _ => false,
        },
        None => false,
    }
}

/// Reads a jump table at `base`, of 4-byte offsets from itself or of 8-byte addresses, until an entry leaves the function.
/// Returns true if there was one.
fn read_table(
    image: &Image<'_>,
    base: usize,
    function: &Range<usize>,
    targets: &mut BTreeSet<usize>,
) -> bool {
    let before = targets.len();
    let relative = (0..).map_while(|i: usize| {
        let entry = image.array::<4>(base.checked_add(i * 4)?)?;
        Some(base.wrapping_add(i32::from_le_bytes(entry) as usize))
    });
    let mut found = false;
    for target in relative.take_while(|t| function.contains(t)) {
        targets.insert(target);
        found = true;
    }
    let absolute = (0..).map_while(|i: usize| {
        let entry = image.array::<8>(base.checked_add(i * 8)?)?;
        Some(u64::from_le_bytes(entry) as usize)
    });
    for target in absolute.take_while(|t| function.contains(t)) {
        targets.insert(target);
        found = true;
    }
    found || targets.len() > before
}

/// The granularity of the first look at a branch's target.
const CELL: usize = 32;
/// How far a short branch reaches.
const SHORT: usize = 130;

/// Returns the places inside `windows` (sorted, not overlapping) where branches of other functions end.
///
/// The text is searched for the bytes of a branch; what looks like one is believed unless the function that holds it
/// decodes otherwise, or is the one that it jumps into (that one is decoded anyway).
pub fn incoming(
    image: &Image<'_>,
    tables: &Tables<'_>,
    part: &Part<'_>,
    windows: &[Range<usize>],
) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    if windows.is_empty() {
        return found;
    }
    let bytes = part.bytes;
    // The last row is for what lies outside.
    let outside = bytes.len() / CELL / 64 + 1;
    let mut cells = vec![0u64; outside + 1];
    for window in windows {
        let inside = window.start - part.start..window.end - part.start;
        for cell in inside.start / CELL..=(inside.end - 1) / CELL {
            cells[cell / 64] |= 1 << (cell % 64);
        }
    }
    let mut check = |at: usize, length: usize, offset: usize| {
        let cell = offset / CELL;
        if cells[(cell / 64).min(outside)] >> (cell % 64) & 1 == 0 {
            return;
        }
        let target = part.start + offset;
        let after = windows.partition_point(|w| w.start < target);
        let inside = after > 0 && target < windows[after - 1].end;
        if inside && is_branch(image, tables, part.start + at, length, target) {
            found.insert(target);
        }
    };
    arch::each_long_branch(bytes, |at| {
        let operand = at + 1 + usize::from(bytes[at] == 0x0f);
        if let Some(number) = bytes.get(operand..).and_then(|b| b.first_chunk::<4>()) {
            let distance = i32::from_le_bytes(*number) as usize;
            check(at, operand + 4 - at, (operand + 4).wrapping_add(distance));
        }
    });
    for window in windows {
        let start = window.start - part.start;
        let end = window.end - part.start;
        let near = start.saturating_sub(SHORT)..(end + SHORT).min(bytes.len() - 1);
        for at in near {
            if matches!(bytes[at], 0xeb | 0x70..=0x7f | 0xe0..=0xe3) {
                let offset = (at + 2).wrapping_add(bytes[at + 1] as i8 as usize);
                check(at, 2, offset);
            }
        }
    }
    found
}

fn is_branch(
    image: &Image<'_>,
    tables: &Tables<'_>,
    at: usize,
    length: usize,
    target: usize,
) -> bool {
    let Some(function) = tables.function_at(at) else {
        return true;
    };
    if function.range.contains(&target) {
        return false;
    }
    let Some(bytes) = image.bytes(function.range.clone()) else {
        return true;
    };
    let start = function.range.start as u64;
    Decoder::with_ip(64, bytes, start, DecoderOptions::NONE)
        .into_iter()
        .any(|i| {
            // A prefix (bnd, notrack) may stand before the opcode that was found.
            i.next_ip() == (at + length) as u64 && near_target(&i) == Some(target as u64)
        })
}
