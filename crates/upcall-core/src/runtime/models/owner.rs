//! A virtual processor's word: one owner, who sees what the one before did.

use core::sync::atomic::Ordering;

use loom::thread;

use super::kernel::Checked;
use super::{check, owner, runtime};
use crate::runtime::Runtime;
use crate::runtime::returned::Rival;
use crate::state::activation::{Activation, Activity};
use crate::state::inside::Entered;
use crate::state::vp::{State, Vp};

type Rt = &'static Runtime<Checked>;

/// What only the owner of the virtual processor may touch.
fn touch(runtime: Rt) {
    // SAFETY: that there is one at a time is what the models check.
    unsafe { *runtime.kernel.seat.get() += 1 };
}

fn another(runtime: Rt, vp: &'static Vp<Checked>) -> &'static Activation<Checked> {
    let activation = runtime.new_activation(Some(vp)).unwrap();
    activation.set_activity(Activity::Standby);
    activation
}

/// The owner enters and leaves; somebody else takes the processor from it meanwhile.
fn enter_against_take_over(state: State) {
    check(140, move || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let (first, second) = (owner(vp), another(runtime, vp));
        vp.set(first, state);
        let taker = thread::spawn(move || {
            let word = vp.word();
            let taken = word.state() == state && vp.replace(word, second, State::Runtime);
            if taken {
                touch(runtime);
                vp.set(second, State::User);
            }
            taken
        });
        let mut entered = 0;
        for _ in 0..2 {
            if vp.step(first, state, State::Runtime) {
                touch(runtime);
                vp.set(first, state);
                entered += 1;
            }
        }
        let taken = taker.join().unwrap();
        assert!(taken || entered == 2);
        assert!(core::ptr::eq(owner(vp), if taken { second } else { first }));
    });
}

#[test]
fn an_owner_that_runs_its_thread_is_replaced_once_or_not_at_all() {
    enter_against_take_over(State::User);
}

#[test]
fn an_owner_in_a_system_call_is_replaced_once_or_not_at_all() {
    enter_against_take_over(State::Kernel);
}

/// The owner has the bias, and enters and leaves; somebody else takes the processor from it meanwhile.
#[test]
fn an_owner_with_the_bias_is_replaced_outside_or_not_at_all() {
    check(140, || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let (first, second) = (owner(vp), another(runtime, vp));
        vp.allow_bias();
        vp.leave(first);
        first.inside.store(0, Ordering::Relaxed);
        let taker = thread::spawn(move || {
            let word = vp.word();
            let taken = word.state() == State::User
                && vp
                    .unbias(&runtime.kernel, word)
                    .is_some_and(|word| vp.replace(word, second, State::Runtime));
            if taken {
                touch(runtime);
            }
            taken
        });
        let mut kept = true;
        for _ in 0..2 {
            first.inside.store(1, Ordering::Relaxed);
            kept = vp.enter(first);
            if kept {
                touch(runtime);
                vp.leave(first);
            }
            first.inside.store(0, Ordering::Release);
        }
        let taken = taker.join().unwrap();
        assert!(kept || taken);
        assert!(core::ptr::eq(owner(vp), if taken { second } else { first }));
    });
}

/// Rung by one, taken by another that came back from the kernel, or gone back to work by itself.
#[test]
fn an_idle_owner_goes_on_with_one_order() {
    check(260, || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let (first, second) = (owner(vp), another(runtime, vp));
        vp.set(first, State::Idle);
        let ringer = thread::spawn(move || runtime.grant_idle(vp, vp.word()));
        let comer = thread::spawn(move || {
            let has = Entered::on(second).acquire(vp, Rival::IsAsked);
            if has {
                touch(runtime);
            }
            has
        });
        let rung = ringer.join().unwrap();
        let works = vp.step(first, State::Idle, State::Runtime) || {
            let word = vp.word();
            word.is_owned_by(first) && word.state() == State::Rung
        };
        if works {
            vp.set(first, State::Runtime);
            touch(runtime);
        }
        let taken = comer.join().unwrap();
        assert!(works != taken, "works {works}, taken {taken}, rung {rung}");
    });
}

#[test]
fn a_granted_processor_comes_with_all_that_its_giver_did() {
    check(140, || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let next = another(runtime, vp);
        let heir = thread::spawn(move || {
            let word = vp.word();
            if word.is_owned_by(next) && word.state() == State::Rung {
                vp.set(next, State::Runtime);
                touch(runtime);
            }
        });
        touch(runtime);
        vp.set(next, State::Rung);
        heir.join().unwrap();
    });
}

/// Two see it blocked; it comes back at the same time. No mark outlives it.
#[test]
fn an_owner_that_was_replaced_comes_back_once() {
    check(200, || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let first = owner(vp);
        vp.set(first, State::Kernel);
        let take = |next: &'static Activation<Checked>| {
            thread::spawn(move || {
                let word = vp.word();
                word.is_owned_by(first)
                    && word.state() == State::Kernel
                    && runtime.replace_blocked(vp, word, next, State::Runtime)
            })
        };
        let takers = [another(runtime, vp), another(runtime, vp)].map(take);
        let kept = vp.step(first, State::Kernel, State::Runtime);
        if !kept {
            assert_eq!(Entered::on(first).come_back(vp), (false, false));
        }
        let taken: u32 = takers
            .map(|taker| taker.join().unwrap().into())
            .iter()
            .sum();
        assert_eq!(taken, u32::from(!kept));
        assert!(!first.is_absent());
        assert_eq!(runtime.stats.absent.get(), 0);
    });
}

/// Granted the processor again while it comes back by itself, and replaced by a standby that saw it
/// blocked long ago. No mark outlives its return.
#[test]
fn a_displaced_owner_that_comes_back_is_not_absent() {
    check(300, || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let first = owner(vp);
        let (second, standby) = (another(runtime, vp), another(runtime, vp));
        vp.displaced.lock(&runtime.kernel).push(first);
        vp.nr_displaced.store(1, Ordering::Relaxed);
        vp.set(second, State::Runtime);
        let granter = thread::spawn(move || runtime.grant_displaced(vp));
        let late = thread::spawn(move || {
            let word = vp.word();
            word.is_owned_by(first)
                && word.state() == State::Granted
                && runtime.replace_blocked(vp, word, standby, State::Runtime)
        });
        let (owns, displaced) = Entered::on(first).come_back(vp);
        let granted = granter.join().unwrap();
        let replaced = late.join().unwrap();
        assert!(granted != displaced && owns == (granted && !replaced));
        assert!(!first.is_absent());
        assert_eq!(runtime.stats.absent.get(), 0);
    });
}

/// The owner runs again while it is replaced by `take`. It is in no list of those that were when it goes to the pool.
fn come_back_against(
    take: impl Fn(Rt, [&'static Activation<Checked>; 2]) -> bool + Copy + Sync + Send + 'static,
) {
    check(300, move || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let (first, second) = (owner(vp), another(runtime, vp));
        vp.set(first, State::User);
        let taker = thread::spawn(move || take(runtime, [first, second]));
        let kept = vp.step(first, State::User, State::Runtime);
        if !kept {
            assert_eq!(Entered::on(first).come_back(vp), (false, false));
            first.retire_from(Activity::Running);
        }
        assert!(kept != taker.join().unwrap());
        assert!(vp.displaced.lock(&runtime.kernel).pop_unsettled().is_none());
        assert!(kept != Entered::on(first).leave_spares());
    });
}

#[test]
fn an_owner_on_a_page_fault_is_unsettled_until_it_comes_back() {
    come_back_against(|runtime, [first, second]| {
        let (vp, word) = (first.vp(), first.vp().word());
        word.is_owned_by(first)
            && word.state() == State::User
            && runtime.replace_unsettled(vp, word, second, State::Runtime)
    });
}

/// The heir unsettles it, or it has come before the heir.
#[test]
fn an_owner_that_an_heir_replaces_is_unsettled_until_it_comes_back() {
    come_back_against(|runtime, [first, second]| {
        let (vp, word) = (first.vp(), first.vp().word());
        if !word.is_owned_by(first) || word.state() != State::User {
            return false;
        }
        // As `bequeath` does.
        second.bequest.set(Some(first), Ordering::Relaxed);
        let replaced = runtime.replace_blocked(vp, word, second, State::Runtime);
        if replaced {
            runtime.inherit(second, vp);
        }
        replaced
    });
}

/// The owner leaves the runtime, and looks for notes afterwards; somebody leaves one, and looks
/// afterwards whether the owner has left.
#[test]
fn an_owner_that_leaves_sees_that_it_must_choose_again_or_is_interrupted() {
    check(160, || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let first = owner(vp);
        runtime.vps.clear_unwatched(vp);
        let caller = thread::spawn(move || runtime.choose_again(vp, true));
        vp.set(first, State::User);
        let seen = first.attention.load(Ordering::Relaxed) != 0;
        caller.join().unwrap();
        let interrupted = runtime.kernel.interrupted.load(Ordering::Relaxed) != 0;
        assert!(seen || interrupted, "the note is slept through");
    });
}
