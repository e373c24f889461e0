//! A thread ends while another one waits for that, is interrupted, or gives up the right to its result.

use core::sync::atomic::Ordering;

use loom::thread;
use std::boxed::Box;
use std::sync::Arc;

use super::kernel::Checked;
use super::{check, runtime, threads};
use crate::ending::{Ended, Ending};
use crate::runtime::Runtime;
use crate::state::thread::{Claim, Thread};
use crate::sync::{AtomicU32, AtomicUsize, UnsafeCell};

type Rt = &'static Runtime<Checked>;
type Th = &'static Thread<Checked>;

/// Somebody has made the joiner run again, having found it saved.
fn runs(joiner: Th, times: &AtomicU32) {
    assert_eq!(
        joiner.context.load(Ordering::Relaxed),
        7,
        "it was not saved"
    );
    times.fetch_add(1, Ordering::Relaxed);
}

fn end(ending: &'static Ending<Checked>, times: &Arc<AtomicU32>) -> thread::JoinHandle<()> {
    let times = times.clone();
    thread::spawn(move || {
        if let Ended::Joined(joiner) = ending.end(false) {
            runs(joiner, &times);
        }
    })
}

fn setting(runtime: Rt) -> (&'static Ending<Checked>, Th, Arc<AtomicU32>) {
    let [joiner]: [Th; 1] = threads(runtime);
    let ending = Box::leak(Box::default());
    (ending, joiner, Arc::new(AtomicU32::new(0)))
}

/// As `await_end` does on the activation's own stack.
fn hang(runtime: Rt, ending: &'static Ending<Checked>, joiner: Th) -> bool {
    joiner.context.store(7, Ordering::Relaxed);
    ending.hang(runtime.kernel(), joiner)
}

/// A signal for the joiner, which is claimed for it, from a kernel thread of its own.
fn signal(runtime: Rt, joiner: Th, times: &Arc<AtomicU32>) -> thread::JoinHandle<()> {
    let times = times.clone();
    thread::spawn(move || {
        joiner.kernel.0.fetch_or(1, Ordering::SeqCst);
        if runtime.interrupt(joiner) == Claim::Ready {
            runs(joiner, &times);
        }
    })
}

#[test]
fn who_waits_for_an_end_runs_again_once() {
    check(100, || {
        let runtime = runtime(1);
        let (ending, joiner, times) = setting(runtime);
        let ender = end(ending, &times);
        let hangs = hang(runtime, ending, joiner);
        ender.join().unwrap();
        assert_eq!(times.load(Ordering::Relaxed), u32::from(hangs));
        assert!(ending.is_over());
    });
}

/// A signal for it comes in between: of the two one makes it ready, or it runs on by itself.
#[test]
fn who_waits_for_an_end_and_is_interrupted_runs_again_once() {
    check(160, || {
        let runtime = runtime(1);
        let (ending, joiner, times) = setting(runtime);
        let ender = end(ending, &times);
        let signal = signal(runtime, joiner, &times);
        let hangs = hang(runtime, ending, joiner);
        ender.join().unwrap();
        signal.join().unwrap();
        assert_eq!(times.load(Ordering::Relaxed), u32::from(hangs));
    });
}

/// The thread does not end: a signal is not slept through.
#[test]
fn a_signal_ends_the_wait_for_an_end() {
    check(100, || {
        let runtime = runtime(1);
        let (ending, joiner, times) = setting(runtime);
        let signal = signal(runtime, joiner, &times);
        let hangs = hang(runtime, ending, joiner);
        signal.join().unwrap();
        assert_eq!(times.load(Ordering::Relaxed), u32::from(hangs));
    });
}

/// A result, and how often it was dropped.
struct Room {
    result: UnsafeCell<u32>,
    drops: AtomicUsize,
}

// SAFETY: loom watches the cell.
unsafe impl Sync for Room {}

impl Room {
    fn drop_result(&self) {
        // SAFETY: whose it is, is what the model checks.
        assert_eq!(unsafe { *self.result.get() }, 7);
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// `leaves`: by libc's hand.
fn drop_against_end(leaves: bool) {
    check(60, move || {
        let ending: &'static Ending<Checked> = Box::leak(Box::default());
        let room = Arc::new(Room {
            result: UnsafeCell::new(0),
            drops: AtomicUsize::new(0),
        });
        let ender = {
            let room = room.clone();
            thread::spawn(move || {
                // SAFETY: as above.
                unsafe { *room.result.get() = 7 };
                if leaves {
                    if !ending.leave() {
                        room.drop_result();
                    }
                    return matches!(ending.end(true), Ended::Dropped);
                }
                match ending.end(false) {
                    Ended::Dropped => {
                        room.drop_result();
                        matches!(ending.end(true), Ended::Dropped)
                    }
                    _ => false,
                }
            })
        };
        let mine = ending.drop_handle(|| room.drop_result());
        let its = ender.join().unwrap();
        assert!(mine != its, "given back by {mine} {its}");
        assert_eq!(room.drops.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_result_that_nobody_wants_is_dropped_once() {
    drop_against_end(false);
}

#[test]
fn what_a_thread_that_libc_ends_leaves_is_dropped_once() {
    drop_against_end(true);
}
