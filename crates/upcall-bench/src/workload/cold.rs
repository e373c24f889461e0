//! A file mapping whose pages are not in memory: each first touch is a major fault.
//!
//! The file's pages are dropped from the page cache before it is mapped, and one page of every
//! [`STRIDE`] bytes is touched with read-ahead off, so that one fault does not bring in the next
//! page. Whether a page is cold is asked of mincore(2) before it is touched: a file system that
//! lives in memory has no cold pages. The kernel's count of major faults would not do: a fault
//! that is made again after a signal counts as a minor one.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::Failure;

/// Bytes from one touched page to the next: more than the kernel reads around a fault.
pub const STRIDE: usize = 256 * 1024;

pub struct ColdFile {
    base: *const u8,
    pages: usize,
}

// SAFETY: a plain range of read-only memory.
unsafe impl Send for ColdFile {}
// SAFETY: as above.
unsafe impl Sync for ColdFile {}

impl ColdFile {
    /// Maps `path` with `pages` pages to touch, writing the file first where it is too short.
    pub fn open(path: &Path, pages: usize) -> Result<Self, Failure> {
        let failed = |what: &str, error: std::io::Error| {
            Failure::Failed(format!("{what} {}: {error}", path.display()))
        };
        let bytes = pages * STRIDE;
        let short = std::fs::metadata(path).map_or(true, |data| data.len() < bytes as u64);
        if short {
            let mut file = File::create(path).map_err(|error| failed("creating", error))?;
            let block = [0x55u8; STRIDE];
            let written = (0..pages).try_for_each(|_| file.write_all(&block));
            written.map_err(|error| failed("writing", error))?;
        }
        let file = File::open(path).map_err(|error| failed("opening", error))?;
        file.sync_all().map_err(|error| failed("syncing", error))?;
        let fd = file.as_raw_fd();
        // SAFETY: a new read-only mapping of an open file at an address of the kernel's choice.
        let base = unsafe {
            libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED);
            let null = std::ptr::null_mut();
            libc::mmap(null, bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(Failure::errno("mmap"));
        }
        // SAFETY: the mapping made above.
        unsafe { libc::madvise(base, bytes, libc::MADV_RANDOM) };
        Ok(Self {
            base: base.cast(),
            pages,
        })
    }

    /// Touches page `index`; false if there is none, or if it was in memory already.
    pub fn touch(&self, index: usize) -> bool {
        if index >= self.pages {
            return false;
        }
        let mut resident = 1u8;
        // SAFETY: a page inside the mapping; one byte of answer.
        let known = unsafe {
            libc::mincore(
                self.base.add(index * STRIDE).cast_mut().cast(),
                4096,
                &raw mut resident,
            )
        };
        if known != 0 || resident & 1 != 0 {
            return false;
        }
        // SAFETY: inside the mapping, which is never unmapped.
        unsafe { self.base.add(index * STRIDE).read_volatile() };
        true
    }
}
