//! The order of threads under the policies that there are.

use super::*;

/// Each runs to its end before the next one begins: none waits.
pub fn in_fifo_each_runs_to_its_end() {
    each_runs_to_its_end(20);
}

fn each_runs_to_its_end(slices: u32) {
    start(1, Fifo);
    let log = Log::default();
    let threads: Vec<_> = (1..=3)
        .map(|number| {
            let log = log.clone();
            thread::spawn(move || {
                log.lock().unwrap().push(number);
                compute_for(slices);
                log.lock().unwrap().push(10 + number);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*log.lock().unwrap(), [1, 11, 2, 12, 3, 13]);
}

/// The same on a processor for which another program competes: a thread that loses it goes on before the others.
pub fn in_fifo_a_lost_turn_costs_no_place() {
    const PART: &str = "UPCALL_TEST_PART";
    match env::var(PART).as_deref() {
        Ok("other") => {
            start(1, RoundRobin);
            // Two: one alone needs no time slices, and takes no part in turns.
            let threads = [(); 2].map(|()| {
                thread::spawn(|| {
                    println!("computes");
                    loop {
                        spin_loop();
                    }
                })
            });
            return threads.into_iter().for_each(|it| it.join().unwrap());
        }
        // Some turns for each.
        Ok(_) => return each_runs_to_its_end(500),
        Err(_) => {}
    }
    use_one_processor();
    let part = |name| {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .arg("in_fifo_a_lost_turn_costs_no_place")
            .env(PART, name)
            .env("UPCALL_STATS", "1")
            .env_remove("UPCALL_GANG");
        command
    };
    let mut other = part("other").stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    let begun = other.stdout.as_mut().unwrap().read(&mut first).unwrap();
    assert_eq!(begun, 1);
    // Each run must be right. On a crowded machine the two are not always seen to compute at the same time.
    let lost = (0..20).any(|_| {
        let output = part("fifo").output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        turns_lost(&output.stderr) != 0
    });
    other.kill().unwrap();
    other.wait().unwrap();
    if !lost {
        println!("skipped: none of 20 runs lost a turn");
    }
}

/// How often a program has lost its processor to another one, as it says at its end.
fn turns_lost(errors: &[u8]) -> u64 {
    let taken = str::from_utf8(errors)
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("upcall: upcalls: processor taken"));
    taken.expect("a counter").trim().parse().unwrap()
}

/// What this process starts runs on one processor: the first one that it may use.
fn use_one_processor() {
    // SAFETY: reads and writes a set that is here.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&set);
        assert_eq!(libc::sched_getaffinity(0, size, &raw mut set), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|&it| libc::CPU_ISSET(it, &set));
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first.expect("one"), &mut set);
        assert_eq!(libc::sched_setaffinity(0, size, &raw const set), 0);
    }
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

/// What was lent is given back: the holder does not go on before a thread that is more urgent by itself.
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
