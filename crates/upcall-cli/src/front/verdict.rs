//! What is remembered about a program: that it can be served, on which conditions, and with which settings.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | the format's name and version |
//! | 8 | the sum of all bytes that follow |
//! | 48 | the program: device, inode, size, seconds and nanoseconds of the last change; the sum of its path |
//! | any | records: kind (4 bytes), length of the name, of the data (2 each), name with a zero byte, data |
//!
//! The reader believes nothing: whatever the bytes are, it compares or gives up.

use super::call::{byte, same};

/// The format's name and version.
pub const NAME: [u8; 8] = *b"upcrun01";
/// No file is longer.
pub const LONGEST: usize = 2048;
/// Where the program's numbers begin.
pub const SUMMED: usize = 16;
/// Where the records begin.
pub const HEAD: usize = SUMMED + 48;

/// A file is the same as then, links not followed: device, inode, size, seconds and nanoseconds of the last change.
pub const NODE: u32 = 1;
/// What is there can be written by the same users as then: mode, owner, group.
pub const PLACE: u32 = 2;
/// A symbolic link leads where it did.
pub const LINK: u32 = 3;
/// A file holds this.
pub const CONTENTS: u32 = 4;
/// There is no such file.
pub const ABSENT: u32 = 5;
/// No condition: a variable for the program, as the environment holds it.
pub const SETTING: u32 = 6;

/// Returns a number that other bytes hardly have. It guards against accidents, not against people.
pub fn sum(bytes: &[u8], start: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut sum = start ^ bytes.len() as u64;
    let mut at = 0;
    while at < bytes.len() {
        // SAFETY: within the slice.
        let next = unsafe { byte(bytes.as_ptr().add(at)) };
        sum = (sum ^ u64::from(next)).wrapping_mul(ODD).rotate_left(29);
        at += 1;
    }
    sum ^ sum >> 32
}

/// Returns the number of the place where a program's verdict is kept, for a command with this path.
pub fn slot(device: u64, inode: u64, command: &[u8]) -> u64 {
    sum(command, device.rotate_left(32) ^ inode) % SLOTS
}

const SLOTS: u64 = 4096;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// One of the kinds above, or any number.
    pub kind: u32,
    /// A path or a variable, with a zero byte at its end and nowhere else.
    pub name: &'a [u8],
    /// What belongs to the kind.
    pub data: &'a [u8],
}

/// The records of a file that is whole and about this program.
#[derive(Clone, Copy)]
pub struct Records<'a>(&'a [u8]);

/// Opens a file; `None` if it is not whole, or about another program.
pub fn open<'a>(bytes: &'a [u8], program: &[u64; 6]) -> Option<Records<'a>> {
    let records = bytes.get(HEAD..)?;
    let is_whole = bytes.len() <= LONGEST
        && same(bytes.get(..8)?, &NAME)
        && number(bytes, 8)? == sum(bytes.get(SUMMED..)?, 0);
    if !is_whole {
        return None;
    }
    let mut at = 0;
    while at < program.len() {
        if number(bytes, SUMMED + at * 8)? != *program.get(at)? {
            return None;
        }
        at += 1;
    }
    Some(Records(records))
}

impl<'a> Records<'a> {
    /// Takes the first record. `Ok(None)` at the end, an error where there is no record.
    pub fn next(&mut self) -> Result<Option<Record<'a>>, ()> {
        if self.0.is_empty() {
            return Ok(None);
        }
        self.take().map(Some).ok_or(())
    }

    fn take(&mut self) -> Option<Record<'a>> {
        let lengths = number(self.0, 0)?;
        let (kind, name, data) = (
            lengths as u32,
            (lengths >> 32) as u16 as usize,
            (lengths >> 48) as usize,
        );
        let rest = self.0.get(8..)?;
        let (name, rest) = rest.split_at_checked(name)?;
        let (data, rest) = rest.split_at_checked(data)?;
        self.0 = rest;
        let is_text = super::call::position(name, 0)?.checked_add(1)? == name.len();
        is_text.then_some(Record { kind, name, data })
    }
}

/// Returns eight bytes as a number, little-endian.
pub fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    // SAFETY: eight bytes.
    Some(u64::from_le(unsafe {
        bytes.as_ptr().cast::<u64>().read_unaligned()
    }))
}

/// Appends a record, if its parts are not too long.
pub fn push(bytes: &mut Vec<u8>, kind: u32, name: &[u8], data: &[u8]) -> Option<()> {
    let (length, of_data) = (
        u16::try_from(name.len() + 1).ok()?,
        u16::try_from(data.len()).ok()?,
    );
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&of_data.to_le_bytes());
    bytes.extend_from_slice(name);
    bytes.push(0);
    bytes.extend_from_slice(data);
    Some(())
}

/// Returns a file with these records; `None` if it would be too long.
pub fn encode(program: &[u64; 6], records: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = [NAME, [0; 8]].concat();
    for number in program {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(records);
    let sum = sum(&bytes[SUMMED..], 0);
    bytes[8..SUMMED].copy_from_slice(&sum.to_le_bytes());
    (bytes.len() <= LONGEST).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Parts = (u32, Vec<u8>, Vec<u8>);

    fn parts() -> impl Strategy<Value = Vec<Parts>> {
        let bytes = |from: u8, most| prop::collection::vec(from.., 0..most);
        prop::collection::vec((any::<u32>(), bytes(1, 40), bytes(0, 40)), 0..8)
    }

    fn file(program: &[u64; 6], parts: &[Parts]) -> Vec<u8> {
        let mut records = Vec::new();
        for (kind, name, data) in parts {
            push(&mut records, *kind, name, data).expect("it is short");
        }
        encode(program, &records).expect("it is short")
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(program in any::<[u64; 6]>(), parts in parts()) {
            let bytes = file(&program, &parts);
            let mut records = open(&bytes, &program).expect("it is whole");
            for (kind, name, data) in &parts {
                let name = [name, &b"\0"[..]].concat();
                let wanted = Record { kind: *kind, name: &name, data };
                prop_assert_eq!(records.next(), Ok(Some(wanted)));
            }
            prop_assert_eq!(records.next(), Ok(None));
        }

        #[test]
        fn a_file_of_another_program_or_with_another_byte_is_none(
            program in any::<[u64; 6]>(), parts in parts(), at in any::<prop::sample::Index>(), other in 1u8..,
        ) {
            let mut bytes = file(&program, &parts);
            let mut changed = program;
            changed[at.index(6)] ^= u64::from(other);
            prop_assert!(open(&bytes, &changed).is_none());
            for length in 0..bytes.len() {
                prop_assert!(open(&bytes[..length], &program).is_none());
            }
            let at = at.index(bytes.len());
            bytes[at] ^= other;
            prop_assert!(open(&bytes, &program).is_none());
        }

        #[test]
        fn any_records_are_read_within_their_bounds(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut records = Records(&bytes);
            while let Ok(Some(record)) = records.next() {
                prop_assert_eq!(record.name.last(), Some(&0));
            }
        }
    }
}
