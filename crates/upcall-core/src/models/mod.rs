//! Models of what is lock-free, run by loom (`--cfg loom`: all interleavings up to a number of
//! preemptions, and what weak orders allow) or by shuttle (`--cfg shuttle`: random interleavings of
//! more threads, sequentially consistent). The runtime's own code runs, on the checker's atomics
//! ([`crate::sync`]); each thread of a model plays a kernel thread. `tests/models.rs` shows that each
//! model catches a fault put into the code.
//!
//! Not modelled, since no checker can:
//! - that a kernel thread sees its own loads and stores in order from its signal handlers
//!   (`set_inside`, `clear_inside`), which is program order;
//! - that a context switch is a full barrier: a standby that runs on its owner's processor sees all
//!   that the owner wrote. The models check the word as if the two had a processor each; where that is
//!   not true enough, the code says so
//!   ([`choose_again_from_afar`](Runtime::choose_again_from_afar));
//! - that on x86-64 every locked instruction is a full barrier. Loom knows it of SeqCst ones only, and
//!   there of relaxed accesses on both sides as well, more than the language promises. What relies on
//!   a weaker one calls [`fence_after_locked`](crate::sync::fence_after_locked), which is a barrier on
//!   other processors and in the models;
//! - that a futex(2) sleeper is woken: the models' kernel sleeps on a lock and a condition;
//! - switches of stacks: a model calls what follows the saving of a thread itself.

mod kernel;

#[cfg(loom)]
mod futex;
#[cfg(loom)]
mod idle;
#[cfg(loom)]
mod lists;
#[cfg(loom)]
mod owner;
#[cfg(shuttle)]
mod stealing;

use core::sync::atomic::Ordering;
use std::vec::Vec;

use self::kernel::Checked;
#[cfg(loom)]
use crate::activation::Activation;
use crate::runtime::Runtime;
use crate::thread::{READY, Thread};
#[cfg(loom)]
use crate::vp::Vp;

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
    let (activation, _) = runtime.adopt(&processors).unwrap();
    kernel::act_as(activation);
    runtime
}

fn threads<const N: usize>(runtime: &'static Runtime<Checked>) -> [&'static Thread<Checked>; N] {
    core::array::from_fn(|_| runtime.new_thread().unwrap())
}

#[cfg(loom)]
fn owner(vp: &'static Vp<Checked>) -> &'static Activation<Checked> {
    vp.word().owner()
}

/// The threads that are ready anywhere, which are taken out.
fn all_ready(runtime: &'static Runtime<Checked>) -> Vec<*const Thread<Checked>> {
    let mut found = Vec::new();
    for vp in runtime.vps() {
        while let Some(thread) = vp.ready.pop(runtime.kernel()) {
            assert_eq!(thread.state.load(Ordering::Relaxed), READY);
            found.push(core::ptr::from_ref(thread));
        }
    }
    found
}
