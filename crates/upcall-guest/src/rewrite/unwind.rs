//! Where functions begin and end: the unwind table as a map of the code.
//!
//! Linear decoding is right only from a known start. Stripped objects have no symbols, but every compiler emits an unwind
//! entry (FDE) for each function, and `.eh_frame_hdr` has a sorted table of them. The language-specific data of an FDE also
//! names landing pads, which no jump shows.

use std::ops::Range;

use crate::rewrite::object::Image;

use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    LittleEndian, ParsedEhFrameHdr, Pointer, UnwindSection,
};

pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
/// What the table says of a function.
pub(crate) type Entry<'a> = FrameDescriptionEntry<Bytes<'a>>;

/// A function as its unwind entry describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its code.
    pub range: Range<usize>,
    /// Where exceptions continue inside it.
    pub landing_pads: Vec<usize>,
    /// The kernel's return from a signal handler. Its entry starts one byte early, so that it
    /// is found by the return address minus one: the range is that of the code proper.
    pub signal_trampoline: bool,
    /// How much of the range the unwind entry covers, from the start. libc's `clone` ends its
    /// entry before the system call, so that backtraces of the child end there.
    pub covered: usize,
}

/// How far behind an unwind entry code may follow that still belongs to it.
const UNCOVERED: usize = 64;

/// The unwind tables of one image.
pub struct Tables<'a> {
    image: &'a Image<'a>,
    header: ParsedEhFrameHdr<Bytes<'a>>,
    pub(crate) frames: EhFrame<Bytes<'a>>,
    frames_at: u64,
    pub(crate) bases: BaseAddresses,
}

impl<'a> Tables<'a> {
    /// Returns the tables, or `None` if the image has none that can be read.
    pub fn new(image: &'a Image<'a>) -> Option<Self> {
        let at = image.eh_frame_hdr?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(at as u64);
        let header = EhFrameHdr::new(image.tail(at)?, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let Pointer::Direct(frames_at) = header.eh_frame_ptr() else {
            return None;
        };
        header.table()?;
        Some(Self {
            image,
            header,
            frames: EhFrame::new(image.tail(frames_at as usize)?, LittleEndian),
            frames_at,
            bases: bases.set_eh_frame(frames_at),
        })
    }

    /// Returns the function whose unwind entry covers `address`.
    pub fn function_at(&self, address: usize) -> Option<Function> {
        self.nearest(address).filter(|f| f.range.contains(&address))
    }

    /// Returns the function that ends shortly before `address`, which no entry covers, extended beyond `address` as far as
    /// no other entry begins. The decoder must prove that control gets there from its covered part.
    pub fn function_before(&self, address: usize) -> Option<Function> {
        let mut function = self.nearest(address)?;
        if address.checked_sub(function.range.end)? >= UNCOVERED {
            return None;
        }
        let limit = address.checked_add(UNCOVERED)?;
        function.range.end = (address..limit)
            .find(|&a| self.function_at(a).is_some())
            .unwrap_or(limit);
        Some(function)
    }

    /// Returns the entry of the last function that starts at `address` or before.
    pub(crate) fn entry(&self, address: usize) -> Option<Entry<'a>> {
        let table = self.header.table()?;
        let Pointer::Direct(entry_at) = table.lookup(address as u64, &self.bases).ok()? else {
            return None;
        };
        // Not `pointer_to_offset`, which believes that no entry lies before the first.
        let offset = EhFrameOffset(entry_at.checked_sub(self.frames_at)? as usize);
        self.frames
            .fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset)
            .ok()
    }

    /// Returns the last function that starts at `address` or before.
    fn nearest(&self, address: usize) -> Option<Function> {
        let entry = self.entry(address)?;
        let signal_trampoline = entry.is_signal_trampoline();
        let start = entry.initial_address() as usize;
        let start = start.checked_add(usize::from(signal_trampoline))?;
        let range = start..entry.end_address() as usize;
        let landing_pads = match entry.lsda() {
            Some(Pointer::Direct(lsda)) => {
                landing_pads(self.image, lsda as usize, range.start).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        Some(Function {
            covered: range.len(),
            range,
            landing_pads,
            signal_trampoline,
        })
    }
}

const OMITTED: u8 = 0xff;

/// Returns the landing pads that the table at `lsda` names (the layout that all Itanium-ABI compilers share: two optional
/// headers, then call sites of start, length, pad and action).
fn landing_pads(image: &Image<'_>, lsda: usize, function: usize) -> Option<Vec<usize>> {
    let mut cursor = Cursor {
        image,
        at: lsda,
        function,
    };
    let start_encoding = cursor.byte()?;
    let base = if start_encoding == OMITTED {
        function
    } else {
        cursor.encoded(start_encoding)?
    };
    if cursor.byte()? != OMITTED {
        cursor.uleb()?;
    }
    let encoding = cursor.byte()?;
    let length = cursor.uleb()? as usize;
    let end = cursor.at.checked_add(length)?;
    let mut pads = Vec::new();
    while cursor.at < end {
        cursor.offset(encoding)?;
        cursor.offset(encoding)?;
        let pad = cursor.offset(encoding)?;
        cursor.uleb()?;
        if pad != 0 {
            pads.push(base.wrapping_add(pad));
        }
    }
    Some(pads)
}

struct Cursor<'a> {
    image: &'a Image<'a>,
    at: usize,
    function: usize,
}

impl Cursor<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.image.array(self.at)?;
        self.at += N;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|b| b[0])
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Returns a number in a pointer encoding (DW_EH_PE_*), taken as an offset whatever its base.
    fn offset(&mut self, encoding: u8) -> Option<usize> {
        Some(match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => u64::from_le_bytes(self.array()?) as usize,
            0x01 => self.uleb()? as usize,
            0x02 => u16::from_le_bytes(self.array()?).into(),
            0x03 => u32::from_le_bytes(self.array()?) as usize,
            0x0a => i16::from_le_bytes(self.array()?) as usize,
            0x0b => i32::from_le_bytes(self.array()?) as usize,
            _ => return None,
        })
    }

    /// Returns a pointer: absolute, relative to its own place, or to the function.
    fn encoded(&mut self, encoding: u8) -> Option<usize> {
        let place = self.at;
        let value = self.offset(encoding)?;
        match encoding & 0xf0 {
            0x00 => Some(value),
            0x10 => Some(place.wrapping_add(value)),
            0x40 => Some(self.function.wrapping_add(value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::object::{Role, loaded};

    #[test]
    fn a_function_of_libc_is_found_from_any_of_its_bytes() {
        let objects = loaded();
        let object = objects
            .iter()
            .find(|o| o.path.contains("/libc.so.6"))
            .expect("the test is linked with libc");
        // SAFETY: libc stays loaded and no test of this binary rewrites it.
        let image = unsafe { object.image() };
        let tables = Tables::new(&image).expect("libc has an unwind table");
        // Not one that a sanitizer's runtime puts itself before.
        let asked = libc::getppid as *const () as usize;
        let function = tables.function_at(asked).expect("it has an entry");
        assert_eq!(function.range.start, asked);
        assert_eq!(tables.function_at(function.range.end - 1), Some(function));
    }

    #[test]
    fn the_vdso_does_not_stop_the_reader() {
        for object in loaded().iter().filter(|o| o.role == Role::Vdso) {
            // SAFETY: the kernel maps it for the life of the process.
            let image = unsafe { object.image() };
            assert!(Tables::new(&image).is_none_or(|t| t.function_at(0).is_none()));
        }
    }

    #[test]
    fn a_table_that_names_an_entry_before_the_first_names_no_function() {
        // Version 1; the frames 16 bytes behind the field; one entry, whose function is where the table
        // is and whose frame is four bytes before that.
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
        for word in [16i32, 1, 0, -4, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        let mut image = Image::of_code(0x500, &bytes);
        image.eh_frame_hdr = Some(0x500);
        let tables = Tables::new(&image).expect("a table");
        assert_eq!(tables.function_at(0x500), None);
        assert_eq!(tables.function_before(usize::MAX), None);
    }

    #[test]
    fn landing_pads_are_read_from_a_call_site_table() {
        // No start, no types, uleb call sites: two of them, the first without a pad.
        let bytes = [0xff, 0xff, 0x01, 8, 0, 4, 0, 0, 4, 4, 0x90, 1, 0];
        let mut with_long_pad = bytes.to_vec();
        with_long_pad[3] = 9;
        let image = Image::of_code(0x500, &with_long_pad);
        assert_eq!(landing_pads(&image, 0x500, 0x1000), Some(vec![0x1090]));
    }
}
