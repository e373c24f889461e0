//! Policies: in which order threads run, and that a bad policy orders them badly and nothing worse. Each case is
//! a process of its own, since a process has one runtime.

use std::env;
use std::hint::spin_loop;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use upcall::policy::{
    EarliestDeadline, Fifo, ForkedFirst, Gang, Id, Lifo, Policy, Priority, Rank, RoundRobin,
    Threads, Why,
};
use upcall::sync::{Barrier, Mutex, Semaphore};
use upcall::thread::{self, Builder};

const SLICE: Duration = Duration::from_micros(200);

/// Starts a runtime with a policy and so many virtual processors.
fn start(vps: u32, policy: impl Policy) {
    upcall::Runtime::builder()
        .virtual_processors(vps, vps)
        .time_slice(SLICE)
        .policy(policy)
        .start()
        .expect("starts");
}

/// What happened, in its order.
type Log = Arc<StdMutex<Vec<u32>>>;

/// Computes for some time slices of its own.
fn compute() {
    let cpu_ns = || {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes the structure.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let end = cpu_ns() + 20 * SLICE.as_nanos() as u64;
    while cpu_ns() < end {
        spin_loop();
    }
}

/// Each runs to its end before the next one begins: none waits.
fn in_fifo_each_runs_to_its_end() {
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
fn in_round_robin_nobody_runs_alone() {
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

fn a_new_thread_of_the_crate_goes_first() {
    start(1, ForkedFirst);
    assert_eq!(order_of_beginning(of_the_crate), [3, 2, 1]);
    assert_eq!(order_of_beginning(of_std), [1, 2, 3]);
}

fn in_lifo_every_new_thread_goes_first() {
    start(1, Lifo);
    assert_eq!(order_of_beginning(of_the_crate), [3, 2, 1]);
    assert_eq!(order_of_beginning(of_std), [3, 2, 1]);
}

fn in_round_robin_new_threads_queue() {
    start(1, RoundRobin);
    assert_eq!(order_of_beginning(of_the_crate), [1, 2, 3]);
}

fn with_priority<T: Send + 'static>(
    priority: u8,
    body: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    Builder::new().priority(priority).spawn(body).unwrap()
}

fn the_more_urgent_runs_at_once() {
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

/// Two mutexes in a chain, and a thread in the middle that computes until the urgent one has run: without
/// inheritance it would do so for ever.
fn who_waits_for_a_mutex_lends_its_priority() {
    start(1, Priority);
    thread::set_priority(99);
    for (chain, expected) in [(false, 2), (true, 2)] {
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
                if chain {
                    let _second = second.lock().unwrap();
                    held.release();
                    *first.lock().unwrap() += 1;
                }
            })
        };
        if chain {
            held.acquire();
        }
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
fn what_was_lent_is_given_back() {
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

fn the_nearest_deadline_goes_first() {
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

/// What a policy was told.
#[derive(Default)]
struct Counts {
    created: AtomicUsize,
    ended: AtomicUsize,
    blocked: AtomicUsize,
    unblocked: AtomicUsize,
    yielded: AtomicUsize,
    preempted: AtomicUsize,
    idle: AtomicUsize,
    ticks: AtomicUsize,
    strange: AtomicUsize,
}

#[derive(Clone, Default)]
struct Notes(Arc<Counts>);

impl Notes {
    fn add(count: &AtomicUsize) {
        count.fetch_add(1, Ordering::SeqCst);
    }
}

impl Policy for Notes {
    fn ready(&mut self, threads: &mut Threads, thread: Id, why: Why) -> Rank {
        let counts = &self.0;
        Self::add(match why {
            Why::Created => &counts.created,
            Why::Unblocked => &counts.unblocked,
            Why::Yielded => &counts.yielded,
            Why::Preempted => &counts.preempted,
        });
        if threads.tag(thread).is_none() || threads.is_blocked(thread) != Some(false) {
            Self::add(&counts.strange);
        }
        Rank::COMMON
    }

    fn blocked(&mut self, threads: &mut Threads, thread: Id) {
        Self::add(&self.0.blocked);
        if threads.is_blocked(thread) != Some(true) {
            Self::add(&self.0.strange);
        }
    }

    fn ended(&mut self, threads: &mut Threads, thread: Id) {
        Self::add(&self.0.ended);
        if threads.tag(thread).is_none() {
            Self::add(&self.0.strange);
        }
    }

    fn idle(&mut self, _: &mut Threads) {
        Self::add(&self.0.idle);
    }

    fn tick(&mut self, _: &mut Threads) {
        Self::add(&self.0.ticks);
    }

    fn period(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

fn a_policy_is_told_of_all_transitions() {
    const THREADS: usize = 200;
    for_vps(|vps| {
        let notes = Notes::default();
        start(vps, notes.clone());
        let get = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let go = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let go = go.clone();
                let body = move || {
                    thread::yield_now();
                    loop {
                        std::thread::sleep(Duration::from_micros(100));
                        if go.load(Ordering::SeqCst) {
                            break;
                        }
                    }
                    if number % 20 == 0 {
                        compute();
                    }
                };
                if number % 2 == 0 {
                    thread::spawn(body)
                } else {
                    // The same for a thread of another maker.
                    let other = std::thread::spawn(body);
                    thread::spawn(move || other.join().unwrap())
                }
            })
            .collect();
        let counts = &notes.0;
        let made = THREADS + THREADS / 2;
        // Of who has come and gone before it could look, a policy is not told.
        while get(&counts.created) < made {
            thread::yield_now();
        }
        go.store(true, Ordering::SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
        // The adviser hears of the last ends afterwards.
        while get(&counts.ended) < get(&counts.created) {
            thread::yield_now();
        }
        // The first thread of the crate may bring another one along.
        assert!((made..=made + 2).contains(&get(&counts.created)));
        assert!(get(&counts.blocked) >= THREADS);
        assert!(get(&counts.unblocked) >= THREADS);
        assert!(get(&counts.yielded) > 0);
        assert!(get(&counts.preempted) > 0);
        assert_eq!(get(&counts.strange), 0);
        let (idle, ticks) = (get(&counts.idle), get(&counts.ticks));
        while get(&counts.idle) == idle || get(&counts.ticks) == ticks {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Runs a case with 1, 2 and 4 virtual processors: a process each.
fn for_vps(case: impl Fn(u32)) {
    match env::var("UPCALL_TEST_VPS") {
        Ok(vps) => case(vps.parse().unwrap()),
        Err(_) => {
            for vps in ["1", "2", "4"] {
                let output = Command::new(env::current_exe().unwrap())
                    .args(env::args_os().skip(1))
                    .env("UPCALL_TEST_VPS", vps)
                    .output()
                    .unwrap();
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(
                    output.status.success(),
                    "{vps} virtual processors: {}\n{errors}",
                    output.status
                );
                // What it says itself is the case's to look at, where there is one virtual processor.
                eprint!("{errors}");
            }
        }
    }
}

/// Threads of all kinds come to their ends.
fn everything_works() {
    let barrier = Arc::new(Barrier::new(8));
    let sum = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let (barrier, sum) = (barrier.clone(), sum.clone());
            Builder::new()
                .tag(1 + number % 2)
                .spawn(move || {
                    for _ in 0..20 {
                        barrier.wait();
                        std::thread::sleep(Duration::from_micros(50));
                        thread::yield_now();
                    }
                    compute();
                    sum.fetch_add(1, Ordering::SeqCst);
                })
                .unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(sum.load(Ordering::SeqCst), 8);
}

/// A policy that goes wrong at the 30th question.
struct Bad {
    asked: u32,
    how: fn(),
}

impl Policy for Bad {
    fn ready(&mut self, _: &mut Threads, _: Id, _: Why) -> Rank {
        self.asked += 1;
        if self.asked == 30 {
            (self.how)();
        }
        Rank(Rank::COMMON.0 + u64::from(self.asked % 7))
    }
}

/// Everything works all the same.
fn with_a_bad_policy(how: fn()) {
    for_vps(|vps| {
        start(vps, Bad { asked: 0, how });
        everything_works();
        everything_works();
    });
}

fn who_panics_is_not_asked_again() {
    with_a_bad_policy(|| panic!("a bad policy"));
}

fn who_loops_takes_turns() {
    with_a_bad_policy(|| {
        loop {
            spin_loop();
        }
    });
}

fn who_waits_keeps_nobody_waiting() {
    with_a_bad_policy(|| {
        loop {
            std::thread::park();
        }
    });
}

/// Holds threads with a tag until somebody says a word.
struct Holds(Arc<AtomicBool>);

impl Policy for Holds {
    fn ready(&mut self, threads: &mut Threads, thread: Id, _: Why) -> Rank {
        match threads.tag(thread) {
            Some(1) if !self.0.load(Ordering::SeqCst) => Rank::HELD,
            _ => Rank::COMMON,
        }
    }

    fn tick(&mut self, threads: &mut Threads) {
        if self.0.load(Ordering::SeqCst) {
            let all: Vec<Id> = threads.iter().collect();
            for thread in all {
                threads.set_rank(thread, Rank::COMMON);
            }
        }
    }

    fn period(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

/// A held thread does not go on, whatever it did when it was held, and goes on afterwards.
fn who_is_held_does_not_run() {
    for_vps(|vps| {
        let free = Arc::new(AtomicBool::new(false));
        start(vps, Holds(free.clone()));
        let steps = Arc::new(AtomicUsize::new(0));
        let bodies: [fn(&AtomicUsize); 3] = [
            |steps| loop {
                if steps.fetch_add(1, Ordering::SeqCst) > usize::MAX / 2 {
                    return;
                }
                thread::yield_now();
            },
            |steps| {
                while steps.fetch_add(1, Ordering::SeqCst) < usize::MAX / 2 {
                    spin_loop();
                }
            },
            |steps| {
                while steps.fetch_add(1, Ordering::SeqCst) < usize::MAX / 2 {
                    std::thread::sleep(Duration::from_micros(100));
                }
            },
        ];
        let threads: Vec<_> = bodies
            .into_iter()
            .map(|body| {
                let steps = steps.clone();
                Builder::new().tag(1).spawn(move || body(&steps)).unwrap()
            })
            .collect();
        // All are held at last, and then nothing moves.
        let mut before = usize::MAX;
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let now = steps.load(Ordering::SeqCst);
            if now == before {
                break;
            }
            before = now;
        }
        free.store(true, Ordering::SeqCst);
        steps.store(usize::MAX / 2 + 1, Ordering::SeqCst);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

fn gangs_come_to_their_ends() {
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

macro_rules! cases {
    ($($case:ident)*) => {
        [$((stringify!($case), $case as fn())),*]
    };
}

fn main() {
    let cases = cases! {
        in_fifo_each_runs_to_its_end
        in_round_robin_nobody_runs_alone
        a_new_thread_of_the_crate_goes_first
        in_lifo_every_new_thread_goes_first
        in_round_robin_new_threads_queue
        the_more_urgent_runs_at_once
        who_waits_for_a_mutex_lends_its_priority
        what_was_lent_is_given_back
        the_nearest_deadline_goes_first
        a_policy_is_told_of_all_transitions
        who_panics_is_not_asked_again
        who_loops_takes_turns
        who_waits_keeps_nobody_waiting
        who_is_held_does_not_run
        gangs_come_to_their_ends
    };
    if !upcall_linux::arch::SERVES_PROGRAMS {
        println!("skipped: not on this architecture");
        return;
    }
    // What hangs ends by this.
    // SAFETY: asks for a signal.
    unsafe { libc::alarm(100) };
    let named = env::args().nth(1).filter(|arg| !arg.starts_with('-'));
    let one = named.and_then(|name| cases.iter().find(|case| case.0 == name));
    if let Some((_, case)) = one {
        return case();
    }
    for (name, _) in cases {
        let status = Command::new(env::current_exe().unwrap())
            .arg(name)
            .status()
            .unwrap();
        assert!(status.success(), "{name}: {status}");
        println!("ok {name}");
    }
}
