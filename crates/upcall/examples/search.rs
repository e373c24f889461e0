//! A search over a mapped file, of which no page is in memory: a thread for each part of it. A thread that needs such a
//! page waits in the kernel, without having called it; the virtual processor goes on with the others, while many pages
//! are on their way. Threads of the kernel do the same, at their price. So the two take the same time where the
//! disk is slow, and threads of the runtime win as far as it is fast.
//!
//! `cargo run --release -p upcall --example search -- FILE`; without a name: a file that it makes, of 64 MiB

use std::fs::File;
use std::io::{Error, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes that a thread searches.
const PART: usize = 64 << 10;
/// The byte that is counted.
const WANTED: u8 = b'\n';

/// A file in memory, as far as it was read.
struct Mapped {
    base: *mut libc::c_void,
    length: usize,
}

impl Mapped {
    /// Maps a file, of which nothing is in memory, and nothing comes that was not asked for.
    fn cold(file: &File) -> Result<Self, Error> {
        let length = usize::try_from(file.metadata()?.len()).map_err(Error::other)?;
        // What was not written yet cannot be dropped.
        file.sync_all()?;
        // SAFETY: a new mapping of an open file, at a place that the kernel chooses.
        let base = unsafe {
            libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
            let (protection, fd) = (libc::PROT_READ, file.as_raw_fd());
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_PRIVATE,
                fd,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        // SAFETY: the mapping above.
        unsafe { libc::madvise(base, length, libc::MADV_RANDOM) };
        Ok(Mapped { base, length })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped as long as this is there; nobody writes to the file or cuts it meanwhile.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.length) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `cold`, and nobody has a reference any more.
        unsafe { libc::munmap(self.base, self.length) };
    }
}

fn count(part: &[u8], found: &AtomicU64) {
    let here = part.iter().filter(|byte| **byte == WANTED).count();
    found.fetch_add(here as u64, Ordering::Relaxed);
}

/// A file with 64 MiB of short lines.
fn make(path: &Path) -> Result<(), Error> {
    let line =
        b"a line of the file that is searched by many threads at a time, and no more than that\n";
    let block = line.repeat(1024);
    // Not through a link that another user has put into the shared directory.
    let mut file = File::create_new(path)?;
    (0..(64 << 20) / block.len()).try_for_each(|_| file.write_all(&block))
}

/// Searches the file with such threads: in a process for each, since there is no runtime where there are threads.
fn search(kind: &str, path: &Path) -> Result<(), Error> {
    let file = Mapped::cold(&File::open(path)?)?;
    let found = AtomicU64::new(0);
    let parts = file.bytes().chunks(PART);
    let threads = parts.len();
    let begin = Instant::now();
    if kind == "upcall" {
        upcall::Runtime::start().map_err(Error::other)?;
        upcall::thread::scope(|scope| {
            parts.for_each(|part| drop(scope.spawn(|| count(part, &found))));
        });
    } else {
        std::thread::scope(|scope| {
            parts.for_each(|part| drop(scope.spawn(|| count(part, &found))));
        });
    }
    let took = begin.elapsed();
    let found = found.into_inner();
    println!("{kind:6}: {threads} threads found {found} lines in {took:.2?}");
    Ok(())
}

fn main() -> Result<(), Error> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    if let [kind, path] = &words[..] {
        return search(kind, Path::new(path));
    }
    let made = PathBuf::from(format!("/var/tmp/upcall-search-{}", std::process::id()));
    let path = words
        .first()
        .map(PathBuf::from)
        .unwrap_or_else(|| made.clone());
    if path == made {
        make(&made)?;
    }
    for kind in ["std", "upcall", "std", "upcall"] {
        let mut again = Command::new(std::env::current_exe()?);
        if !again.arg(kind).arg(&path).status()?.success() {
            return Err(Error::other(format!(
                "the search by threads of {kind} failed"
            )));
        }
    }
    if path == made {
        std::fs::remove_file(&made)?;
    }
    Ok(())
}
