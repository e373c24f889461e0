//! The lock, the ready list, the set of idle virtual processors, the pools.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use loom::thread::{self, JoinHandle};

use super::kernel::Checked;
use super::{all_ready, check, runtime, threads};
use crate::lock::SpinLock;
use crate::stack::StackPool;
use crate::state::activation::Activity;
use crate::state::inside::Entered;
use crate::state::ready::By;
use crate::vp_set::VpSet;

#[test]
fn a_lock_has_one_holder_who_sees_what_the_last_did() {
    check(20, || {
        let kernel = Arc::new(Checked::new());
        let lock = Arc::new(SpinLock::new(0));
        let add = |kernel: &Checked, lock: &SpinLock<i32>| *lock.lock(kernel) += 1;
        let other = {
            let (kernel, lock) = (kernel.clone(), lock.clone());
            thread::spawn(move || add(&kernel, &lock))
        };
        add(&kernel, &lock);
        other.join().unwrap();
        assert_eq!(*lock.lock(&*kernel), 2);
    });
}

#[test]
fn a_lock_whose_guard_was_forgotten_opens_once() {
    check(20, || {
        let kernel = Arc::new(Checked::new());
        let lock = Arc::new(SpinLock::new(0));
        let other = {
            let (kernel, lock) = (kernel.clone(), lock.clone());
            thread::spawn(move || {
                let mut guard = lock.lock(&*kernel);
                *guard += 1;
                core::mem::forget(guard);
                // SAFETY: forgotten just now.
                unsafe { lock.unlock() };
            })
        };
        *lock.lock(&*kernel) += 1;
        other.join().unwrap();
        assert_eq!(*lock.lock(&*kernel), 2);
    });
}

/// The owner takes what it finds, without the lock, while somebody else puts threads in.
#[test]
fn a_list_is_counted_where_the_owner_goes_without_the_lock() {
    check(120, || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let [one, two] = threads(runtime);
        let giver = thread::spawn(move || {
            vp.ready.push_back(&runtime.kernel, By::Others, one);
            vp.ready.push_back(&runtime.kernel, By::Others, two);
        });
        let taken = (0..2).filter_map(|_| vp.ready.pop(&runtime.kernel, By::Owner));
        let taken = taken.count();
        giver.join().unwrap();
        assert_eq!(vp.nr_ready(), 2 - taken);
        assert_eq!(all_ready(runtime).len(), 2 - taken);
    });
}

/// The owner puts threads in and takes one, and somebody else takes one meanwhile.
fn take_from_list(words: usize, by: By) {
    check(words, move || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let [one, two, three] = threads(runtime);
        let saved = |thread: &'static crate::Thread<Checked>| {
            thread.context.store(7, Ordering::Relaxed);
            thread
        };
        vp.ready.push_back(&runtime.kernel, by, saved(one));
        let thief = thread::spawn(move || {
            let taken = vp.ready.steal(&runtime.kernel);
            if let Some(thread) = taken {
                assert_eq!(thread.context.load(Ordering::Relaxed), 7);
            }
            taken.map(core::ptr::from_ref)
        });
        let first = vp.ready.exchange(&runtime.kernel, by, saved(two));
        assert_eq!(first.context.load(Ordering::Relaxed), 7);
        if by == By::Owner {
            // Again, if the thief has ended it.
            runtime.free_list(vp, u64::MAX);
        }
        vp.ready.push_back(&runtime.kernel, by, saved(three));
        let taken = thief.join().unwrap();
        assert_eq!(vp.nr_ready(), 2 - usize::from(taken.is_some()));
        let mut all = all_ready(runtime);
        all.extend(taken);
        all.push(core::ptr::from_ref(first));
        all.sort();
        let mut expected = [one, two, three].map(core::ptr::from_ref);
        expected.sort();
        assert_eq!(all, expected);
    });
}

#[test]
fn a_ready_thread_is_taken_once_and_as_it_was_saved() {
    take_from_list(120, By::Others);
}

#[test]
fn a_ready_thread_is_taken_once_where_the_owner_goes_without_the_lock() {
    take_from_list(120, By::Owner);
}

#[test]
fn a_virtual_processor_that_entered_the_idle_set_is_taken_by_one() {
    check(30, || {
        let set = Arc::new(VpSet::new());
        set.insert(3);
        let take = |set: Arc<VpSet>| -> JoinHandle<u32> {
            thread::spawn(move || set.take(0, 64).map_or(0, |_| 1))
        };
        let others = [take(set.clone()), take(set.clone())];
        set.insert(5);
        let mut taken = others
            .map(|other| other.join().unwrap())
            .iter()
            .sum::<u32>();
        while set.take(0, 64).is_some() {
            taken += 1;
        }
        assert_eq!(taken, 2);
        assert!(!set.contains(3) && !set.contains(5));
        assert!(set.is_empty(), "the count is wrong");
    });
}

#[test]
fn a_set_with_a_member_is_never_found_empty() {
    check(30, || {
        let set = Arc::new(VpSet::new());
        set.insert(3);
        let (comes, goes) = (set.clone(), set.clone());
        let others = [
            thread::spawn(move || comes.insert(5)),
            thread::spawn(move || {
                goes.remove(5);
            }),
        ];
        assert!(!set.is_empty());
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn a_thread_that_is_put_where_somebody_looks_in_vain_is_found_afterwards() {
    check(160, || {
        let runtime = runtime(2);
        let [seeker, other] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [ready] = threads(runtime);
        runtime.vps.set_ready(other);
        let maker = thread::spawn(move || runtime.push_back(other, By::Others, ready));
        let found = runtime.next_thread(seeker);
        maker.join().unwrap();
        assert!(found.is_some() || runtime.work_waits(seeker));
    });
}

#[test]
fn an_activation_of_the_pool_is_given_to_one() {
    check(220, || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let spare = runtime.new_activation(Some(vp)).unwrap();
        spare.set_activity(Activity::Reserved);
        // The thread that has it counts in its link, which is not an atomic's business.
        let use_it = move || {
            let Some(taken) = runtime.take_spare(vp) else {
                return false;
            };
            assert!(core::ptr::eq(taken, spare));
            assert_eq!(taken.activity(), Activity::Reserved);
            true
        };
        let giver = thread::spawn(move || spare.retire_from(Activity::Reserved));
        let mine = use_it();
        // As one that is about to end takes itself out.
        let left = !mine && Entered::on(spare).leave_spares();
        giver.join().unwrap();
        let late = use_it();
        assert_eq!(u32::from(mine) + u32::from(left) + u32::from(late), 1);
    });
}

/// It would leave the seat when nobody expects that any more.
#[test]
fn a_spare_that_is_taken_does_not_sit_in_the_poller() {
    check(220, || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let spare = runtime.new_activation(Some(vp)).unwrap();
        spare.set_activity(Activity::Reserved);
        spare.retire_from(Activity::Reserved);
        let taker = thread::spawn(move || {
            let taken = runtime.take_spare(vp);
            taken.is_some_and(|one| core::ptr::eq(one, spare))
        });
        let sits = Entered::on(spare).take_seat();
        assert!(sits != taker.join().unwrap());
    });
}

#[test]
fn memory_is_handed_out_once_until_it_comes_back() {
    check(160, || {
        let runtime = runtime(1);
        let one = runtime.take_thread().unwrap();
        let other = thread::spawn(move || {
            runtime.free_thread(one);
            core::ptr::from_ref(runtime.take_thread().unwrap())
        });
        let mine = core::ptr::from_ref(runtime.take_thread().unwrap());
        assert_ne!(mine, other.join().unwrap());
    });
}

#[test]
fn a_stack_is_handed_out_once_until_it_comes_back() {
    check(20, || {
        const SIZE: usize = 1 << 21;
        let kernel = Arc::new(Checked::new());
        let pool = Arc::new(StackPool::new(SIZE));
        let taken = pool.take(&*kernel).unwrap().0;
        let other = {
            let (kernel, pool) = (kernel.clone(), pool.clone());
            thread::spawn(move || {
                // SAFETY: taken above, used by nobody.
                unsafe { pool.give(&*kernel, taken) };
                pool.take(&*kernel).unwrap().0
            })
        };
        let [one, two] = [0, 1].map(|_| pool.take(&*kernel).unwrap().0);
        let theirs = other.join().unwrap();
        assert!(one != two && one != theirs && two != theirs);
    });
}

#[test]
fn every_activation_is_known_however_many_begin_at_once() {
    check(260, || {
        let runtime = runtime(1);
        let vp = &runtime.vps()[0];
        let make = move || core::ptr::from_ref(runtime.new_activation(Some(vp)).unwrap());
        let other = thread::spawn(make);
        let mine = make();
        let theirs = other.join().unwrap();
        let mut known = std::vec::Vec::new();
        runtime.each_activation(|activation| known.push(core::ptr::from_ref(activation)));
        assert!(
            known.contains(&mine) && known.contains(&theirs),
            "{known:?}"
        );
        assert_eq!(known.len(), 3);
    });
}
