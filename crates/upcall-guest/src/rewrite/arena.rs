//! Memory for stubs, within reach of a `jmp rel32`.
//!
//! The first arena is reserved in our own text. The loader puts preloaded libraries beside libc, so nearly all stubs go
//! there, and one contiguous range then holds all our system-call instructions, as [`crate::rewrite::sud`] needs. An object
//! that is too far away (mostly the program) gets an arena mapped in a gap near it, below it if possible, because a
//! program's heap grows above it.
//!
//! An arena starts with four pointers, the entries, through which its stubs call.

use std::ops::Range;

use crate::ground::arch::{self, Entry};
use crate::ground::memory;

/// How far a 32-bit displacement reaches, with a margin for the ends.
const REACH: usize = (1 << 31) - (1 << 20);
const MAPPED: usize = 256 << 10;
const LOWEST: usize = 1 << 16;

/// The entries in the order of an arena's pointers.
pub const SLOTS: [Entry; 4] = [
    Entry::Enter,
    Entry::EnterWide,
    Entry::After,
    Entry::AfterWide,
];

/// Where the stubs of one object go.
#[derive(Clone, Debug)]
pub struct Room {
    /// The arena's four pointers.
    pub slots: usize,
    /// Free bytes.
    pub free: Range<usize>,
    arena: usize,
}

struct Arena {
    range: Range<usize>,
    next: usize,
}

/// All arenas of the process.
pub struct Arenas {
    list: Vec<Arena>,
}

impl Arenas {
    /// None yet.
    pub const EMPTY: Self = Self { list: Vec::new() };

    /// Room for `bytes` bytes of stubs for the object at `span`. The error says what failed.
    pub fn room(&mut self, span: &Range<usize>, bytes: usize) -> Result<Room, String> {
        if self.list.is_empty() {
            self.add(arch::reserved_stub_area())?;
        }
        let fits = |a: &Arena| reaches(&a.range, span) && a.range.end - a.next >= bytes;
        let arena = match self.list.iter().position(fits) {
            Some(arena) => arena,
            None => {
                self.add(map_near(
                    span,
                    (bytes + 64).max(MAPPED).next_multiple_of(4096),
                )?)?;
                self.list.len() - 1
            }
        };
        let Arena { range, next } = &self.list[arena];
        Ok(Room {
            slots: range.start,
            free: *next..range.end,
            arena,
        })
    }

    /// Takes the bytes of `room` up to `end`.
    pub fn take(&mut self, room: &Room, end: usize) {
        self.list[room.arena].next = end.next_multiple_of(16);
    }

    /// Takes back what was given out for stubs that are not executed any more. Only the last one in
    /// its arena is used again: a library that is loaded and unloaded time after time.
    pub fn give_back(&mut self, stubs: &Range<usize>) {
        let end = stubs.end.next_multiple_of(16);
        if let Some(arena) = self.list.iter_mut().find(|a| a.next == end) {
            arena.next = stubs.start;
        }
    }

    fn add(&mut self, range: Range<usize>) -> Result<(), String> {
        let pointers: Vec<u8> = SLOTS
            .iter()
            .flat_map(|e| arch::entry(*e).to_le_bytes())
            .collect();
        let head = range.start..range.start + 4096;
        let code = libc::PROT_READ | libc::PROT_EXEC;
        memory::while_writable(&head, code, || {
            // SAFETY: the arena is ours, and its first bytes are read by stubs only, of which
            // there is none yet.
            unsafe { memory::store(range.start, &pointers) }
        })
        .map_err(|errno| format!("the stub area cannot be written (errno {errno})"))?;
        let next = range.start + pointers.len();
        self.list.push(Arena {
            next: next.next_multiple_of(16),
            range,
        });
        Ok(())
    }
}

fn reaches(arena: &Range<usize>, span: &Range<usize>) -> bool {
    arena.end.max(span.end) - arena.start.min(span.start) < REACH
}

fn map_near(span: &Range<usize>, length: usize) -> Result<Range<usize>, String> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| e.to_string())?;
    let taken: Vec<Range<usize>> = maps.lines().filter_map(parse_line).collect();
    let mut tried = 0;
    for start in candidates(&taken, span, length) {
        if memory::map_code_at(start, length).is_ok() {
            return Ok(start..start + length);
        }
        tried += 1;
    }
    Err(format!("none of {tried} gaps of {length} bytes is usable"))
}

fn parse_line(line: &str) -> Option<Range<usize>> {
    let (range, _) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// Places in the gaps between `taken` (sorted): below the object first, nearest first, at the
/// end of each gap; then above it, in the middle of each gap.
fn candidates(taken: &[Range<usize>], span: &Range<usize>, length: usize) -> Vec<usize> {
    let mut gaps = Vec::new();
    let mut last = LOWEST;
    for range in taken {
        if range.start >= last + length {
            gaps.push(last..range.start);
        }
        last = last.max(range.end);
    }
    let below = gaps
        .iter()
        .rev()
        .filter(|g| g.end <= span.start)
        .map(|g| g.end - length);
    let above = gaps
        .iter()
        .filter(|g| g.start >= span.end)
        .map(|g| (g.start + (g.len() - length) / 2) & !4095);
    below
        .chain(above)
        .filter(|&start| reaches(&(start..start + length), span))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_below_the_object_comes_first() {
        let taken = [0x40_0000..0x50_0000, 0x60_0000..0x70_0000];
        let found = candidates(&taken, &(0x60_0000..0x70_0000), 0x1000);
        assert_eq!(found, [0x5f_f000, 0x3f_f000]);
    }

    #[test]
    fn a_gap_out_of_reach_is_no_candidate() {
        let far = 0x7f00_0000_0000;
        let taken = [0x1_0000..0x40_0000, far..far + 0x1000];
        assert!(candidates(&taken, &(0x1_0000..0x40_0000), 0x1000).is_empty());
        let found = candidates(&taken, &(far..far + 0x1000), 0x1000);
        assert_eq!(found, [far - 0x1000]);
    }

    #[test]
    fn maps_a_gap_near_this_very_code() {
        let here = parse_line as *const () as usize;
        let span = here..here + 1;
        let mapped = map_near(&span, MAPPED).expect("there is a gap within 2 GiB");
        assert!(reaches(&mapped, &span));
    }
}
