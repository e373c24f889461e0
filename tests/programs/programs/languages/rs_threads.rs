//! Two thousand named threads on small stacks: barrier, mutex, rwlock, thread locals with
//! destructors, names, results.

use std::cell::{Cell, RefCell};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, RwLock};
use std::thread;
use std::time::Duration;

include!("case.rs.inc");

static DROPS: AtomicUsize = AtomicUsize::new(0);

struct Counted;
impl Drop for Counted {
    fn drop(&mut self) {
        DROPS.fetch_add(1, Ordering::SeqCst);
    }
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    static LIST: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static GUARD: Counted = const { Counted };
}

fn main() -> ExitCode {
    const COUNT: usize = 2000;
    let mutex = Arc::new(Mutex::new(0usize));
    let lock = Arc::new(RwLock::new(0usize));
    let barrier = Arc::new(Barrier::new(COUNT));
    let wrong = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..COUNT)
        .map(|number| {
            let (mutex, lock) = (mutex.clone(), lock.clone());
            let (barrier, wrong) = (barrier.clone(), wrong.clone());
            let name = format!("thread-{number}");
            let body = move || {
                NUMBER.set(number);
                GUARD.with(|_| ());
                LIST.with_borrow_mut(|list| list.push(number));
                barrier.wait();
                for turn in 0..20 {
                    *mutex.lock().unwrap() += 1;
                    if turn % 4 == 0 {
                        *lock.write().unwrap() += 1;
                    } else {
                        std::hint::black_box(*lock.read().unwrap());
                    }
                    thread::yield_now();
                    let own = NUMBER.get() == number && thread::current().name() == Some(&name);
                    wrong.fetch_add(usize::from(!own), Ordering::SeqCst);
                }
                thread::sleep(Duration::from_millis(1));
                LIST.with_borrow(|list| assert_eq!(*list, [number]));
                number
            };
            let builder = thread::Builder::new().stack_size(128 << 10);
            builder
                .name(format!("thread-{number}"))
                .spawn(body)
                .unwrap()
        })
        .collect();
    let sum: usize = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    check("results", sum == COUNT * (COUNT - 1) / 2, sum);
    let (counted, written) = (*mutex.lock().unwrap(), *lock.read().unwrap());
    check("mutex", counted == COUNT * 20, counted);
    check("rwlock", written == COUNT * 5, written);
    check(
        "locals_and_names",
        wrong.load(Ordering::SeqCst) == 0,
        wrong.load(Ordering::SeqCst),
    );
    check(
        "destructors",
        DROPS.load(Ordering::SeqCst) == COUNT,
        DROPS.load(Ordering::SeqCst),
    );
    verdict()
}
