//! A window that was chosen before, found in the object's bytes once more.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};

use super::plain::{self, Then};
use super::{JUMP_LENGTH, Moved, SYSCALL_LENGTH, Window, ends, may_follow, may_precede};
use crate::rewrite::object::Image;

impl Window {
    /// Returns the window at `range` for the system call at `address`, if its bytes are one: whole instructions of one
    /// piece of code, among which the call is one, that may be moved to a stub, at least as many as a jump has. Whether
    /// control arrives in its middle is not looked at.
    pub fn again(
        image: &Image<'_>,
        address: usize,
        range: Range<usize>,
        wide: bool,
    ) -> Option<Self> {
        let part = image.code().find(|p| p.range().contains(&range.start))?;
        let offset = range.start - part.start;
        let bytes = part.bytes.get(offset..offset.checked_add(range.len())?)?;
        let has_call = range.start <= address && address + SYSCALL_LENGTH <= range.end;
        if !has_call || range.len() < JUMP_LENGTH {
            return None;
        }
        let (before, after) =
            plainly(bytes, &range, address).or_else(|| by_library(bytes, &range, address))?;
        Some(Self {
            range,
            before,
            after,
            wide,
        })
    }
}

type Parts = (Vec<Moved>, Vec<Moved>);

fn plainly(bytes: &[u8], range: &Range<usize>, address: usize) -> Option<Parts> {
    // Most have one instruction on each side. To grow at once for more would touch pages that are not needed.
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let push = |to: &mut Vec<Moved>, moved| {
        to.reserve_exact(1);
        to.push(moved);
    };
    let mut at = range.start;
    let mut ended = false;
    while at < range.end {
        let found = plain::decode(&bytes[at - range.start..])?;
        if at < address && address < at + found.length {
            return None;
        }
        let moved = Moved {
            start: at,
            length: found.length,
            relative: None,
        };
        match found.then {
            Then::Call if at == address => {}
            Then::Next if at < address => push(&mut before, moved),
            Then::Next if at > address && !ended => push(&mut after, moved),
            Then::Padding if at > address => push(&mut after, moved),
            Then::Return if at > address && !ended => {
                push(&mut after, moved);
                ended = true;
            }
            _ => return None,
        }
        at += found.length;
    }
    Some((before, after))
}

fn by_library(bytes: &[u8], range: &Range<usize>, address: usize) -> Option<Parts> {
    let mut decoder = Decoder::with_ip(64, bytes, range.start as u64, DecoderOptions::NONE);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        match instruction.ip() as usize {
            at if at < address => before.push(instruction),
            at if at > address => after.push(instruction),
            _ if instruction.code() != Code::Syscall => return None,
            _ => {}
        }
    }
    let end = before.last().map_or(range.start, |i| i.next_ip() as usize);
    let is_window = end == address && before.iter().all(may_precede) && follow(&after);
    let moved = |all: Vec<Instruction>| all.iter().map(Moved::of).collect();
    is_window.then(|| (moved(before), moved(after)))
}

/// Returns true if these may stand behind a system call in a window: where control does not fall through, only padding
/// follows.
fn follow(after: &[Instruction]) -> bool {
    let mut ended = false;
    after.iter().all(|instruction| {
        let is_padding = matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        let may = (!ended || is_padding) && may_follow(instruction);
        ended |= ends(instruction);
        may
    })
}
