//! A processor is taken while its owner falls idle, or while a thread is put there.

use core::sync::atomic::Ordering;

use loom::thread;

use super::idle::two_busy;
use super::kernel;
use super::{check, owner, threads};
use crate::state::inside::Entered;
use crate::state::ready::By;
use crate::state::vp::State;

#[test]
fn an_owner_that_falls_idle_while_its_processor_is_taken_is_rung_by_nobody_afterwards() {
    check(300, || {
        let (runtime, _) = two_busy();
        let [idle, busy] = [&runtime.vps()[0], &runtime.vps()[1]];
        runtime.kernel.may_lose();
        let taker = thread::spawn(move || {
            kernel::act_as(owner(busy));
            runtime.kernel.take(idle);
            runtime.recall(idle);
        });
        assert!(Entered::on(owner(idle)).idle(idle));
        assert_eq!(idle.word().state(), State::Runtime);
        taker.join().unwrap();
        assert!(!runtime.vps.any_idle());
    });
}

#[test]
fn a_thread_that_is_put_where_the_processor_was_just_taken_is_given_away() {
    check(300, || {
        let (runtime, _) = two_busy();
        let [taken, busy] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [ready] = threads(runtime);
        runtime.kernel.may_lose();
        runtime.kernel.take(taken);
        let maker = thread::spawn(move || {
            kernel::act_as(owner(busy));
            runtime.push_front(taken, By::Others, ready);
            runtime.announce_ready(taken);
            runtime.look_after(taken);
        });
        // As `pause` does.
        assert!(Entered::on(owner(taken)).await_processor(taken));
        assert!(runtime.give_away(taken));
        maker.join().unwrap();
        let there = busy.ready.pop(&runtime.kernel, By::Others).unwrap();
        assert!(core::ptr::eq(there, ready));
    });
}

#[test]
fn a_list_that_was_kept_for_want_of_processors_is_given_away_when_one_is_back() {
    check(300, || {
        let (runtime, _) = two_busy();
        let [taken, back] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [ready] = threads(runtime);
        runtime.kernel.may_lose();
        runtime.kernel.take(taken);
        runtime.kernel.take(back);
        runtime.push_front(taken, By::Others, ready);
        let adder = thread::spawn(move || {
            kernel::act_as(owner(back));
            runtime.kernel.give_back(back);
            runtime.added([back].into_iter());
        });
        assert!(Entered::on(owner(taken)).await_processor(taken));
        assert!(runtime.give_away(taken));
        adder.join().unwrap();
        assert_eq!(super::all_ready(runtime), [core::ptr::from_ref(ready)]);
    });
}

/// It has seen that its processor is another's. Nobody else is there to sit in the poller.
#[test]
fn an_owner_on_its_way_to_the_poller_hears_that_its_processor_is_back() {
    check(300, || {
        let (runtime, _) = two_busy();
        let [taken, busy] = [&runtime.vps()[0], &runtime.vps()[1]];
        runtime.kernel.may_lose();
        runtime.kernel.wants_poller.store(true, Ordering::SeqCst);
        runtime.kernel.take(taken);
        let adder = thread::spawn(move || {
            kernel::act_as(owner(busy));
            runtime.kernel.give_back(taken);
            runtime.added([taken].into_iter());
        });
        assert!(Entered::on(owner(taken)).await_processor(taken));
        adder.join().unwrap();
    });
}
