//! The order of threads under the policies that there are.

use super::*;

/// Each runs to its end before the next one begins: none waits.
pub fn in_fifo_each_runs_to_its_end() {
    start(1, Fifo);
    let log = Log::default();
    let threads: Vec<_> = (1..=3)
        .map(|number| {
            let log = log.clone();
            thread::spawn(move || {
                log.lock().unwrap().push(number);
                compute();
                log.lock().unwrap().push(10 + number);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*log.lock().unwrap(), [1, 11, 2, 12, 3, 13]);
}

/// Threads that wait for one another in loops all get turns.
pub fn in_round_robin_nobody_runs_alone() {
    start(1, RoundRobin);
    let begun = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let begun = begun.clone();
            thread::spawn(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                while begun.load(Ordering::SeqCst) < 3 {
                    spin_loop();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Threads that are made by `std` and by the crate, in one time slice: in which order they begin.
fn order_of_beginning(spawns: impl Fn(u32, Log)) -> Vec<u32> {
    // A slice may end in between: then the order is another one. The one that is seen most often counts.
    let mut seen = std::collections::BTreeMap::<Vec<u32>, u32>::new();
    for _ in 0..200 {
        let log = Log::default();
        for number in 1..=3 {
            spawns(number, log.clone());
        }
        while log.lock().unwrap().len() < 3 {
            thread::yield_now();
        }
        let order = log.lock().unwrap().clone();
        *seen.entry(order).or_default() += 1;
    }
    seen.into_iter().max_by_key(|(_, times)| *times).unwrap().0
}

fn of_the_crate(number: u32, log: Log) {
    drop(thread::spawn(move || log.lock().unwrap().push(number)));
}

fn of_std(number: u32, log: Log) {
    drop(std::thread::spawn(move || log.lock().unwrap().push(number)));
}

pub fn a_new_thread_of_the_crate_goes_first() {
    start(1, ForkedFirst);
    assert_eq!(order_of_beginning(of_the_crate), [3, 2, 1]);
    assert_eq!(order_of_beginning(of_std), [1, 2, 3]);
}

pub fn in_lifo_every_new_thread_goes_first() {
    start(1, Lifo);
    assert_eq!(order_of_beginning(of_the_crate), [3, 2, 1]);
    assert_eq!(order_of_beginning(of_std), [3, 2, 1]);
}

pub fn in_round_robin_new_threads_queue() {
    start(1, RoundRobin);
    assert_eq!(order_of_beginning(of_the_crate), [1, 2, 3]);
}

fn with_priority<T: Send + 'static>(
    priority: u8,
    body: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    Builder::new().priority(priority).spawn(body).unwrap()
}

pub fn the_more_urgent_runs_at_once() {
    start(1, Priority);
    thread::set_priority(50);
    let ran = Arc::new(AtomicBool::new(false));
    let low = {
        let ran = ran.clone();
        with_priority(10, move || ran.store(true, Ordering::SeqCst))
    };
    assert!(!ran.load(Ordering::SeqCst));
    let high = with_priority(90, || ());
    assert!(high.is_finished());
    // Its creator's, if it says nothing: a thread like this one.
    let like = thread::spawn(thread::yield_now);
    like.join().unwrap();
    assert!(!ran.load(Ordering::SeqCst));
    // Less urgent than the other now, which runs at once.
    thread::set_priority(5);
    assert!(low.is_finished());
    for priority in [0, 100] {
        assert!(std::panic::catch_unwind(|| Builder::new().priority(priority)).is_err());
    }
}

/// Two that wait for one mutex, or two mutexes in a chain, and a thread in the middle that computes until the urgent
/// one has run: without inheritance it would do so for ever, and if the other one were woken first.
pub fn who_waits_for_a_mutex_lends_its_priority() {
    start(1, Priority);
    thread::set_priority(99);
    for (chain, expected) in [(false, 3), (true, 2)] {
        let [first, second] = [Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0))];
        let (held, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let done = Arc::new(AtomicBool::new(false));
        let lowest = {
            let (first, held, go) = (first.clone(), held.clone(), go.clone());
            with_priority(1, move || {
                let mut guard = first.lock().unwrap();
                held.release();
                go.acquire();
                *guard += 1;
            })
        };
        held.acquire();
        let low = {
            let (first, second, held) = (first.clone(), second.clone(), held.clone());
            with_priority(2, move || {
                let _second = chain.then(|| second.lock().unwrap());
                held.release();
                *first.lock().unwrap() += 1;
            })
        };
        held.acquire();
        // Then it waits, as a rule.
        thread::sleep(Duration::from_millis(1));
        let middle = {
            let done = done.clone();
            with_priority(50, move || {
                while !done.load(Ordering::SeqCst) {
                    spin_loop();
                }
            })
        };
        let high = {
            let wanted = if chain { second.clone() } else { first.clone() };
            let done = done.clone();
            with_priority(90, move || {
                *wanted.lock().unwrap() += 1;
                done.store(true, Ordering::SeqCst);
            })
        };
        go.release();
        for thread in [lowest, low, middle, high] {
            thread.join().unwrap();
        }
        assert_eq!(*first.lock().unwrap(), expected);
    }
}

/// What was lent is given back: the holder does not go on before who is more urgent by itself.
pub fn what_was_lent_is_given_back() {
    start(1, Priority);
    thread::set_priority(99);
    let mutex = Arc::new(Mutex::new(()));
    let (held, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let log = Log::default();
    let low = {
        let (mutex, held, go, log) = (mutex.clone(), held.clone(), go.clone(), log.clone());
        with_priority(1, move || {
            let guard = mutex.lock().unwrap();
            held.release();
            go.acquire();
            drop(guard);
            log.lock().unwrap().push(1);
        })
    };
    held.acquire();
    let high = {
        let (mutex, log) = (mutex.clone(), log.clone());
        with_priority(90, move || {
            drop(mutex.lock().unwrap());
            log.lock().unwrap().push(90);
        })
    };
    let middle = {
        let log = log.clone();
        with_priority(50, move || log.lock().unwrap().push(50))
    };
    go.release();
    for thread in [low, middle, high] {
        thread.join().unwrap();
    }
    assert_eq!(*log.lock().unwrap(), [90, 50, 1]);
}

pub fn the_nearest_deadline_goes_first() {
    start(1, EarliestDeadline);
    let now = Instant::now();
    thread::set_deadline(now);
    let log = Log::default();
    let threads: Vec<_> = [(3, 300), (1, 100), (2, 200)]
        .into_iter()
        .map(|(number, seconds)| {
            let log = log.clone();
            Builder::new()
                .deadline(now + Duration::from_secs(seconds))
                .spawn(move || {
                    log.lock().unwrap().push(number);
                    if number == 2 {
                        // It is the last one now.
                        thread::set_deadline(now + Duration::from_secs(400));
                        log.lock().unwrap().push(20);
                    }
                })
                .unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*log.lock().unwrap(), [1, 2, 3, 20]);
}

pub fn gangs_come_to_their_ends() {
    for_vps(|vps| {
        start(vps, Gang::new(Duration::from_millis(2)));
        everything_works();
        // Groups that wait for one another in loops.
        let arrived: Arc<[AtomicU32; 3]> = Arc::default();
        let threads: Vec<_> = (0..6)
            .map(|number| {
                let arrived = arrived.clone();
                let group = number % 3;
                Builder::new()
                    .tag(1 + group as u64)
                    .spawn(move || {
                        for round in 1..=50 {
                            arrived[group].fetch_add(1, Ordering::SeqCst);
                            while arrived[group].load(Ordering::SeqCst) < 2 * round {
                                spin_loop();
                            }
                        }
                    })
                    .unwrap()
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
