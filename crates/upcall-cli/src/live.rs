//! Finds the counters that programs let others see ([`upcall_abi::live`]), reads them, and asks there for a timeline.
//!
//! The kernel lists all segments with the process that made each. What is in them is not trusted: anybody may have made
//! them. So each must be of this user's making, unless this is the superuser, and each word is a number and nothing else.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use upcall_abi::live::{DIRECTORY, Live, MAGIC, SIZE, VERSION, timeline};

const LIST: &str = "/proc/sysvipc/shm";
/// A version of this interface is in a segment of so many bytes.
const SIZES: std::ops::RangeInclusive<usize> = 64..=4096;

/// What a program has counted since its start.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub vps: u32,
    pub created: u64,
    pub threads: u64,
    pub threads_peak: u64,
    pub activations: u64,
    pub activations_peak: u64,
    pub blocked: u64,
    pub returned: u64,
    pub delivered: u64,
    pub displaced: u64,
    pub rung: u64,
    pub taken: u64,
    pub preempted: u64,
    pub stolen: u64,
    pub recycled: u64,
    pub refused: u64,
    pub polled: u64,
}

/// What is in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    Counters(Counters),
    /// Of another version.
    Version(u32),
}

/// The counters of all programs that this user may see, by process.
///
/// # Errors
/// The kernel does not list segments.
pub fn all() -> io::Result<Vec<(i32, Contents)>> {
    Ok(rows()?
        .into_iter()
        .filter_map(|row| {
            if row.is_left() {
                row.remove();
                return None;
            }
            let contents = Attached::new(row.id, Access::Read)?.contents(row.size)?;
            (row.pid > 0).then_some((row.pid, contents))
        })
        .collect())
}

/// The rows that may be such segments, of this user's making.
fn rows() -> io::Result<Vec<Row>> {
    let list = fs::read_to_string(LIST)?;
    // SAFETY: asks only.
    let user = unsafe { libc::geteuid() };
    let rows = list.lines().skip(1).filter_map(Row::read);
    let rows = rows.filter(|row| row.key == 0 && SIZES.contains(&row.size));
    Ok(rows
        .filter(|row| user == 0 || row.creator == user)
        .collect())
}

/// What a program that was asked for a timeline says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet.
    None,
    /// It notes what happens, in a file that it has open.
    Noted,
    /// It cannot: the number of the error.
    Refused(i32),
}

/// A program that may be asked for a timeline.
pub struct Asked(Attached);

impl Asked {
    /// The longest name that a directory can have, in bytes.
    pub const LONGEST: usize = DIRECTORY - 1;

    /// Finds it. `None`: it has no counters that this user may write to, or is of another version.
    ///
    /// # Errors
    /// The kernel does not list segments.
    pub fn find(pid: i32) -> io::Result<Option<Self>> {
        let row = rows()?.into_iter().find(|row| row.pid == pid);
        Ok(row.and_then(|row| {
            let segment = Attached::new(row.id, Access::Write)?;
            let is_known = matches!(segment.contents(row.size)?, Contents::Counters(_));
            let may_be = segment.live().timeline.load(Ordering::Relaxed) != 0;
            (is_known && may_be).then_some(Asked(segment))
        }))
    }

    /// Asks. The program looks when one of its activations is told ([`upcall_linux::preempt::ask`]). The directory has
    /// [`Asked::LONGEST`] bytes at most.
    pub fn ask(&self, directory: &Path) {
        let mut bytes = [0; DIRECTORY];
        let name = directory.as_os_str().as_bytes();
        bytes[..name.len()].copy_from_slice(name);
        let live = self.0.live();
        for (word, bytes) in live.directory.iter().zip(bytes.chunks_exact(4)) {
            let value = u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
            word.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire of the program.
        live.timeline.store(timeline::ASKED, Ordering::Release);
    }

    /// Nobody asks any more.
    pub fn take_back(&self) {
        let (asked, idle) = (timeline::ASKED, timeline::MAY_BE_ASKED);
        let word = &self.0.live().timeline;
        let _ = word.compare_exchange(asked, idle, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn answer(&self) -> Answer {
        // Acquire: pairs with the Release of the program.
        match self.0.live().timeline.load(Ordering::Acquire) {
            timeline::NOTED => Answer::Noted,
            word if word >= timeline::REFUSED => Answer::Refused((word - timeline::REFUSED) as i32),
            _ => Answer::None,
        }
    }
}

/// A row of the kernel's list.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    key: i32,
    id: i32,
    /// It goes with the last process that has it attached.
    is_removed: bool,
    size: usize,
    /// The process that made it, as this one numbers processes; 0: it has no number here.
    pid: i32,
    attached: u64,
    /// The user as whom it was made.
    creator: u32,
}

impl Row {
    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mode = u32::from_str_radix(words.get(2)?, 8).ok()?;
        Some(Row {
            key: words.first()?.parse().ok()?,
            id: words.get(1)?.parse().ok()?,
            is_removed: mode & 0o1000 != 0,
            size: words.get(3)?.parse().ok()?,
            pid: words.get(4)?.parse().ok()?,
            attached: words.get(6)?.parse().ok()?,
            creator: words.get(9)?.parse().ok()?,
        })
    }

    /// Its program was killed between the calls that make such a segment and mark it for removal.
    fn is_left(&self) -> bool {
        !self.is_removed
            && self.attached == 0
            && self.size == SIZE
            && self.pid > 0
            && !fs::exists(format!("/proc/{}", self.pid)).unwrap_or(true)
    }

    fn remove(&self) {
        if Attached::new(self.id, Access::Read).is_some_and(|segment| segment.magic() == MAGIC) {
            // SAFETY: nobody has it, and nobody knows its number but from the list.
            unsafe { libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
        }
    }
}

/// A segment, as long as it is looked at.
struct Attached(*const Live);

#[derive(Clone, Copy)]
enum Access {
    Read = libc::SHM_RDONLY as isize,
    Write = 0,
}

impl Attached {
    /// `None`: it is gone, or this user may not do that.
    fn new(id: i32, access: Access) -> Option<Self> {
        // SAFETY: a new mapping somewhere.
        let place = unsafe { libc::shmat(id, std::ptr::null(), access as i32) };
        (place as isize != -1).then_some(Attached(place.cast()))
    }

    /// Written to only if it was attached for that.
    fn live(&self) -> &Live {
        // SAFETY: a page is there at least, whatever the size that is listed: the kernel maps whole pages. Others write to
        // it: it has atomics only.
        unsafe { &*self.0 }
    }

    fn magic(&self) -> u64 {
        self.live().head.magic.load(Ordering::Relaxed)
    }

    fn contents(&self, size: usize) -> Option<Contents> {
        if self.magic() != MAGIC {
            return None;
        }
        let live = self.live();
        // Acquire: pairs with the Release of `announce`.
        match live.head.version.load(Ordering::Acquire) {
            // Its program is about to start.
            0 => return None,
            VERSION if size == SIZE && live.head.size.load(Ordering::Relaxed) == SIZE as u32 => {}
            other => return Some(Contents::Version(other)),
        }
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        // What comes later first: then more is blocked than has returned.
        let returned = get(&live.returned);
        Some(Contents::Counters(Counters {
            vps: live.nr_vps.load(Ordering::Relaxed),
            created: get(&live.created),
            threads: get(&live.threads),
            threads_peak: get(&live.threads_peak),
            activations: get(&live.activations),
            activations_peak: get(&live.activations_peak),
            blocked: get(&live.blocked),
            returned,
            delivered: get(&live.delivered),
            displaced: get(&live.displaced),
            rung: get(&live.rung),
            taken: get(&live.taken),
            preempted: get(&live.preempted),
            stolen: get(&live.stolen),
            recycled: get(&live.recycled),
            refused: get(&live.refused),
            polled: get(&live.polled),
        }))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: attached by `new`; nothing of it is kept.
        unsafe { libc::shmdt(self.0.cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_row_of_the_kernels_list_is_read() {
        let line = "         0      32771  1600                   192   4711      0      1  1000  1000  1001  1000          0          0 1764000000                  4096                     0";
        let row = Row {
            key: 0,
            id: 32771,
            is_removed: true,
            size: 192,
            pid: 4711,
            attached: 1,
            creator: 1001,
        };
        assert_eq!(Row::read(line), Some(row));
    }

    /// Makes a segment, has it looked at, and removes it.
    fn with_segment<T>(bytes: &[u8], look: impl FnOnce(i32) -> T) -> T {
        // SAFETY: a segment of this test's own.
        unsafe {
            let id = libc::shmget(
                libc::IPC_PRIVATE,
                bytes.len().max(64),
                libc::IPC_CREAT | 0o600,
            );
            assert!(id >= 0);
            let place = libc::shmat(id, std::ptr::null(), 0);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), bytes.len());
            libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
            let seen = look(id);
            libc::shmdt(place);
            seen
        }
    }

    #[test]
    fn another_version_is_told_from_no_counters() {
        let mut bytes = [0u8; 128];
        let seen = |bytes: &[u8; 128]| {
            with_segment(bytes, |id| {
                Attached::new(id, Access::Read).expect("mine").contents(128)
            })
        };
        assert_eq!(seen(&bytes), None);
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        assert_eq!(seen(&bytes), None);
        bytes[8] = 9;
        assert_eq!(seen(&bytes), Some(Contents::Version(9)));
    }

    proptest! {
        #[test]
        fn any_line_is_a_row_or_none(line in any::<String>(), numbers in prop::collection::vec(any::<i64>(), 0..17)) {
            let _ = Row::read(&line);
            let words: Vec<String> = numbers.iter().map(i64::to_string).collect();
            let _ = Row::read(&words.join(" "));
        }

        #[test]
        fn any_bytes_are_counters_or_none(bytes in prop::collection::vec(any::<u8>(), 64..4096)) {
            with_segment(&bytes, |id| {
                let _ = Attached::new(id, Access::Read).expect("mine").contents(bytes.len());
            });
        }
    }
}
