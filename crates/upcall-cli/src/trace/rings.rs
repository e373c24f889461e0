//! Reads the files in which programs note what happens ([`upcall_abi::trace`]), while they do and afterwards.
//!
//! Nothing in a file is believed: a program that writes nonsense there gets a timeline of nonsense.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use upcall_abi::trace::{Head, MAGIC, PAGE, RECORDS, RING, Record, RingHead, VERSION};

use super::spool::{Event, Spool};
use crate::status::plain;

/// How many rings there are at most, whatever a file says.
const MOST: u32 = 1 << 16;

/// The file of one process.
pub struct Process {
    pub pid: u32,
    pub name: String,
    /// When it began, in nanoseconds of the monotonic clock.
    pub began_ns: u64,
    /// Its number among those of this session, by which its events are told.
    number: u32,
    file: File,
    head: MmapRaw,
    rings: Vec<Ring>,
    /// Events that were replaced before they were read.
    pub lost: u64,
}

struct Ring {
    memory: MmapRaw,
    /// How many records were read, or passed over.
    read: u64,
}

impl Process {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// `InvalidData`: it has another layout, or none yet.
    pub fn open(path: &Path, number: u32) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(path)?;
        let data = file.metadata()?;
        if !data.is_file() || data.size() < PAGE as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let head = MmapOptions::new().len(PAGE).map_raw(&file)?;
        let mut process = Process {
            pid: 0,
            name: String::new(),
            began_ns: 0,
            number,
            file,
            head,
            rings: Vec::new(),
            lost: 0,
        };
        let head = process.head();
        // Acquire: pairs with the Release of the program.
        if head.magic.load(Ordering::Acquire) != MAGIC
            || head.version.load(Ordering::Relaxed) != VERSION
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (pid, began) = (&head.pid, &head.began_ns);
        let (pid, began) = (pid.load(Ordering::Relaxed), began.load(Ordering::Relaxed));
        let name = text(&[&head.name[0], &head.name[1]].map(|word| word.load(Ordering::Relaxed)));
        (process.pid, process.began_ns, process.name) = (pid, began, name);
        Ok(process)
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping is a page, aligned and live; the structure has atomics only.
        unsafe { &*self.head.as_ptr().cast() }
    }

    /// Passes over what is there: it is of another time.
    pub fn skip(&mut self, now: u64) {
        self.map_rings();
        for ring in &mut self.rings {
            ring.read = ring.written().load(Ordering::Acquire);
        }
        self.began_ns = now;
    }

    /// Returns true if the program was told to note nothing more.
    pub fn is_stopped(&self) -> bool {
        self.head().stop.load(Ordering::Relaxed) != 0
    }

    /// Tells the program to note nothing more.
    pub fn stop(&self) {
        self.head().stop.store(1, Ordering::Relaxed);
    }

    /// Activations that could have no ring.
    pub fn without_ring(&self) -> u32 {
        self.head().without_ring.load(Ordering::Relaxed)
    }

    /// How many activations there were.
    pub fn nr_rings(&self) -> usize {
        self.rings.len()
    }

    /// How many activations the program says there were.
    pub fn nr_rings_made(&self) -> usize {
        // Acquire: pairs with the Release of the activation that made the ring.
        self.head().nr_rings.load(Ordering::Acquire).min(MOST) as usize
    }

    /// Reads what is new. `last`: nobody writes any more. Returns how many events were new in the ring that had most.
    ///
    /// # Errors
    ///
    /// What has been read cannot be written.
    pub fn drain(&mut self, spool: &mut Spool, last: bool) -> io::Result<u64> {
        self.map_rings();
        let mut most = 0;
        for at in 0..self.rings.len() {
            let ring = self.number << 16 | at as u32;
            let read = self.rings[at].read;
            self.lost += self.rings[at].drain(ring, at == 0, last, spool)?;
            most = most.max(self.rings[at].read.saturating_sub(read));
        }
        Ok(most)
    }

    fn map_rings(&mut self) {
        let count = self.nr_rings_made();
        if self.rings.len() >= count {
            return;
        }
        // It is never made shorter by the program; a file that somebody else has cut short ends here.
        let Ok(data) = self.file.metadata() else {
            return;
        };
        while self.rings.len() < count {
            let at = (PAGE + self.rings.len() * RING) as u64;
            if data.size() < at + RING as u64 {
                return;
            }
            let Ok(memory) = MmapOptions::new().offset(at).len(RING).map_raw(&self.file) else {
                return;
            };
            self.rings.push(Ring { memory, read: 0 });
        }
    }
}

impl Ring {
    fn written(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a ring, aligned and live; the structure has atomics only.
        unsafe { &(*self.memory.as_ptr().cast::<RingHead>()).written }
    }

    fn record(&self, number: u64) -> &Record {
        let at = PAGE + (number as usize % RECORDS) * size_of::<Record>();
        // SAFETY: inside of the mapping, aligned; the structure has atomics only.
        unsafe { &*self.memory.as_ptr().add(at).cast() }
    }

    /// Returns how many were lost.
    fn drain(
        &mut self,
        ring: u32,
        is_common: bool,
        last: bool,
        spool: &mut Spool,
    ) -> io::Result<u64> {
        // Acquire: pairs with the writer's Release.
        let written = self.written().load(Ordering::Acquire);
        if written == self.read {
            return Ok(0);
        }
        let oldest = |written: u64| (written + 1).saturating_sub(RECORDS as u64);
        let first = self.read.max(oldest(written));
        let mut lost = first.saturating_sub(self.read);
        let mut batch = Vec::with_capacity((written - first.min(written)) as usize);
        let mut next = first;
        while next < written {
            let record = self.record(next);
            let word = record.word.load(Ordering::Acquire);
            if word & 0xffff_ffff != next.wrapping_add(1) & 0xffff_ffff {
                // In the common ring it is counted before it is written.
                if is_common && !last {
                    break;
                }
                next += 1;
                continue;
            }
            batch.push((
                next,
                Event {
                    time: record.time.load(Ordering::Relaxed),
                    ring,
                    what: (word >> 48) as u16,
                    vp: (word >> 32) as u16,
                    thread: record.thread.load(Ordering::Relaxed),
                    argument: record.argument.load(Ordering::Relaxed),
                },
            ));
            next += 1;
        }
        // What was replaced meanwhile. Pairs with the writer's fence.
        fence(Ordering::Acquire);
        let oldest = oldest(self.written().load(Ordering::Relaxed));
        let stale = batch.partition_point(|(number, _)| *number < oldest);
        lost += stale as u64;
        if lost > 0 {
            let time = batch.get(stale).map_or(0, |(_, event)| event.time);
            spool.push(&Event::gap(ring, time, lost))?;
        }
        for (_, event) in &batch[stale..] {
            spool.push(event)?;
        }
        self.read = next;
        Ok(lost)
    }
}

/// Text in words, up to the first zero.
pub fn text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let length = bytes.iter().position(|&byte| byte == 0);
    plain(&String::from_utf8_lossy(
        &bytes[..length.unwrap_or(bytes.len())],
    ))
}

/// The files in a directory.
///
/// # Errors
///
/// The directory cannot be read.
pub fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}
