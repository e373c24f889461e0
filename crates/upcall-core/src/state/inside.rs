//! Being inside the runtime, as a value.

use core::marker::PhantomData;
use core::ops::Deref;

use crate::machine::Machine;
use crate::state::activation::Activation;
use crate::state::vp::State;

/// The caller has entered the runtime, on the activation to which this leads: the kernel's events are deferred.
///
/// [`Runtime::enter`](crate::Runtime::enter) gives one and [`Entered::leave`] takes it. What parks the current thread
/// takes it, too, and gives back another when the thread runs again, perhaps on another activation. So the activation
/// of before cannot be used afterwards:
///
/// ```compile_fail,E0382
/// # use upcall_core::{Entered, Kernel};
/// fn gives_way_twice<K: Kernel>(inside: Entered<K>) {
///     inside.give_way().leave();
///     inside.leave();
/// }
/// ```
///
/// It stays on its kernel thread:
///
/// ```compile_fail,E0277
/// # use upcall_core::{Entered, Kernel};
/// fn takes_along<K: Kernel>(inside: Entered<K>) -> impl Send {
///     inside
/// }
/// ```
#[must_use = "a thread that has entered the runtime leaves it or parks"]
pub struct Entered<K: Machine>(&'static Activation<K>, PhantomData<*const ()>);

/// An activation, to code that is inside the runtime on it.
///
/// Functions that must be called inside take a reference to one. It cannot outlive the [`Entered`] that it comes from.
/// Whether the activation owns its virtual processor is told by the word of that one ([`Vp`](crate::Vp)). It does
/// wherever a thread is inside. An activation without a thread is always inside.
#[repr(transparent)]
pub struct Inside<K: Machine>(Activation<K>, PhantomData<*const ()>);

impl<K: Machine> Entered<K> {
    /// The caller runs on the activation, whose mark is set.
    #[inline(always)]
    pub(crate) fn on(activation: &'static Activation<K>) -> Self {
        Entered(activation, PhantomData)
    }
}

impl<K: Machine> Inside<K> {
    /// The activation, which lives for ever.
    #[inline(always)]
    pub(crate) fn activation(&self) -> &'static Activation<K> {
        // SAFETY: made by `Entered::deref` only, from such a reference.
        unsafe { &*core::ptr::from_ref(&self.0) }
    }

    /// The activation, as the owner of its virtual processor, moves from one state to another, unless it was
    /// replaced. Returns true if it did.
    #[inline]
    pub(crate) fn step(&self, from: State, to: State) -> bool {
        self.vp().step(self.activation(), from, to)
    }

    /// The same from a state that nobody else may leave.
    #[inline]
    pub(crate) fn set(&self, state: State) {
        self.vp().set(self.activation(), state);
    }
}

impl<K: Machine> Deref for Entered<K> {
    type Target = Inside<K>;

    #[inline(always)]
    fn deref(&self) -> &Inside<K> {
        // SAFETY: the same representation.
        unsafe { &*core::ptr::from_ref(self.0).cast() }
    }
}

impl<K: Machine> Deref for Inside<K> {
    type Target = Activation<K>;

    #[inline(always)]
    fn deref(&self) -> &Activation<K> {
        &self.0
    }
}
