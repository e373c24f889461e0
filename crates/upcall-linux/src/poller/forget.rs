//! Descriptors that change: the program closes them, replaces them or writes to them itself.

use core::sync::atomic::Ordering;

use upcall_core::ThreadList;

use super::wait::ANY;
use super::{Poller, Wants, slot};
use crate::state::{Inside, Linux, Runtime, activations, base};

/// When a number is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// The program is about to close it: threads that wait keep the file.
    Before,
    /// The program has closed it; in between another thread may have come to wait for it. A thread that
    /// waits tries again.
    After,
}

impl Poller {
    /// The program closes a descriptor, or replaces it: forgets it. In the kernel a wait goes on with
    /// its file; here the waiters go on with a number of their own for it ([`super::Watch::moved`]). Called
    /// before and after, from a thread's own code, outside the runtime, or by a kernel thread that is no activation and
    /// that no signal meets.
    pub fn forget(&self, runtime: &'static Runtime, descriptor: i32, when: When) {
        let Some(entry) = self.entries.get(descriptor as usize) else {
            return;
        };
        if descriptor as u32 > self.highest.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the pseudo-register is set: an activation, or a mark.
        let is_carried =
            !activations::is_mark(core::ptr::from_ref(unsafe { base::current() }) as usize);
        let inside = is_carried.then(|| runtime.enter());
        let mut list = ThreadList::new();
        {
            let mut state = entry.lock(runtime.kernel());
            let keeps = when == When::Before;
            self.move_waiters(descriptor as usize, &state, keeps, &mut list);
            self.unregister(descriptor);
            state.refused = false;
            state.inode = 0;
            self.known[descriptor as usize].forget();
        }
        match inside {
            Some(inside) => {
                make_ready(&inside, list);
                inside.leave();
            }
            None => {
                while let Some(thread) = list.pop_front() {
                    runtime.make_ready_from_outside(thread);
                }
            }
        }
    }

    /// As [`Poller::forget`], for every descriptor from `first` to `last` that was ever registered.
    pub fn forget_range(&self, runtime: &'static Runtime, first: u32, last: u32, when: When) {
        let highest = self.highest.load(Ordering::Relaxed);
        for descriptor in first..=last.min(highest) {
            self.forget(runtime, descriptor as i32, when);
        }
    }

    /// The kernel has refused the program to nest epoll instances, perhaps because of a watch of ours:
    /// removes those that can matter. A thread that waits tries again, and blocks. Where another thread removes
    /// them already, it may not have come to its end: a thread that is refused removes them all, too.
    pub fn give_way(&self, runtime: &'static Runtime) {
        // SeqCst, both: pairs with those in `Poller::register`.
        self.shallow.fetch_add(1, Ordering::SeqCst);
        for descriptor in 0..=self.highest.load(Ordering::SeqCst) {
            if self.may_be_nested(descriptor as usize) {
                self.forget(runtime, descriptor as i32, When::After);
            }
        }
    }

    /// It was not because of ours.
    pub fn stay(&self) {
        self.shallow.fetch_sub(1, Ordering::SeqCst);
    }

    /// All threads that wait for the descriptor alone, or among others, look again. From a thread's own code,
    /// outside the runtime.
    pub fn disturb(&self, runtime: &'static Runtime, descriptor: i32) {
        let Some(entry) = self.entries.get(descriptor as usize) else {
            return;
        };
        let inside = runtime.enter();
        let mut list = ThreadList::new();
        {
            let state = entry.lock(runtime.kernel());
            self.edge(descriptor as usize, &state, ANY, &mut list);
        }
        make_ready(&inside, list);
        inside.leave();
    }

    /// All threads that wait for anything look again; from a kernel thread that is no activation.
    pub fn disturb_from_outside(&self) {
        // Release: pairs with the Acquire in `Poller::collect`, behind which they look at what was changed.
        self.disturbed.store(true, Ordering::Release);
        self.kick();
    }

    /// The program has written to a pipe: threads of this process that wait for it are made
    /// ready at once. The event reaches the poller as well; a thread that finds nothing waits again.
    pub fn written(&self, runtime: &'static Runtime, descriptor: i32) {
        if !self.waiters.are_there() {
            return;
        }
        let Some(entry) = self.entries.get(descriptor as usize) else {
            return;
        };
        let inside = runtime.enter();
        let inode = entry.lock(runtime.kernel()).inode;
        let reader = self.readers[slot(inode)].load(Ordering::Relaxed) as usize;
        let mut list = ThreadList::new();
        if inode != 0
            && let Some(entry) = self.entries.get(reader)
        {
            let state = entry.lock(runtime.kernel());
            if state.inode == inode {
                self.edge(reader, &state, Wants::IN.0, &mut list);
            }
        }
        make_ready(&inside, list);
        inside.leave();
    }
}

fn make_ready(inside: &Inside, mut list: ThreadList<Linux>) {
    while let Some(thread) = list.pop_front() {
        inside.make_ready(thread);
    }
}
