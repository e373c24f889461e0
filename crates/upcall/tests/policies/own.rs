//! Policies of one's own: what they are told, what they may ask for, and what becomes of bad ones.

use super::*;

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

pub fn a_policy_is_told_of_all_transitions() {
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
        // A policy is not told of threads that come and go before it can look, nor of what a thread did before it ended, if it
        // hears of that first. So nobody ends before everything was told.
        while get(&counts.created) < made
            || get(&counts.blocked) < THREADS
            || get(&counts.unblocked) < THREADS
        {
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
        assert!(get(&counts.yielded) > 0);
        assert!(get(&counts.preempted) > 0);
        assert_eq!(get(&counts.strange), 0);
        let (idle, ticks) = (get(&counts.idle), get(&counts.ticks));
        while get(&counts.idle) == idle || get(&counts.ticks) == ticks {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// How far it is with a thread of which it hears late.
#[derive(Default)]
struct Late {
    asked: AtomicBool,
    busy: AtomicBool,
    ended: AtomicUsize,
    created: AtomicUsize,
}

#[derive(Clone, Default)]
struct Sluggish(Arc<Late>);

impl Policy for Sluggish {
    fn ready(&mut self, _: &mut Threads, _: Id, why: Why) -> Rank {
        self.0
            .created
            .fetch_add(usize::from(why == Why::Created), Ordering::SeqCst);
        Rank::COMMON
    }

    fn ended(&mut self, _: &mut Threads, _: Id) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn tick(&mut self, _: &mut Threads) {
        while self.0.asked.load(Ordering::SeqCst) {
            self.0.busy.store(true, Ordering::SeqCst);
            spin_loop();
        }
        self.0.busy.store(false, Ordering::SeqCst);
    }

    fn period(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

/// The thread's block is another thread's before the policy hears of the end.
pub fn an_end_of_which_it_hears_late_is_told() {
    let policy = Sluggish::default();
    let late = policy.0.clone();
    start(2, policy);
    let until = |holds: &dyn Fn() -> bool| {
        while !holds() {
            thread::yield_now();
        }
    };
    let created = |count| move |late: &Late| late.created.load(Ordering::SeqCst) >= count;
    for _ in 0..20 {
        let ended = late.ended.load(Ordering::SeqCst);
        let before = late.created.load(Ordering::SeqCst);
        let go = Arc::new(AtomicBool::new(false));
        let waits = {
            let go = go.clone();
            move || {
                while !go.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        };
        let first = std::thread::spawn(waits.clone());
        until(&|| created(before + 1)(&late));
        late.asked.store(true, Ordering::SeqCst);
        until(&|| late.busy.load(Ordering::SeqCst));
        go.store(true, Ordering::SeqCst);
        first.join().unwrap();
        go.store(false, Ordering::SeqCst);
        let second = std::thread::spawn(waits);
        late.asked.store(false, Ordering::SeqCst);
        until(&|| late.ended.load(Ordering::SeqCst) > ended);
        go.store(true, Ordering::SeqCst);
        second.join().unwrap();
        until(&|| late.ended.load(Ordering::SeqCst) > ended + 1);
    }
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

pub fn who_panics_is_not_asked_again() {
    with_a_bad_policy(|| panic!("a bad policy"));
}

pub fn who_loops_takes_turns() {
    with_a_bad_policy(|| {
        loop {
            spin_loop();
        }
    });
}

pub fn who_waits_keeps_nobody_waiting() {
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
pub fn who_is_held_does_not_run() {
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

/// Holds every thread of the program that it is told of, until its third tick.
struct HoldsAll(u32);

impl Policy for HoldsAll {
    fn ready(&mut self, _: &mut Threads, _: Id, _: Why) -> Rank {
        match self.0 {
            0..3 => Rank::HELD,
            _ => Rank::COMMON,
        }
    }

    fn tick(&mut self, threads: &mut Threads) {
        self.0 += 1;
        if self.0 == 3 {
            let all: Vec<Id> = threads.iter().collect();
            for thread in all {
                threads.set_rank(thread, Rank::COMMON);
            }
        }
    }

    fn period(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
}

/// The program stood still without a word, but in builds for debugging.
pub fn that_all_are_held_is_said() {
    const HELD: &str = "UPCALL_TEST_HELD";
    if env::var_os(HELD).is_some() {
        start(2, HoldsAll(0));
        return thread::spawn(thread::yield_now).join().unwrap();
    }
    let output = Command::new(env::current_exe().unwrap())
        .arg("that_all_are_held_is_said")
        .env(HELD, "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("the policy has held"), "{errors}");
}
