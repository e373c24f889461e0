//! Lets a thread close a signal to all activations that sleep without a thread, and know when that is done.
//!
//! An activation that sleeps without a thread takes signals of the process on behalf of parked threads. Its mask is the
//! one that [`Hooks::resting_mask`](crate::state::Hooks::resting_mask) computes. Between the moment in which the kernel
//! gives it a signal and the first instruction of the handler, nobody can see that signal. So a thread that must know
//! whether a signal is pending first closes it to all such activations:
//!
//! 1. The thread changes what the mask depends on, and waits ([`Linux::await_closed`]).
//! 2. Each activation that sleeps with the old mask is woken, and goes to sleep with the new one. It notes what it opens
//!    before it tells the kernel, and what it closes after it has told the kernel ([`Linux::set_resting_mask`],
//!    [`Linux::set_mask`]). So when the note says that the signal is blocked, the handler has met every such signal that
//!    the kernel gave the activation before.
//! 3. The handler notes the signal as one at hand ([`LinuxActivation::at_hand`](crate::state::LinuxActivation::at_hand))
//!    before it notes any mask. The signal stops being at hand when it is passed on, or left to the kernel again.
//!
//! The other activation takes each step as soon as it runs. The thread does not wait for sentinels: a sentinel may not
//! run while others do.

use core::sync::atomic::Ordering;

use upcall_core::kernel::Vessels;
use upcall_core::{Activity, Machine};

use crate::activation::preempt;
use crate::state::Linux;
use crate::state::{Activation, Inside, Runtime, Sleeps};
use crate::sys;

impl Linux {
    /// Sets the mask of the calling activation, which has no thread.
    pub fn set_resting_mask(&self, activation: &Activation) {
        let state = &activation.kernel;
        let compute = || (self.settings.hooks.resting_mask)() & !preempt::OWN;
        let (before, mut mask) = (state.mask.load(Ordering::Relaxed), compute());
        if before == mask || !state.inbox.is_empty() {
            return;
        }
        loop {
            // SeqCst: what is about to be open is noted, and then computed again; who closes a signal looks at the note
            // afterwards.
            state.mask.store(before & mask, Ordering::SeqCst);
            let now = compute();
            if now == mask {
                break;
            }
            mask = now;
        }
        sys::set_signal_mask(mask);
        state.mask.store(mask, Ordering::Release);
    }

    /// Makes every activation without a thread compute its mask anew: one that sleeps does so when it
    /// lies down again, a standby when it attends.
    pub fn nudge(&self, runtime: &'static Runtime) {
        runtime.each_activation(|activation| self.nudge_one(activation));
    }

    fn nudge_one(&self, activation: &Activation) {
        if activation.kernel.waiting.load(Ordering::SeqCst) != Sleeps::Nowhere {
            activation.wake_word().fetch_add(1, Ordering::SeqCst);
            self.wake(activation);
        } else if activation.activity() == Activity::Standby {
            activation.attend(Activation::DEFERRED);
        }
    }

    /// Waits until no other activation can take one of the signals that `closed` returns on behalf of parked threads, and
    /// none has taken one that it has not passed on. `closed` is asked again and again: it returns fewer when a
    /// thread accepts some of them meanwhile.
    pub fn await_closed(&self, inside: &Inside, closed: impl Fn() -> u64) {
        let own: &Activation = inside;
        self.await_until_not(inside.runtime(), |other| {
            !core::ptr::eq(other, own) && is_open(other, closed())
        });
    }

    /// As [`Linux::await_closed`], for a thread in its own code, which may go on on another activation meanwhile. Two threads that wait
    /// here at a time do not wait for each other.
    pub fn await_closed_outside(&self, runtime: &'static Runtime, closed: impl Fn() -> u64) {
        self.await_until_not(runtime, |other| is_open(other, closed()));
    }

    fn await_until_not(&self, runtime: &'static Runtime, is_open: impl Fn(&Activation) -> bool) {
        runtime.each_activation(|activation| {
            while is_open(activation) {
                self.nudge_one(activation);
                self.await_holder();
            }
        });
    }
}

/// Whether one of the signals in `set` may be with the activation now, or come to it.
fn is_open(activation: &Activation, set: u64) -> bool {
    let state = &activation.kernel;
    let is_gone = state.tid.load(Ordering::SeqCst) == 0;
    if is_gone || set == 0 || state.sentinel.load(Ordering::Relaxed) {
        return false;
    }
    // Acquire, and in this order: pairs with the stores of the activation, which notes a signal before a mask.
    let blocks_all = state.mask.load(Ordering::Acquire) & set == set;
    let is_at_hand = state.at_hand.load(Ordering::SeqCst) & set != 0;
    let looks = state.looks.load(Ordering::SeqCst);
    // Inside the runtime it may not have the mask of its thread yet.
    let rests = activation.thread().is_none() || activation.is_inside();
    is_at_hand || looks || !blocks_all && rests
}
