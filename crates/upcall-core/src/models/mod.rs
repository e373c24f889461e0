//! Models of what is lock-free, run by loom (`--cfg loom`: all interleavings up to a number of
//! preemptions, and what weak orders allow) or by shuttle (`--cfg shuttle`: random interleavings of
//! more threads, sequentially consistent). The runtime's own code runs, on the checker's atomics
//! ([`crate::sync`]); each thread of a model plays a kernel thread. `tests/models.rs` shows that each
//! model catches a fault put into the code.
//!
//! Not modelled, since no checker can:
//! - that two loads and stores of one kernel thread are in order for a signal handler on it, which
//!   is program order (`set_inside`, `clear_inside`);
//! - that a context switch on one processor is a full barrier: a standby that runs beside its
//!   owner's processor reads all that the owner wrote, and loom checks the word as if it did not;
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
use crate::activation::Activation;
use crate::runtime::Runtime;
use crate::sync;
use crate::thread::{READY, Thread};
use crate::vp::Vp;

/// Checks `execution`, which may use that many atomics.
#[cfg(loom)]
fn check(words: usize, execution: impl Fn() + Sync + Send + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.max_branches = 5000;
    checker.preemption_bound = checker.preemption_bound.or(Some(2));
    let count = std::sync::atomic::AtomicUsize::new(0);
    let count = std::sync::Arc::new(count);
    let counter = count.clone();
    checker.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        sync::begin(words, words);
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
