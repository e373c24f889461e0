//! Lets other processes of the user see the runtime's counters: see [`upcall_abi::live`].
//!
//! The counters are private memory until `share` has put a segment in their place, and stay that if it cannot: then
//! nobody sees them, and nothing else is different.
//!
//! # Upcall safety
//!
//! Before the runtime serves anybody, and in the child of fork(2).

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicUsize, Ordering};

use upcall_abi::live::{DIRECTORY, Live, MAGIC, SIZE, VERSION, timeline};
use upcall_core::Errno;
use upcall_core::stats::{Gauge, Shared};

use crate::sys::{self, error};

/// Where the segment of a runtime that serves is attached; 0: nowhere.
static PLACE: AtomicUsize = AtomicUsize::new(0);

const MODE: usize = 0o600;
const CREATE: usize = libc::IPC_CREAT as usize;

/// Puts a segment in the place of this page, which is zero so far. Under a filter there is none, and shmget(2) is a
/// call that the process does not make otherwise.
pub(crate) fn share(place: usize) {
    if sys::is_filtered() {
        return;
    }
    // SAFETY: a new segment, in the place of the caller's page.
    unsafe {
        let id = sys!(libc::SYS_shmget, libc::IPC_PRIVATE, SIZE, MODE | CREATE);
        if error(id).is_some() {
            return;
        }
        if error(sys!(libc::SYS_shmat, id, place, libc::SHM_REMAP)).is_none() {
            // If the process is killed here, this tells those who find the segment what it is.
            let live = &*(place as *const Live);
            live.head.magic.store(MAGIC, Ordering::Relaxed);
        }
        sys!(libc::SYS_shmctl, id, libc::IPC_RMID, 0);
    }
}

/// The runtime of these counters serves the process: from now on they mean something.
pub fn announce(counters: &'static Shared, nr_vps: usize) {
    let place = core::ptr::from_ref(counters);
    // SAFETY: the same words, by their other names; the assertions below hold them together.
    let live = unsafe { &*place.cast::<Live>() };
    if live.head.magic.load(Ordering::Relaxed) != MAGIC {
        return;
    }
    PLACE.store(place as usize, Ordering::Relaxed);
    live.nr_vps.store(nr_vps as u32, Ordering::Relaxed);
    live.timeline
        .store(timeline::MAY_BE_ASKED, Ordering::Relaxed);
    live.head.size.store(SIZE as u32, Ordering::Relaxed);
    // Release: pairs with the Acquire of readers.
    live.head.version.store(VERSION, Ordering::Release);
}

fn shared() -> Option<&'static Live> {
    let place = PLACE.load(Ordering::Relaxed) as *const Live;
    // SAFETY: null, or what `announce` was given for ever. Others write to it: it has atomics only.
    unsafe { place.as_ref() }
}

/// Returns true if somebody asks for a timeline. At any time.
#[must_use]
pub fn is_asked() -> bool {
    shared().is_some_and(|live| live.timeline.load(Ordering::Relaxed) == timeline::ASKED)
}

/// Takes up what somebody asks: the directory, with a zero at its end, for the one caller that must answer.
#[must_use]
pub fn take_ask() -> Option<[u8; DIRECTORY]> {
    let live = shared()?;
    // Acquire: pairs with the Release of who asks.
    live.timeline
        .compare_exchange(
            timeline::ASKED,
            timeline::MAY_BE_ASKED,
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .ok()?;
    let mut directory = [0; DIRECTORY];
    for (bytes, word) in directory.chunks_exact_mut(4).zip(&live.directory) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    directory[DIRECTORY - 1] = 0;
    Some(directory)
}

/// Says if events are noted from here on.
pub fn answer(answer: Result<(), Errno>) {
    if let Some(live) = shared() {
        let word = match answer {
            Ok(()) => timeline::NOTED,
            Err(error) => timeline::REFUSED + error.0.unsigned_abs(),
        };
        // Release: the file is there before.
        live.timeline.store(word, Ordering::Release);
    }
}

/// The child of a fork counts for itself, where it counts at all.
pub fn forget() {
    let place = PLACE.swap(0, Ordering::Relaxed);
    if place == 0 {
        return;
    }
    // SAFETY: replaces the segment by zeros, which are valid there. If the kernel refuses that, the counts of what the child
    // has of its parent's runtime go to the parent.
    unsafe {
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        sys!(sys::SYS_mmap, place, SIZE, access, private, -1isize, 0);
    }
}

// The runtime's counters are those of the interface.
const _: () = {
    // In models it is no page.
    assert!(size_of::<Shared>() == 4096 || cfg!(any(loom, shuttle)));
    assert!(size_of::<Gauge>() == 16);
    assert!(offset_of!(Shared, head) == offset_of!(Live, head));
    assert!(offset_of!(Shared, created) == offset_of!(Live, created));
    assert!(offset_of!(Shared, threads) == offset_of!(Live, threads));
    assert!(offset_of!(Shared, activations) == offset_of!(Live, activations));
    assert!(offset_of!(Shared, blocked) == offset_of!(Live, blocked));
    assert!(offset_of!(Shared, returned) == offset_of!(Live, returned));
    assert!(offset_of!(Shared, delivered) == offset_of!(Live, delivered));
    assert!(offset_of!(Shared, displaced) == offset_of!(Live, displaced));
    assert!(offset_of!(Shared, rung) == offset_of!(Live, rung));
    assert!(offset_of!(Shared, taken) == offset_of!(Live, taken));
    assert!(offset_of!(Shared, preempted) == offset_of!(Live, preempted));
    assert!(offset_of!(Shared, stolen) == offset_of!(Live, stolen));
    assert!(offset_of!(Shared, recycled) == offset_of!(Live, recycled));
    assert!(offset_of!(Shared, refused) == offset_of!(Live, refused));
    assert!(offset_of!(Shared, polled) == offset_of!(Live, polled));
};
