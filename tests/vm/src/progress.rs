//! A file that a load and the program that measures it both map. The load counts in it, and
//! the measurer reads it. So the measurer neither asks the load's runtime nor disturbs a thread.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The largest number of threads of one kind that a load can have.
pub const MAX_THREADS: usize = 64;

/// A counter on a cache line of its own.
#[repr(C, align(64))]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only the thread that owns the counter may call it.
    pub fn bump(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// What lies in the file. All zero is the initial state.
#[repr(C)]
pub struct Progress {
    /// The load's process id, once all its threads have started.
    pub pid: AtomicU32,
    /// Set by the measurer: the load's threads finish.
    pub stop: AtomicU32,
    /// Chunks of computation finished, one counter a computing thread.
    pub compute: [Counter; MAX_THREADS],
    /// Blocking calls or faults finished, one counter a blocking thread.
    pub blocks: [Counter; MAX_THREADS],
}

impl Progress {
    /// Makes the file, all zero, and maps it.
    pub fn create(path: &Path) -> io::Result<&'static Progress> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        file.set_len(size_of::<Progress>() as u64)?;
        Self::map(&file)
    }

    /// Maps a file that `create` made.
    pub fn open(path: &Path) -> io::Result<&'static Progress> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() < size_of::<Progress>() as u64 {
            return Err(io::Error::other("not a progress file: too short"));
        }
        Self::map(&file)
    }

    fn map(file: &File) -> io::Result<&'static Progress> {
        // SAFETY: a fresh shared mapping of a file that is at least as long.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Progress>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: page-aligned, never unmapped, atomics only, valid for any bytes.
        Ok(unsafe { &*address.cast::<Progress>() })
    }
}
