//! Nobody runs a thread while a more urgent one waits.

use core::sync::atomic::Ordering;

use loom::thread;

use super::idle::two_busy;
use super::kernel::{self, Checked};
use super::{all_ready, check, owner, runtime, threads};
use crate::rank::Rank;
use crate::runtime::{Advice, Runtime, Transition};
use crate::state::inside::Entered;
use crate::state::ready::By;
use crate::state::thread::{Claim, Phase, Thread, WakeReason};

type Rt = &'static Runtime<Checked>;

#[test]
fn a_more_urgent_thread_is_chosen_or_has_who_chooses_choose_again() {
    check(300, || {
        let (runtime, _) = two_busy();
        let [chooses, busy] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [common, urgent] = threads(runtime);
        // Both have run something more urgent until now.
        urgent.rank.store(2, Ordering::Relaxed);
        runtime.listeners.begin_ranks();
        for vp in [chooses, busy] {
            vp.rank.store(1, Ordering::Relaxed);
        }
        runtime.push_back(chooses, By::Others, common);
        let maker = thread::spawn(move || {
            kernel::act_as(owner(busy));
            runtime.make_ready_on(busy, By::Others, urgent);
        });
        let activation = owner(chooses);
        let first = runtime.next_thread(chooses).expect("one is ready");
        let runs = Entered::on(activation).is_chosen(first);
        maker.join().unwrap();
        assert!(!runs || core::ptr::eq(first, urgent) || activation.wants_attention());
    });
}

#[test]
fn a_held_thread_with_another_rank_is_chosen_or_ready() {
    check(300, || {
        let (runtime, _) = two_busy();
        let [chooses, busy] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [held] = threads(runtime);
        held.rank.store(Rank::HELD.0, Ordering::Relaxed);
        runtime.listeners.begin_ranks();
        runtime.push_back(chooses, By::Others, held);
        let frees = thread::spawn(move || {
            kernel::act_as(owner(busy));
            Entered::on(owner(busy)).set_rank(held, Rank::COMMON);
        });
        let chosen = runtime.next_thread(chooses);
        frees.join().unwrap();
        let ready = all_ready(runtime);
        assert_eq!(usize::from(chosen.is_some()) + ready.len(), 1);
    });
}

/// A runtime on two virtual processors and two threads, the first of which is its adviser.
fn advised() -> (Rt, [&'static Thread<Checked>; 2]) {
    let runtime = runtime(2);
    let [adviser, other] = threads(runtime);
    assert!(runtime.policy.appoint(adviser));
    runtime.listeners.begin_ranks();
    (runtime, [adviser, other])
}

/// What the second virtual processor tells of a thread that it has made.
fn create(runtime: Rt, thread: &'static Thread<Checked>) {
    let busy = &runtime.vps()[1];
    kernel::act_as(owner(busy));
    runtime.tell(busy, thread, Transition::Created);
}

#[test]
fn what_happens_is_told_or_wakes_the_adviser() {
    check(300, || {
        let (runtime, [adviser, other]) = advised();
        let activation = owner(&runtime.vps()[0]);
        let tells = thread::spawn(move || create(runtime, other));
        let mut advice = runtime.ask(adviser);
        if advice.is_none() {
            Entered::on(activation).finish_park(adviser);
        }
        tells.join().unwrap();
        let woken = all_ready(runtime) == [core::ptr::from_ref(adviser)];
        assert_eq!(woken, advice.is_none());
        if woken {
            advice = runtime.ask(adviser);
        }
        assert!(matches!(advice, Some(Advice::Thread(told, _)) if core::ptr::eq(told, other)));
    });
}

#[test]
fn a_thread_that_is_more_urgent_when_it_is_ready_has_somebody_choose_again() {
    check(300, || {
        let (runtime, _) = two_busy();
        let [one, other] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [wakes] = threads(runtime);
        wakes.rank.store(10, Ordering::Relaxed);
        wakes.state.store(Phase::Parked, Ordering::Relaxed);
        runtime.listeners.begin_ranks();
        for vp in [one, other] {
            vp.rank.store(5, Ordering::Relaxed);
        }
        let maker = thread::spawn(move || {
            kernel::act_as(owner(other));
            assert_eq!(wakes.claim(WakeReason::Woken), Claim::Ready);
            runtime.make_ready_on(other, By::Others, wakes);
        });
        Entered::on(owner(one)).set_rank(wakes, Rank(1));
        maker.join().unwrap();
        assert!([one, other].iter().any(|vp| owner(vp).wants_attention()));
    });
}

#[test]
fn an_adviser_whose_time_is_over_is_not_woken_from_its_next_wait() {
    check(300, || {
        let (runtime, [adviser, other]) = advised();
        let activation = owner(&runtime.vps()[0]);
        assert!(runtime.ask(adviser).is_none());
        Entered::on(activation).finish_park(adviser);
        let tells = thread::spawn(move || create(runtime, other));
        let is_late = adviser.claim(WakeReason::TimedOut) == Claim::Ready;
        if is_late {
            runtime.heed();
            // For something else.
            adviser.begin_park();
            Entered::on(activation).finish_park(adviser);
        }
        tells.join().unwrap();
        assert_eq!(adviser.is_ready(), !is_late);
    });
}
