//! The code that stands in for a window.
//!
//! ```text
//!            the instructions before the system call, moved
//!            lea  -128(%rsp),%rsp         the red zone is the program's
//!            lea  original(%rip),%rcx     as the kernel leaves it
//!            lea  at_site(%rip),%r11
//!            call *enter(%rip)
//!            lea  128(%rsp),%rsp
//! resume:    the instructions after it, moved
//!            jmp  back
//! at_site:   syscall                      on the site's own stack and registers
//!            lea  -128(%rsp),%rsp         parent and child alike, on whatever stack
//!            lea  original(%rip),%rcx
//!            lea  at_site(%rip),%r11
//!            call *after(%rip)
//!            lea  128(%rsp),%rsp
//!            jmp  resume
//! ```
//!
//! Each instruction of a stub stands for an address of the original code, and rows record which
//! ([`Row`]): unwinders and signal code see the original instead.
//!
//! Instructions that do not depend on their address are copied byte for byte; the others go
//! through the encoder of the decoder's library.

use std::ops::Range;

use crate::ground::arch::Entry;
use crate::rewrite::arena::SLOTS;
use crate::rewrite::site::{Moved, Reason, SYSCALL_LENGTH, Window};

use iced_x86::{BlockEncoder, BlockEncoderOptions, InstructionBlock};

/// No stub is longer: two moved instruction groups of at most 64 bytes (each may grow when a
/// short branch becomes a long one) and 80 bytes of our own.
pub const LONGEST: usize = 256;
/// Most are shorter.
pub const USUAL: usize = 112;
/// Most have fewer rows.
pub const USUAL_ROWS: usize = 11;

const SKIP: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
const UNSKIP: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];
const LEA_RCX: [u8; 3] = [0x48, 0x8d, 0x0d];
const LEA_R11: [u8; 3] = [0x4c, 0x8d, 0x1d];
const CALL: [u8; 2] = [0xff, 0x15];
const JUMP: [u8; 1] = [0xe9];
const SYSCALL: [u8; SYSCALL_LENGTH] = [0x0f, 0x05];
/// Fills what nothing jumps to.
pub const INT3: u8 = 0xcc;
const RED_ZONE: u8 = 128;

/// From `pc` on, up to the next row, the stub stands for `original`, with the stack pointer
/// `skipped` bytes below the site's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// An address in the stub.
    pub pc: usize,
    /// From there to the original address, which is within a jump's reach: tables of rows are kept, and many.
    distance: i32,
    /// 0, or the red zone's 128.
    pub skipped: u8,
}

impl Row {
    fn new(pc: usize, original: usize, skipped: u8) -> Self {
        // What is out of reach gets no stub (`Writer::relative`).
        let distance = original.wrapping_sub(pc) as i32;
        Self {
            pc,
            distance,
            skipped,
        }
    }

    /// Returns the original address.
    pub fn original(&self) -> usize {
        self.pc.wrapping_add_signed(self.distance as isize)
    }
}

/// A stub, ready to be written at its address.
#[derive(Clone, Debug)]
pub struct Stub {
    /// Where it goes.
    pub range: Range<usize>,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What its instructions stand for, by address.
    pub rows: Vec<Row>,
    /// Where a frame of it continues.
    pub resume: usize,
    /// Its own system call.
    pub at_site: usize,
}

struct Writer {
    start: usize,
    slots: usize,
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

impl Writer {
    fn here(&self) -> usize {
        self.start + self.bytes.len()
    }

    fn row(&mut self, original: usize, skipped: u8) {
        let row = Row::new(self.here(), original, skipped);
        match self.rows.last() {
            Some(last) if last.original() == original && last.skipped == skipped => {}
            _ => self.rows.push(row),
        }
    }

    fn relative(&mut self, opcode: &[u8], target: usize) -> Result<(), Reason> {
        self.bytes.extend_from_slice(opcode);
        let distance = (target as i64) - (self.here() as i64 + 4);
        let distance = i32::try_from(distance)
            .map_err(|_| Reason::NoStubMemory(format!("{target:#x} is {distance} bytes away")))?;
        self.bytes.extend_from_slice(&distance.to_le_bytes());
        Ok(())
    }

    fn moved(&mut self, instruction: &Moved, original: &[u8]) -> Result<(), Reason> {
        self.row(instruction.start, 0);
        let Some(relative) = &instruction.relative else {
            self.bytes.extend_from_slice(original);
            return Ok(());
        };
        let one = [**relative];
        let block = InstructionBlock::new(&one, self.here() as u64);
        let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)
            .map_err(|e| Reason::NotRelocatable(e.to_string()))?;
        self.bytes.extend_from_slice(&encoded.code_buffer);
        Ok(())
    }

    fn enter(&mut self, site: usize, at_site: usize, entry: Entry) -> Result<(), Reason> {
        let after = site + SYSCALL_LENGTH;
        let before = if matches!(entry, Entry::After | Entry::AfterWide) {
            after
        } else {
            site
        };
        let slot = SLOTS.iter().position(|e| *e == entry).unwrap_or_default();
        self.row(before, 0);
        self.bytes.extend_from_slice(&SKIP);
        self.row(before, RED_ZONE);
        self.relative(&LEA_RCX, after)?;
        self.relative(&LEA_R11, at_site)?;
        self.relative(&CALL, self.slots + slot * size_of::<usize>())?;
        self.row(after, RED_ZONE);
        self.bytes.extend_from_slice(&UNSKIP);
        self.row(after, 0);
        Ok(())
    }
}

const RELATIVE: usize = 4;
const ENTER_LENGTH: usize =
    SKIP.len() + LEA_RCX.len() + LEA_R11.len() + CALL.len() + 3 * RELATIVE + UNSKIP.len();

/// Makes the stub for `window` at `start`. `bytes` are the window's, `slots` the arena's
/// pointers.
pub fn build(window: &Window, bytes: &[u8], start: usize, slots: usize) -> Result<Stub, Reason> {
    let original = |i: &Moved| {
        let offset = i.start - window.range.start;
        &bytes[offset..offset + i.length]
    };
    let site = window.before.last().map_or(window.range.start, Moved::end);
    let mut writer = Writer {
        start,
        slots,
        bytes: Vec::with_capacity(USUAL),
        rows: Vec::with_capacity(USUAL_ROWS),
    };
    for instruction in &window.before {
        writer.moved(instruction, original(instruction))?;
    }
    let after_enter = writer.here() + ENTER_LENGTH;
    // The moved instructions after the call are encoded once to learn their length.
    let mut trial = Writer {
        start: after_enter,
        slots,
        bytes: Vec::new(),
        rows: Vec::new(),
    };
    for instruction in &window.after {
        trial.moved(instruction, original(instruction))?;
    }
    let at_site = trial.here() + JUMP.len() + RELATIVE;
    let (enter, after) = if window.wide {
        (Entry::EnterWide, Entry::AfterWide)
    } else {
        (Entry::Enter, Entry::After)
    };
    writer.enter(site, at_site, enter)?;
    let resume = writer.here();
    debug_assert_eq!(resume, after_enter);
    for instruction in &window.after {
        writer.moved(instruction, original(instruction))?;
    }
    writer.row(window.range.end, 0);
    writer.relative(&JUMP, window.range.end)?;
    tail(&mut writer, site, at_site, after, resume)?;
    Ok(finish(writer, resume, at_site))
}

/// Makes the stub for a site that stays: only the part at `at_site`, for trapped calls that must
/// be made on the site's own stack. Its frames continue at the original code.
pub fn build_trapped(site: usize, wide: bool, start: usize, slots: usize) -> Result<Stub, Reason> {
    let mut writer = Writer {
        start,
        slots,
        bytes: Vec::new(),
        rows: Vec::new(),
    };
    let after = if wide { Entry::AfterWide } else { Entry::After };
    let resume = site + SYSCALL_LENGTH;
    tail(&mut writer, site, start, after, resume)?;
    Ok(finish(writer, resume, start))
}

fn tail(
    writer: &mut Writer,
    site: usize,
    at_site: usize,
    after: Entry,
    resume: usize,
) -> Result<(), Reason> {
    debug_assert_eq!(writer.here(), at_site);
    writer.row(site, 0);
    writer.bytes.extend_from_slice(&SYSCALL);
    writer.enter(site, at_site, after)?;
    writer.relative(&JUMP, resume)
}

fn finish(writer: Writer, resume: usize, at_site: usize) -> Stub {
    debug_assert!(writer.bytes.len() <= LONGEST);
    Stub {
        range: writer.start..writer.here(),
        bytes: writer.bytes,
        rows: writer.rows,
        resume,
        at_site,
    }
}

/// The length of [`far_jump`].
pub const FAR_JUMP_LENGTH: usize = 14;

/// Returns a jump to any address.
pub fn far_jump(target: usize) -> [u8; FAR_JUMP_LENGTH] {
    let mut bytes = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[6..].copy_from_slice(&target.to_le_bytes());
    bytes
}

/// Returns the bytes that overwrite `window`: a jump to `target`, then `int3` to its end.
pub fn jump(window: &Range<usize>, target: usize) -> Result<Vec<u8>, Reason> {
    let mut writer = Writer {
        start: window.start,
        slots: 0,
        bytes: Vec::new(),
        rows: Vec::new(),
    };
    writer.relative(&JUMP, target)?;
    writer.bytes.resize(window.len(), INT3);
    Ok(writer.bytes)
}
