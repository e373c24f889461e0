//! Models of what is lock-free, run by loom (`--cfg loom`: all interleavings up to a number of
//! preemptions, and what weak orders allow) or by shuttle (`--cfg shuttle`: random interleavings of
//! more threads, sequentially consistent). The runtime's own code runs, on the checker's atomics
//! ([`crate::sync`]); each thread of a model plays a kernel thread. `tests/models.rs` shows that each
//! model catches a fault put into the code.
//!
//! | lock-free | checked by |
//! |---|---|
//! | a virtual processor's word, `marks`, `attention`; displaced and unsettled activations (`vp`, `blocked`, `returned`) | `owner` |
//! | going to sleep and waking: idle owners, standbys and who calls them, the poller's seat (`idle`, `standby`, `seat`) | `idle` |
//! | a processor that is taken, against an owner that falls idle, and against a thread that is put there (`taken`) | `taken` |
//! | a thread's state, parking and claims; futex buckets and keys; deadlines; `edges` | `futex` |
//! | a thread's end, against who joins it or drops its handle (`ending`) | `ending` |
//! | a word in which a thread waits alone, against who hands over, moves it into a bucket or interrupts it (`lone`) | `lone` |
//! | `lock`, `ready`, `vp_set`, `spares`, `memory`, `stack`, known activations, `slot` | `lists`, `stealing` |
//! | the rank that a virtual processor runs, against ready lists (`rank`, `urgency`) | `urgency` |
//! | `turnstile` (who decides about turns), `accepted` (masks of signals: `upcall_guest::masks`) | `small` |
//! | heirs on their way (`vp`, `standby`) | none: the simulated machine, where nothing is reordered |
//! | `upcall_linux::turns::registry`: the owner of each slot | its own models (shuttle); its content, by `fuzz/` and proptest: it may be anything |
//! | `turns`: busy and stopped processors | none: relaxed sets, right again at the next tick |
//! | `observe`: the newest record of a ring that the kernel writes | none: one read of 16 bits behind the kernel's head. It may be old; the word's compare-and-swap decides. Its content, by `fuzz/` |
//! | `asked`, and `patch::TABLES` in the guest | none: written once, by one, and then published (Release, Acquire) |
//! | `descriptors`, `load`, `pace`, `watch`, `affinity`, `slack`, the poller's `known` and counters, `stats` | none: hints and counts; who acts on them asks the kernel or a lock |
//! | `state`: a signal's inbox | none: one kernel thread and its own handlers |
//! | `Linux::lie_down` and `nudge`: the mark, the mask, the kernel's sleep | `small` has the order; the kernel between is left out |
//! | the guest's `pending` | none: under one lock; the bits are looked at without it, and again after |
//! | the guest's `identity`, `timers`, `names`: slots taken by compare-and-swap | none: a slot names its owner, which is asked again under `pending`'s lock |
//! | the guest's `signal::actions` | none, and it is not atomic: a thread that looks while another one changes an action can see parts of both |
//! | the guest's `process::everywhere`, `preempt::owes_call` | none: one caller under a lock; a signal carries the rest |
//! | the guest's counts of kernel waits (`kernel_futex`) | none: a count, then the kernel's look at the word; no checker has that |
//!
//! Not modelled, since no checker can:
//! - that a kernel thread sees its own loads and stores in order from its signal handlers
//!   (`set_inside`, `clear_inside`), which is program order;
//! - that a context switch is a full barrier: a standby that runs on its owner's processor sees all
//!   that the owner wrote. The models check the word as if the two had a processor each; where that is
//!   not true enough, the code says so
//!   ([`choose_again`](Runtime::choose_again) from afar);
//! - that on x86-64 every locked instruction is a full barrier. Loom knows it of SeqCst ones only, and
//!   there of relaxed accesses on both sides as well, more than the language promises. What relies on
//!   a weaker one calls [`fence_after_locked`](crate::sync::fence_after_locked), which is a barrier on
//!   other processors and in the models;
//! - barriers that all kernel threads pass ([`pass_barriers`](crate::Machine::pass_barriers)): in the models each half is a full
//!   barrier of its own kernel thread. So a missing half is found only where no other full barrier stands there;
//! - that a futex(2) sleeper is woken: the models' kernel sleeps on a lock and a condition;
//! - switches of stacks: a model calls what follows the saving of a thread itself.

mod kernel;

#[cfg(loom)]
mod ending;
#[cfg(loom)]
mod futex;
#[cfg(loom)]
mod idle;
#[cfg(loom)]
mod lists;
#[cfg(loom)]
mod lone;
#[cfg(loom)]
mod owner;
#[cfg(loom)]
mod precedence;
#[cfg(loom)]
mod small;
#[cfg(shuttle)]
mod stealing;
#[cfg(loom)]
mod taken;

use core::sync::atomic::Ordering;
use std::vec::Vec;

use self::kernel::Checked;
#[cfg(loom)]
use crate::kernel::Vessels;
use crate::runtime::Runtime;
#[cfg(loom)]
use crate::state::activation::Activation;
#[cfg(loom)]
use crate::state::inside::Entered;
use crate::state::ready::By;
use crate::state::thread::Thread;
#[cfg(loom)]
use crate::state::vp::Vp;

/// Checks `execution`, which may use that many atomics.
#[cfg(loom)]
fn check(words: usize, execution: impl Fn() + Sync + Send + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.max_branches = 5000;
    checker.preemption_bound = checker.preemption_bound.or(Some(3));
    let count = std::sync::atomic::AtomicUsize::new(0);
    let count = std::sync::Arc::new(count);
    let counter = count.clone();
    checker.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        crate::sync::begin(words, words);
        execution();
    });
    std::println!("{} executions", count.load(Ordering::Relaxed));
}

/// A runtime with so many virtual processors; the model's first thread owns the first, in `Runtime`.
fn runtime(nr_vps: u32) -> &'static Runtime<Checked> {
    let processors: Vec<u32> = (0..nr_vps).collect();
    let runtime = Runtime::create(Checked::new()).unwrap();
    let (inside, _) = runtime.adopt(&processors).unwrap();
    kernel::act_as(&inside);
    runtime
}

/// For the activation that the calling thread of the model plays.
#[cfg(loom)]
fn here(runtime: &'static Runtime<Checked>) -> Entered<Checked> {
    Entered::on(runtime.kernel.current())
}

fn threads<const N: usize>(runtime: &'static Runtime<Checked>) -> [&'static Thread<Checked>; N] {
    core::array::from_fn(|_| runtime.take_thread().unwrap())
}

#[cfg(loom)]
fn owner(vp: &'static Vp<Checked>) -> &'static Activation<Checked> {
    vp.word().owner()
}

/// The threads that are ready anywhere, which are taken out.
fn all_ready(runtime: &'static Runtime<Checked>) -> Vec<*const Thread<Checked>> {
    let mut found = Vec::new();
    for vp in runtime.vps() {
        while let Some(thread) = vp.ready.pop(runtime.kernel(), By::Others) {
            assert!(thread.state.load(Ordering::Relaxed).is_ready());
            found.push(core::ptr::from_ref(thread));
        }
    }
    found
}
