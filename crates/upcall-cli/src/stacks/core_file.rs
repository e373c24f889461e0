//! A core file (core(5)): the memory that it has, what was mapped from files, and the registers of kernel threads.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;
use object::Endianness;
use object::elf::{
    EM_X86_64, ET_CORE, FileHeader64, NT_AUXV, NT_FILE, NT_PRSTATUS, PT_LOAD, PT_NOTE,
};
use object::read::elf::{FileHeader, ProgramHeader};

use super::memory::Mapping;
use super::unwind::Registers;

const AT_ENTRY: u64 = 9;
const AT_SYSINFO_EHDR: u64 = 33;
/// In the contents of NT_PRSTATUS: the id of the kernel thread, and its registers.
const STATUS_TID: usize = 32;
const STATUS_REGISTERS: usize = 112;
/// Where among these a register is that has this number in the unwind tables; the last one is the instruction pointer.
/// Where among these the thread pointer is.
const THREAD_POINTER: usize = 21;
const PLACES: [usize; 17] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16];

/// See the module's text.
pub struct Core {
    bytes: Bytes,
    segments: Vec<Segment>,
    pub mappings: Vec<Mapping>,
    /// Where the program begins.
    pub entry: Option<u64>,
    /// Registers by the id of the kernel thread.
    pub threads: HashMap<i32, Registers>,
    /// Kernel threads by their thread pointers.
    pub thread_pointers: HashMap<u64, i32>,
    /// Files of which a part was mapped that the core file does not have.
    files: RefCell<HashMap<usize, Option<Mmap>>>,
}

/// The bytes of a core file.
pub type Bytes = Box<dyn Deref<Target = [u8]>>;

struct Segment {
    start: u64,
    length: u64,
    offset: usize,
}

impl Core {
    /// # Errors
    /// It is no core file, or of another processor architecture.
    pub fn new(bytes: Bytes) -> io::Result<Self> {
        Self::read_headers(bytes).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "no core file of an x86-64 program",
            )
        })
    }

    fn read_headers(held: Bytes) -> Option<Self> {
        let bytes: &[u8] = &held;
        let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        if header.e_type(endian) != ET_CORE || header.e_machine(endian) != EM_X86_64 {
            return None;
        }
        let mut segments = Vec::new();
        let (mut mappings, mut vdso, mut entry) = (Vec::new(), None, None);
        let (mut threads, mut thread_pointers) = (HashMap::new(), HashMap::new());
        for program in header.program_headers(endian, bytes).ok()? {
            match program.p_type(endian) {
                PT_LOAD => segments.push(Segment {
                    start: program.p_vaddr(endian),
                    length: program.p_filesz(endian),
                    offset: program.p_offset(endian) as usize,
                }),
                PT_NOTE => {
                    let mut notes = program.notes(endian, bytes).ok()??;
                    while let Ok(Some(note)) = notes.next() {
                        match note.n_type(endian) {
                            NT_FILE => mappings = mapped_files(note.desc()).unwrap_or_default(),
                            NT_AUXV => {
                                vdso = auxiliary(note.desc(), AT_SYSINFO_EHDR);
                                entry = auxiliary(note.desc(), AT_ENTRY);
                            }
                            NT_PRSTATUS => {
                                let Some((tid, pointer, registers)) = status(note.desc()) else {
                                    continue;
                                };
                                threads.insert(tid, registers);
                                thread_pointers.insert(pointer, tid);
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(vdso) = segments.iter().find(|one| Some(one.start) == vdso) {
            mappings.push(Mapping {
                start: vdso.start,
                end: vdso.start.saturating_add(vdso.length),
                offset: 0,
                runs: true,
                path: "[vdso]".into(),
            });
        }
        Some(Core {
            segments,
            mappings,
            entry,
            threads,
            thread_pointers,
            files: RefCell::default(),
            bytes: held,
        })
    }

    /// Reads all of it. What the core file does not have comes from the file that was mapped there, if that is there.
    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let within = |start: u64, length: u64| {
            let at = address.checked_sub(start)?;
            (at.checked_add(into.len() as u64)? <= length).then_some(at as usize)
        };
        let kept = self.segments.iter().find_map(|segment| {
            let at = segment
                .offset
                .checked_add(within(segment.start, segment.length)?)?;
            self.bytes.get(at..at.checked_add(into.len())?)
        });
        if let Some(kept) = kept {
            into.copy_from_slice(kept);
            return true;
        }
        let mapping = self.mappings.iter().position(|one| one.contains(address));
        let Some(index) = mapping else { return false };
        let mapping = &self.mappings[index];
        let mut files = self.files.borrow_mut();
        let file = files.entry(index).or_insert_with(|| map(&mapping.path));
        let at = (address - mapping.start).wrapping_add(mapping.offset) as usize;
        // The last page of a file ends with zeros.
        let Some(rest) = file.as_deref().and_then(|bytes| bytes.get(at..)) else {
            return false;
        };
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        into[length..].fill(0);
        true
    }
}

fn map(path: &Path) -> Option<Mmap> {
    let file = File::open(path).ok()?;
    // SAFETY: it is read only. If somebody changes it, other bytes are read.
    unsafe { Mmap::map(&file) }.ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// NT_FILE: how many, the size of a page, three words for each, and then the names.
fn mapped_files(note: &[u8]) -> Option<Vec<Mapping>> {
    let (count, page) = (word(note, 0)? as usize, word(note, 8)?);
    let names = count.checked_mul(24)?.checked_add(16)?;
    let mut names = note.get(names..)?.split(|&byte| byte == 0);
    let mut all = Vec::new();
    for at in (16..).step_by(24).take(count) {
        all.push(Mapping {
            start: word(note, at)?,
            end: word(note, at + 8)?,
            offset: word(note, at + 16)?.checked_mul(page)?,
            runs: true,
            path: String::from_utf8_lossy(names.next()?).into_owned().into(),
        });
    }
    Some(all)
}

fn auxiliary(note: &[u8], wanted: u64) -> Option<u64> {
    let pairs = (0..note.len() / 16).map(|at| (word(note, 16 * at), word(note, 16 * at + 8)));
    pairs
        .into_iter()
        .find_map(|(name, value)| (name == Some(wanted)).then_some(value)?)
}

/// NT_PRSTATUS: the id of a kernel thread, its thread pointer, and its registers.
fn status(note: &[u8]) -> Option<(i32, u64, Registers)> {
    let tid = note.get(STATUS_TID..STATUS_TID + 4)?;
    let register = |place: usize| word(note, STATUS_REGISTERS + 8 * place);
    let mut registers = Registers::default();
    for (own, place) in registers.0.iter_mut().zip(PLACES) {
        *own = Some(register(place)?);
    }
    let tid = i32::from_le_bytes(tid.try_into().ok()?);
    Some((tid, register(THREAD_POINTER)?, registers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_end_too_early_are_left_alone() {
        let mut note = Vec::new();
        for word in [2u64, 4096, 0x1000, 0x2000, 3, 0x5000, 0x6000, 0] {
            note.extend(word.to_le_bytes());
        }
        note.extend(b"/lib/one\0/lib/two\0");
        let files = mapped_files(&note).expect("two files");
        assert_eq!(files[0].offset, 3 * 4096);
        assert_eq!(files[1].path, Path::new("/lib/two"));
        for length in 0..64 {
            assert_eq!(mapped_files(&note[..length]), None, "{length}");
        }
        note[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(mapped_files(&note), None);
        assert!(status(&[0; 280]).is_none());
        assert_eq!(auxiliary(&note[16..48], 0x1000), Some(0x2000));
        assert_eq!(auxiliary(&note[16..], 7), None);
    }
}
