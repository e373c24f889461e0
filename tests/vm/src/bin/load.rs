//! A plain threaded program: some threads compute and never block, others block all the
//! time. It knows nothing of the runtime that it may run on, and counts what it does in a
//! file that `vm-share` watches.

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{io, ptr, thread};

use clap::{Parser, ValueEnum};
use vm_tests::progress::{MAX_THREADS, Progress};
use vm_tests::sys;

const PAGE: usize = 4096;

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Kind {
    /// nanosleep
    Sleep,
    /// Page faults on a file mapping whose pages are not in memory
    Fault,
}

/// Threads that compute, and threads that block
#[derive(Parser)]
struct Arguments {
    /// The file that vm-share made
    #[arg(long)]
    progress: PathBuf,
    /// Threads that compute
    #[arg(long, default_value_t = 1)]
    compute: usize,
    /// Threads that block
    #[arg(long, default_value_t = 0)]
    blockers: usize,
    /// How they block
    #[arg(long, value_enum, default_value = "sleep")]
    kind: Kind,
    /// Microseconds of each sleep
    #[arg(long, default_value_t = 5000)]
    period_us: u64,
    /// What the faults read: a file or block device
    #[arg(long, default_value = "/dev/nullb0")]
    file: PathBuf,
    /// Beside each computing thread, one that yields for ever: the mistake that vm-share
    /// must see
    #[arg(long)]
    wrong_standby: bool,
    /// Bytes of it for each blocking thread
    #[arg(long, default_value_t = 256 << 20)]
    span: usize,
}

fn compute(progress: &Progress, index: usize) {
    let mut value = index as u64;
    while progress.stop.load(Relaxed) == 0 {
        for _ in 0..10_000 {
            value = black_box(value.wrapping_mul(6364136223846793005).wrapping_add(1));
        }
        progress.compute[index].bump();
    }
}

fn sleep(progress: &Progress, index: usize, ns: u64) {
    while progress.stop.load(Relaxed) == 0 {
        sys::sleep_ns(ns);
        progress.blocks[index].bump();
    }
}

/// Reads a byte of each page of this thread's part of the file, none of which is resident.
fn fault(progress: &Progress, index: usize, file: &File, span: usize) -> io::Result<()> {
    let offset = (index * span) as i64;
    while progress.stop.load(Relaxed) == 0 {
        // SAFETY: advice on an open descriptor; a fresh read-only mapping of it.
        let map = unsafe {
            libc::posix_fadvise(
                file.as_raw_fd(),
                offset,
                span as i64,
                libc::POSIX_FADV_DONTNEED,
            );
            libc::mmap(
                ptr::null_mut(),
                span,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: advice on the mapping: no reading ahead, so that every page faults.
        unsafe { libc::madvise(map, span, libc::MADV_RANDOM) };
        for at in (0..span).step_by(PAGE) {
            // SAFETY: within the mapping.
            black_box(unsafe { map.cast::<u8>().add(at).read_volatile() });
            progress.blocks[index].bump();
            if progress.stop.load(Relaxed) != 0 {
                break;
            }
        }
        // SAFETY: exactly the mapping made above, to which nothing points.
        unsafe { libc::munmap(map, span) };
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    if arguments.compute > MAX_THREADS || arguments.blockers > MAX_THREADS {
        return Err(io::Error::other(format!(
            "at most {MAX_THREADS} threads of a kind"
        )));
    }
    let progress = Progress::open(&arguments.progress)?;
    let file = match arguments.kind {
        Kind::Fault if arguments.blockers > 0 => Some(File::open(&arguments.file)?),
        _ => None,
    };
    let started = AtomicUsize::new(0);
    let total = arguments.compute + arguments.blockers;
    thread::scope(|scope| {
        let mut blockers = Vec::new();
        for index in 0..arguments.blockers {
            let (started, file) = (&started, file.as_ref());
            blockers.push(scope.spawn(move || {
                started.fetch_add(1, Relaxed);
                match file {
                    Some(file) => fault(progress, index, file, arguments.span),
                    None => {
                        sleep(progress, index, arguments.period_us * 1000);
                        Ok(())
                    }
                }
            }));
        }
        for index in 0..arguments.compute {
            let started = &started;
            scope.spawn(move || {
                started.fetch_add(1, Relaxed);
                compute(progress, index);
            });
        }
        for _ in 0..if arguments.wrong_standby {
            arguments.compute
        } else {
            0
        } {
            scope.spawn(|| {
                while progress.stop.load(Relaxed) == 0 {
                    thread::yield_now();
                }
            });
        }
        while started.load(Relaxed) < total {
            thread::yield_now();
        }
        progress.pid.store(std::process::id(), Relaxed);
        for blocker in blockers {
            blocker.join().expect("a blocking thread does not panic")?;
        }
        Ok(())
    })
}
