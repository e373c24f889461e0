//! Nobody sleeps while there is something to do: idle owners, standbys, the poller's seat.

use core::sync::atomic::Ordering;

use loom::thread;

use super::kernel::{self, Checked};
use super::{check, owner, runtime, threads};
use crate::runtime::Runtime;
use crate::state::activation::{Activation, Activity};
use crate::state::inside::Entered;
use crate::state::ready::By;
use crate::state::vp::{State, Vp};

type Rt = &'static Runtime<Checked>;

fn another(
    runtime: Rt,
    vp: &'static Vp<Checked>,
    activity: Activity,
) -> &'static Activation<Checked> {
    let activation = runtime.new_activation(Some(vp)).unwrap();
    activation.set_activity(activity);
    activation
}

/// Two virtual processors whose owners work, and use their ready lists without the lock, each with a standby that is awake.
pub(super) fn two_busy() -> (Rt, [&'static Activation<Checked>; 2]) {
    let runtime = runtime(2);
    let vps = runtime.vps();
    vps[1].set(owner(&vps[1]), State::Runtime);
    runtime.free_list(&vps[1], u64::MAX);
    let standbys = [0, 1].map(|at| {
        let standby = another(runtime, &vps[at], Activity::Standby);
        vps[at].standby.set(Some(standby), Ordering::Relaxed);
        runtime.vps.clear_unwatched(&vps[at]);
        standby
    });
    (runtime, standbys)
}

#[test]
fn a_thread_that_is_made_ready_while_an_owner_falls_idle_is_not_left_lying() {
    check(260, || {
        let (runtime, _) = two_busy();
        let [idle, busy] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [ready] = threads(runtime);
        let maker = thread::spawn(move || {
            kernel::act_as(owner(busy));
            runtime.make_ready_on(busy, By::Owner, ready);
        });
        assert!(Entered::on(owner(idle)).idle(idle));
        assert_eq!(idle.word().state(), State::Runtime);
        maker.join().unwrap();
        assert_eq!(super::all_ready(runtime), [core::ptr::from_ref(ready)]);
    });
}

#[test]
fn a_standby_that_goes_to_sleep_notices_a_thread_that_is_made_ready() {
    check(300, || {
        let (runtime, [standby, _]) = two_busy();
        let [blocked, busy] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [ready] = threads(runtime);
        blocked.set(owner(blocked), State::Kernel);
        let maker = thread::spawn(move || {
            kernel::act_as(owner(busy));
            runtime.make_ready_on(blocked, By::Others, ready);
        });
        kernel::act_as(standby);
        Entered::on(standby).stand_by(blocked);
        assert!(blocked.word().is_owned_by(standby));
        maker.join().unwrap();
    });
}

#[test]
fn a_standby_that_goes_to_sleep_sees_what_an_owner_elsewhere_has_put_in_or_is_called() {
    check(300, || {
        let (runtime, [standby, _]) = two_busy();
        let [watched, busy] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [ready] = threads(runtime);
        let maker = thread::spawn(move || {
            kernel::act_as(owner(busy));
            runtime.make_ready_on(busy, By::Owner, ready);
        });
        // As `sleep_unless` does.
        runtime.retire_standby(watched);
        runtime.see_lists();
        let sees = runtime.work_waits(watched);
        maker.join().unwrap();
        let called = standby.wake.load(Ordering::Relaxed) != 0;
        assert!(sees || called, "the thread is slept through");
    });
}

#[test]
fn a_thread_that_is_made_ready_while_the_owner_enters_a_call_finds_a_standby() {
    enters_a_call(false);
}

#[test]
fn a_thread_that_is_made_ready_while_the_owner_enters_another_call_finds_a_standby() {
    enters_a_call(true);
}

/// The owner goes into a system call, finding no work, while its standby sleeps. `again`: it has been in one before.
fn enters_a_call(again: bool) {
    check(320, move || {
        let (runtime, [standby, _]) = two_busy();
        let [entering, busy] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [ready] = threads(runtime);
        entering.set(owner(entering), State::User);
        runtime.retire_standby(entering);
        if again {
            runtime.vps.set_idle(entering);
        }
        let sleeper = thread::spawn(move || {
            kernel::act_as(standby);
            // As from inside `sleep_unless`.
            let seen = 0;
            use crate::kernel::Vessels as _;
            runtime.kernel.sleep(standby, seen);
            runtime.rouse_standby(entering);
            Entered::on(standby).stand_by(entering);
        });
        let maker = thread::spawn(move || {
            kernel::act_as(owner(busy));
            runtime.make_ready_on(entering, By::Others, ready);
        });
        runtime.resume_blocking();
        maker.join().unwrap();
        sleeper.join().unwrap();
        assert!(entering.word().is_owned_by(standby));
    });
}

#[test]
fn one_at_a_time_sits_in_the_pollers_seat() {
    check(220, || {
        let (runtime, _) = two_busy();
        let [one, two] = [
            owner(&runtime.vps()[0]),
            another(runtime, &runtime.vps()[1], Activity::Reserved),
        ];
        two.retire_from(Activity::Reserved);
        // Rung already: an activation that sits down gets up at once.
        one.wake.store(1, Ordering::Relaxed);
        two.wake.store(1, Ordering::Relaxed);
        let other = thread::spawn(move || Entered::on(one).rest(0));
        Entered::on(two).rest(0);
        other.join().unwrap();
        assert!(runtime.seat.is_empty());
    });
}

/// Who looks at the poller in passing finds what was to wake who sits there.
#[test]
fn who_sits_in_the_poller_hears_a_call_that_a_visitor_has_found() {
    check(220, || {
        let (runtime, _) = two_busy();
        runtime.kernel.is_visited();
        let sits = another(runtime, &runtime.vps()[0], Activity::Reserved);
        sits.retire_from(Activity::Reserved);
        let visitor = thread::spawn(move || {
            use crate::kernel::Poll as _;
            runtime.kernel.poll(owner(&runtime.vps()[1]), None);
        });
        let caller = thread::spawn(move || sits.notify());
        kernel::act_as(sits);
        Entered::on(sits).rest(0);
        assert_ne!(sits.wake.load(Ordering::Relaxed), 0);
        caller.join().unwrap();
        visitor.join().unwrap();
    });
}
