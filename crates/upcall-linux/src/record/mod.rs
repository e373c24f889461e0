//! Notes what happens in a file that another process reads: [`upcall_abi::trace`] says how, docs/adr/0042 why.
//!
//! The file is made, filled and read by one user. Its pages are there before they are mapped, so a full file system is an
//! error and not a signal. An activation for which there is no ring notes its events in the first one.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering, fence};

use upcall_abi::trace::{Head, MAGIC, PAGE, RECORDS, RING, Record, RingHead, VERSION, what, word};
use upcall_core::Errno;
use upcall_core::event::What;

use crate::sys::procfs::Path;
use crate::sys::{self, descriptors, error, limits, memory, vdso};

const _: () = {
    assert!(What::Created as u32 == what::CREATED && What::Ended as u32 == what::ENDED);
    assert!(What::Blocked as u32 == what::BLOCKED && What::Unblocked as u32 == what::UNBLOCKED);
    assert!(What::Yielded as u32 == what::YIELDED && What::Preempted as u32 == what::PREEMPTED);
    assert!(What::Runs as u32 == what::RUNS && What::Resumes as u32 == what::RESUMES);
    assert!(What::Calls as u32 == what::CALLS && What::Returns as u32 == what::RETURNS);
    assert!(What::Absent as u32 == what::ABSENT && What::Displaced as u32 == what::DISPLACED);
    assert!(What::Idle as u32 == what::IDLE && What::Busy as u32 == what::BUSY);
    assert!(What::Rung as u32 == what::RUNG && What::Taken as u32 == what::TAKEN);
    assert!(What::Added as u32 == what::ADDED && What::Stolen as u32 == what::STOLEN);
    assert!(What::Polls as u32 == what::POLLS && What::Polled as u32 == what::POLLED);
};

/// More rings than a kernel has kernel threads by default.
const MOST: u32 = 1 << 16;

/// Where events go.
#[derive(Default)]
pub(crate) struct Recorder {
    /// The address of the file's head, or 0: nothing is noted.
    head: AtomicUsize,
    /// The first ring.
    common: AtomicUsize,
    /// A descriptor of ours for the file, if the head is not 0.
    file: AtomicI32,
    /// Rings that were asked for.
    asked: AtomicU32,
}

/// An event, as it is written.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub what: u32,
    pub vp: u32,
    pub thread: usize,
    pub argument: u64,
}

impl Recorder {
    /// Makes a file in a directory that the caller trusts, with this process's id in its name.
    ///
    /// # Errors
    ///
    /// The kernel's error when there can be none.
    pub(crate) fn open(&self, directory: &CStr, pid: i32) -> Result<(), Errno> {
        let now = vdso::monotonic_ns();
        let name = Path::new().number(pid.unsigned_abs()).text(b".");
        let name = name
            .number((now >> 32) as u32)
            .text(b".")
            .number(now as u32);
        let (here, path) = (
            libc::O_DIRECTORY | libc::O_PATH | libc::O_CLOEXEC,
            directory,
        );
        let new = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the paths end with zeros; new descriptors, of which one is closed again.
        let file = unsafe {
            let place = sys!(sys::SYS_openat, libc::AT_FDCWD, path.as_ptr(), here);
            if let Some(number) = error(place) {
                return Err(Errno(number));
            }
            let file = sys!(sys::SYS_openat, place, name.as_ptr(), new, 0o600);
            sys!(sys::SYS_close, place);
            file
        };
        let file = descriptors::keep(file)?;
        self.file.store(file, Ordering::Relaxed);
        let start = self.grow(0, PAGE).and_then(|head| {
            let common = self.new_ring()?;
            Ok((head, common))
        });
        let (head, common) = start.inspect_err(|_| descriptors::give_back(file))?;
        self.common.store(common, Ordering::Relaxed);
        // SAFETY: mapped just now for ever, page-aligned and large enough.
        let place = unsafe { &*(head as *const Head) };
        place.version.store(VERSION, Ordering::Relaxed);
        place.pid.store(pid.unsigned_abs(), Ordering::Relaxed);
        place.began_ns.store(now, Ordering::Relaxed);
        place.nr_rings.store(1, Ordering::Relaxed);
        let mut name = [0u64; 2];
        // SAFETY: writes 16 bytes.
        unsafe { sys!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
        for (word, value) in place.name.iter().zip(name) {
            word.store(value, Ordering::Relaxed);
        }
        // Release: pairs with the reader's Acquire.
        place.magic.store(MAGIC, Ordering::Release);
        self.head.store(head, Ordering::Relaxed);
        Ok(())
    }

    /// The reader has gone: nothing is noted until [`Recorder::goes_on`].
    pub(crate) fn is_stopped(&self) -> bool {
        self.head()
            .is_some_and(|head| head.stop.load(Ordering::Relaxed) != 0)
    }

    /// There is a reader again.
    pub(crate) fn goes_on(&self) {
        if let Some(head) = self.head() {
            head.stop.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.head.load(Ordering::Relaxed) != 0
    }

    fn head(&self) -> Option<&'static Head> {
        let head = self.head.load(Ordering::Relaxed) as *const Head;
        // SAFETY: null, or what `open` has mapped for ever.
        unsafe { head.as_ref() }
    }

    /// The program has so many virtual processors.
    pub(crate) fn note_vps(&self, count: u32) {
        if let Some(head) = self.head() {
            head.nr_vps.store(count, Ordering::Relaxed);
        }
    }

    /// Maps a part of the file, which it makes as long as that needs.
    fn grow(&self, at: usize, length: usize) -> Result<usize, Errno> {
        if !limits::may_be_so_long(at + length) {
            return Err(Errno(libc::EFBIG));
        }
        let file = self.file.load(Ordering::Relaxed);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: makes the file longer; a new mapping somewhere.
        let mapped = unsafe {
            match error(sys!(libc::SYS_fallocate, file, 0, at, length)) {
                Some(number) => return Err(Errno(number)),
                None => sys!(sys::SYS_mmap, 0, length, rights, libc::MAP_SHARED, file, at),
            }
        };
        match error(mapped) {
            Some(number) => Err(Errno(number)),
            None => {
                memory::note(mapped as usize, length);
                Ok(mapped as usize)
            }
        }
    }

    fn new_ring(&self) -> Result<usize, Errno> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        if number >= MOST {
            return Err(Errno(libc::ENOMEM));
        }
        self.grow(PAGE + number as usize * RING, RING)
    }

    /// Makes a ring for an activation: its address, or 0. On its own stack.
    pub(crate) fn ring(&self) -> usize {
        let Some(head) = self.head() else { return 0 };
        match self.new_ring() {
            Ok(ring) => {
                // The number of the last one; one that failed leaves a hole, which a reader finds empty.
                head.nr_rings
                    .fetch_max(self.asked.load(Ordering::Relaxed), Ordering::Release);
                ring
            }
            Err(_) => {
                head.without_ring.fetch_add(1, Ordering::Relaxed);
                0
            }
        }
    }

    /// A kernel thread begins to write to its ring.
    pub(crate) fn begins(&self, ring: usize, tid: u32, vp: u32) {
        if ring == 0 {
            return;
        }
        // SAFETY: `Recorder::ring` has mapped it for ever.
        let head = unsafe { &*(ring as *const RingHead) };
        head.tid.store(tid, Ordering::Relaxed);
        self.write(
            ring,
            Entry {
                what: what::BEGAN,
                vp,
                thread: 0,
                argument: tid.into(),
            },
        );
    }

    /// Notes an event in a ring of the caller's own, or in the first one if that is 0.
    pub(crate) fn write(&self, ring: usize, entry: Entry) {
        let Some(head) = self.head() else { return };
        if head.stop.load(Ordering::Relaxed) != 0 {
            return;
        }
        let is_own = ring != 0;
        let ring = if is_own {
            ring
        } else {
            self.common.load(Ordering::Relaxed)
        };
        // SAFETY: mapped for ever.
        let written = unsafe { &(*(ring as *const RingHead)).written };
        let number = if is_own {
            written.load(Ordering::Relaxed)
        } else {
            written.fetch_add(1, Ordering::Relaxed)
        };
        let at = number as usize % RECORDS;
        // SAFETY: one of the records behind the ring's head.
        let record = unsafe { &*((ring + PAGE) as *const Record).add(at) };
        // What was there is not believed from here on. Pairs with the reader's second look.
        fence(Ordering::Release);
        record.time.store(vdso::monotonic_ns(), Ordering::Relaxed);
        record.thread.store(entry.thread as u64, Ordering::Relaxed);
        record.argument.store(entry.argument, Ordering::Relaxed);
        let word = word(number, entry.vp, entry.what);
        // Release: pairs with the reader's Acquire.
        record.word.store(word, Ordering::Release);
        if is_own {
            written.store(number + 1, Ordering::Release);
        }
    }
}
