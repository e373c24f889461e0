//! Events between the rings and the timeline: a file without a name, beside the output, that is as long as it has to be.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use memmap2::Mmap;

use super::output::unnamed;

/// Events of a ring were replaced before they were read: how many, in the argument.
pub const GAP: u16 = u16::MAX;

/// An event as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub time: u64,
    /// The process's number and, in the low 16 bits, that of the ring.
    pub ring: u32,
    pub what: u16,
    pub vp: u16,
    pub thread: u64,
    pub argument: u64,
}

const SIZE: usize = 32;

impl Event {
    pub fn gap(ring: u32, time: u64, lost: u64) -> Self {
        Event {
            time,
            ring,
            what: GAP,
            vp: 0,
            thread: 0,
            argument: lost,
        }
    }

    /// The number of its process.
    pub fn space(&self) -> usize {
        (self.ring >> 16) as usize
    }

    fn bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&self.time.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.ring.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.what.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.vp.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.thread.to_le_bytes());
        bytes[24..].copy_from_slice(&self.argument.to_le_bytes());
        bytes
    }

    fn of(bytes: &[u8]) -> Self {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| {
            let low = u64::from(half(at)) | u64::from(half(at + 2)) << 16;
            low | u64::from(half(at + 4)) << 32 | u64::from(half(at + 6)) << 48
        };
        Event {
            time: word(0),
            ring: word(8) as u32,
            what: half(12),
            vp: half(14),
            thread: word(16),
            argument: word(24),
        }
    }
}

/// Takes events.
pub struct Spool {
    file: BufWriter<File>,
    len: usize,
}

impl Spool {
    /// In a directory.
    ///
    /// # Errors
    ///
    /// There can be no file.
    pub fn new(directory: &Path) -> io::Result<Self> {
        let file = match unnamed(directory, 0o600)? {
            Some(file) => file,
            None => named(directory)?,
        };
        Ok(Spool {
            file: BufWriter::with_capacity(1 << 18, file),
            len: 0,
        })
    }

    /// Adds one.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn push(&mut self, event: &Event) -> io::Result<()> {
        self.file.write_all(&event.bytes())?;
        self.len += 1;
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Those that reached the file, in the order of time.
    ///
    /// # Errors
    ///
    /// The file cannot be mapped.
    pub fn sorted(self) -> io::Result<Sorted> {
        // What a full disk did not take is not there.
        let (file, _) = self.file.into_parts();
        let length = file.metadata()?.len() as usize / SIZE;
        if length == 0 {
            return Ok(Sorted {
                memory: None,
                order: Vec::new(),
            });
        }
        // SAFETY: the file has no name, and nobody else has it open.
        let memory = unsafe { Mmap::map(&file)? };
        let mut order: Vec<(u64, u32)> = (0..length)
            .map(|at| (Event::of(&memory[at * SIZE..]).time, at as u32))
            .collect();
        // Stable in effect: of one moment, those of one ring keep their order.
        order.sort_unstable();
        Ok(Sorted {
            memory: Some(memory),
            order,
        })
    }

    /// Writes what waits.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn named(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!(".upcall-trace.{}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// Events in the order of time.
pub struct Sorted {
    memory: Option<Mmap>,
    order: Vec<(u64, u32)>,
}

impl Sorted {
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        let memory = self.memory.as_deref().unwrap_or_default();
        let event = move |&(_, at): &(u64, u32)| Event::of(&memory[at as usize * SIZE..]);
        self.order.iter().map(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_in_the_order_of_time() {
        let mut spool = Spool::new(&std::env::temp_dir()).expect("a spool");
        let event = |time, ring| Event {
            time,
            ring,
            what: 7,
            vp: 3,
            thread: u64::MAX - 5,
            argument: time << 40,
        };
        let all = [event(5, 1), event(9, 1), event(2, 0x1_0002), event(9, 2)];
        all.iter().for_each(|one| spool.push(one).expect("room"));
        spool.flush().expect("room");
        let sorted: Vec<Event> = spool.sorted().expect("a mapping").iter().collect();
        assert_eq!(sorted, [all[2], all[0], all[1], all[3]]);
    }
}
