//! The two pages of a space, what it is told and what it says, and its knocker.
//!
//! Invariants:
//!
//! 1. The program's descriptor of [`Told`] can be mapped read-only alone: the file is sealed against future writes after
//!    the daemon has mapped it.
//! 2. Both files are sealed against another size, so no access of the daemon raises SIGBUS.
//! 3. The *knocker* is an eventfd(2) by which the program says that it has changed its words. The program has the same
//!    open file, and can make it one that waits. So the daemon never reads or writes it.
//! 4. What is in [`Said`] is read word by word, once for each use, and is a number and no more. The daemon writes one word
//!    there, the bell, which is a hint too.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use upcall_abi::{Head, MAGIC, Said, Told, VERSION, WANTED, WANTED_LENDS};
use upcall_alloc::Bits;

use crate::words::{Hints, Truce};

/// A shared structure of the interface: any bytes are a valid one.
///
/// # Safety
///
/// It consists of atomics, and begins with a [`Head`].
unsafe trait Shared {}
// SAFETY: see `upcall_abi`.
unsafe impl Shared for Told {}
// SAFETY: see `upcall_abi`.
unsafe impl Shared for Said {}

struct Page<T> {
    place: NonNull<T>,
    file: OwnedFd,
    _of: PhantomData<T>,
}

impl<T: Shared> Page<T> {
    fn new(name: &str, seals: SealFlags) -> Result<Self, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&file, size_of::<T>() as u64)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let length = size_of::<T>();
        // SAFETY: a new mapping somewhere.
        let place = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        let page = Page {
            place: NonNull::new(place.cast::<T>()).ok_or(Errno::NOMEM)?,
            file,
            _of: PhantomData,
        };
        // SAFETY: `T` begins with a head, and the page is mapped as long as `page` lives.
        let head = unsafe { page.place.cast::<Head>().as_ref() };
        head.version.store(VERSION, Ordering::Relaxed);
        head.size.store(length as u32, Ordering::Relaxed);
        head.magic.store(MAGIC, Ordering::Release);
        let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&page.file, seals | all)?;
        Ok(page)
    }

    fn get(&self) -> &T {
        // SAFETY: mapped as long as this lives, large enough, page-aligned; any bytes are valid.
        unsafe { self.place.as_ref() }
    }
}

impl<T> Drop for Page<T> {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference to it any more.
        let _ = unsafe { rustix::mm::munmap(self.place.as_ptr().cast(), size_of::<T>()) };
    }
}

/// The pages of one space.
pub struct Pages {
    told: Page<Told>,
    said: Page<Said>,
    knocker: OwnedFd,
    changes: u32,
    gains: u32,
}

impl Pages {
    /// New pages, on which the space has every processor.
    ///
    /// # Errors
    ///
    /// The kernel's, when it gives no descriptors or memory.
    pub fn new(generation: u64) -> Result<Self, Errno> {
        let pages = Pages {
            told: Page::new("upcall told", SealFlags::FUTURE_WRITE)?,
            said: Page::new("upcall said", SealFlags::empty())?,
            knocker: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            changes: 0,
            gains: 0,
        };
        for word in &pages.told.get().has {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        pages.told.get().alive.store(generation, Ordering::Release);
        Ok(pages)
    }

    /// The descriptors for the program, in the order of the interface.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [
            self.told.file.as_fd(),
            self.said.file.as_fd(),
            self.knocker.as_fd(),
        ]
    }

    /// What becomes readable, edge after edge, when the space has changed what it says.
    pub fn knocker(&self) -> BorrowedFd<'_> {
        self.knocker.as_fd()
    }

    /// What the space says at this moment.
    pub fn hints(&self) -> Hints {
        let said = self.said.get();
        let bits = |words: &[std::sync::atomic::AtomicU64; 4]| {
            Bits(std::array::from_fn(|at| words[at].load(Ordering::Relaxed)))
        };
        Hints {
            // Acquire: pairs with the Release of who has acted on it; what it says is not older.
            changes: said.changes.load(Ordering::Acquire),
            wants: bits(&said.wants),
            uses: bits(&said.uses),
            truce: Truce {
                until_ns: said.truce_until.load(Ordering::Relaxed),
                length_ns: said.truce_length.load(Ordering::Relaxed),
            },
            adapts: said.adapts.load(Ordering::Relaxed),
            share: said.share.load(Ordering::Relaxed),
            may: bits(&said.may),
            ..Hints::default()
        }
    }

    /// Tells the space. Wakes its kernel threads that wait, if it has got something.
    pub fn tell(&mut self, news: crate::words::Told) {
        let told = self.told.get();
        let bit = |is: bool, bit: u32| if is { bit } else { 0 };
        let wanted = bit(news.wanted, WANTED) | bit(news.lends, WANTED_LENDS);
        told.wanted.store(wanted, Ordering::Relaxed);
        if self.changes != news.changes {
            self.changes = news.changes;
            for (word, value) in told.has.iter().zip(news.has.0) {
                word.store(value, Ordering::Relaxed);
            }
            told.truce_length
                .store(news.truce.length_ns, Ordering::Relaxed);
            told.truce_until
                .store(news.truce.until_ns, Ordering::Relaxed);
            told.leaves_at.store(news.leaves_at_ns, Ordering::Relaxed);
            // Release: who sees this number sees what it counts.
            told.changes.store(news.changes, Ordering::Release);
        }
        if self.gains != news.gains {
            self.gains = news.gains;
            self.ring();
        }
    }

    /// What was told does not hold any more.
    pub fn end(&self) {
        self.told.get().alive.store(0, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        let bell = &self.said.get().bell;
        // SeqCst: who goes to sleep has read the bell before it has looked at what it was told.
        bell.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(bell, futex::Flags::empty(), i32::MAX as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(file: BorrowedFd<'_>, access: ProtFlags) -> Result<*mut std::ffi::c_void, Errno> {
        // SAFETY: a new mapping somewhere, which stays.
        unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                4096,
                access,
                MapFlags::SHARED,
                file,
                0,
            )
        }
    }

    #[test]
    fn a_program_cannot_write_what_it_is_told() {
        let pages = Pages::new(7).unwrap();
        let [told, said, _] = pages.descriptors();
        let both = ProtFlags::READ | ProtFlags::WRITE;
        assert_eq!(map(told, both), Err(Errno::PERM));
        assert_eq!(rustix::io::write(told, b"x"), Err(Errno::PERM));
        let place = map(told, ProtFlags::READ).unwrap();
        // SAFETY: the mapping above.
        let changed =
            unsafe { rustix::mm::mprotect(place, 4096, rustix::mm::MprotectFlags::WRITE) };
        assert_eq!(changed, Err(Errno::ACCESS));
        assert!(map(said, both).is_ok());
        // SAFETY: the mapping above, which stays.
        let seen = unsafe { &*place.cast::<Told>() };
        assert_eq!(seen.alive.load(Ordering::Relaxed), 7);
        pages.end();
        assert_eq!(seen.alive.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn no_page_can_be_cut_short_or_unsealed() {
        let pages = Pages::new(1).unwrap();
        for file in &pages.descriptors()[..2] {
            assert_eq!(rustix::fs::ftruncate(file, 0), Err(Errno::PERM));
            assert_eq!(rustix::fs::ftruncate(file, 1 << 20), Err(Errno::PERM));
            assert_eq!(
                rustix::fs::fcntl_add_seals(file, SealFlags::WRITE),
                Err(Errno::PERM)
            );
        }
    }
}
