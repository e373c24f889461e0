//! The memory of another process: of one that runs, by process_vm_readv(2), or in a core file.
//!
//! Nothing is written. Pages are read once and kept until [`Memory::forget`], so that what is read together is of one
//! moment as far as a page goes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::core_file::{Bytes, Core};

const PAGE: u64 = 4096;

/// A part of the address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// False only if it is known that nothing can be executed there.
    pub runs: bool,
    pub path: PathBuf,
}

impl Mapping {
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Where memory comes from.
pub enum Source {
    /// A process.
    Process(i32),
    /// A core file.
    Core(Box<Core>),
}

pub struct Memory {
    pub source: Source,
    pub mappings: Vec<Mapping>,
    pages: RefCell<HashMap<u64, Option<Box<[u8]>>>>,
}

/// There is nothing at an address, or it cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable(pub u64);

impl Memory {
    /// # Errors
    /// There is no such process, or this user may not look at it.
    pub fn of_process(pid: i32) -> io::Result<Self> {
        let maps = fs::read(format!("/proc/{pid}/maps"))?;
        Ok(Self::new(
            Source::Process(pid),
            mappings(&String::from_utf8_lossy(&maps)),
        ))
    }

    /// # Errors
    /// It cannot be read, or is no core file of this processor architecture.
    pub fn of_core(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: a core file is not changed any more. If somebody does all the same, other bytes are read.
        Self::of_core_bytes(Box::new(unsafe { Mmap::map(&file) }?))
    }

    /// As [`Memory::of_core`], of these bytes.
    ///
    /// # Errors
    /// As [`Memory::of_core`].
    pub fn of_core_bytes(bytes: Bytes) -> io::Result<Self> {
        let core = Core::new(bytes)?;
        let mappings = core.mappings.clone();
        Ok(Self::new(Source::Core(Box::new(core)), mappings))
    }

    fn new(source: Source, mappings: Vec<Mapping>) -> Self {
        Memory {
            source,
            mappings,
            pages: RefCell::default(),
        }
    }

    /// The next reads see the memory as it is then.
    pub fn forget(&self) {
        self.pages.borrow_mut().clear();
    }

    /// The mapping at an address.
    pub fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.mappings.iter().find(|one| one.contains(address))
    }

    /// Fills `into` with what is at an address.
    ///
    /// # Errors
    /// A page of it cannot be read.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let mut pages = self.pages.borrow_mut();
        let mut done = 0;
        while done < into.len() {
            let at = address
                .checked_add(done as u64)
                .ok_or(Unreadable(address))?;
            let (page, within) = (at & !(PAGE - 1), (at % PAGE) as usize);
            let bytes = pages.entry(page).or_insert_with(|| self.page(page));
            let bytes = bytes.as_deref().ok_or(Unreadable(at))?;
            let length = (into.len() - done).min(bytes.len() - within);
            into[done..done + length].copy_from_slice(&bytes[within..within + length]);
            done += length;
        }
        Ok(())
    }

    /// The kernel thread of a core file that has this thread pointer.
    pub fn kernel_thread_of(&self, thread_pointer: u64) -> Option<i32> {
        match &self.source {
            Source::Core(core) => core.thread_pointers.get(&thread_pointer).copied(),
            Source::Process(_) => None,
        }
    }

    fn page(&self, address: u64) -> Option<Box<[u8]>> {
        let mut page = vec![0; PAGE as usize].into_boxed_slice();
        let is_read = match &self.source {
            Source::Process(pid) => read_process(*pid, address, &mut page).is_ok(),
            Source::Core(core) => core.read(address, &mut page),
        };
        is_read.then_some(page)
    }

    /// The 64-bit word at an address.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn u64(&self, address: u64) -> Result<u64, Unreadable> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The 32-bit word at an address.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn u32(&self, address: u64) -> Result<u32, Unreadable> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// Reads all of it or nothing.
///
/// # Errors
/// The kernel's: EPERM if this user may not, ESRCH without such a process, EFAULT if there is nothing.
pub fn read_process(pid: i32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let own = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let other = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: into.len(),
    };
    // SAFETY: the first one is ours to write, the second one is an address of another process.
    let read = unsafe { libc::process_vm_readv(pid, &raw const own, 1, &raw const other, 1, 0) };
    match read {
        -1 => Err(io::Error::last_os_error()),
        read if read as usize == into.len() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// The lines of `/proc/PID/maps`.
fn mappings(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(mapping_of).collect()
}

fn mapping_of(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
        runs: rights.contains('x'),
        path: words.nth(2).unwrap_or_default().trim_start().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_with_spaces_in_their_names() {
        let text = "\
7f00-7f10 r-xp 00001000 fe:00 99                         /a b/lib.so (deleted)
7f20-7f30 rw-p 00000000 00:00 0 
7f30-7f40 r-xp 00000000 00:00 0                          [vdso]
nonsense
";
        let found = mappings(text);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].path, Path::new("/a b/lib.so (deleted)"));
        assert_eq!((found[0].start, found[0].end), (0x7f00, 0x7f10));
        assert_eq!((found[0].offset, found[0].runs), (0x1000, true));
        assert_eq!(
            (found[1].path.as_path(), found[1].runs),
            (Path::new(""), false)
        );
        assert_eq!(found[2].path, Path::new("[vdso]"));
    }

    #[test]
    fn own_memory_is_read_and_what_is_not_there_is_not() {
        let memory = Memory::of_process(std::process::id() as i32).expect("one's own process");
        // Over the end of a page.
        let bytes: Vec<u8> = (0..3 * PAGE).map(|at| at as u8).collect();
        let mut read = vec![0; bytes.len() - 10];
        memory
            .read(bytes.as_ptr() as u64 + 5, &mut read)
            .expect("it is there");
        assert_eq!(read, bytes[5..bytes.len() - 5]);
        assert_eq!(memory.u64(8), Err(Unreadable(8)));
        assert!(memory.u64(u64::MAX - 3).is_err());
    }
}
