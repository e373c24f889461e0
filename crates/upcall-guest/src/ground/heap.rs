//! The memory of the preloaded library, which does not use the program's `malloc`.
//!
//! The program may have a `malloc` of its own, which counts, limits or records, and which may need its own constructor
//! first. So the library that `upcall run` preloads takes its memory from the kernel, but for the first chunk, which is its
//! own. `build.rs` makes the linker resolve `malloc` and its relatives to the functions here, in that library alone. A
//! program that links the crate allocates as it always does.
//!
//! 1. A block has as many bytes as its class: of each power of two there are four. It is cut from a *chunk*, behind a header
//!    that names both.
//! 2. A freed block goes to the list of its size. A chunk counts its blocks that are in use.
//! 3. The rewriter needs much memory for a short time. Afterwards [`trim`] gives unused chunks back.
//! 4. A larger request is a chunk of its own, which goes back when it is freed.
//!
//! Nobody waits for the lock, because the holder may be preempted, or have stayed behind when the process was forked. A
//! request that finds it locked gets a chunk of its own, and a block that is freed then is lost.
//!
//! # Upcall safety
//!
//! As the rewriter's: for start-up and program context.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::ground::entry::{pass_through, raw_syscall};

// The linker finds them by name (`build.rs`); no program does.
core::arch::global_asm!(
    ".hidden upcall_own_malloc",
    ".hidden upcall_own_calloc",
    ".hidden upcall_own_realloc",
    ".hidden upcall_own_free",
    ".hidden upcall_own_posix_memalign",
);

const PAGE: usize = 4096;
const CHUNK: usize = 256 << 10;
/// What a block is aligned to, and the size of its header.
const UNIT: usize = 16;
/// The smallest block has `1 << SMALLEST` bytes behind its header; the largest one of a list `1 << LARGEST`.
const SMALLEST: u32 = 4;
const LARGEST: u32 = 15;
/// Blocks of a quarter more, a half more and three quarters more than a power of two: fewer pages are touched than with
/// powers of two alone. Small ones have no quarters, since a block is aligned to a [`UNIT`].
const STEPS: usize = 4;
const LISTS: usize = (LARGEST - SMALLEST) as usize * STEPS + 1;

/// The class of the smallest blocks that have `needed` bytes, at most `1 << LARGEST`.
fn class_of(needed: usize) -> u32 {
    let needed = needed.max(1 << SMALLEST);
    let power = needed.ilog2();
    let steps = (needed - (1 << power)).div_ceil((1 << power) / STEPS);
    (power - SMALLEST) * STEPS as u32 + steps as u32
}

/// How many bytes a block of this class has behind its header.
fn size_of_class(class: u32) -> usize {
    let (power, steps) = (class / STEPS as u32 + SMALLEST, class as usize % STEPS);
    let size = (1usize << power) + ((1usize << power) / STEPS) * steps;
    size.next_multiple_of(UNIT)
}
/// The class of a block that has a chunk to itself.
const ALONE: u32 = u32::MAX;

/// The head of a piece of memory from the kernel.
#[repr(C, align(64))]
struct Chunk {
    /// Blocks in use.
    live: AtomicUsize,
    length: usize,
    /// The next one that is cut into blocks.
    next: *mut Chunk,
}

/// Before the address that was given out.
#[repr(C)]
struct Header {
    chunk: *mut Chunk,
    class: u32,
    /// From the beginning of the block's room to the address.
    ahead: u32,
}

const _: () = assert!(size_of::<Header>() == UNIT);

/// A block in a list.
struct Free {
    next: *mut Free,
    chunk: *mut Chunk,
}

struct State {
    chunks: *mut Chunk,
    /// What the first chunk has left.
    free: usize,
    end: usize,
    lists: [*mut Free; LISTS],
}

struct Heap {
    taken: AtomicBool,
    state: UnsafeCell<State>,
}

// SAFETY: the state is touched by the holder of `taken` alone.
unsafe impl Sync for Heap {}

static HEAP: Heap = Heap {
    taken: AtomicBool::new(false),
    state: UnsafeCell::new(State {
        chunks: ptr::null_mut(),
        free: 0,
        end: 0,
        lists: [ptr::null_mut(); LISTS],
    }),
};

impl Heap {
    /// Does something with the state, unless another thread is doing so.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        // Acquire: pairs with the Release below.
        if self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: nobody else has it until it is released.
        let answer = act(unsafe { &mut *self.state.get() });
        self.taken.store(false, Ordering::Release);
        Some(answer)
    }
}

/// Returns a new chunk, or null.
fn map(length: usize) -> *mut Chunk {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let words = [0, length as u64, rights as u64, flags as u64, u64::MAX, 0];
    // Passed through, as what libc would map: without memory for it nothing that allocates goes on.
    // SAFETY: a new mapping somewhere.
    let mapped = unsafe { pass_through(libc::SYS_mmap, words) };
    if (-4095..0).contains(&mapped) {
        return ptr::null_mut();
    }
    let chunk = mapped as *mut Chunk;
    // SAFETY: the mapping is at least a page, and nobody else knows it.
    unsafe {
        chunk.write(Chunk {
            live: AtomicUsize::new(0),
            length,
            next: ptr::null_mut(),
        });
    }
    chunk
}

/// A chunk in the library's own data: what a process without threads needs, without a mapping that it would pay for at its
/// start, at each fork and at its end.
#[repr(C, align(4096))]
struct Own {
    room: UnsafeCell<[u8; OWN]>,
}

const OWN: usize = 64 << 10;
const _: () = assert!(OWN > size_of::<Chunk>() + UNIT + (1 << LARGEST));

static OWN_CHUNK: Own = Own {
    room: UnsafeCell::new([0; OWN]),
};
static OWN_IS_TAKEN: AtomicBool = AtomicBool::new(false);

// SAFETY: whoever sets `OWN_IS_TAKEN` has the room.
unsafe impl Sync for Own {}

impl Own {
    fn take() -> Option<*mut Chunk> {
        if OWN_IS_TAKEN.swap(true, Ordering::Acquire) {
            return None;
        }
        let chunk = OWN_CHUNK.room.get().cast::<Chunk>();
        // SAFETY: the room is aligned to a page and was nobody's.
        unsafe {
            chunk.write(Chunk {
                live: AtomicUsize::new(0),
                length: OWN,
                next: ptr::null_mut(),
            });
        }
        Some(chunk)
    }
}

/// # Safety
///
/// Nothing in the chunk is in use, and nobody finds it any more.
unsafe fn unmap(chunk: *mut Chunk) {
    if ptr::eq(chunk, OWN_CHUNK.room.get().cast()) {
        OWN_IS_TAKEN.store(false, Ordering::Release);
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let words = [chunk as u64, (*chunk).length as u64, 0, 0, 0, 0];
        raw_syscall(libc::SYS_munmap, words);
    }
}

impl State {
    /// Takes a block of this class, or a free one that is less than twice as large: a page that was used is better than a
    /// new one. Returns its class, too.
    fn block(&mut self, class: u32) -> Option<(usize, *mut Chunk, u32)> {
        // A small one is hardly worth the search.
        let others = if class < class_of(1 << 10) { 1 } else { STEPS };
        let larger = LISTS.min(class as usize + others);
        // SAFETY: blocks in the lists and chunks are ours and mapped.
        unsafe {
            for class in class as usize..larger {
                let list = &mut self.lists[class];
                if let Some(found) = list.as_ref() {
                    let chunk = found.chunk;
                    let block = *list as usize;
                    *list = found.next;
                    (*chunk).live.fetch_add(1, Ordering::Relaxed);
                    return Some((block, chunk, class as u32));
                }
            }
            let size = UNIT + size_of_class(class);
            if self.end - self.free < size {
                let chunk = Own::take().unwrap_or_else(|| map(CHUNK));
                if chunk.is_null() {
                    return None;
                }
                (*chunk).next = self.chunks;
                self.chunks = chunk;
                self.free = chunk as usize + size_of::<Chunk>();
                self.end = chunk as usize + (*chunk).length;
            }
            let block = self.free;
            self.free += size;
            (*self.chunks).live.fetch_add(1, Ordering::Relaxed);
            Some((block, self.chunks, class))
        }
    }

    /// Gives back the chunks of which no block is in use.
    fn trim(&mut self) {
        // SAFETY: as in `block`; a chunk without a block in use is unmapped when no list names it any more.
        unsafe {
            for list in &mut self.lists {
                let mut at: *mut *mut Free = list;
                while let Some(block) = (*at).as_mut() {
                    if (*block.chunk).live.load(Ordering::Relaxed) == 0 {
                        *at = block.next;
                    } else {
                        at = &raw mut block.next;
                    }
                }
            }
            let first = self.chunks;
            let mut at: *mut *mut Chunk = &raw mut self.chunks;
            while let Some(chunk) = (*at).as_mut() {
                if chunk.live.load(Ordering::Relaxed) != 0 {
                    at = &raw mut chunk.next;
                    continue;
                }
                *at = chunk.next;
                unmap(chunk);
            }
            if self.chunks != first {
                // What was left was the rest of one that is gone.
                (self.free, self.end) = (0, 0);
            }
        }
    }
}

/// `size` bytes at a multiple of `alignment`, a power of two; null if there are none.
fn take(alignment: usize, size: usize) -> *mut c_void {
    let alignment = alignment.max(UNIT);
    // Behind the header, which keeps a block aligned by itself.
    let Some(needed) = size.checked_add(alignment - UNIT) else {
        return ptr::null_mut();
    };
    let found = (needed <= 1 << LARGEST)
        .then(|| class_of(needed))
        .and_then(|class| HEAP.with(|state| state.block(class)).flatten());
    let (block, chunk, class) = match found {
        Some(found) => found,
        None => {
            let Some(length) = needed
                .checked_add(size_of::<Chunk>() + UNIT)
                .and_then(|length| length.checked_next_multiple_of(PAGE))
            else {
                return ptr::null_mut();
            };
            let chunk = map(length);
            if chunk.is_null() {
                return ptr::null_mut();
            }
            (chunk as usize + size_of::<Chunk>(), chunk, ALONE)
        }
    };
    let address = (block + UNIT).next_multiple_of(alignment);
    // SAFETY: the block has room for the header, the alignment and the bytes.
    unsafe {
        ((address - UNIT) as *mut Header).write(Header {
            chunk,
            class,
            ahead: (address - block) as u32,
        });
    }
    address as *mut c_void
}

/// Returns how many bytes the memory at this address has.
///
/// # Safety
///
/// [`take`] gave it out.
unsafe fn room(address: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        let header = &*address.byte_sub(UNIT).cast::<Header>();
        match header.class {
            ALONE => header.chunk as usize + (*header.chunk).length - address as usize,
            class => UNIT + size_of_class(class) - header.ahead as usize,
        }
    }
}

/// Gives memory back to the kernel that the rewriter has used and does not need any more.
pub fn trim() {
    HEAP.with(State::trim);
}

/// malloc(3) of the preloaded library.
#[unsafe(no_mangle)]
extern "C" fn upcall_own_malloc(size: usize) -> *mut c_void {
    take(UNIT, size)
}

/// calloc(3).
#[unsafe(no_mangle)]
extern "C" fn upcall_own_calloc(count: usize, size: usize) -> *mut c_void {
    let Some(size) = count.checked_mul(size) else {
        return ptr::null_mut();
    };
    let address = take(UNIT, size);
    if !address.is_null() {
        // SAFETY: so many bytes were taken just now.
        unsafe { ptr::write_bytes(address.cast::<u8>(), 0, size) };
    }
    address
}

/// posix_memalign(3).
///
/// # Safety
///
/// As it says.
#[unsafe(no_mangle)]
unsafe extern "C" fn upcall_own_posix_memalign(
    to: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> i32 {
    let address = take(alignment, size);
    if address.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(address) };
    0
}

/// realloc(3).
///
/// # Safety
///
/// As it says.
#[unsafe(no_mangle)]
unsafe extern "C" fn upcall_own_realloc(address: *mut c_void, size: usize) -> *mut c_void {
    if address.is_null() {
        return take(UNIT, size);
    }
    // SAFETY: the caller's promise: the memory is from here, and the caller's.
    unsafe {
        let room = room(address);
        if size <= room {
            return address;
        }
        let moved = take(UNIT, size);
        if !moved.is_null() {
            ptr::copy_nonoverlapping(address.cast::<u8>(), moved.cast::<u8>(), room);
            upcall_own_free(address);
        }
        moved
    }
}

/// free(3).
///
/// # Safety
///
/// As it says.
#[unsafe(no_mangle)]
unsafe extern "C" fn upcall_own_free(address: *mut c_void) {
    if address.is_null() {
        return;
    }
    // SAFETY: the caller's promise: the memory is from here, and nobody uses it any more.
    unsafe {
        let Header {
            chunk,
            class,
            ahead,
        } = address.byte_sub(UNIT).cast::<Header>().read();
        if class == ALONE {
            unmap(chunk);
            return;
        }
        let block = address.byte_sub(ahead as usize).cast::<Free>();
        HEAP.with(|state| {
            let list = &mut state.lists[class as usize];
            block.write(Free { next: *list, chunk });
            *list = block;
            (*chunk).live.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_what_was_asked_for_and_hardly_more() {
        for needed in 1..=1usize << LARGEST {
            let class = class_of(needed);
            let size = size_of_class(class);
            assert!((class as usize) < LISTS && size >= needed && size.is_multiple_of(UNIT));
            assert!(
                size <= needed + needed / STEPS + UNIT,
                "{size} for {needed}"
            );
        }
    }

    /// Fills memory of every size and alignment, sees that no two overlap, and frees it.
    #[test]
    fn memory_is_aligned_disjoint_and_given_back() {
        let mut taken: Vec<(*mut u8, usize, u8)> = Vec::new();
        for (index, size) in [0, 1, 15, 16, 17, 100, 4000, 32_768, 32_769, 300_000]
            .into_iter()
            .cycle()
            .take(400)
            .enumerate()
        {
            let alignment = 1usize << (index % 13);
            let address = take(alignment, size).cast::<u8>();
            assert!(!address.is_null() && (address as usize).is_multiple_of(alignment.max(UNIT)));
            // SAFETY: so much was taken.
            unsafe { address.write_bytes(index as u8, size) };
            taken.push((address, size, index as u8));
        }
        for (address, size, byte) in taken {
            // SAFETY: taken above, and not freed yet.
            unsafe {
                let bytes = core::slice::from_raw_parts(address, size);
                assert!(bytes.iter().all(|found| *found == byte));
                let moved = upcall_own_realloc(address.cast(), size + 5000).cast::<u8>();
                let bytes = core::slice::from_raw_parts(moved, size);
                assert!(bytes.iter().all(|found| *found == byte));
                upcall_own_free(moved.cast());
            }
        }
        let kept = take(UNIT, 10);
        trim();
        let chunks = HEAP.with(|state| {
            let mut chunks = 0;
            let mut at = state.chunks;
            // SAFETY: chunks are mapped while they are in the list.
            while let Some(chunk) = unsafe { at.as_ref() } {
                chunks += 1;
                at = chunk.next;
            }
            chunks
        });
        assert_eq!(chunks, Some(1), "the one of which a block is in use");
        // SAFETY: taken above.
        unsafe { upcall_own_free(kept) };
        assert!(take(UNIT, usize::MAX).is_null() && upcall_own_calloc(usize::MAX, 2).is_null());
    }
}
