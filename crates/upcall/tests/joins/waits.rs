//! The thread that has forked waits, in the program or in the kernel, and what it waits for comes from its pieces.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use upcall::sync::{Barrier, Semaphore};
use upcall::thread;

pub fn for_a_semaphore() {
    let go = Semaphore::new(0);
    upcall::join(|| go.acquire(), || go.release());
}

/// All of them are there at once: one thread is in the middle of each.
pub fn for_all_pieces_at_once() {
    fn all(depth: u32, barrier: &Barrier) {
        if depth == 0 {
            barrier.wait();
            return;
        }
        upcall::join(|| all(depth - 1, barrier), || all(depth - 1, barrier));
    }
    for depth in [1, 3, 6] {
        all(depth, &Barrier::new(1 << depth));
    }
}

/// flock(2) cannot be polled: the activation blocks.
pub fn for_a_lock_in_the_kernel() {
    let path = std::env::temp_dir().join(format!("upcall-joins-{}", std::process::id()));
    // Each opened for itself: a lock of one keeps the other out.
    let (holds, waits) = (File::create(&path).unwrap(), File::open(&path).unwrap());
    std::fs::remove_file(path).unwrap();
    // SAFETY: locks and unlocks files of ours.
    let lock = |file: &File, how| assert_eq!(unsafe { libc::flock(file.as_raw_fd(), how) }, 0);
    for _ in 0..20 {
        lock(&holds, libc::LOCK_EX);
        upcall::join(
            || lock(&waits, libc::LOCK_EX),
            || lock(&holds, libc::LOCK_UN),
        );
        lock(&waits, libc::LOCK_UN);
    }
}

/// The page is not there before the piece brings it.
pub fn on_a_page_fault() {
    const PAGE: usize = 4096;
    const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
    const UFFDIO_REGISTER: libc::c_ulong = 0xC020_AA00;
    const UFFDIO_ZEROPAGE: libc::c_ulong = 0xC020_AA04;
    // UFFD_USER_MODE_ONLY.
    // SAFETY: no pointers.
    let faults = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) } as i32;
    if faults < 0 {
        println!("skipped: on_a_page_fault: no userfaultfd(2) here");
        return;
    }
    // SAFETY: a mapping of our own, and structures as `linux/userfaultfd.h` has them.
    let page = unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(page, libc::MAP_FAILED);
        let mut api = [0xAAu64, 0, 0];
        assert_eq!(libc::ioctl(faults, UFFDIO_API, api.as_mut_ptr()), 0);
        let mut missing = [page as u64, PAGE as u64, 1, 0];
        let registered = libc::ioctl(faults, UFFDIO_REGISTER, missing.as_mut_ptr());
        assert_eq!(registered, 0);
        page as usize
    };
    let (value, ()) = upcall::join(
        // SAFETY: mapped above; it is there when the read has ended.
        || unsafe { (page as *const u64).read_volatile() },
        || {
            let mut zero = [page as u64, PAGE as u64, 0, 0];
            // SAFETY: as above.
            let brought = unsafe { libc::ioctl(faults, UFFDIO_ZEROPAGE, zero.as_mut_ptr()) };
            assert_eq!(brought, 0);
        },
    );
    assert_eq!(value, 0);
    // SAFETY: ours, and used no more.
    unsafe {
        libc::munmap(page as *mut libc::c_void, PAGE);
        libc::close(faults);
    }
}

/// Nobody can see that the thread waits: it gives way to others, and is ready again.
pub fn by_looking_again_and_again() {
    let seen = AtomicBool::new(false);
    upcall::join(
        || {
            while !seen.load(Ordering::Acquire) {
                thread::yield_now();
            }
        },
        || seen.store(true, Ordering::Release),
    );
}

/// Leaves sleep in the kernel, and all have run when the trees are joined.
pub fn for_a_sleep_in_each_leaf() {
    fn tree(depth: u32, leaves: &AtomicU32) {
        if depth == 0 {
            std::thread::sleep(Duration::from_micros(200));
            leaves.fetch_add(1, Ordering::Relaxed);
            return;
        }
        upcall::join(|| tree(depth - 1, leaves), || tree(depth - 1, leaves));
    }
    let leaves = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| tree(4, &leaves));
        }
    });
    assert_eq!(leaves.into_inner(), 8 * 16);
}
