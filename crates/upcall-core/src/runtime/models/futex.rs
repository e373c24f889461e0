//! Who wakes a parked thread: the waker, the deadline, or a signal, and one of them only.

use core::sync::atomic::Ordering;

use loom::thread;
use std::boxed::Box;

use super::kernel::Checked;
use super::{all_ready, check, here, runtime, threads};
use crate::Edges;
use crate::lock::SpinLock;
use crate::runtime::Runtime;
use crate::runtime::futex::Waited;
use crate::state::inside::Entered;
use crate::state::thread::{Claim, Phase, Thread, WakeReason};
use crate::state::wait::Wait;
use crate::sync::AtomicU32;

type Rt = &'static Runtime<Checked>;
type Th = &'static Thread<Checked>;

/// Two words, in two buckets.
const KEY: usize = 0x1000;
const OTHER: usize = 0x2004;

/// Parks `thread` as `futex_wait` does, on the activation that the caller is.
fn wait(runtime: Rt, thread: Th, deadline: Option<u64>) -> Result<(), Waited> {
    wait_for(KEY, runtime, thread, deadline)
}

fn wait_for(key: usize, runtime: Rt, thread: Th, deadline: Option<u64>) -> Result<(), Waited> {
    let (after, bucket) = runtime.hang(thread, key, u32::MAX, deadline, || true)?;
    // The thread is saved here.
    thread.context.store(7, Ordering::Relaxed);
    assert!(after(&here(runtime), thread, bucket).is_none());
    Ok(())
}

/// As a signal for `thread` that was not running when it was looked at.
fn signal(runtime: Rt, thread: Th) -> Claim {
    thread.kernel.0.fetch_or(1, Ordering::SeqCst);
    let claim = runtime.interrupt(thread);
    if claim == Claim::Ready {
        assert_eq!(
            thread.context.load(Ordering::Relaxed),
            7,
            "claimed before it was saved"
        );
        Entered::on(runtime.vps()[1].word().owner()).make_ready(thread);
    }
    claim
}

/// The thread is ready once, and runs again.
fn runs_again(runtime: Rt, thread: Th) -> WakeReason {
    assert_eq!(all_ready(runtime), [core::ptr::from_ref(thread)]);
    thread.state.store(Phase::Running, Ordering::Relaxed);
    runtime.clean_up(thread);
    assert_eq!(thread.wait.load(Ordering::Relaxed), Wait::Nothing);
    thread.wake_reason()
}

/// The pair of `wait` and the thread's note, without a deadline: the bucket's lock decides.
#[test]
fn a_signal_for_a_thread_that_begins_to_wait_is_not_slept_through() {
    check(160, || {
        let runtime = runtime(2);
        let [thread] = threads(runtime);
        let sender = thread::spawn(move || signal(runtime, thread));
        wait(runtime, thread, None).unwrap();
        sender.join().unwrap();
        assert_eq!(runs_again(runtime, thread), WakeReason::Interrupted);
    });
}

/// The same where the deadline may come at any time: the state decides.
#[test]
fn a_signal_for_a_thread_with_a_deadline_is_not_slept_through() {
    check(200, || {
        let runtime = runtime(2);
        let [thread] = threads(runtime);
        let sender = thread::spawn(move || signal(runtime, thread));
        wait(runtime, thread, Some(1000)).unwrap();
        sender.join().unwrap();
        assert_eq!(runs_again(runtime, thread), WakeReason::Interrupted);
    });
}

/// A thread that parks for something else than a futex. The thread that claims it has only stored a note.
#[test]
fn an_event_noted_while_a_thread_parks_is_not_slept_through() {
    check(160, || {
        let runtime = runtime(2);
        let [thread] = threads(runtime);
        let sender = thread::spawn(move || {
            thread.kernel.0.store(1, Ordering::Release);
            if thread.claim(WakeReason::Interrupted) == Claim::Ready {
                assert_eq!(thread.context.load(Ordering::Relaxed), 7);
                Entered::on(runtime.vps()[1].word().owner()).make_ready(thread);
            }
        });
        thread.begin_park();
        thread.context.store(7, Ordering::Relaxed);
        here(runtime).finish_park(thread);
        sender.join().unwrap();
        assert_eq!(all_ready(runtime), [core::ptr::from_ref(thread)]);
    });
}

#[test]
fn a_wake_up_and_a_signal_make_a_thread_ready_once() {
    check(200, || {
        let runtime = runtime(2);
        let [thread] = threads(runtime);
        wait(runtime, thread, None).unwrap();
        let sender = thread::spawn(move || signal(runtime, thread));
        let woken = here(runtime).futex_wake(KEY, 1, u32::MAX);
        let claim = sender.join().unwrap();
        assert_eq!(woken == 1, claim == Claim::Lost);
        let reason = runs_again(runtime, thread);
        assert_eq!(reason == WakeReason::Woken, woken == 1);
    });
}

#[test]
fn a_wake_up_and_a_deadline_make_a_thread_ready_once() {
    check(220, || {
        let runtime = runtime(2);
        let [thread] = threads(runtime);
        wait(runtime, thread, Some(1000)).unwrap();
        let clock = thread::spawn(move || {
            let mut late = crate::ThreadList::new();
            runtime.timers.expire(&runtime.kernel, 2000, &mut late);
            runtime.add_ready(&runtime.vps()[1], late);
        });
        let woken = here(runtime).futex_wake(KEY, 1, u32::MAX);
        clock.join().unwrap();
        let reason = runs_again(runtime, thread);
        assert_eq!(reason == WakeReason::Woken, woken == 1);
    });
}

#[test]
fn a_thread_that_is_moved_to_another_word_is_found_by_a_signal() {
    check(200, || {
        let runtime = runtime(2);
        let [thread, next] = threads(runtime);
        wait(runtime, thread, None).unwrap();
        let sender = thread::spawn(move || signal(runtime, thread));
        let moved = here(runtime).futex_requeue(KEY, OTHER, 0, 1, || true);
        assert!(moved.is_some());
        sender.join().unwrap();
        assert_eq!(runs_again(runtime, thread), WakeReason::Interrupted);
        // Both queues are as they should be: the one has nobody, whom the next would follow.
        thread.kernel.0.store(0, Ordering::Relaxed);
        wait_for(OTHER, runtime, next, None).unwrap();
        wait(runtime, thread, None).unwrap();
        assert_eq!(here(runtime).futex_wake(OTHER, 2, u32::MAX), 1);
        assert_eq!(here(runtime).futex_wake(KEY, 2, u32::MAX), 1);
    });
}

/// A word that changes before its waiter looks, and a waker that looks after it has changed it.
#[test]
fn a_waiter_sees_the_word_or_is_seen_by_the_waker() {
    check(200, || {
        let runtime = runtime(2);
        let [thread] = threads(runtime);
        let value: &AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let waker = thread::spawn(move || {
            // The program's own store.
            value.store(1, Ordering::Relaxed);
            Entered::on(runtime.vps()[1].word().owner()).futex_wake(KEY, 1, u32::MAX)
        });
        let hung = runtime.hang(thread, KEY, u32::MAX, None, || {
            value.load(Ordering::Relaxed) == 0
        });
        let waits = hung.is_ok();
        if let Ok((after, bucket)) = hung {
            thread.context.store(7, Ordering::Relaxed);
            after(&here(runtime), thread, bucket);
        }
        let woken = waker.join().unwrap();
        assert_eq!(waits, woken == 1 || !all_ready(runtime).is_empty());
    });
}

/// A thread that tries, enters the list and parks; an event that is counted and wakes who is there.
#[test]
fn an_edge_that_comes_while_a_thread_parks_is_seen_or_wakes_it() {
    check(200, || {
        let runtime = runtime(2);
        let [thread] = threads(runtime);
        let edges: &Edges = Box::leak(Box::default());
        // The list of those who wait.
        let list: &SpinLock<bool> = Box::leak(Box::new(SpinLock::new(false)));
        let seen = edges.seen();
        let collector = thread::spawn(move || {
            let waits = list.lock(&runtime.kernel);
            edges.count();
            if *waits && thread.claim(WakeReason::Woken) == Claim::Ready {
                assert_eq!(thread.context.load(Ordering::Relaxed), 7);
                Entered::on(runtime.vps()[1].word().owner()).make_ready(thread);
            }
        });
        let tries_again = {
            let mut waits = list.lock(&runtime.kernel);
            *waits = edges.seen() == seen;
            !*waits
        };
        if !tries_again {
            thread.begin_park();
            if Edges::any_moved([(edges, seen)]) {
                thread.claim(WakeReason::Woken);
            }
            thread.context.store(7, Ordering::Relaxed);
            here(runtime).finish_park(thread);
        }
        collector.join().unwrap();
        let woken = all_ready(runtime).len();
        assert_eq!(woken, usize::from(!tries_again));
    });
}
