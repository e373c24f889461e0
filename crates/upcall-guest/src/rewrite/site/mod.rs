//! Finds system-call sites, and chooses what to overwrite around each.
//!
//! A site is the byte pair `0F 05` where the function that holds it, decoded from its start, has a `syscall` instruction.
//! The same bytes inside an immediate are never touched. Around the site a *window* of whole instructions, at least the
//! five bytes of a `jmp rel32`, moves to a stub.
//!
//! Invariants of a window:
//! 1. control can arrive only at its first byte;
//! 2. its instructions mean the same at another address (calls never do: the return address);
//! 3. windows do not overlap;
//! 4. `rt_sigreturn` is never in one: unwinders and debuggers know its bytes.
//!
//! Windows whose first instruction alone covers the jump (mostly `mov $nr,%eax`) are preferred. Their other instructions
//! stay unchanged, so that a thread which was stopped between them, or whose system call the kernel restarts, is not
//! disturbed ([`Window::is_quiet`]).

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use crate::rewrite::code::{FunctionCode, ends, incoming, near_target};
use crate::rewrite::object::Image;
use crate::rewrite::reaching;
use crate::rewrite::unwind::Tables;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic};
use plain::Then;

/// The length of `syscall`.
pub const SYSCALL_LENGTH: usize = 2;
/// The length of `jmp rel32`, the least that a window covers.
pub const JUMP_LENGTH: usize = 5;
const SIGRETURN: u32 = libc::SYS_rt_sigreturn as u32;

/// Why a site stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No unwind entry covers it or ends shortly before it: where its function starts is not
    /// known.
    NoFunction,
    /// Its function cannot be decoded up to it.
    Undecodable,
    /// It is `rt_sigreturn`, whose bytes unwinders and debuggers recognise.
    Sigreturn,
    /// Its function uses AMX tiles, which a frame does not save.
    Tiles,
    /// Its function jumps through a table that could not be read, or has bytes that are no
    /// instruction: where it jumps to is not known.
    UnknownTargets,
    /// No window of five bytes free of calls and jump targets exists.
    NoWindow,
    /// An instruction of the window cannot be encoded at the stub.
    NotRelocatable(String),
    /// No memory for the stub could be had within reach of a jump.
    NoStubMemory(String),
    /// The code could not be made writable (the error number).
    NotWritable(i32),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFunction => f.write_str("no unwind entry covers it"),
            Self::Undecodable => f.write_str("its function cannot be decoded up to it"),
            Self::Sigreturn => f.write_str("it is rt_sigreturn"),
            Self::Tiles => f.write_str("its function uses AMX tiles"),
            Self::UnknownTargets => f.write_str("where its function jumps to is not known"),
            Self::NoWindow => f.write_str("no five bytes around it are free of jump targets"),
            Self::NotRelocatable(why) => write!(f, "a neighbour cannot be moved: {why}"),
            Self::NoStubMemory(why) => write!(f, "no memory for a stub within 2 GiB: {why}"),
            Self::NotWritable(errno) => write!(f, "the code cannot be written (errno {errno})"),
        }
    }
}

/// An instruction of a window, which moves to the stub.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Its address.
    pub start: usize,
    /// How many bytes it has.
    pub length: usize,
    /// The instruction, if its bytes depend on its address.
    pub relative: Option<Box<Instruction>>,
}

impl Moved {
    fn of(instruction: &Instruction) -> Self {
        let depends = instruction.is_ip_rel_memory_operand() || near_target(instruction).is_some();
        Self {
            start: instruction.ip() as usize,
            length: instruction.len(),
            relative: depends.then(|| Box::new(*instruction)),
        }
    }

    /// Returns the address behind it.
    pub fn end(&self) -> usize {
        self.start + self.length
    }
}

/// What will be overwritten for one site.
#[derive(Clone, Debug)]
pub struct Window {
    /// The bytes that are replaced.
    pub range: Range<usize>,
    /// The instructions before the system call.
    pub before: Vec<Moved>,
    /// The instructions after it.
    pub after: Vec<Moved>,
    /// The stub must save the complete vector state, not only xmm0-15.
    pub wide: bool,
}

impl Window {
    /// Returns true if the jump covers the first instruction only (see the module's text).
    pub fn is_quiet(&self) -> bool {
        self.before.first().is_some_and(|i| i.length >= JUMP_LENGTH)
    }
}

/// A system-call site.
#[derive(Clone, Debug)]
pub struct Site {
    /// The address of the `syscall` instruction.
    pub address: usize,
    /// The system-call number, where the code shows it.
    pub number: Option<u32>,
    /// What to overwrite, or why nothing may be.
    pub window: Result<Window, Reason>,
}

/// libc's cancellable call (glibc 2.41 and newer): its handler of the cancellation signal acts
/// only if the interrupted program counter is in this range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRange(pub Range<usize>);

/// What an image holds.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Every site, by address.
    pub sites: Vec<Site>,
    /// Byte pairs that are no instruction.
    pub other_pairs: usize,
    /// The range that `__syscall_cancel_arch_start` and `_end` name, found by its shape: the
    /// symbols are hidden.
    pub cancel: Option<CancelRange>,
}

enum Candidate {
    Decoded(usize, usize),
    Refused(Reason),
}

/// Finds every site of `image` and a window for each. `skip` holds windows that are patched
/// already, by address.
pub fn scan(image: &Image<'_>, skip: &[Range<usize>]) -> Scan {
    let mut scan = Scan::default();
    let finder = memchr::memmem::Finder::new(b"\x0f\x05");
    for part in image.code() {
        let pairs: Vec<usize> = finder
            .find_iter(part.bytes)
            .map(|offset| part.start + offset)
            .filter(|a| !skip.iter().any(|r| r.contains(a)))
            .collect();
        if pairs.is_empty() {
            continue;
        }
        let Some(tables) = Tables::new(image) else {
            let (sites, others): (Vec<_>, Vec<_>) = pairs
                .into_iter()
                .partition(|&a| unproven::is_believable(image, a));
            scan.sites
                .extend(sites.into_iter().map(|a| refused(a, Reason::NoFunction)));
            scan.other_pairs += others.len();
            continue;
        };
        scan_part(image, &tables, part, &pairs, &mut scan);
    }
    scan.sites.sort_by_key(|s| s.address);
    scan
}

fn scan_part(
    image: &Image<'_>,
    tables: &Tables<'_>,
    part: &crate::rewrite::object::Part<'_>,
    pairs: &[usize],
    scan: &mut Scan,
) {
    let mut functions: Vec<FunctionCode> = Vec::new();
    let mut candidates = Vec::new();
    // The function that was analysed last: pairs come in the order of their addresses.
    let mut analysed = None;
    for &address in pairs {
        let known = functions.last().is_some_and(|f| f.range.contains(&address));
        if !known {
            let function = tables
                .function_at(address)
                .or_else(|| tables.function_before(address));
            let code =
                function.and_then(|f| FunctionCode::instructions_of(image, &f, Some(address)));
            match code {
                Some(code) if code.is_other(address) => {
                    scan.other_pairs += 1;
                    continue;
                }
                Some(code) => functions.push(code),
                None if unproven::is_believable(image, address) => {
                    candidates.push((address, Candidate::Refused(Reason::NoFunction)));
                    continue;
                }
                None => {
                    scan.other_pairs += 1;
                    continue;
                }
            }
        }
        let place = functions.len() - 1;
        let code = &mut functions[place];
        match code.index_of(address) {
            _ if code.is_other(address) => scan.other_pairs += 1,
            Some(index) => {
                if analysed != Some(place) {
                    code.analyse(image);
                    analysed = Some(place);
                }
                candidates.push((address, Candidate::Decoded(place, index)));
            }
            None if unproven::is_believable(image, address) => {
                candidates.push((address, Candidate::Refused(Reason::Undecodable)));
            }
            None => scan.other_pairs += 1,
        }
    }
    // Branches from other functions into one in which a number takes more than straight-line code to see.
    let searched: Vec<Range<usize>> = candidates
        .iter()
        .filter_map(|(_, candidate)| match candidate {
            Candidate::Decoded(function, index) => Some((&functions[*function], *index)),
            Candidate::Refused(_) => None,
        })
        .filter(|(code, index)| {
            code.constant_in_eax(*index).is_none()
                && reaching::constant_in_eax(code, *index).is_some()
        })
        .map(|(code, _)| (code.range.start + 1, code.range.end))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|(start, end)| start..end)
        .collect();
    enter(&mut functions, &incoming(image, tables, part, &searched));
    let mut chosen = choose_all(&functions, &candidates);
    // Branches from other functions are looked for once the windows are known: nearly always
    // there is none, and otherwise the windows are chosen again around their targets.
    loop {
        let windows: Vec<Range<usize>> = chosen
            .iter()
            .filter_map(|s| s.window.as_ref().ok())
            .map(|w| w.range.clone())
            .collect();
        let entered = incoming(image, tables, part, &windows);
        if entered.is_empty() {
            break;
        }
        enter(&mut functions, &entered);
        chosen = choose_all(&functions, &candidates);
    }
    scan.sites.extend(chosen);
    for (_, candidate) in candidates {
        if let Candidate::Decoded(function, index) = candidate
            && let Some(range) = cancel_range(&functions[function], index)
        {
            scan.cancel = Some(range);
        }
    }
}

fn enter(functions: &mut [FunctionCode], entered: &BTreeSet<usize>) {
    for code in functions {
        code.enter_at(entered);
    }
}

fn choose_all(functions: &[FunctionCode], candidates: &[(usize, Candidate)]) -> Vec<Site> {
    let mut taken = 0;
    let choose_one = |(address, candidate): &(usize, Candidate)| match candidate {
        Candidate::Refused(reason) => refused(*address, reason.clone()),
        Candidate::Decoded(function, index) => {
            let code = &functions[*function];
            let number = code
                .constant_in_eax(*index)
                .or_else(|| reaching::constant_in_eax(code, *index));
            let window = choose(code, *index, number, taken);
            if let Ok(window) = &window {
                taken = window.range.end;
            }
            Site {
                address: *address,
                number,
                window,
            }
        }
    };
    candidates.iter().map(choose_one).collect()
}

fn refused(address: usize, reason: Reason) -> Site {
    Site {
        address,
        number: None,
        window: Err(reason),
    }
}

/// Returns the best window for the `syscall` at `index`; nothing before the address `from` may be in it.
pub fn choose(
    code: &FunctionCode,
    index: usize,
    number: Option<u32>,
    from: usize,
) -> Result<Window, Reason> {
    if number == Some(SIGRETURN) || code.signal_trampoline {
        return Err(Reason::Sigreturn);
    }
    if code.tiles {
        return Err(Reason::Tiles);
    }
    if code.unknown_targets {
        return Err(Reason::UnknownTargets);
    }
    let all = &code.instructions;
    let mut best: Option<(u32, Range<usize>)> = None;
    for first in (0..=index).rev() {
        if first < index && !may_precede(&all[first]) || (all[first].ip() as usize) < from {
            break;
        }
        if let Some(last) = shortest(all, &code.targets, first, index) {
            let cost = cost(&all[first..=last], index - first);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, first..last + 1));
            }
        }
        let start = all[first].ip() as usize;
        let enough = all[index].next_ip() as usize - start >= JUMP_LENGTH;
        if code.targets.contains(&start) || (enough && index - first >= 4) {
            break;
        }
    }
    let (_, chosen) = best.ok_or(Reason::NoWindow)?;
    let start = all[chosen.start].ip() as usize;
    let end = all[chosen.end - 1].next_ip() as usize;
    Ok(Window {
        range: start..end,
        before: all[chosen.start..index].iter().map(Moved::of).collect(),
        after: all[index + 1..chosen.end].iter().map(Moved::of).collect(),
        wide: code.wide_state,
    })
}

/// Returns the last instruction of the shortest window that starts at `first` and holds `index`.
fn shortest(
    all: &[Instruction],
    targets: &BTreeSet<usize>,
    first: usize,
    index: usize,
) -> Option<usize> {
    let start = all[first].ip() as usize;
    let mut ended = false;
    for (i, instruction) in all.iter().enumerate().skip(first) {
        // Between its bytes too: `je 1f; lock; 1: cmpxchg` is decoded as one instruction.
        let end = instruction.next_ip() as usize;
        if targets.range(start + 1..end).next().is_some() {
            return None;
        }
        if i > index {
            let padding = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
            if (ended && !padding) || !may_follow(instruction) {
                return None;
            }
            ended |= ends(instruction);
        }
        if i >= index && instruction.next_ip() as usize - start >= JUMP_LENGTH {
            return Some(i);
        }
    }
    None
}

/// Fewer and plainer instructions are better; a quiet window is best.
fn cost(window: &[Instruction], before: usize) -> u32 {
    let quiet = before > 0 && window[0].len() >= JUMP_LENGTH;
    let plain = |i: &&Instruction| {
        i.code() == Code::Syscall
            || (i.flow_control() == FlowControl::Next && !i.is_ip_rel_memory_operand())
    };
    let moved = window.len() as u32;
    let odd = window.iter().filter(|i| !plain(i)).count() as u32;
    let after = (window.len() - before - 1) as u32;
    u32::from(!quiet) * 8 + moved + odd * 16 + after * 2
}

fn may_precede(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Next => true,
        FlowControl::ConditionalBranch => is_plain_branch(instruction),
        _ => false,
    }
}

fn may_follow(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::Return | FlowControl::UnconditionalBranch => true,
        FlowControl::ConditionalBranch => is_plain_branch(instruction),
        _ => instruction.mnemonic() == Mnemonic::Int3,
    }
}

/// `loop` and `jrcxz` have no long form.
fn is_plain_branch(instruction: &Instruction) -> bool {
    instruction.is_jcc_short_or_near()
}

/// Recognises `__syscall_cancel_arch`: it tests a bit of the word at (%rdi), shifts its
/// arguments into the kernel's registers, calls the kernel and returns.
fn cancel_range(code: &FunctionCode, index: usize) -> Option<CancelRange> {
    use iced_x86::{OpKind, Register};
    let returns = code.instructions.get(index + 1)?.flow_control() == FlowControl::Return;
    let body = &code.instructions[..index];
    let tests_flag = body.iter().any(|i| {
        i.mnemonic() == Mnemonic::Test
            && i.op0_kind() == OpKind::Memory
            && i.memory_base() == Register::RDI
    });
    let moves = |to, from| {
        body.iter().any(|i| {
            i.code() == Code::Mov_rm64_r64 && i.op0_register() == to && i.op1_register() == from
        })
    };
    let shifts = moves(Register::RAX, Register::RSI)
        && moves(Register::RDI, Register::RDX)
        && moves(Register::RSI, Register::RCX);
    if !(returns && tests_flag && shifts) {
        return None;
    }
    let first = body.iter().find(|i| i.code() != Code::Endbr64)?;
    Some(CancelRange(
        first.ip() as usize..code.instructions[index].next_ip() as usize,
    ))
}

/// Returns the bytes of a function that only returns, and of the padding behind it, if there are enough for a jump.
pub fn empty_function(image: &Image<'_>, address: usize) -> Option<Range<usize>> {
    let bytes = image.tail(address)?;
    let mut returned = false;
    let mut at = 0;
    loop {
        let found = plain::decode(bytes.get(at..)?)?;
        match found.then {
            Then::Landing if !returned => {}
            Then::Return if !returned => returned = true,
            Then::Padding if returned => {}
            _ => return None,
        }
        at += found.length;
        if returned && at >= JUMP_LENGTH {
            return Some(address..address + at);
        }
    }
}

mod again;
mod plain;
#[cfg(test)]
mod tests;
mod unproven;
