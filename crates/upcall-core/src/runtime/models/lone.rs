//! A thread waits in a word, while others hand over, move it into a bucket, or interrupt it.

use core::sync::atomic::Ordering;
use std::boxed::Box;

use loom::thread::{self, JoinHandle};

use super::kernel::Checked;
use super::{all_ready, check, here, runtime, threads};
use crate::runtime::Runtime;
use crate::runtime::lone::{self, LONE};
use crate::state::inside::Entered;
use crate::state::thread::{Claim, Thread};
use crate::state::wait::Wait;
use crate::sync::{AtomicU64, UnsafeCell};

type Rt = &'static Runtime<Checked>;
type Th = &'static Thread<Checked>;

/// A word for a wait alone, and what a thread does with its memory when it waits no longer.
struct Word {
    word: AtomicU64,
    memory: UnsafeCell<u32>,
}

// SAFETY: loom watches the cell.
unsafe impl Sync for Word {}

impl Word {
    fn new() -> &'static Self {
        Box::leak(Box::new(Word {
            word: AtomicU64::new(0),
            memory: UnsafeCell::new(0),
        }))
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(&self.word) as usize
    }

    /// Hands over to the thread that hangs there, if one does.
    fn hand_over(&self, inside: &Entered<Checked>) -> bool {
        let content = self.word.load(Ordering::Relaxed);
        // SAFETY: found there.
        content & LONE != 0 && unsafe { inside.hand_over(&self.word, content) }
    }
}

/// As `wait_alone` does on the activation's own stack. Returns true if the thread hangs there.
fn hang(runtime: Rt, thread: Th, word: &'static Word) -> bool {
    thread
        .wait
        .store(Wait::Alone(word.address()), Ordering::Relaxed);
    thread.context.store(7, Ordering::Relaxed);
    // SAFETY: it is there for the execution.
    unsafe { lone::hang(runtime.kernel(), thread, word.address()) }
}

/// The other activation, whose part the calling thread of the model plays.
fn other(runtime: Rt) -> Entered<Checked> {
    Entered::on(runtime.vps()[1].word().owner())
}

fn signal(runtime: Rt, thread: Th) -> Claim {
    thread.kernel.0.fetch_or(1, Ordering::SeqCst);
    let claim = runtime.interrupt(thread);
    if claim == Claim::Ready {
        assert_eq!(thread.context.load(Ordering::Relaxed), 7, "not saved");
        other(runtime).make_ready(thread);
    }
    claim
}

fn hand(runtime: Rt, word: &'static Word) -> JoinHandle<bool> {
    thread::spawn(move || word.hand_over(&other(runtime)))
}

/// How often the thread was made ready.
fn times_ready(runtime: Rt) -> usize {
    all_ready(runtime).len()
}

#[test]
fn who_hands_over_wakes_the_one_that_hangs() {
    check(200, || {
        let runtime = runtime(2);
        let [thread] = threads(runtime);
        let word = Word::new();
        let hander = hand(runtime, word);
        assert!(hang(runtime, thread, word));
        let handed = hander.join().unwrap();
        assert_eq!(times_ready(runtime), usize::from(handed));
        assert!(word.hand_over(&here(runtime)) != handed);
        assert_eq!(thread.wait_mask.load(Ordering::Relaxed), 0);
        assert_eq!(word.word.load(Ordering::Relaxed), 0);
    });
}

/// A signal for it comes in between: of the two one makes it ready, or it goes on without.
#[test]
fn who_is_interrupted_runs_again_once() {
    check(240, || {
        let runtime = runtime(2);
        let [thread] = threads(runtime);
        let word = Word::new();
        let hander = hand(runtime, word);
        let sender = thread::spawn(move || signal(runtime, thread));
        let hangs = hang(runtime, thread, word);
        let (handed, claim) = (hander.join().unwrap(), sender.join().unwrap());
        let ready = times_ready(runtime);
        // It hangs there no longer: the signal is not slept through.
        assert_eq!(ready, usize::from(hangs));
        assert_eq!(word.word.load(Ordering::Relaxed), 0);
        assert!(!(handed && claim == Claim::Ready));
        if handed {
            assert_eq!(thread.wait_mask.load(Ordering::Relaxed), 0);
        }
    });
}

/// The word's memory is another one's as soon as the thread goes on.
#[test]
fn who_interrupts_leaves_the_word_alone_when_the_thread_goes_on() {
    check(240, || {
        let runtime = runtime(2);
        let [thread] = threads(runtime);
        let word = Word::new();
        assert!(hang(runtime, thread, word));
        let sender = thread::spawn(move || {
            let look = |_: usize| {
                // SAFETY: loom finds out.
                unsafe { *word.memory.get() == 0 }
            };
            lone::looks(runtime.kernel(), thread, look)
        });
        if word.hand_over(&here(runtime)) {
            assert_eq!(times_ready(runtime), 1);
            thread.await_pins(runtime.kernel());
            // SAFETY: as above.
            unsafe { *word.memory.get() = 1 };
        }
        sender.join().unwrap();
    });
}

/// A second one comes to wait while there is a signal for the first one, or something to hand over.
#[test]
fn who_is_moved_into_a_bucket_is_woken_there_or_interrupted() {
    for interrupts in [true, false] {
        check(280, move || {
            let runtime = runtime(2);
            let [thread] = threads(runtime);
            let word = Word::new();
            assert!(hang(runtime, thread, word));
            let sender = thread::spawn(move || match interrupts {
                true => signal(runtime, thread) == Claim::Ready,
                false => word.hand_over(&other(runtime)),
            });
            let content = word.word.load(Ordering::Relaxed);
            let inside = here(runtime);
            let key = word.address();
            // SAFETY: found there.
            let moved =
                content & LONE != 0 && unsafe { inside.move_lone(&word.word, content, 1, key) };
            let taken = sender.join().unwrap();
            if interrupts {
                assert_eq!(times_ready(runtime), 1);
                assert_eq!(inside.futex_wake(key, 1, u32::MAX), 0);
            } else {
                assert!(taken != moved);
                assert_eq!(times_ready(runtime), usize::from(taken));
                assert_eq!(inside.futex_wake(key, 1, u32::MAX), usize::from(moved));
            }
            assert_eq!(word.word.load(Ordering::Relaxed), u64::from(moved));
        });
    }
}
