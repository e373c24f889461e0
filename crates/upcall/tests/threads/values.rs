//! What threads give back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use upcall::thread::{self, Builder};

pub fn values_come_back() {
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

pub fn panics_come_back() {
    let thread = thread::spawn(|| std::panic::resume_unwind(Box::new(7)));
    let panic: thread::Result<()> = thread.join();
    assert_eq!(*panic.unwrap_err().downcast::<i32>().unwrap(), 7);
    // Nothing of it is left where it ran.
    thread::spawn(|| assert!(!thread::panicking()))
        .join()
        .unwrap();
}

/// The result is dropped once, by the thread that comes last.
pub fn who_drops_the_handle_drops_the_result() {
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

pub fn threads_have_names_and_numbers() {
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

pub fn scopes_wait_for_their_threads() {
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

pub fn trees_of_threads_add_up() {
    for salt in 0..8 {
        assert_eq!(fork(11, salt), 1 << 11);
    }
}
