//! Critical sections of the program (Anderson et al. 1991, section 3.3).
//!
//! A thread says by one store that it enters a section, and by another that it leaves ([`Thread::enter_section`]). In
//! between it may hold what others spin for. The runtime looks there only where it takes the processor from a thread, or
//! gives it to one:
//!
//! 1. At the end of a time slice, and where others are to run instead, the thread goes on. It gives way when it leaves its
//!    outermost section ([`Runtime::end_section`]), or after some more slices (`state/section.rs`).
//! 2. An activation that comes back does not displace it. Its thread waits in front instead.
//! 3. Where the thread loses its processor all the same (another address space has it, or the thread has blocked), it is
//!    *continued first* as soon as it can run: on its virtual processor, or on the one that gets the ready list. It has a
//!    place in the list before all that are in no section (`Rank::SECTION`). The owner is asked to
//!    choose again. An activation that becomes the owner then looks in the list (`regain`): the request may have
//!    been for the owner before.
//! 4. A thread that has waited for time or for a descriptor is continued first, too. One that was woken by another thread
//!    waits as all do: to look there would cost each wake-up.
//!
//! Ranks: a more urgent thread waits for the end of a section, too, as in the non-preemptive protocol of real-time systems:
//! it might spin for what the other one holds. In a ready list ranks alone decide.
//!
//! Approach rejected: to copy the sections, and to continue the copy, which ends in the runtime (section 4.3). It costs nothing
//! while nothing is preempted, but the compiler has to mark the code. `docs/adr/0047-critical-sections-of-the-program.md`.

use crate::kernel::Kernel;
use crate::runtime::{Runtime, Transition};
use crate::state::activation::Activation;
use crate::state::inside::Inside;
use crate::state::ready::{By, MOST_NS};
use crate::state::thread::Thread;
use crate::state::vp::Vp;

impl<K: Kernel> Runtime<K> {
    /// Called when [`Thread::leave_section`] has said so: the calling thread has left its outermost section, and gives way if
    /// others still wait. From the thread's own code.
    #[cold]
    pub fn end_section(&'static self) {
        let mut inside = self.enter();
        if let Some(thread) = inside.thread() {
            let vp = inside.vp();
            let has_had_slice = thread.sections.settle();
            let gives_way = self.gives_way(vp, Some(thread));
            if has_had_slice && (gives_way || self.advises_on_slice(thread)) {
                inside = inside.park(Inside::late_slice_ended, 0);
            } else if gives_way {
                self.stats.preempted.add();
                inside = inside.park_to_choose();
            }
        }
        inside.leave();
    }

    /// A thread in a critical section is ready again.
    #[cold]
    pub(super) fn make_ready_first(
        &'static self,
        vp: &'static Vp<K>,
        thread: &'static Thread<K>,
        afar: bool,
    ) {
        self.tell(vp, thread, Transition::Unblocked);
        self.put_first(vp, thread, afar);
    }

    /// Puts a thread that is in a critical section first on `vp`, whose owner chooses again as soon as it can. `afar`: see
    /// [`Runtime::choose_again`].
    #[cold]
    pub(super) fn put_first(
        &'static self,
        vp: &'static Vp<K>,
        thread: &'static Thread<K>,
        afar: bool,
    ) {
        self.push_first(vp, thread);
        // Also if an idle one was rung: that may find something else to run.
        self.announce(vp, thread);
        if !self.is_ranked() && vp.ready.awaits_owner(&self.kernel, thread) {
            self.ask_owner(vp, afar);
        }
    }

    /// Puts it there, and asks nobody. Those before which it goes have their turn when it leaves its section.
    pub(super) fn push_first(&'static self, vp: &'static Vp<K>, thread: &'static Thread<K>) {
        thread.sections.defer();
        vp.ready.push_first(&self.kernel, thread, self.is_ranked());
        self.vps.set_ready(vp);
    }
}

impl<K: Kernel> Inside<K> {
    /// The time slice of a parked thread was over some time ago, in a critical section.
    fn late_slice_ended(&self, thread: &'static Thread<K>, _: usize) -> Option<&'static Thread<K>> {
        let (runtime, vp) = (self.runtime(), self.vp());
        let now = runtime.kernel.now();
        vp.ready.age_by_slice(&runtime.kernel, By::Owner, now);
        runtime.put_behind(vp, thread, vp.ran_ns(now).unwrap_or(MOST_NS));
        None
    }
}

impl<K: Kernel> Activation<K> {
    /// Returns true if the thread that it carries is in a critical section. Of another activation, at some moment.
    pub(super) fn is_in_section(&self) -> bool {
        self.thread().is_some_and(Thread::is_in_section)
    }
}
