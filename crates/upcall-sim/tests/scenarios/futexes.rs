//! The futex: waits and wake-ups are those of futex(2).
//!
//! `as_the_kernel_does` compares them with a small sequential model. There one thread does everything in turn: it has
//! others wait, wakes, moves and signals them. So the model knows who waits for which word in which order. Only a
//! deadline that has passed by the end of an operation is a race, which either may win: there the waiter says what
//! ended its wait, and all else must follow from that. In the other scenarios everybody acts at once.

use std::sync::atomic::{AtomicU32, Ordering};

use upcall_core::Waited;
use upcall_core::WakeReason;
use upcall_sim::{Handle, Me, explore};

use super::join_all;

/// How many words there are, and how many wait at most.
const WORDS: u64 = 3;
const MOST: usize = 8;

/// What is asked for: none, few, the most that futex(2) takes, and more than that.
const COUNTS: [usize; 5] = [0, 1, 2, i32::MAX as usize, usize::MAX];

/// Bits that are common to some, and to all but one.
const MASKS: [u32; 5] = [1, 2, 3, 4, u32::MAX];

/// Longer than any operation takes.
const LONG: u64 = 5_000_000;

/// A thread that waits, by the model.
struct Waiter {
    handle: Handle,
    word: usize,
    mask: u32,
    deadline: Option<u64>,
    /// What ended its wait: a [`WakeReason`] plus one.
    outcome: &'static AtomicU32,
    /// It may end: until then it can be sent a signal.
    released: &'static AtomicU32,
}

impl Waiter {
    fn is_late(&self, me: Me) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= me.machine.clock.get())
    }

    /// Waits for the end of its wait.
    fn outcome(&self, me: Me) -> u32 {
        while self.outcome.load(Ordering::SeqCst) == 0 {
            me.wait(self.outcome, 0, None);
        }
        self.outcome.load(Ordering::SeqCst)
    }

    /// As [`Waiter::outcome`]; afterwards the thread ends.
    fn end(&self, me: Me) -> u32 {
        let outcome = self.outcome(me);
        self.released.store(1, Ordering::SeqCst);
        me.wake(self.released, 1);
        me.join(self.handle);
        outcome
    }
}

const fn ended_by(reason: WakeReason) -> u32 {
    reason as u32 + 1
}

/// The model: the threads that wait, in the order in which the kernel looks.
struct Model {
    me: Me,
    words: [&'static AtomicU32; WORDS as usize],
    waiters: Vec<Waiter>,
}

impl Model {
    fn new(me: Me) -> Self {
        Model {
            me,
            words: std::array::from_fn(|_| me.word(0)),
            waiters: Vec::new(),
        }
    }

    fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.me.machine.pick(from.len() as u64) as usize]
    }

    fn pick_word(&self) -> usize {
        self.me.machine.pick(WORDS) as usize
    }

    /// FUTEX_WAIT_BITSET: a new thread waits.
    fn wait(&mut self) {
        let (word, mask) = (self.pick_word(), self.pick(&MASKS));
        let now = self.me.machine.clock.get();
        let deadline = match self.me.machine.pick(4) {
            0 => Some(now + self.me.machine.pick(30_000)),
            1 => Some(now + 2 * LONG + self.me.machine.pick(30_000)),
            _ => None,
        };
        let [hung, outcome, released] = std::array::from_fn(|_| self.me.word(0));
        let key = self.words[word];
        let handle = self.me.spawn(move |me| {
            let waited = me.wait_for(key, mask, deadline, || {
                hung.store(1, Ordering::SeqCst);
                true
            });
            let Waited::Ended(reason) = waited else {
                panic!("unlike futex(2): the word had its value");
            };
            outcome.store(ended_by(reason), Ordering::SeqCst);
            me.wake(outcome, 1);
            while released.load(Ordering::SeqCst) == 0 {
                me.wait(released, 0, None);
            }
        });
        // The word's lock is held from there until it waits.
        while hung.load(Ordering::SeqCst) == 0 {
            self.me.yield_now();
        }
        self.waiters.push(Waiter {
            handle,
            word,
            mask,
            deadline,
            outcome,
            released,
        });
    }

    /// Waits that end at once.
    fn refused(&self) {
        let now = self.me.machine.clock.get();
        let past = Some(now.saturating_sub(self.me.machine.pick(1_000)));
        let (key, mask) = (self.words[self.pick_word()], self.pick(&MASKS));
        assert_eq!(
            self.me.wait_for(key, mask, past, || true),
            Waited::Ended(WakeReason::TimedOut)
        );
        assert_eq!(
            self.me.wait_for(key, mask, past, || false),
            Waited::Mismatch
        );
    }

    /// Those whose deadlines have come are out, unless they were woken. Returns how many are.
    fn forget_late(&mut self) -> usize {
        let before = self.waiters.len();
        let me = self.me;
        self.waiters.retain(|waiter| {
            let is_out = waiter.is_late(me) && waiter.outcome(me) == ended_by(WakeReason::TimedOut);
            if is_out {
                waiter.end(me);
            }
            !is_out
        });
        before - self.waiters.len()
    }

    /// What a wake-up does, and whom it ends.
    fn take(&mut self, word: usize, count: usize, mask: u32) -> Vec<Waiter> {
        let mut left = count;
        let woken = self.waiters.extract_if(.., |waiter| {
            let wakes = waiter.word == word && waiter.mask & mask != 0 && left > 0;
            left -= usize::from(wakes);
            wakes
        });
        woken.collect()
    }

    /// An operation has woken these, and says that it has woken so many.
    fn check(&self, woken: &[Waiter], said: usize) {
        assert_eq!(said, woken.len(), "unlike futex(2): as many were woken");
        for waiter in woken {
            let outcome = waiter.end(self.me);
            assert_eq!(
                outcome,
                ended_by(WakeReason::Woken),
                "unlike futex(2): woken"
            );
        }
        let me = self.me;
        let wakes = |waiter: &Waiter| {
            waiter.is_late(me) && waiter.outcome(me) == ended_by(WakeReason::Woken)
        };
        let other = self.waiters.iter().any(wakes);
        assert!(!other, "unlike futex(2): another one was woken");
    }

    /// FUTEX_WAKE_BITSET.
    fn wake(&mut self, word: usize, count: usize, mask: u32) {
        let said = self.me.wake_some(self.words[word], count, mask);
        self.forget_late();
        let woken = self.take(word, count, mask);
        self.check(&woken, said);
    }

    /// FUTEX_CMP_REQUEUE.
    fn requeue(&mut self) {
        let (from, to) = (self.pick_word(), self.pick_word());
        let (wake, mut most) = (self.pick(&COUNTS), self.pick(&COUNTS));
        // One whose deadline comes meanwhile may count as moved, in place of another one.
        let soon = self.me.machine.clock.get() + LONG;
        if self
            .waiters
            .iter()
            .any(|waiter| waiter.deadline.is_some_and(|it| it <= soon))
        {
            most = usize::MAX;
        }
        let matches = !self.me.machine.chance(4);
        let words = [self.words[from], self.words[to]];
        let said = self.me.requeue_some(words, [wake, most], || matches);
        let late = self.forget_late();
        let Some((said, moved)) = said.filter(|_| matches) else {
            assert!(
                said.is_none() && !matches,
                "unlike futex(2): the word's value"
            );
            return self.check(&[], 0);
        };
        let woken = self.take(from, wake, u32::MAX);
        let mut left = most;
        let moves = |waiter: &mut Waiter| {
            let moves = waiter.word == from && left > 0;
            left -= usize::from(moves);
            moves
        };
        let expected = if from == to {
            self.waiters
                .iter_mut()
                .map(moves)
                .filter(|&moves| moves)
                .count()
        } else {
            let moving: Vec<Waiter> = self.waiters.extract_if(.., moves).collect();
            let count = moving.len();
            for waiter in moving {
                self.waiters.push(Waiter { word: to, ..waiter });
            }
            count
        };
        assert!(
            (expected..=expected + late).contains(&moved),
            "unlike futex(2): {moved} count as moved, not {expected}"
        );
        self.check(&woken, said);
    }

    /// FUTEX_WAKE_OP.
    fn wake_op(&mut self) {
        let (word, other) = (self.pick_word(), self.pick_word());
        let (first, second) = (self.pick(&COUNTS), self.pick(&COUNTS));
        let also = self.me.machine.chance(2);
        let words = [self.words[word], self.words[other]];
        let said = self.me.wake_op(words, [first, second], || also);
        self.forget_late();
        let mut woken = self.take(word, first, u32::MAX);
        if also {
            woken.extend(self.take(other, second, u32::MAX));
        }
        self.check(&woken, said);
    }

    /// A signal ends a wait, for whatever word it is by now.
    fn signal(&mut self) {
        let index = self.me.machine.pick(self.waiters.len() as u64) as usize;
        let waiter = self.waiters.remove(index);
        self.me.signal(waiter.handle.thread);
        let outcome = waiter.end(self.me);
        let timed_out = waiter.is_late(self.me) && outcome == ended_by(WakeReason::TimedOut);
        assert!(
            timed_out || outcome == ended_by(WakeReason::Interrupted),
            "unlike futex(2): interrupted"
        );
    }

    /// A deadline comes while its thread waits, for whatever word it is by now, perhaps as it is woken.
    fn deadline(&mut self, wakes: bool) {
        let first = self
            .waiters
            .iter()
            .filter_map(|waiter| waiter.deadline)
            .min();
        let Some(deadline) = first else { return };
        let left = deadline.saturating_sub(self.me.machine.clock.get());
        if wakes {
            self.me
                .sleep(left.saturating_sub(self.me.machine.pick(1_000)));
            let (word, count) = (self.pick_word(), self.pick(&COUNTS));
            self.wake(word, count, u32::MAX);
        } else {
            self.me.sleep(left);
            self.forget_late();
            self.check(&[], 0);
        }
    }

    fn act(&mut self) {
        match self.me.machine.pick(12) {
            0..5 if self.waiters.len() < MOST => self.wait(),
            5 => self.refused(),
            6 => {
                let (count, mask) = (self.pick(&COUNTS), self.pick(&MASKS));
                self.wake(self.pick_word(), count, mask);
            }
            7 | 8 => self.requeue(),
            9 => self.wake_op(),
            10 if !self.waiters.is_empty() => self.signal(),
            _ => self.deadline(self.me.machine.chance(2)),
        }
    }
}

#[test]
fn as_the_kernel_does() {
    explore("as_the_kernel_does", |me| {
        let mut model = Model::new(me);
        for _ in 0..me.some(60) {
            model.act();
        }
        for word in 0..model.words.len() {
            model.wake(word, usize::MAX, u32::MAX);
        }
        assert!(model.waiters.is_empty());
    });
}

#[test]
fn requeue() {
    explore("requeue", |me| {
        let (first, second) = (me.word(0), me.word(0));
        let left = me.word(me.some(10) as u32);
        let threads = (0..me.some(10)).map(|index| {
            me.spawn(move |me| {
                while first.load(Ordering::SeqCst) == 0 && second.load(Ordering::SeqCst) == 0 {
                    let deadline = (index % 2 == 0)
                        .then(|| me.machine.clock.get() + 500 + me.machine.pick(4_000));
                    me.wait(first, 0, deadline);
                }
                left.fetch_sub(1, Ordering::SeqCst);
            })
        });
        let threads: Vec<_> = threads.collect();
        for _ in 0..me.some(20) {
            me.steps(5);
            me.requeue(first, second, 0);
            me.requeue(second, first, 1);
        }
        first.store(1, Ordering::SeqCst);
        second.store(1, Ordering::SeqCst);
        while left.load(Ordering::SeqCst) != 0 {
            me.requeue(first, second, 1);
            me.wake(second, 1);
            me.wake(first, 1);
            me.yield_now();
        }
        join_all(me, threads);
    });
}

/// A wake-up counts for a waiter that takes it, never for one that had timed out.
#[test]
fn timeouts() {
    explore("timeouts", |me| {
        let gate = me.word(0);
        let woken = me.word(0);
        let sent = me.word(0);
        let threads = (0..me.some(8)).map(|_| {
            me.spawn(move |me| {
                for _ in 0..me.some(10) {
                    let deadline = me.machine.clock.get() + me.machine.pick(6_000);
                    if me.wait(gate, 0, Some(deadline)) == Waited::Ended(WakeReason::Woken) {
                        woken.fetch_add(1, Ordering::SeqCst);
                    }
                    me.sleep(me.machine.pick(3_000));
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        let waker = me.spawn(move |me| {
            for _ in 0..me.some(60) {
                sent.fetch_add(me.wake(gate, 1) as u32, Ordering::SeqCst);
                me.steps(6);
                me.yield_now();
            }
        });
        join_all(me, threads);
        me.join(waker);
        assert_eq!(woken.load(Ordering::SeqCst), sent.load(Ordering::SeqCst));
    });
}

#[test]
fn a_deadline_that_has_passed_sets_no_alarm() {
    explore("a_deadline_that_has_passed_sets_no_alarm", |me| {
        let nobody_wakes = me.word(0);
        let threads = (0..me.some(6)).map(|_| {
            me.spawn(move |me| {
                for _ in 0..me.some(10) {
                    me.sleep(0);
                    let now = me.machine.clock.get();
                    let waited = me.wait(nobody_wakes, 0, Some(now));
                    assert_eq!(waited, Waited::Ended(WakeReason::TimedOut));
                    assert_eq!(me.wait(nobody_wakes, 1, Some(0)), Waited::Mismatch);
                }
            })
        });
        join_all(me, threads);
        assert_eq!(me.space.alarms.get(), 0);
    });
}
