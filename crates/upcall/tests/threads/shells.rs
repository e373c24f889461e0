//! What threads leave behind in the shells in which others run after them, and how much that is.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use upcall::thread;

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

pub fn thread_local_storage_is_new_for_each() {
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

/// A key that stays.
fn new_key(destroy: extern "C" fn(*mut libc::c_void)) -> libc::pthread_key_t {
    let mut key = 0;
    // SAFETY: the function lives as long as the process.
    let answer = unsafe { libc::pthread_key_create(&raw mut key, Some(destroy)) };
    assert_eq!(answer, 0);
    key
}

/// What pthread_key_create(3) keeps is libc's to destroy: with the shell.
pub fn values_of_keys_are_destroyed() {
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn destroy(_: *mut libc::c_void) {
        DESTROYED.fetch_add(1, Ordering::SeqCst);
    }
    let key = new_key(destroy);
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
pub fn shells_are_used_again() {
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

/// Of threads that wait for nothing, however many have been made, most run one after another in one shell, which is in the caches.
pub fn a_batch_runs_in_few_shells() {
    let batch = || {
        let own = || {
            // SAFETY: asks only.
            (PLAIN.replace(77), unsafe { libc::gettid() })
        };
        let threads: Vec<_> = (0..1000).map(|_| thread::spawn(own)).collect();
        let known: BTreeSet<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert!(known.iter().all(|&(plain, _)| plain == 5));
        known.len()
    };
    // Each has its first thread.
    batch();
    let count = batch();
    assert!(count <= 70, "{count} shells");
    println!("ok {}", stringify!(a_batch_runs_in_few_shells));
}

/// Of threads that were made one after another, each that waits has a shell of its own, and what one leaves to libc ends that
/// shell alone.
pub fn a_batch_has_shells_for_who_waits() {
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn destroy(_: *mut libc::c_void) {
        DESTROYED.fetch_add(1, Ordering::SeqCst);
    }
    let key = new_key(destroy);
    for round in 1..=5 {
        let gate = Arc::new(upcall::sync::Semaphore::new(0));
        let batch: Vec<_> = (0..400)
            .map(|number| {
                let gate = gate.clone();
                thread::spawn(move || {
                    assert_eq!(PLAIN.replace(77), 5);
                    match number % 4 {
                        0 => gate.acquire(),
                        // SAFETY: the key above.
                        1 => unsafe {
                            assert!(libc::pthread_getspecific(key).is_null());
                            libc::pthread_setspecific(key, std::ptr::without_provenance(1));
                        },
                        2 => thread::yield_now(),
                        _ => {}
                    }
                    // SAFETY: asks only.
                    (number, unsafe { libc::gettid() })
                })
            })
            .collect();
        for _ in 0..100 {
            gate.release();
        }
        let batch: Vec<_> = batch
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert!((0..400).eq(batch.iter().map(|&(number, _)| number)));
        assert_eq!(DESTROYED.load(Ordering::SeqCst), 100 * round);
    }
}

/// Whenever a thread begins, and wherever: it blocks what its creator blocked when it made it.
pub fn a_batch_has_the_masks_of_its_creator() {
    let own = |how, change: Option<bool>| {
        // SAFETY: sets that are made here.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            if change.is_some() {
                libc::sigaddset(&raw mut set, libc::SIGUSR1);
            }
            let mut before: libc::sigset_t = std::mem::zeroed();
            assert_eq!(
                libc::pthread_sigmask(how, &raw const set, &raw mut before),
                0
            );
            libc::sigismember(&raw const before, libc::SIGUSR1) == 1
        }
    };
    let threads: Vec<_> = (0..300)
        .map(|number| {
            let blocks = number % 3 == 0;
            let how = if blocks {
                libc::SIG_BLOCK
            } else {
                libc::SIG_UNBLOCK
            };
            own(how, Some(blocks));
            (blocks, thread::spawn(move || own(libc::SIG_BLOCK, None)))
        })
        .collect();
    own(libc::SIG_UNBLOCK, Some(false));
    for (blocks, thread) in threads {
        assert_eq!(thread.join().unwrap(), blocks);
    }
}

#[link(name = "m")]
unsafe extern "C" {
    fn fesetround(round: std::ffi::c_int) -> std::ffi::c_int;
    fn fegetround() -> std::ffi::c_int;
}

/// Whenever a thread begins, and whoever ran in its shell before: it rounds as its creator did when it made it.
pub fn who_is_made_rounds_as_its_creator() {
    // Of x86-64: to the nearest, down, up, and towards zero.
    let round = |number: usize| {
        let round = [0, 0x400, 0x800, 0xc00][number % 4];
        // SAFETY: nothing is computed with it here.
        assert_eq!(unsafe { fesetround(round) }, 0);
    };
    let rounds = || {
        // SAFETY: asks only.
        unsafe { fegetround() }
    };
    // One alone, and many of which most wait for their shells.
    for count in [1, 1, 2, 200, 200] {
        let made: Vec<_> = (0..count)
            .map(|number| {
                round(number);
                let thread = thread::spawn(move || {
                    let before = rounds();
                    round(number + 1);
                    before
                });
                (rounds(), thread)
            })
            .collect();
        round(0);
        for (expected, thread) in made {
            assert_eq!(thread.join().unwrap(), expected);
            assert_eq!(rounds(), 0);
        }
    }
}

/// Two of its stack's, where also lies what the runtime knows of it, and less than a tenth of one for what libc's malloc(3)
/// has of it: frames of calls on the way are small.
pub fn who_waits_has_few_pages() {
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
        pages < 22 * THREADS / 10,
        "{pages} pages for {THREADS} threads"
    );
    // They do not wait in the order in which they were made.
    waiting.iter().for_each(|_| gate.0.release());
    for thread in waiting {
        thread.join().unwrap();
    }
    println!("ok {}", stringify!(who_waits_has_few_pages));
}

/// What threads have written on their stacks does not stay for good when they have ended.
pub fn free_stacks_lose_their_pages() {
    const THREADS: usize = 1000;
    const WRITES: usize = 64 << 10;
    let write = || {
        let all_at_once = upcall::sync::Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let room = std::hint::black_box([1u8; WRITES]);
                    all_at_once.wait();
                    let sum: usize = room.iter().map(|&one| usize::from(one)).sum();
                    assert_eq!((PLAIN.replace(77), sum), (5, WRITES));
                });
            }
        });
    };
    thread::spawn(|| ()).join().unwrap();
    let before = resident_pages();
    for _ in 0..2 {
        write();
        // Each of four virtual processors keeps 64. What hangs ends by the alarm.
        let left = THREADS * WRITES / 4096 / 2;
        while resident_pages() > before + left {
            thread::sleep(std::time::Duration::from_millis(50));
        }
    }
    println!("ok {}", stringify!(free_stacks_lose_their_pages));
}

/// What of the process is in memory. The sum that proc_pid_statm(5) has may be behind by some pages of each processor.
fn resident_pages() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB").trim();
    kib.parse::<usize>().unwrap() / 4
}

/// Where addresses are limited, threads are made until there are none left, and refused then as pthread_create(3) does.
pub fn limited_addresses_refuse_threads() {
    const LEFT: u64 = 100 << 20;
    upcall::Runtime::start().unwrap();
    thread::spawn(|| ()).join().unwrap();
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').next().unwrap().parse().unwrap();
    let limit = libc::rlimit {
        rlim_cur: pages * 4096 + LEFT,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a limit that is here.
    let answer = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(answer, 0);
    for round in 0..2 {
        let gate = Arc::new(upcall::sync::Semaphore::new(0));
        let mut waiting = Vec::with_capacity(1000);
        let refusal = loop {
            let gate = gate.clone();
            match thread::Builder::new().spawn(move || gate.acquire()) {
                Ok(thread) => waiting.push(thread),
                Err(error) => break error,
            }
        };
        assert_eq!(refusal.raw_os_error(), Some(libc::EAGAIN));
        // Stacks of 256 KiB: three quarters of what was left.
        let least = LEFT as usize / (256 << 10) * 3 / 4;
        assert!(waiting.len() > least, "round {round}: {}", waiting.len());
        waiting.iter().for_each(|_| gate.release());
        for thread in waiting {
            thread.join().unwrap();
        }
    }
    println!("ok {}", stringify!(limited_addresses_refuse_threads));
}

/// Also at first, when there are none: as many as it is deep, and not one for each part of the work.
pub fn divided_work_has_few_shells() {
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

/// A thread of the crate stays on the virtual processors: what it cannot have is refused, and not accepted without effect.
pub fn other_processors_are_refused() {
    let answers = |mask: libc::cpu_set_t| {
        // SAFETY: reads a set that is here.
        match unsafe { libc::sched_setaffinity(0, size_of_val(&mask), &raw const mask) } {
            0 => 0,
            _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        }
    };
    let of_caller = || {
        // SAFETY: writes a set that is here.
        unsafe {
            let mut mask: libc::cpu_set_t = std::mem::zeroed();
            let size = size_of_val(&mask);
            assert_eq!(libc::sched_getaffinity(0, size, &raw mut mask), 0);
            mask
        }
    };
    thread::spawn(move || {
        let all = of_caller();
        assert_eq!(answers(all), 0);
        // SAFETY: a set that is here.
        let (count, one) = unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            let first = (0..libc::CPU_SETSIZE as usize).find(|&it| libc::CPU_ISSET(it, &all));
            libc::CPU_SET(first.expect("one"), &mut one);
            (libc::CPU_COUNT(&all), one)
        };
        let expected = if count > 1 { libc::EPERM } else { 0 };
        assert_eq!(answers(one), expected);
        let after = of_caller();
        // SAFETY: sets that are here.
        assert!(unsafe { libc::CPU_EQUAL(&after, &all) });
    })
    .join()
    .unwrap();
}
