//! Nobody runs a thread while a more urgent one waits.

use core::sync::atomic::Ordering;

use loom::thread;

use super::idle::two_busy;
use super::kernel;
use super::{check, owner, threads};

#[test]
fn a_more_urgent_thread_is_chosen_or_has_who_chooses_choose_again() {
    check(300, || {
        let (runtime, _) = two_busy();
        let [chooses, busy] = [&runtime.vps()[0], &runtime.vps()[1]];
        let [common, urgent] = threads(runtime);
        // Both have run something more urgent until now.
        urgent.rank.store(2, Ordering::Relaxed);
        runtime.ranked.store(true, Ordering::Relaxed);
        for vp in [chooses, busy] {
            vp.rank.store(1, Ordering::Relaxed);
        }
        runtime.push_back(chooses, common);
        let maker = thread::spawn(move || {
            kernel::act_as(owner(busy));
            runtime.make_ready_on(busy, urgent);
        });
        let activation = owner(chooses);
        let first = runtime.next_thread(chooses).expect("one is ready");
        let runs = runtime.is_chosen(activation, first);
        maker.join().unwrap();
        assert!(!runs || core::ptr::eq(first, urgent) || activation.wants_attention());
    });
}
