//! All activations: how they come into being, and what becomes of those that have ended.

use crate::kernel::Kernel;
use crate::lock::SpinLock;
use crate::machine::Errno;
use crate::memory::Slab;
use crate::runtime::Runtime;
use crate::slot::Slot;
use crate::stack::StackPool;
use crate::state::activation::{ACTIVATION_STACK, Activation, ActivationList, Activity};
use crate::state::vp::Vp;
use crate::sync::{AtomicBool, Ordering};

/// All activations of a runtime.
pub(super) struct Activations<K: Kernel> {
    slab: Slab<Activation<K>>,
    stacks: StackPool,
    /// Every activation that was ever created.
    known: Slot<Activation<K>>,
    /// Activations that have ended; their kernel threads may still be on their stacks.
    ended: SpinLock<ActivationList<K>>,
    /// The kernel has refused the last activation that was asked for.
    short: AtomicBool,
    /// No activation may end.
    all_stay: AtomicBool,
}

impl<K: Kernel> Activations<K> {
    pub(super) const fn none() -> Self {
        Activations {
            slab: Slab::new(),
            stacks: StackPool::new(ACTIVATION_STACK),
            known: Slot::empty(),
            ended: SpinLock::new(ActivationList::new()),
            short: AtomicBool::new(false),
            all_stay: AtomicBool::new(false),
        }
    }

    pub(super) fn may_end(&self) -> bool {
        !self.all_stay.load(Ordering::Relaxed)
    }

    /// An ended activation whose kernel thread is gone.
    fn exhume(&self, kernel: &K) -> Option<&'static Activation<K>> {
        let mut ended = self.ended.lock(kernel);
        let last = ended.first?;
        if !kernel.is_gone(last) {
            return None;
        }
        ended.take(|_| true)
    }

    fn create(
        &self,
        runtime: &'static Runtime<K>,
        vp: Option<&'static Vp<K>>,
    ) -> Result<&'static Activation<K>, Errno> {
        let kernel = &runtime.kernel;
        let (activation, _) = self.slab.take(kernel)?;
        // None are given back but those for which there was no stack.
        if activation.stack.load(Ordering::Relaxed) == 0 {
            let stack = match self.stacks.take(kernel) {
                Ok((stack, _)) => stack,
                Err(error) => {
                    self.slab.give(kernel, activation);
                    return Err(error);
                }
            };
            activation.this.store(
                core::ptr::from_ref(activation).cast_mut(),
                Ordering::Relaxed,
            );
            activation.stack.store(stack, Ordering::Relaxed);
            // Before it is known: a visitor may ask for its virtual processor.
            activation.vp.set(vp, Ordering::Relaxed);
            // SAFETY: it is not known yet.
            unsafe {
                activation.runtime.set(core::ptr::from_ref(runtime).cast());
            }
            loop {
                let head = self.known.get(Ordering::Acquire);
                activation.next_known.set(head, Ordering::Relaxed);
                if self.known.replace_if(head, Some(activation)) {
                    break;
                }
            }
        }
        Ok(activation)
    }
}

impl<K: Kernel> Activation<K> {
    /// The runtime it belongs to.
    #[inline]
    pub fn runtime(&self) -> &'static Runtime<K> {
        let pointer = self.runtime.get().cast();
        // SAFETY: `Activations::create` put the address of its runtime there, which is never freed, before
        // anybody else knew of the activation.
        unsafe { &*pointer }
    }

    /// Keeps an ended activation until its kernel thread is gone.
    pub(super) fn bury(&'static self) {
        let runtime = self.runtime();
        runtime.stats.activations.down();
        runtime.activations.ended.lock(&runtime.kernel).push(self);
    }
}

impl<K: Kernel> Runtime<K> {
    /// Returns true if the kernel gives no further activations for now: an owner that blocks has perhaps no
    /// successor, and everything waits with it. A thread that can park does.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.activations.short.load(Ordering::Relaxed)
    }

    /// Calls `visit` with every activation that was ever created; ended ones included.
    pub fn each_activation(&self, mut visit: impl FnMut(&'static Activation<K>)) {
        let mut at = self.activations.known.get(Ordering::Acquire);
        while let Some(activation) = at {
            visit(activation);
            at = activation.next_known.get(Ordering::Acquire);
        }
    }

    /// For `vp`; `None`: the caller says for which, before others know of the runtime.
    pub(super) fn new_activation(
        &'static self,
        vp: Option<&'static Vp<K>>,
    ) -> Result<&'static Activation<K>, Errno> {
        let activation = match self.activations.exhume(&self.kernel) {
            Some(activation) => activation,
            None => self.activations.create(self, vp)?,
        };
        activation.vp.set(vp, Ordering::Relaxed);
        self.stats.activations.up();
        Ok(activation)
    }

    pub(super) fn spawn_activation(
        &'static self,
        vp: &'static Vp<K>,
        watches: bool,
    ) -> Option<&'static Activation<K>> {
        let Ok(activation) = self.new_activation(Some(vp)) else {
            self.refused();
            return None;
        };
        activation.set_activity(Activity::Reserved);
        if self.kernel.spawn(activation, watches).is_err() {
            self.refused();
            activation.bury();
            return None;
        }
        if self.is_short() {
            self.activations.short.store(false, Ordering::Relaxed);
        }
        Some(activation)
    }

    /// The kernel has refused an activation.
    pub(super) fn refused(&self) {
        self.stats.refused.add();
        self.activations.short.store(true, Ordering::Relaxed);
    }

    /// From now on no activation ends, however many sleep: something in the kernel that outlives a
    /// call is tied to one of them, and nobody can say to which.
    pub fn keep_activations(&self) {
        // Seen by the caller's own activation when it is about to end, and by others with what the
        // caller publishes afterwards.
        self.activations.all_stay.store(true, Ordering::Relaxed);
    }
}
