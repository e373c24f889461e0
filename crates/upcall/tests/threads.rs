//! Threads of the crate: what they give back, what they leave behind, and that one takes the other's place.
//! Each setting is a process of its own, since there is one runtime in one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use upcall::thread::{self, Builder};

fn values_come_back() {
    assert_eq!(thread::spawn(|| 42).join().unwrap(), 42);
    thread::spawn(|| ()).join().unwrap();
    let text = String::from("moved in");
    assert_eq!(
        thread::spawn(move || text + " and out").join().unwrap(),
        "moved in and out"
    );
    // Too large for the room in a shell.
    let large = [7u64; 500];
    let sum = thread::spawn(move || (large.iter().sum::<u64>(), [1u8; 3000]));
    let (sum, bytes) = sum.join().unwrap();
    assert_eq!((sum, bytes.len()), (3500, 3000));
    #[repr(align(64))]
    struct Aligned(u8);
    let aligned = Aligned(9);
    let address = thread::spawn(move || {
        let aligned = aligned;
        (&raw const aligned as usize % 64, aligned.0)
    });
    assert_eq!(address.join().unwrap(), (0, 9));
}

fn panics_come_back() {
    let thread = thread::spawn(|| std::panic::resume_unwind(Box::new(7)));
    let panic: thread::Result<()> = thread.join();
    assert_eq!(*panic.unwrap_err().downcast::<i32>().unwrap(), 7);
    // Nothing of it is left where it ran.
    thread::spawn(|| assert!(!thread::panicking()))
        .join()
        .unwrap();
}

/// The result is dropped once, by whoever comes last.
fn who_drops_the_handle_drops_the_result() {
    struct Counts(Arc<AtomicU32>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let drops = Arc::new(AtomicU32::new(0));
    const EACH: u32 = 200;
    for _ in 0..EACH {
        let (early, late, large) = (drops.clone(), drops.clone(), drops.clone());
        drop(thread::spawn(move || Counts(early)));
        let handle = thread::spawn(move || Counts(late));
        while !handle.is_finished() {
            thread::yield_now();
        }
        drop(handle);
        drop(thread::spawn(move || (Counts(large), [0u8; 1000])));
    }
    while drops.load(Ordering::SeqCst) < 3 * EACH {
        thread::yield_now();
    }
    for _ in 0..100 {
        thread::yield_now();
    }
    assert_eq!(drops.load(Ordering::SeqCst), 3 * EACH);
}

fn threads_have_names_and_numbers() {
    let handle = Builder::new()
        .name("a long name for a thread".to_owned())
        .spawn(|| {
            let mut shown = [0u8; 16];
            // SAFETY: the calling thread; sixteen bytes.
            unsafe {
                libc::pthread_getname_np(libc::pthread_self(), shown.as_mut_ptr().cast(), 16);
            }
            (thread::current(), shown)
        })
        .unwrap();
    let known = handle.thread().clone();
    let (own, shown) = handle.join().unwrap();
    assert_eq!(own.name(), Some("a long name for a thread"));
    assert_eq!(known.id(), own.id());
    assert_eq!(&shown, b"a long name for\0");
    let next = thread::spawn(|| {
        let mut shown = [0u8; 16];
        // SAFETY: as above.
        unsafe { libc::pthread_getname_np(libc::pthread_self(), shown.as_mut_ptr().cast(), 16) };
        (thread::current().name().is_none(), shown)
    });
    let (unnamed, shown) = next.join().unwrap();
    assert!(unnamed && !shown.starts_with(b"a long name"), "{shown:?}");
    let numbers: Vec<_> = (0..100)
        .map(|_| thread::spawn(|| thread::current().id()).join().unwrap())
        .collect();
    assert!(
        numbers
            .iter()
            .all(|one| numbers.iter().filter(|other| one == *other).count() == 1)
    );
}

thread_local! {
    static PLAIN: Cell<u32> = const { Cell::new(5) };
    static DROPPED: RefCell<Option<Says>> = const { RefCell::new(None) };
}

struct Says(Arc<AtomicUsize>);

impl Drop for Says {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn thread_local_storage_is_new_for_each() {
    let dropped = Arc::new(AtomicUsize::new(0));
    for round in 0..500 {
        let says = dropped.clone();
        let seen = thread::spawn(move || {
            let seen = PLAIN.replace(77);
            DROPPED.with_borrow_mut(|slot| {
                assert!(slot.is_none());
                *slot = Some(Says(says));
            });
            (seen, std::thread::current().id())
        });
        let (seen, _) = seen.join().unwrap();
        assert_eq!(seen, 5, "in round {round}");
        assert_eq!(
            dropped.load(Ordering::SeqCst),
            round + 1,
            "destroyed before it is joined"
        );
    }
    assert_eq!(PLAIN.get(), 5);
}

/// What pthread_key_create(3) keeps is libc's to destroy: with the shell.
fn values_of_keys_are_destroyed() {
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn destroy(_: *mut libc::c_void) {
        DESTROYED.fetch_add(1, Ordering::SeqCst);
    }
    let mut key = 0;
    // SAFETY: a key that stays.
    let answer = unsafe { libc::pthread_key_create(&raw mut key, Some(destroy)) };
    assert_eq!(answer, 0);
    for round in 0..20 {
        thread::spawn(move || {
            // SAFETY: the key above.
            unsafe {
                assert!(libc::pthread_getspecific(key).is_null());
                libc::pthread_setspecific(key, std::ptr::without_provenance(round + 1));
            }
        })
        .join()
        .unwrap();
        assert_eq!(DESTROYED.load(Ordering::SeqCst), round + 1);
    }
    // Shells end and begin beside one another, in the same memory.
    let makers: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(move || {
                for _ in 0..100 {
                    let sets = thread::spawn(move || {
                        // SAFETY: the key above.
                        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) }
                    });
                    let other = thread::spawn(|| PLAIN.replace(6));
                    assert_eq!((sets.join().unwrap(), other.join().unwrap()), (0, 5));
                }
            })
        })
        .collect();
    makers.into_iter().for_each(|maker| maker.join().unwrap());
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 820);
}

/// One after another they run in few shells: libc knows few of them.
fn shells_are_used_again() {
    let own = || {
        // SAFETY: asks only.
        unsafe { libc::gettid() }
    };
    let known: BTreeSet<i32> = (0..10_000)
        .map(|_| thread::spawn(own).join().unwrap())
        .collect();
    assert!(known.len() <= 70, "{} shells", known.len());
    let at_once = |count: usize| {
        let threads: Vec<_> = (0..count).map(|_| thread::spawn(own)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<BTreeSet<i32>>()
    };
    let first = at_once(1000);
    let mut all = first.clone();
    for _ in 0..10 {
        all.extend(at_once(1000));
    }
    // Some are with other virtual processors.
    assert!(all.len() <= 1000 + 70 * 10, "{} shells", all.len());
}

/// Two of its stack's, and a part of one for what the runtime knows of it: frames of calls on the way are small.
fn who_waits_has_few_pages() {
    const THREADS: usize = 1000;
    upcall::Runtime::start().unwrap();
    let gate = Arc::new((upcall::sync::Semaphore::new(0), AtomicUsize::new(0)));
    // What is there once.
    thread::spawn(|| ()).join().unwrap();
    let before = resident_pages();
    let waiting: Vec<_> = (0..THREADS)
        .map(|_| {
            let gate = gate.clone();
            thread::spawn(move || {
                gate.1.fetch_add(1, Ordering::Relaxed);
                gate.0.acquire();
            })
        })
        .collect();
    // On one virtual processor who has counted itself waits as soon as another runs.
    while gate.1.load(Ordering::Relaxed) < THREADS {
        thread::yield_now();
    }
    let pages = resident_pages() - before;
    assert!(
        pages < 5 * THREADS / 2,
        "{pages} pages for {THREADS} threads"
    );
    // They do not wait in the order in which they were made.
    waiting.iter().for_each(|_| gate.0.release());
    for thread in waiting {
        thread.join().unwrap();
    }
    println!("ok {}", stringify!(who_waits_has_few_pages));
}

/// What of the process is in memory (proc_pid_statm(5)).
fn resident_pages() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Also at first, when there are none: as many as it is deep, and not one for each part of the work.
fn divided_work_has_few_shells() {
    fn divide(depth: u32, known: &Mutex<BTreeSet<i32>>) {
        // SAFETY: asks only.
        known.lock().unwrap().insert(unsafe { libc::gettid() });
        if depth > 0 {
            thread::scope(|scope| {
                let half = scope.spawn(|| divide(depth - 1, known));
                divide(depth - 1, known);
                half.join().unwrap();
            });
        }
    }
    let known = Mutex::new(BTreeSet::new());
    divide(10, &known);
    let count = known.into_inner().unwrap().len();
    assert!(count <= 2 * 10, "{count} shells");
    println!("ok {}", stringify!(divided_work_has_few_shells));
}

/// The threads come one after another, in the same shells.
fn parking_in_std_is_ended_by_what_std_calls_the_thread() {
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

fn parking_waits_for_a_token() {
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

fn scopes_wait_for_their_threads() {
    let mut numbers = [0u64; 64];
    thread::scope(|scope| {
        for (index, number) in numbers.iter_mut().enumerate() {
            scope.spawn(move || {
                thread::yield_now();
                *number = index as u64;
            });
        }
    });
    assert_eq!(numbers.iter().sum::<u64>(), 63 * 64 / 2);
    let sum = thread::scope(|scope| {
        let halves: Vec<_> = numbers
            .chunks(32)
            .map(|half| scope.spawn(move || half.iter().sum::<u64>()))
            .collect();
        halves
            .into_iter()
            .map(|half| half.join().unwrap())
            .sum::<u64>()
    });
    assert_eq!(sum, 63 * 64 / 2);
    let unasked = std::panic::catch_unwind(|| {
        thread::scope(|scope| {
            scope.spawn(|| std::panic::resume_unwind(Box::new(1)));
        });
    });
    assert!(unasked.is_err());
    let asked = thread::scope(|scope| {
        scope
            .spawn(|| std::panic::resume_unwind(Box::new(1)))
            .join()
            .is_err()
    });
    assert!(asked);
}

/// A thread blocks in the kernel; others go on, if there is one virtual processor or more.
fn who_blocks_keeps_nobody_waiting() {
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

fn fork(depth: u32, salt: u32) -> u64 {
    if depth == 0 {
        if salt.is_multiple_of(5) {
            thread::yield_now();
        }
        if salt.is_multiple_of(1000) {
            std::thread::sleep(Duration::from_micros(50));
        }
        return 1;
    }
    let left = thread::spawn(move || fork(depth - 1, salt.wrapping_mul(31) + 1));
    let right = fork(depth - 1, salt.wrapping_mul(17) + 2);
    left.join().unwrap() + right
}

fn trees_of_threads_add_up() {
    for salt in 0..8 {
        assert_eq!(fork(11, salt), 1 << 11);
    }
}

/// A signal for a thread that waits for another's end is handled then.
fn who_joins_takes_signals() {
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

fn stacks_are_as_large_as_asked_for() {
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
fn children_have_threads_of_their_own() {
    let status = thread::spawn(|| {
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
    });
    let status = status.join().unwrap();
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1,
        "{status:#x}"
    );
}

/// Threads of std beside, by the same locks.
fn threads_of_std_are_as_good() {
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

macro_rules! cases {
    ($($case:ident)*) => {
        $(
            $case();
            println!("ok {}", stringify!($case));
        )*
    };
}

/// The first thread ends by itself: the process ends with the last that runs, however many shells are free.
fn first_ends() -> ! {
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

/// A thread uses up its stack, by frames of one size and from one depth of many, while others wait whose stacks lie
/// around it.
fn overflows(variant: usize) {
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

fn ends_with_a_message() {
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

fn again(word: &str, settings: &[(&str, &str)], status: i32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .arg(word)
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    let (out, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.code() == Some(status),
        "{word} {settings:?}: {}\n{out}\n{error}",
        output.status
    );
    print!("{out}");
}

fn main() {
    if !upcall_linux::arch::SERVES_PROGRAMS {
        println!("skipped: not on this architecture");
        return;
    }
    // What hangs ends by this.
    // SAFETY: asks for a signal.
    unsafe { libc::alarm(100) };
    match std::env::args().nth(1).as_deref() {
        Some("first-ends") => {
            upcall::Runtime::start().unwrap();
            first_ends()
        }
        Some("child-first-ends") => {
            upcall::Runtime::start().unwrap();
            thread::spawn(|| ()).join().unwrap();
            // SAFETY: the child has this thread, and goes on with it.
            let child = unsafe { libc::fork() };
            if child == 0 {
                first_ends();
            }
            let mut status = 0;
            // SAFETY: a child of ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            std::process::exit(libc::WEXITSTATUS(status));
        }
        Some("overflows") => {
            let variant = std::env::args().nth(2).and_then(|word| word.parse().ok());
            overflows(variant.expect("a number"));
        }
        Some("usual-stack") => {
            // More than there is where nothing is said.
            upcall::Runtime::builder()
                .stack_size(2 << 20)
                .start()
                .unwrap();
            let sum = thread::spawn(|| {
                let room = std::hint::black_box([1u8; 1 << 20]);
                room.iter().map(|&one| u32::from(one)).sum::<u32>()
            });
            assert_eq!(sum.join().unwrap(), 1 << 20);
        }
        Some("divides") => divided_work_has_few_shells(),
        Some("waits") => who_waits_has_few_pages(),
        Some("cases") => {
            cases! {
                values_come_back
                panics_come_back
                who_drops_the_handle_drops_the_result
                threads_have_names_and_numbers
                thread_local_storage_is_new_for_each
                values_of_keys_are_destroyed
                shells_are_used_again
                parking_waits_for_a_token
                parking_in_std_is_ended_by_what_std_calls_the_thread
                scopes_wait_for_their_threads
                who_blocks_keeps_nobody_waiting
                trees_of_threads_add_up
                who_joins_takes_signals
                stacks_are_as_large_as_asked_for
                children_have_threads_of_their_own
                threads_of_std_are_as_good
            }
        }
        _ => {
            ends_with_a_message();
            again("usual-stack", &[], 0);
            // No slice ends meanwhile: that would put new threads behind others.
            let alone = [("UPCALL_VPS", "1"), ("UPCALL_SLICE_US", "1000000")];
            again("divides", &alone, 0);
            again("waits", &alone, 0);
            for vps in ["1", "2", "4"] {
                for slice in ["5000", "100"] {
                    println!("{vps} virtual processors, slices of {slice} us");
                    again(
                        "cases",
                        &[("UPCALL_VPS", vps), ("UPCALL_SLICE_US", slice)],
                        0,
                    );
                }
                again("first-ends", &[("UPCALL_VPS", vps)], 3);
                again("child-first-ends", &[("UPCALL_VPS", vps)], 3);
            }
        }
    }
}
