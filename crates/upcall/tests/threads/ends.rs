//! Ends: of stacks, of the first thread, and of processes.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use upcall::thread::{self, Builder};

pub fn stacks_are_as_large_as_asked_for() {
    fn deep(left: usize) -> usize {
        let here = std::hint::black_box([1u8; 1024]);
        if left == 0 {
            0
        } else {
            deep(left - 1) + usize::from(here[left % 1024])
        }
    }
    for (size, depth) in [(1, 8), (1 << 20, 700), (8 << 20, 6000), (64 << 20, 40_000)] {
        let thread = Builder::new().stack_size(size).spawn(move || deep(depth));
        assert_eq!(thread.unwrap().join().unwrap(), depth);
    }
}

/// The child of a fork has its one thread, and makes others.
pub fn children_have_threads_of_their_own() {
    // In shells of their own, and in one that is not.
    let fillers: Vec<_> = (0..100).map(|_| thread::spawn(|| 0)).collect();
    let batch = [(); 3].map(|()| thread::spawn(child_makes_threads));
    fillers.into_iter().for_each(|one| drop(one.join()));
    for status in batch {
        let status = status.join().unwrap();
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1,
            "{status:#x}"
        );
    }
}

fn child_makes_threads() -> i32 {
    // SAFETY: the child uses its own thread, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let sum: i32 = (0..20)
            .map(|one| thread::spawn(move || one).join().unwrap())
            .sum();
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(sum == 190)) };
    }
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// The first thread ends by itself: the process ends with the last that runs, however many shells are free.
pub fn first_ends() -> ! {
    drop(thread::spawn(|| {
        let handles: Vec<_> = (0..50).map(|_| thread::spawn(thread::yield_now)).collect();
        std::thread::sleep(Duration::from_millis(20));
        // Ended, and nobody's to release.
        handles.into_iter().for_each(std::mem::forget);
        println!("the last");
    }));
    loop {
        // Unlike pthread_exit(3), through no frame of main's caller.
        // SAFETY: ends the calling thread, which has nothing to drop.
        unsafe { libc::syscall(libc::SYS_exit, 3) };
    }
}

/// The first thread ends while there are threads that have not begun: they keep the process.
pub fn first_ends_before_others_begin() -> ! {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    drop(thread::spawn(|| {
        for _ in 0..200 {
            drop(thread::spawn(|| {
                if RAN.fetch_add(1, Ordering::Relaxed) == 199 {
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(5) };
                }
            }));
        }
    }));
    loop {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_exit, 3) };
    }
}

/// A signal that the program's threads block waits for them: neither threads of the runtime's own nor those that have ended take
/// it. It would end the process.
pub fn signals_wait_for_who_accepts_them() {
    // Again and again, since what is between the end of a scope and that of its threads is short.
    for _ in 0..20 {
        let all_at_once = upcall::sync::Barrier::new(300);
        thread::scope(|scope| {
            for _ in 0..300 {
                scope.spawn(|| all_at_once.wait());
            }
        });
        signal_waits();
        // A thread of the crate's own looks for the second half, and finds that it has run.
        upcall::join(|| (), || ());
        signal_waits();
        // And one runs it.
        let begun = AtomicBool::new(false);
        let wait = || {
            while !begun.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        };
        upcall::join(wait, || begun.store(true, Ordering::Relaxed));
        signal_waits();
    }
    println!("ok {}", stringify!(signals_wait_for_who_accepts_them));
}

/// The calling thread blocks a signal for the process, which waits until it asks: all others have ended.
fn signal_waits() {
    let mut got = 0;
    // SAFETY: sets that are made here; the child makes two calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        let parent = libc::getpid();
        let child = libc::fork();
        if child == 0 {
            libc::kill(parent, libc::SIGTERM);
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        // Whoever might have taken it has had the time.
        thread::sleep(Duration::from_millis(10));
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut pending);
        assert_eq!(libc::sigismember(&raw const pending, libc::SIGTERM), 1);
        libc::sigwait(&raw const set, &raw mut got);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
    assert_eq!(got, libc::SIGTERM);
}

/// A thread uses up its stack, by frames of one size and from one depth of many, while others wait whose stacks lie
/// around it.
pub fn overflows(variant: usize) {
    #[expect(unconditional_recursion, reason = "until the stack ends")]
    fn deeper<const SIZE: usize>(last: &[u8; SIZE]) -> u8 {
        let next = std::hint::black_box([last[1]; SIZE]);
        deeper(&next) + std::hint::black_box(next)[0]
    }
    /// Each of them calls the runtime, in which the stack may end.
    #[expect(unconditional_recursion, reason = "until the stack ends")]
    fn yields(last: &[u8; 64]) -> u8 {
        let next = std::hint::black_box([last[1]; 64]);
        thread::yield_now();
        yields(&next) + std::hint::black_box(next)[0]
    }
    fn from<const SIZE: usize>(depth: usize) -> u8 {
        let frame = std::hint::black_box([1; 48]);
        match depth {
            0 if SIZE == 64 => yields(&[frame[7]; 64]),
            0 => deeper(&[frame[7]; SIZE]),
            _ => from::<SIZE>(depth - 1) + std::hint::black_box(frame)[0],
        }
    }
    let gate = Arc::new(AtomicBool::new(false));
    let wait = |gate: &Arc<AtomicBool>| {
        let gate = gate.clone();
        thread::spawn(move || {
            while !gate.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        })
    };
    let below: Vec<_> = (0..3).map(|_| wait(&gate)).collect();
    let run = [from::<64>, from::<512>, from::<2000>, from::<9000>][variant % 4];
    let size = [64 << 10, 256 << 10][variant / 4 % 2];
    let thread = Builder::new().name("the deep one".to_owned());
    let thread = thread.stack_size(size);
    let thread = thread.spawn(move || run(variant / 8)).unwrap();
    let above: Vec<_> = (0..3).map(|_| wait(&gate)).collect();
    thread.join().unwrap();
    drop((below, above));
}

pub fn ends_with_a_message() {
    for variant in 0..100 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["overflows", &variant.to_string()]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGSEGV),
            "variant {variant}: {}\n{said}",
            output.status
        );
        assert!(
            said.contains("thread 'the deep one' has overflowed its stack"),
            "variant {variant}: {said}"
        );
    }
    println!("ok {}", stringify!(ends_with_a_message));
}
