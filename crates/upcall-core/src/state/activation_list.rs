//! Activations linked through themselves, the last one that came first. An activation is in one such list at a time.

use crate::machine::Machine;
use crate::state::activation::Activation;
use crate::sync::Ordering;

/// Activations linked one after the other. Owned by whoever holds the value.
pub(crate) struct ActivationList<K: Machine>(Option<&'static Activation<K>>);

// SAFETY: references to activations, whose fields are atomics; a list is shared behind a lock only.
unsafe impl<K: Machine> Send for ActivationList<K> {}

impl<K: Machine> ActivationList<K> {
    pub(crate) const fn new() -> Self {
        ActivationList(None)
    }

    pub(crate) fn first(&self) -> Option<&'static Activation<K>> {
        self.0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Activation<K>> + use<K> {
        core::iter::successors(self.0, |one| one.next.get(Ordering::Relaxed))
    }

    pub(crate) fn push(&mut self, activation: &'static Activation<K>) {
        activation.next.set(self.0, Ordering::Relaxed);
        self.0 = Some(activation);
    }

    /// Takes out the first one that is wanted.
    pub(crate) fn take(
        &mut self,
        wanted: impl Fn(&'static Activation<K>) -> bool,
    ) -> Option<&'static Activation<K>> {
        let mut before: Option<&'static Activation<K>> = None;
        for one in self.iter() {
            if wanted(one) {
                let after = one.next.get(Ordering::Relaxed);
                match before {
                    Some(before) => before.next.set(after, Ordering::Relaxed),
                    None => self.0 = after,
                }
                return Some(one);
            }
            before = Some(one);
        }
        None
    }

    /// Takes this activation out. Returns true if it was there.
    pub(crate) fn remove(&mut self, activation: &'static Activation<K>) -> bool {
        self.take(|one| core::ptr::eq(one, activation)).is_some()
    }
}
