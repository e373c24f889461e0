//! The buffer cache of Anderson et al. §5.3: the program keeps so many pages of its tree, and no more, in memory, and
//! a thread that needs another one waits for it in the kernel.
//!
//! # Protocol
//!
//! One lock is around all that is here but the waiting for the disk. A page is absent, coming or present.
//!
//! 1. A page that is present is marked as used.
//! 2. A thread that finds it coming waits for it at user level, on that page's condition.
//! 3. A thread that finds it absent takes the place of one that is present, the next one in turn that was not used
//!    since its last turn (the clock of Corbató, 1968), or waits for a page to arrive where all that are kept are
//!    coming. It then lets go of the lock, waits for the disk, and wakes those of 2 and all that wait for a place.
//!
//! A thread keeps the last few pages that it has looked up ([`Hand`]), a path down the tree. They do not count as
//! memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::slice;
use std::sync::Arc;

use super::super::posix::nanosleep;
use super::super::threads::{Mutex, Threads};
use super::tree::{CELLS, Cell, Page, Pages};

/// Pages that a thread keeps at a time.
const HAND: usize = 6;
/// Bytes of a page on the disk.
const BYTES: usize = 4096;

/// What a page comes from that is not in memory.
#[derive(Debug)]
pub enum Disk {
    /// The thread sleeps in the kernel for so many nanoseconds, as in the paper.
    Sleep(u64),
    /// It is read from this file, past the kernel's own cache.
    File(File),
}

impl Disk {
    /// A file, made where there is none, whose pages are read and written past the kernel's cache.
    ///
    /// # Errors
    ///
    /// The file cannot be opened; EINVAL: its file system has nothing but that cache.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options
            .custom_flags(libc::O_DIRECT)
            .open(path)
            .map(Self::File)
    }
}

/// The state of a page.
#[derive(Clone, Debug)]
enum Frame {
    Absent,
    Coming,
    Present(Page),
}

/// A page, and whether it was used since the hand of the clock came by.
#[derive(Clone, Debug)]
struct Slot {
    frame: Frame,
    used: bool,
}

/// What the lock is around.
struct State {
    /// What a sleep brings: the pages as they are on the disk.
    stored: Vec<Page>,
    slots: Vec<Slot>,
    /// Where the next page is looked for that can go.
    clock: usize,
    /// Pages that are present or coming,
    kept: usize,
    /// and those of them that are present.
    present: usize,
    capacity: usize,
    lookups: u64,
    misses: u64,
}

impl State {
    /// Returns true if one more page can be kept; one that was not used lately goes if it must.
    fn make_room(&mut self) -> bool {
        if self.kept < self.capacity {
            return true;
        }
        if self.present == 0 {
            return false;
        }
        loop {
            let next = (self.clock + 1) % self.slots.len();
            let slot = &mut self.slots[std::mem::replace(&mut self.clock, next)];
            let present = matches!(slot.frame, Frame::Present(_));
            if present && !std::mem::take(&mut slot.used) {
                slot.frame = Frame::Absent;
                self.kept -= 1;
                self.present -= 1;
                return true;
            }
        }
    }

    fn put(&mut self, index: usize, page: Page) {
        self.slots[index] = Slot {
            frame: Frame::Present(page),
            used: true,
        };
        self.present += 1;
    }
}

/// A package's mutex around the state.
type Lock<T> = <T as Threads>::Mutex<State>;
type Condition<T> = <Lock<T> as Mutex<State>>::Condition;

/// The cache, of a package of threads.
pub struct Cache<T: Threads> {
    state: Lock<T>,
    disk: Disk,
    /// For each page: it is there.
    arrived: Vec<Condition<T>>,
    /// Some page is there.
    any: Condition<T>,
}

impl<T: Threads> Cache<T> {
    /// A cache of at most so many pages of all, of which there may be up to `most`.
    pub fn new(capacity: usize, most: usize, disk: Disk) -> Self {
        let absent = Slot {
            frame: Frame::Absent,
            used: false,
        };
        let state = State {
            stored: Vec::new(),
            slots: vec![absent; most],
            clock: 0,
            kept: 0,
            present: 0,
            capacity: capacity.max(1),
            misses: 0,
            lookups: 0,
        };
        Cache {
            state: Lock::<T>::new(state),
            disk,
            arrived: (0..most).map(|_| Lock::<T>::condition()).collect(),
            any: Lock::<T>::condition(),
        }
    }

    /// All pages are written anew, behind the threads' backs: those that are in memory stay there, and what is free
    /// is filled up. No thread uses the cache meanwhile.
    ///
    /// # Errors
    ///
    /// The disk does not take them.
    pub fn renew(&self, pages: Vec<Page>) -> std::io::Result<()> {
        if let Disk::File(file) = &self.disk {
            let mut block = Block::new(pages.len());
            for (page, to) in pages.iter().zip(block.bytes().chunks_exact_mut(BYTES)) {
                to[..size_of_val(&**page)].copy_from_slice(bytes(page));
            }
            file.write_all_at(block.bytes(), 0)?;
        }
        let mut state = self.state.lock();
        for (number, page) in pages.iter().enumerate() {
            if let Frame::Present(old) = &mut state.slots[number].frame {
                *old = page.clone();
            } else if state.kept < state.capacity {
                state.kept += 1;
                state.put(number, page.clone());
            }
        }
        state.stored = pages;
        Ok(())
    }

    /// How many pages were looked up so far, and how many of them were waited for in the kernel.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.lookups, state.misses)
    }

    fn page(&self, number: u32) -> Page {
        let index = number as usize;
        let mut state = self.state.lock();
        state.lookups += 1;
        loop {
            let slot = &mut state.slots[index];
            match &slot.frame {
                Frame::Present(page) => {
                    // Not written where it says so already: the line stays with all processors.
                    if !slot.used {
                        slot.used = true;
                    }
                    return page.clone();
                }
                Frame::Coming => state = self.state.wait(&self.arrived[index], state),
                Frame::Absent => {
                    if state.make_room() {
                        break;
                    }
                    state = self.state.wait(&self.any, state);
                }
            }
        }
        state.slots[index].frame = Frame::Coming;
        state.kept += 1;
        state.misses += 1;
        drop(state);
        let read = self.disk.read(index);
        let mut state = self.state.lock();
        let page = read.unwrap_or_else(|| state.stored[index].clone());
        state.put(index, page.clone());
        drop(state);
        Lock::<T>::signal_all(&self.arrived[index]);
        Lock::<T>::signal_all(&self.any);
        page
    }
}

impl Disk {
    /// Waits for a page; its contents, if it is this disk that has them.
    ///
    /// # Panics
    ///
    /// The file cannot be read: no thread could go on.
    fn read(&self, page: usize) -> Option<Page> {
        match self {
            Disk::Sleep(ns) => {
                nanosleep(*ns, false);
                None
            }
            Disk::File(file) => {
                let mut block = Block::new(1);
                let read = file.read_exact_at(block.bytes(), (page * BYTES) as u64);
                read.expect("a page of the file that was written");
                // SAFETY: as many bytes as the cells have, aligned for more; all bytes are cells.
                let cells = unsafe { block.place.cast::<[Cell; CELLS]>().read() };
                Some(Arc::new(cells))
            }
        }
    }
}

fn bytes(page: &Page) -> &[u8] {
    // SAFETY: the cells are numbers, without gaps between them.
    unsafe { slice::from_raw_parts(page.as_ptr().cast(), size_of_val(&**page)) }
}

/// Memory that a disk can be read to, and written from, without the kernel's cache.
struct Block {
    place: *mut u8,
    layout: Layout,
}

impl Block {
    fn new(pages: usize) -> Self {
        let layout = Layout::from_size_align(pages.max(1) * BYTES, BYTES).expect("a page or some");
        // SAFETY: the layout is not empty.
        let place = unsafe { alloc_zeroed(layout) };
        if place.is_null() {
            handle_alloc_error(layout);
        }
        Block { place, layout }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated with this size, and filled with zeroes.
        unsafe { slice::from_raw_parts_mut(self.place, self.layout.size()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.place, self.layout) };
    }
}

/// The pages that a thread has at hand.
pub struct Hand<'a, T: Threads> {
    cache: &'a Cache<T>,
    /// The page that was used last comes first.
    pages: [Option<(u32, Page)>; HAND],
}

impl<'a, T: Threads> Hand<'a, T> {
    /// An empty hand.
    pub fn new(cache: &'a Cache<T>) -> Self {
        Hand {
            cache,
            pages: [const { None }; HAND],
        }
    }

    /// Puts a page first that is not.
    fn take(&mut self, page: u32) {
        let found = |held: &Option<(u32, Page)>| held.as_ref().is_some_and(|held| held.0 == page);
        let place = self.pages.iter().position(found).unwrap_or_else(|| {
            self.pages[HAND - 1] = Some((page, self.cache.page(page)));
            HAND - 1
        });
        self.pages[..=place].rotate_right(1);
    }
}

impl<T: Threads> Pages for Hand<'_, T> {
    #[inline]
    fn cell(&mut self, number: u32) -> Cell {
        let (page, index) = (number / CELLS as u32, number as usize % CELLS);
        loop {
            match &self.pages[0] {
                Some((held, cells)) if *held == page => return cells[index],
                _ => self.take(page),
            }
        }
    }
}
