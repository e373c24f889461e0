//! Threads that wait: for each other, for the kernel, and beside threads of std.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use upcall::thread;

/// The threads come one after another, in the same shells.
pub fn parking_in_std_is_ended_by_what_std_calls_the_thread() {
    for _ in 0..20 {
        let (sender, receiver) = std::sync::mpsc::channel();
        let done = Arc::new(AtomicBool::new(false));
        let there = done.clone();
        let thread = thread::spawn(move || {
            sender.send(std::thread::current()).unwrap();
            while !there.load(Ordering::SeqCst) {
                std::thread::park();
            }
        });
        let by_std = receiver.recv().unwrap();
        done.store(true, Ordering::SeqCst);
        by_std.unpark();
        thread.join().unwrap();
        // Of a thread that has ended: nothing happens.
        by_std.unpark();
    }
}

pub fn parking_waits_for_a_token() {
    let both = Arc::new(AtomicBool::new(false));
    let there = both.clone();
    let thread = thread::spawn(move || {
        thread::park();
        while !there.load(Ordering::SeqCst) {
            thread::park();
        }
    });
    thread.thread().unpark();
    both.store(true, Ordering::SeqCst);
    thread.thread().unpark();
    thread.join().unwrap();
    thread::current().unpark();
    thread::park();
    let before = std::time::Instant::now();
    thread::park_timeout(Duration::from_millis(5));
    assert!(before.elapsed() >= Duration::from_millis(5));
}

/// A thread blocks in the kernel; others go on, if there is one virtual processor or more.
pub fn who_blocks_keeps_nobody_waiting() {
    let mut ends = [0; 2];
    // SAFETY: two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let [from, to] = ends;
    let reader = thread::spawn(move || {
        let mut byte = 0u8;
        // SAFETY: one byte.
        (unsafe { libc::read(from, (&raw mut byte).cast(), 1) }, byte)
    });
    let sum: u64 = (0..1000u64)
        .map(|one| thread::spawn(move || one).join().unwrap())
        .sum();
    assert_eq!(sum, 499_500);
    assert!(!reader.is_finished());
    // SAFETY: one byte.
    assert_eq!(unsafe { libc::write(to, [8u8].as_ptr().cast(), 1) }, 1);
    assert_eq!(reader.join().unwrap(), (1, 8));
}

/// A signal for a thread that waits for another's end is handled then.
pub fn who_joins_takes_signals() {
    static HANDLED: AtomicI32 = AtomicI32::new(0);
    extern "C" fn handler(_: i32) {
        HANDLED.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: a handler that counts.
    unsafe { libc::signal(libc::SIGUSR1, handler as *const () as usize) };
    // SAFETY: the calling thread.
    let joiner = unsafe { libc::pthread_self() };
    for round in 1..=50 {
        thread::spawn(move || {
            thread::yield_now();
            // SAFETY: it lives: it joins this one.
            assert_eq!(unsafe { libc::pthread_kill(joiner, libc::SIGUSR1) }, 0);
            while HANDLED.load(Ordering::SeqCst) < round {
                thread::yield_now();
            }
        })
        .join()
        .unwrap();
    }
}

/// Threads of std beside, by the same locks.
pub fn threads_of_std_are_as_good() {
    let gate = Arc::new((Mutex::new(0), Condvar::new()));
    let come = |gate: &(Mutex<u32>, Condvar)| {
        *gate.0.lock().unwrap() += 1;
        gate.1.notify_all();
        drop(
            gate.1
                .wait_while(gate.0.lock().unwrap(), |count| *count < 20)
                .unwrap(),
        );
    };
    let (mut own, mut stds) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let (one, other) = (gate.clone(), gate.clone());
        own.push(thread::spawn(move || come(&one)));
        stds.push(std::thread::spawn(move || come(&other)));
    }
    own.into_iter().for_each(|thread| thread.join().unwrap());
    stds.into_iter().for_each(|thread| thread.join().unwrap());
}
