//! Being inside the runtime, as a value.

use core::ops::Deref;

use crate::machine::Machine;
use crate::state::activation::Activation;
use crate::state::vp::State;

/// The caller is inside the runtime, on the activation to which this leads: the kernel's events are deferred.
///
/// [`Runtime::enter`](crate::Runtime::enter) gives one and [`Inside::leave`] takes it. What parks the current thread takes it, too, and
/// gives back another when the thread runs again, perhaps on another activation. So the activation of before
/// cannot be used afterwards:
///
/// ```compile_fail,E0382
/// # use upcall_core::{Inside, Kernel};
/// fn gives_way_twice<K: Kernel>(inside: Inside<K>) {
///     inside.give_way().leave();
///     inside.leave();
/// }
/// ```
///
/// It stays on its kernel thread:
///
/// ```compile_fail,E0277
/// # use upcall_core::{Inside, Kernel};
/// fn takes_along<K: Kernel>(inside: Inside<K>) -> impl Send {
///     inside
/// }
/// ```
///
/// Whether the activation owns its virtual processor is told by the word of that one ([`Vp`](crate::Vp)). It does
/// wherever a thread is inside. An activation without a thread is always inside.
#[must_use = "a thread that has entered the runtime leaves it or parks"]
pub struct Inside<K: Machine> {
    /// The runtime. A raw pointer is not `Send`, and leads up to a room above this one.
    pub(crate) runtime: *const (),
    pub(crate) activation: &'static Activation<K>,
}

impl<K: Machine> Inside<K> {
    /// The activation, as the owner of its virtual processor, moves from one state to another, unless it was
    /// replaced. Returns true if it did.
    #[inline]
    pub(crate) fn step(&self, from: State, to: State) -> bool {
        self.vp().step(self.activation, from, to)
    }

    /// The same from a state that nobody else may leave.
    #[inline]
    pub(crate) fn set(&self, state: State) {
        self.vp().set(self.activation, state);
    }
}

impl<K: Machine> Deref for Inside<K> {
    type Target = Activation<K>;

    #[inline(always)]
    fn deref(&self) -> &Activation<K> {
        self.activation
    }
}
