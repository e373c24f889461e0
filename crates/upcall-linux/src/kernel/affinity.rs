//! Looks at each time slice, and on request, whether somebody has changed which processors the program may use.
//!
//! The sets and the rules are in `processors::affinity`. This module applies them to the activations of the process.

pub use crate::processors::affinity::{
    Set, WORDS, allowed, first_bits, is_as_allowed, note, release,
};
use crate::processors::affinity::{look, mask_of_others};
use crate::state::{Activation, Linux};
use upcall_core::Machine;

/// Sees now and then whether somebody has changed what the program may use.
pub(crate) fn tick(activation: &Activation) {
    look_at(activation, false);
}

/// Sees it now: what a thread that starts a process or executes a program passes on must be up to date.
pub fn refresh(activation: &Activation) {
    look_at(activation, true);
}

fn look_at(activation: &Activation, always: bool) {
    let runtime = activation.runtime();
    let kernel: &Linux = runtime.kernel();
    let first = kernel.first();
    look(
        &activation.kernel.binding,
        || activation.vp().processor(),
        first.map(|first| (kernel.pid, &first.kernel.binding)),
        runtime.vps(),
        kernel.now(),
        always,
    );
}

/// Whether the calling kernel thread has the mask by which this activation bound itself, and no other
/// one that somebody has given it since.
pub fn is_ours(activation: &Activation) -> bool {
    mask_of_others(0, &activation.kernel.binding).is_none()
}
