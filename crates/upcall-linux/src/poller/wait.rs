//! Parking a thread on descriptors, and waking it. The protocol is in the parent module.

use core::sync::atomic::Ordering;

use upcall_core::Claim;
use upcall_core::Waited;
use upcall_core::kernel::Vessels;
use upcall_core::{Edges, Errno, Machine, ThreadList, WakeReason};

use super::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EVERYTHING, Poller, slot};
use crate::state::{Descriptor, Entered, Linux, Node, Runtime, Thread, kernel_slices};
use crate::sys::{descriptors, error};

/// What a thread waits for: any of these. Errors and hang-ups come unasked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wants(pub(super) u32);

/// The meaning of an edge that is everybody's.
pub(super) const ANY: u32 = 7;
/// Set in every node: a thread that wants nothing else still hears of errors.
const ERRORS: u32 = 4;
/// After which a descriptor is tried again that can be neither watched nor blocked on.
const PAUSE_NS: u64 = 1_000_000;
/// What is mapped at a time for nodes.
const CHUNK: usize = 1 << 16;

impl Wants {
    /// Only errors and hang-ups.
    pub const ERRORS: Self = Wants(0);
    /// Something to read, accept, or end of file.
    pub const IN: Self = Wants(1);
    /// Room to write, or connected.
    pub const OUT: Self = Wants(2);

    /// As events of poll(2).
    pub const fn events(self) -> i16 {
        let within = if self.0 & 1 != 0 {
            libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP
        } else {
            0
        };
        let out = if self.0 & 2 != 0 { libc::POLLOUT } else { 0 };
        within | out
    }

    /// This or that.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Wants(self.0 | other.0)
    }
}

/// What waiting ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// Try the call again.
    Try,
    /// The deadline passed.
    TimedOut,
    /// A signal for the thread came.
    Interrupted,
    /// A descriptor cannot be polled: block on it.
    NotPollable,
    /// A descriptor was closed or replaced: [`Watch::moved`] says where its file is.
    Moved,
}

/// Why a wait does not begin.
enum Refusal {
    /// It has an answer already.
    Answer(Readiness),
    /// The kernel has no memory or no watch for it now.
    Exhausted,
}

/// A descriptor that a thread is going to wait for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// Its number.
    pub descriptor: i32,
    /// What for.
    pub wants: Wants,
    /// How many edges had come when it was made.
    seen: u32,
    /// Another number, of ours, for its file: it was closed while the thread waited, and in the kernel
    /// a wait goes on with the file that it began with. The thread must give it back with
    /// [`descriptors::give_back`].
    pub moved: Option<i32>,
}

impl Watch {
    /// How many edges had come when it was made.
    #[inline]
    pub fn seen(&self) -> u32 {
        self.seen
    }

    /// One that [`Poller::watch`] has still to make.
    pub const fn new(descriptor: i32, wants: Wants) -> Self {
        Watch {
            descriptor,
            wants,
            seen: 0,
            moved: None,
        }
    }
}

impl Node {
    fn link(&'static self, state: &Descriptor) {
        let head = state.first.get(Ordering::Relaxed);
        self.previous.set(None, Ordering::Relaxed);
        self.next.set(head, Ordering::Relaxed);
        if let Some(head) = head {
            head.previous.set(Some(self), Ordering::Relaxed);
        }
        state.first.set(Some(self), Ordering::Relaxed);
        self.linked.store(true, Ordering::Relaxed);
    }

    fn unlink(&self, state: &Descriptor) {
        let next = self.next.get(Ordering::Relaxed);
        let previous = self.previous.get(Ordering::Relaxed);
        match previous {
            Some(previous) => previous.next.set(next, Ordering::Relaxed),
            None => state.first.set(next, Ordering::Relaxed),
        }
        if let Some(next) = next {
            next.previous.set(previous, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `Poller::leave_list`; nobody touches the node after it.
        self.linked.store(false, Ordering::Release);
    }
}

impl Poller {
    /// Notes what a descriptor has seen, before the call is tried.
    #[inline]
    pub fn watch(&self, descriptor: i32, wants: Wants) -> Watch {
        let seen = self
            .known
            .get(descriptor as usize)
            .map_or(0, |known| known.edges.seen());
        Watch {
            seen,
            ..Watch::new(descriptor, wants)
        }
    }

    /// Counts an edge and wakes the threads that wait for it. The caller holds the entry's lock.
    pub(super) fn edge(
        &self,
        descriptor: usize,
        state: &Descriptor,
        meaning: u32,
        list: &mut ThreadList<Linux>,
    ) {
        self.known[descriptor].edges.count();
        let mut at = state.first.get(Ordering::Relaxed);
        while let Some(node) = at {
            // Before it is woken: it may be used for another wait at once.
            at = node.next.get(Ordering::Relaxed);
            if node.wants.load(Ordering::Relaxed) & meaning != 0 {
                self.wake(node, state, list);
            }
        }
    }

    /// Takes a node out of its list and claims its thread.
    fn wake(&self, node: &'static Node, state: &Descriptor, list: &mut ThreadList<Linux>) {
        let thread = node.thread.get(Ordering::Relaxed);
        node.unlink(state);
        if let Some(thread) = thread
            && thread.claim(WakeReason::Woken) == Claim::Ready
        {
            self.waiters.is_woken(&thread.kernel.choice);
            list.push_back(thread);
        }
    }

    /// The file goes away from this number: wakes all, with their own reference to it if the
    /// kernel gives one. Under the entry's lock.
    pub(super) fn move_waiters(
        &self,
        descriptor: usize,
        state: &Descriptor,
        keeps: bool,
        list: &mut ThreadList<Linux>,
    ) {
        self.known[descriptor].edges.count();
        while let Some(node) = state.first.get(Ordering::Relaxed) {
            if keeps && let Ok(moved) = descriptors::keep_copy(descriptor as i32) {
                node.moved.store(moved + 1, Ordering::Relaxed);
            }
            self.wake(node, state, list);
        }
    }

    /// Parks the current thread until one of the descriptors may be ready; without any, until the
    /// deadline. Called from the thread's own code, outside the runtime, after the call itself would
    /// have blocked. A handler that ran since the thread's system call began ends the wait before it
    /// begins: between the thread's look and its sleep there is no gap.
    pub fn wait(
        &'static self,
        runtime: &'static Runtime,
        watches: &mut [Watch],
        deadline: Option<u64>,
    ) -> Readiness {
        let inside = runtime.enter();
        let Some(thread) = inside.thread() else {
            inside.leave();
            return Readiness::NotPollable;
        };
        let nodes = &thread.kernel.node;
        let begun = if thread.kernel.seen.load(Ordering::Relaxed) != 0 {
            Err(Refusal::Answer(Readiness::Interrupted))
        } else {
            self.begin(runtime, thread, watches)
        };
        if let Err(refusal) = begun {
            self.end(runtime, nodes, watches, false);
            let answer = match refusal {
                Refusal::Answer(readiness) => readiness,
                // The activation would block without a successor, perhaps the last one.
                Refusal::Exhausted if runtime.is_short() => {
                    return pause_inside(inside, deadline);
                }
                Refusal::Exhausted => Readiness::NotPollable,
            };
            inside.leave();
            return answer;
        }
        thread.begin_park();
        let known = |watch: &Watch| &self.known[watch.descriptor as usize].edges;
        if Edges::any_moved(watches.iter().map(|watch| (known(watch), watch.seen))) {
            thread.claim(WakeReason::Woken);
        }
        let polls = !watches.is_empty();
        if polls {
            kernel_slices::wait(runtime.kernel().current());
            let writes = self.writes.load(Ordering::Relaxed);
            thread.kernel.choice.begins(writes);
            self.waiters.begins(&thread.kernel.choice);
            runtime.stats().polled.add();
        }
        let inside = inside.park_until_claimed(thread, deadline);
        if polls {
            self.waiters.ends(&thread.kernel.choice);
            let writes = self.writes.load(Ordering::Relaxed);
            thread.kernel.choice.ends(writes);
        }
        let reason = thread.wake_reason();
        let woken = reason == WakeReason::Woken;
        let moved = self.end(runtime, nodes, watches, woken);
        inside.leave();
        match reason {
            WakeReason::Woken if moved => Readiness::Moved,
            WakeReason::Woken => Readiness::Try,
            WakeReason::TimedOut => Readiness::TimedOut,
            WakeReason::Interrupted => Readiness::Interrupted,
        }
    }

    /// Enters the lists of all descriptors. What was entered must be left again whatever the answer.
    fn begin(
        &self,
        runtime: &'static Runtime,
        thread: &'static Thread,
        watches: &[Watch],
    ) -> Result<(), Refusal> {
        let first = &thread.kernel.node;
        first.sibling.set(None, Ordering::Relaxed);
        if watches.len() > 1 {
            self.take_nodes(runtime, first, watches.len() - 1)
                .map_err(|_| Refusal::Exhausted)?;
        }
        let mut node = Some(first);
        for watch in watches {
            let (Some(own), Some(entry)) = (node, self.entries.get(watch.descriptor as usize))
            else {
                return Err(Refusal::Answer(Readiness::NotPollable));
            };
            let mut state = entry.lock(runtime.kernel());
            let known = &self.known[watch.descriptor as usize];
            if !known.registered.load(Ordering::Relaxed)
                && !self.register(watch.descriptor, &mut state)
            {
                return Err(match state.refused {
                    true => Refusal::Answer(Readiness::NotPollable),
                    false => Refusal::Exhausted,
                });
            }
            state.unwanted = 0;
            if known.edges.seen() != watch.seen {
                return Err(Refusal::Answer(Readiness::Try));
            }
            if state.inode != 0 && watch.wants.0 & Wants::IN.0 != 0 {
                self.readers[slot(state.inode)].store(watch.descriptor as u32, Ordering::Relaxed);
            }
            own.thread.set(Some(thread), Ordering::Relaxed);
            own.wants.store(watch.wants.0 | ERRORS, Ordering::Relaxed);
            own.descriptor
                .store(watch.descriptor as u32, Ordering::Relaxed);
            own.link(&state);
            node = own.sibling.get(Ordering::Relaxed);
        }
        Ok(())
    }

    fn register(&self, descriptor: i32, state: &mut Descriptor) -> bool {
        let known = &self.known[descriptor as usize];
        // SeqCst, and that of `shallow`: pairs with those in `Poller::give_way`. The thread that gives way
        // finds this one, or it is not watched.
        self.highest.fetch_max(descriptor as u32, Ordering::SeqCst);
        let given_way = self.shallow.load(Ordering::SeqCst) != 0;
        if state.refused || given_way && self.may_be_nested(descriptor as usize) {
            return false;
        }
        // Before its first edge.
        known.eventful.store(false, Ordering::Relaxed);
        let answer = self.control(EPOLL_CTL_ADD, descriptor, EVERYTHING, descriptor as u64);
        state.refused = error(answer) == Some(libc::EPERM);
        let was_there = error(answer) == Some(libc::EEXIST);
        if was_there {
            // What its edges have said is not known.
            known.eventful.store(true, Ordering::Relaxed);
        }
        let registered = answer == 0 || was_there;
        known.registered.store(registered, Ordering::Relaxed);
        registered
    }

    /// Under the entry's lock.
    pub(super) fn unregister(&self, descriptor: i32) {
        let known = &self.known[descriptor as usize];
        if known.registered.swap(false, Ordering::Relaxed) {
            self.control(EPOLL_CTL_DEL, descriptor, 0, 0);
        }
    }

    /// Leaves all lists. Returns true if a descriptor was moved, if that is wanted.
    fn end(
        &self,
        runtime: &'static Runtime,
        first: &'static Node,
        watches: &mut [Watch],
        wants_moved: bool,
    ) -> bool {
        let mut any = false;
        let mut node = Some(first);
        for watch in watches.iter_mut() {
            let Some(own) = node else { break };
            self.leave_list(runtime, own);
            let moved = own.moved.swap(0, Ordering::Relaxed) - 1;
            if moved >= 0 && wants_moved {
                any = true;
                watch.moved = Some(moved);
            } else if moved >= 0 {
                descriptors::give_back(moved);
            }
            node = own.sibling.get(Ordering::Relaxed);
        }
        if let Some(second) = first.sibling.get(Ordering::Relaxed) {
            first.sibling.set(None, Ordering::Relaxed);
            self.give_nodes(runtime, second);
        }
        any
    }

    fn leave_list(&self, runtime: &'static Runtime, node: &'static Node) {
        // Acquire: pairs with the Release in `Node::unlink`.
        if !node.linked.load(Ordering::Acquire) {
            return;
        }
        let descriptor = node.descriptor.load(Ordering::Relaxed) as usize;
        let state = self.entries[descriptor].lock(runtime.kernel());
        if node.linked.load(Ordering::Relaxed) {
            node.unlink(&state);
        }
    }

    /// Chains `count` nodes behind `first`.
    fn take_nodes(
        &self,
        runtime: &'static Runtime,
        first: &'static Node,
        count: usize,
    ) -> Result<(), Errno> {
        let free = self.nodes.lock(runtime.kernel());
        let mut last = first;
        for _ in 0..count {
            if free.get(Ordering::Relaxed).is_none() {
                let chunk = runtime.kernel().map(CHUNK)?;
                // SAFETY: mapped for ever, zeroed (a node that is nowhere), aligned to a page.
                let nodes: &'static [Node] = unsafe {
                    core::slice::from_raw_parts(
                        chunk.as_ptr().cast_const().cast(),
                        CHUNK / size_of::<Node>(),
                    )
                };
                for node in nodes {
                    node.sibling
                        .set(free.get(Ordering::Relaxed), Ordering::Relaxed);
                    free.set(Some(node), Ordering::Relaxed);
                }
            }
            let Some(node) = free.get(Ordering::Relaxed) else {
                break;
            };
            free.set(node.sibling.get(Ordering::Relaxed), Ordering::Relaxed);
            node.sibling.set(None, Ordering::Relaxed);
            last.sibling.set(Some(node), Ordering::Relaxed);
            last = node;
        }
        Ok(())
    }

    fn give_nodes(&self, runtime: &'static Runtime, first: &'static Node) {
        let mut last = first;
        while let Some(next) = last.sibling.get(Ordering::Relaxed) {
            last = next;
        }
        let free = self.nodes.lock(runtime.kernel());
        last.sibling
            .set(free.get(Ordering::Relaxed), Ordering::Relaxed);
        free.set(Some(first), Ordering::Relaxed);
    }
}

/// Parks the current thread for a moment, instead of a call that would have to block. Outside the runtime.
pub fn pause(runtime: &'static Runtime) -> Readiness {
    pause_inside(runtime.enter(), None)
}

/// Parks the current thread for a moment, instead of waiting for what cannot be watched now.
fn pause_inside(inside: Entered, deadline: Option<u64>) -> Readiness {
    let later = inside.runtime().kernel().now().saturating_add(PAUSE_NS);
    let until = deadline.map_or(later, |deadline| deadline.min(later));
    let (inside, waited) = inside.sleep_until(until);
    inside.leave();
    match waited {
        Waited::Ended(WakeReason::Interrupted) => Readiness::Interrupted,
        _ if deadline == Some(until) => Readiness::TimedOut,
        _ => Readiness::Try,
    }
}
