//! Channels: a ring of elements under a mutex, with a condition for each side.
//!
//! The memory of a bounded channel is there from the start; an unbounded one grows by doubling.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;

use libc::{c_int, timespec};
use upcall::raw::{self, Deadline, Mutex};
use upcall::sync::Condvar;

/// UPCALL_UNBOUNDED.
const UNBOUNDED: usize = usize::MAX;
/// Elements for which an unbounded channel has room in the beginning.
const FIRST: usize = 16;

/// See the module's text.
pub struct Channel {
    lock: Mutex,
    receivable: Condvar,
    sendable: Condvar,
    size: usize,
    capacity: usize,
    ring: UnsafeCell<Ring>,
}

// SAFETY: the ring is whose the lock is.
unsafe impl Sync for Channel {}

struct Ring {
    bytes: *mut u8,
    /// For so many elements.
    room: usize,
    first: usize,
    len: usize,
    closed: bool,
}

/// How long a thread that cannot go on waits.
#[derive(Clone, Copy)]
enum Patience {
    None,
    Until(Option<Deadline>),
}

fn layout(size: usize, room: usize) -> Option<Layout> {
    // Not zero: there is always an address.
    Layout::from_size_align(size.checked_mul(room)?.max(1), 16).ok()
}

impl Ring {
    fn new(size: usize, room: usize) -> Option<Self> {
        // SAFETY: a size that is not zero.
        let bytes = unsafe { alloc(layout(size, room)?) };
        (!bytes.is_null()).then_some(Ring {
            bytes,
            room,
            first: 0,
            len: 0,
            closed: false,
        })
    }

    /// # Safety
    ///
    /// As it was made; it is not used any more.
    unsafe fn free(&self, size: usize) {
        if let Some(layout) = layout(size, self.room) {
            // SAFETY: as `new` asked for it.
            unsafe { dealloc(self.bytes, layout) };
        }
    }

    /// Where the element is.
    fn place(&self, index: usize, size: usize) -> *mut u8 {
        let index = self.first + index;
        let index = if index < self.room {
            index
        } else {
            index - self.room
        };
        self.bytes.wrapping_add(index * size)
    }

    /// Room for twice as many; returns true if there is.
    #[cold]
    fn grow(&mut self, size: usize) -> bool {
        let Some(mut larger) = self
            .room
            .checked_mul(2)
            .and_then(|room| Ring::new(size, room))
        else {
            return false;
        };
        let head = self.len.min(self.room - self.first);
        // SAFETY: the elements in their order, from the old ring's two parts to the new one's first.
        unsafe {
            let from = self.place(0, size);
            larger.bytes.copy_from_nonoverlapping(from, head * size);
            let rest = larger.bytes.add(head * size);
            rest.copy_from_nonoverlapping(self.bytes, (self.len - head) * size);
            self.free(size);
        }
        larger.len = self.len;
        *self = larger;
        true
    }
}

impl Channel {
    /// Does `step` under the lock; where that has nothing to do yet, waits for `changed` and tries again.
    fn act(
        &self,
        changed: &Condvar,
        patience: Patience,
        mut step: impl FnMut(&mut Ring) -> Option<c_int>,
    ) -> c_int {
        self.lock.lock();
        let mut over = false;
        let answer = loop {
            // SAFETY: the lock is ours.
            if let Some(answer) = step(unsafe { &mut *self.ring.get() }) {
                break answer;
            }
            match patience {
                _ if over => break libc::ETIMEDOUT,
                Patience::None => break libc::EAGAIN,
                Patience::Until(deadline) => over = !raw::wait_for(changed, &self.lock, deadline),
            }
        };
        self.lock.unlock();
        answer
    }

    fn send(&self, element: *const u8, patience: Patience) -> c_int {
        let answer = self.act(&self.sendable, patience, |ring| {
            if ring.closed {
                return Some(libc::EPIPE);
            }
            if ring.len == self.capacity {
                return None;
            }
            if ring.len == ring.room && !ring.grow(self.size) {
                return Some(libc::ENOMEM);
            }
            // SAFETY: there is room for it; the element is the caller's, of that size.
            unsafe {
                ring.place(ring.len, self.size)
                    .copy_from_nonoverlapping(element, self.size)
            };
            ring.len += 1;
            Some(0)
        });
        if answer == 0 {
            self.receivable.notify_one();
        }
        answer
    }

    fn receive(&self, element: *mut u8, patience: Patience) -> c_int {
        let answer = self.act(&self.receivable, patience, |ring| {
            if ring.len == 0 {
                return ring.closed.then_some(libc::EPIPE);
            }
            // SAFETY: it is there; the room for it is the caller's, of that size.
            unsafe { element.copy_from_nonoverlapping(ring.place(0, self.size), self.size) };
            ring.first = if ring.first + 1 < ring.room {
                ring.first + 1
            } else {
                0
            };
            ring.len -= 1;
            Some(0)
        });
        if answer == 0 && self.capacity != UNBOUNDED {
            self.sendable.notify_one();
        }
        answer
    }

    /// Returns true if an element can be there.
    fn takes(&self, element: *const c_void) -> bool {
        self.size == 0 || !element.is_null()
    }
}

/// An element's bytes; where it has none, no particular address.
fn bytes(element: *const c_void) -> *mut u8 {
    if element.is_null() {
        ptr::dangling_mut()
    } else {
        element.cast_mut().cast()
    }
}

/// One of the ways to send or receive.
macro_rules! transfer {
    ($channel:ident . $act:ident ($element:ident, $patience:expr)) => {{
        let channel = at!($channel);
        if !channel.takes($element) {
            return libc::EINVAL;
        }
        channel.$act(bytes($element), $patience)
    }};
}

c_functions! {
    /// A channel.
    fn upcall_channel_create(channel: *mut *mut Channel, element_size: usize, capacity: usize) -> c_int {
        if channel.is_null() || capacity == 0 {
            return libc::EINVAL;
        }
        let room = if capacity == UNBOUNDED { FIRST } else { capacity };
        let Some(ring) = Ring::new(element_size, room) else {
            return libc::ENOMEM;
        };
        // SAFETY: a size that is not zero.
        let memory = unsafe { alloc(Layout::new::<Channel>()) }.cast::<Channel>();
        if memory.is_null() {
            // SAFETY: made just now.
            unsafe { ring.free(element_size) };
            return libc::ENOMEM;
        }
        // SAFETY: room for it.
        unsafe {
            memory.write(Channel {
                lock: Mutex::new(),
                receivable: Condvar::new(),
                sendable: Condvar::new(),
                size: element_size,
                capacity,
                ring: UnsafeCell::new(ring),
            });
        }
        put!(channel, memory);
        0
    }

    /// The channel is not used any more.
    fn upcall_channel_destroy(channel: *mut Channel) -> c_int {
        if channel.is_null() {
            return 0;
        }
        let own = at!(channel);
        let conditions = [&own.receivable, &own.sendable];
        if conditions.into_iter().any(raw::condition_is_awaited) || !own.lock.try_lock() {
            return libc::EBUSY;
        }
        // SAFETY: nobody is inside, and the caller's promise is that nobody comes. Both were made so.
        unsafe {
            (*own.ring.get()).free(own.size);
            dealloc(channel.cast(), Layout::new::<Channel>());
        }
        0
    }

    /// Nothing can be sent any more.
    fn upcall_channel_close(channel: *const Channel) -> c_int {
        let channel = at!(channel);
        let answer = channel.act(&channel.sendable, Patience::None, |ring| {
            Some(if std::mem::replace(&mut ring.closed, true) { libc::EALREADY } else { 0 })
        });
        channel.receivable.notify_all();
        channel.sendable.notify_all();
        answer
    }

    /// Copies an element into it.
    fn upcall_channel_send(channel: *const Channel, element: *const c_void) -> c_int {
        transfer!(channel.send(element, Patience::Until(None)))
    }

    /// The same, without waiting.
    fn upcall_channel_trysend(channel: *const Channel, element: *const c_void) -> c_int {
        transfer!(channel.send(element, Patience::None))
    }

    /// The same, for a limited time.
    fn upcall_channel_timedsend(
        channel: *const Channel,
        element: *const c_void,
        deadline: *const timespec,
    ) -> c_int {
        transfer!(channel.send(element, Patience::Until(limit!(deadline))))
    }

    /// Copies an element out of it.
    fn upcall_channel_receive(channel: *const Channel, element: *mut c_void) -> c_int {
        transfer!(channel.receive(element, Patience::Until(None)))
    }

    /// The same, without waiting.
    fn upcall_channel_tryreceive(channel: *const Channel, element: *mut c_void) -> c_int {
        transfer!(channel.receive(element, Patience::None))
    }

    /// The same, for a limited time.
    fn upcall_channel_timedreceive(
        channel: *const Channel,
        element: *mut c_void,
        deadline: *const timespec,
    ) -> c_int {
        transfer!(channel.receive(element, Patience::Until(limit!(deadline))))
    }

    /// How many elements are in it.
    fn upcall_channel_length(channel: *const Channel, length: *mut usize) -> c_int {
        let channel = at!(channel);
        let mut len = 0;
        channel.act(&channel.sendable, Patience::None, |ring| {
            len = ring.len;
            Some(0)
        });
        put!(length, len);
        0
    }
}
