//! Reads files without libc, which may allocate.

use upcall_linux::descriptors::{self, Opening};

use crate::ground::entry::raw_syscall;

/// A file of the runtime's own, closed when this is dropped.
pub struct File {
    descriptor: u64,
    /// Until it is closed.
    _opening: Opening,
}

impl File {
    /// Opens a file to be read, whose `path` ends with a zero.
    pub fn open(directory: i32, path: &[u8]) -> Option<Self> {
        let opening = descriptors::opening();
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let path = path.as_ptr() as u64;
        // SAFETY: reads the path, which ends with a zero.
        let file =
            unsafe { raw_syscall(libc::SYS_openat, [directory as u64, path, flags, 0, 0, 0]) };
        (file >= 0).then_some(Self {
            descriptor: file as u64,
            _opening: opening,
        })
    }

    /// Reads what comes next. Returns how many bytes it read.
    pub fn read(&self, into: &mut [u8]) -> usize {
        self.fill(libc::SYS_read, into, 0)
    }

    /// Reads what is there from `offset` on. Returns how many bytes it read.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> usize {
        self.fill(libc::SYS_pread64, into, offset)
    }

    fn fill(&self, number: i64, into: &mut [u8], offset: usize) -> usize {
        let room = [into.as_mut_ptr() as u64, into.len() as u64];
        let words = [self.descriptor, room[0], room[1], offset as u64, 0, 0];
        // SAFETY: writes no more than there is room for.
        let length = unsafe { raw_syscall(number, words) };
        length.max(0) as usize
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: our own file.
        unsafe { raw_syscall(libc::SYS_close, [self.descriptor, 0, 0, 0, 0, 0]) };
    }
}

/// Reads the beginning of a file whose `path` ends with a zero. Returns how many bytes it read.
pub fn read_file(directory: i32, path: &[u8], into: &mut [u8]) -> usize {
    File::open(directory, path).map_or(0, |file| file.read(into))
}
