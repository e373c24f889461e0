//! What leaves do. Each hands its number through something that waits or fails, and gives it back.

use std::io::{Read, Write};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Mutex as KernelMutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use upcall::sync::{Mutex, Semaphore};
use upcall::thread;

use crate::children;
use crate::libcs;
use crate::random::Random;
use crate::tree::World;

const COMPUTES: usize = 0;
const PIPE: usize = 1;
const KERNEL_PIPE: usize = 2;
const SLEEPS: usize = 3;
const LOCK: usize = 4;
const KERNEL_LOCK: usize = 5;
const MEMORY: usize = 6;
const PANICS: usize = 7;
const MEETS: usize = 8;
const LOOKS: usize = 9;
const THREAD: usize = 10;
const LIBC_THREAD: usize = 11;
const CHILD: usize = 12;
pub const KINDS: usize = 13;

pub const LOCKS: [usize; 2] = [LOCK, KERNEL_LOCK];

/// How often each kind comes, in 128 leaves; the rest computes.
const SHARES: [(usize, usize); KINDS - 1] = [
    (PIPE, 8),
    (KERNEL_PIPE, 8),
    (SLEEPS, 6),
    (LOCK, 8),
    (KERNEL_LOCK, 8),
    (MEMORY, 8),
    (PANICS, 6),
    (MEETS, 8),
    (LOOKS, 6),
    (THREAD, 3),
    (LIBC_THREAD, 3),
    (CHILD, 1),
];

static LOCKED: Mutex<u64> = Mutex::new(0);
static KERNEL_LOCKED: KernelMutex<u64> = KernelMutex::new(0);

/// The number of additions under locks so far.
pub fn locked() -> u64 {
    *LOCKED.lock().unwrap() + *KERNEL_LOCKED.lock().unwrap()
}

pub fn leaf(random: &mut Random, world: &World) -> u64 {
    let (value, mut drawn) = (random.next(), random.below(128));
    let kind = SHARES
        .iter()
        .find_map(|&(kind, share)| match drawn.checked_sub(share) {
            Some(left) => {
                drawn = left;
                None
            }
            None => Some(kind),
        });
    let kind = kind.unwrap_or(COMPUTES);
    world.count(kind);
    // In a child other threads' locks stay locked.
    let is_for_children = !LOCKS.contains(&kind) && kind != CHILD;
    if world.is_plain() || world.is_in_child() && !is_for_children {
        return value;
    }
    match kind {
        PIPE => through_pipe(value, upcall::io::pipe().expect("a pipe")),
        KERNEL_PIPE => through_pipe(value, std::io::pipe().expect("a pipe")),
        SLEEPS => {
            let length = *random.pick(&[0, 1, 50, 200, 1000]);
            std::thread::sleep(Duration::from_micros(length));
            value
        }
        LOCK => {
            add(&mut LOCKED.lock().unwrap(), value);
            value
        }
        KERNEL_LOCK => {
            add(&mut KERNEL_LOCKED.lock().unwrap(), value);
            value
        }
        MEMORY => through_memory(value),
        PANICS => {
            let panic = catch_unwind(|| resume_unwind(Box::new(value)));
            let panic = panic.map(|never: ()| never).expect_err("it panics");
            *panic.downcast().expect("it is what was thrown")
        }
        MEETS => meets(value),
        LOOKS => looks(value),
        THREAD => thread::spawn(move || value).join().unwrap(),
        LIBC_THREAD => libcs::beside([|| value], || ()).0[0],
        CHILD => children::forks(random, value),
        _ => computes(value),
    }
}

/// Forwards and back.
fn computes(value: u64) -> u64 {
    const ODD: u64 = 6_364_136_223_846_793_005;
    let turns = value % 5000;
    let forwards = (0..turns).fold(value, |value, turn| value.wrapping_mul(ODD) ^ turn);
    // Newton's iteration for the inverse modulo 2^64.
    let inverse = (0..6).fold(ODD, |inverse, _| {
        inverse.wrapping_mul(2u64.wrapping_sub(ODD.wrapping_mul(inverse)))
    });
    (0..turns)
        .rev()
        .fold(std::hint::black_box(forwards), |value, turn| {
            (value ^ turn).wrapping_mul(inverse)
        })
}

/// One half waits for what the other writes.
fn through_pipe(
    value: u64,
    (mut reader, mut writer): (impl Read + Send, impl Write + Send),
) -> u64 {
    let mut bytes = [0; 8];
    let reads = || reader.read_exact(&mut bytes).expect("it is written");
    let writes = || writer.write_all(&value.to_le_bytes()).expect("it is read");
    // It fits in the pipe, so the other order ends, too.
    match value & 1 {
        0 => upcall::join(reads, writes),
        _ => upcall::join(writes, reads),
    };
    u64::from_le_bytes(bytes)
}

/// Adds one, in two steps. Others wait meanwhile.
fn add(count: &mut u64, value: u64) {
    let before = *count;
    if value & 3 == 0 {
        thread::yield_now();
    }
    *count = before + 1;
}

/// Each half touches every other page for the first time.
fn through_memory(value: u64) -> u64 {
    const LENGTH: usize = 1 << 17;
    const PAGE: usize = 4096;
    let (access, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a mapping of our own.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, access, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    let start = memory as usize;
    let word = |page: usize| (start + page * PAGE) as *mut u64;
    let touch = |first: usize| {
        for page in (first..LENGTH / PAGE).step_by(2) {
            // SAFETY: within the mapping; the halves have different pages.
            unsafe { word(page).write_volatile(value ^ page as u64) };
        }
    };
    upcall::join(|| touch(0), || touch(1));
    let wrong = (0..LENGTH / PAGE).filter(|&page| {
        // SAFETY: as above, and both halves have ended.
        unsafe { word(page).read_volatile() != value ^ page as u64 }
    });
    let wrong = wrong.count() as u64;
    // SAFETY: ours, and used no more.
    assert_eq!(unsafe { libc::munmap(memory, LENGTH) }, 0);
    value.wrapping_add(wrong)
}

/// One half waits for the other, whichever of them is begun first.
fn meets(value: u64) -> u64 {
    let (come, go) = (Semaphore::new(0), Semaphore::new(0));
    let handed = AtomicU64::new(0);
    let one = || {
        come.acquire();
        handed.fetch_xor(value, Ordering::Relaxed);
        go.release();
    };
    let other = || {
        come.release();
        go.acquire();
    };
    upcall::join(one, other);
    handed.into_inner()
}

/// Nobody can see that it waits.
fn looks(value: u64) -> u64 {
    let handed = AtomicU64::new(!value);
    let looks = || {
        while handed.load(Ordering::Acquire) != value {
            thread::yield_now();
        }
    };
    upcall::join(looks, || handed.store(value, Ordering::Release));
    handed.into_inner()
}
