//! Which thread this is, and waking it.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::waiting::{self, Deadline};

/// A thread of the process, which may have ended.
#[derive(Clone)]
pub struct Thread(Arc<Inner>);

struct Inner {
    name: Option<Box<str>>,
    id: ThreadId,
    token: AtomicU32,
}

/// A number that no other thread of the process has or had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadId(NonZeroU64);

const EMPTY: u32 = 0;
const NOTIFIED: u32 = 1;
const PARKED: u32 = 2;

thread_local! {
    /// Where the calling thread's own handle is, or will be: set while a thread of the crate runs.
    static OWN: Cell<*const OnceLock<Thread>> = const { Cell::new(std::ptr::null()) };
    /// That of any other thread.
    static OTHER: OnceCell<Thread> = const { OnceCell::new() };
}

/// The calling thread's handle is there, until [`leave`].
pub(crate) fn enter(own: &OnceLock<Thread>) {
    OWN.set(own);
}

/// The calling thread's handle is not there any more.
pub(crate) fn leave() {
    OWN.set(std::ptr::null());
}

/// Has panics of the crate's threads say their names: `std` does not know these and calls them unnamed. Whatever
/// says panics now goes on to do so.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn say_names_in_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // SAFETY: as in `current`.
        let own = unsafe { OWN.get().as_ref() };
        if let Some(name) = own.and_then(OnceLock::get).and_then(Thread::name) {
            eprintln!("upcall: in thread '{name}':");
        }
        usual(panic);
    }));
}

/// Returns the calling thread.
pub fn current() -> Thread {
    // SAFETY: null, or a handle that is there as long as it is set.
    match unsafe { OWN.get().as_ref() } {
        Some(own) => own.get_or_init(|| Thread::new(None)).clone(),
        None => OTHER
            .try_with(|other| other.get_or_init(Thread::of_std).clone())
            .unwrap_or_else(|_| Thread::of_std()),
    }
}

impl Thread {
    pub(crate) fn new(name: Option<Box<str>>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Thread(Arc::new(Inner {
            name,
            id: ThreadId(NonZeroU64::new(number).unwrap_or(NonZeroU64::MAX)),
            token: AtomicU32::new(EMPTY),
        }))
    }

    fn of_std() -> Self {
        Thread::new(std::thread::current().name().map(Box::from))
    }

    /// Returns its name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Returns its number.
    pub fn id(&self) -> ThreadId {
        self.0.id
    }

    /// Ends the thread's [`park`], or its next one. It does not end [`std::thread::park`]. To end that, call `unpark`
    /// of the thread that [`std::thread::current`] returns there.
    pub fn unpark(&self) {
        // Release: pairs with the Acquire in `park_until`.
        if self.0.token.swap(NOTIFIED, Ordering::Release) == PARKED {
            waiting::wake(&self.0.token, 1);
        }
    }

    fn park_until(&self, deadline: Option<Deadline>) {
        let token = &self.0.token;
        // Acquire: what was done before the `unpark` is seen after the `park`.
        if token
            .compare_exchange(NOTIFIED, EMPTY, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            || token
                .compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            token.swap(EMPTY, Ordering::Acquire);
            return;
        }
        while waiting::wait(token, PARKED, deadline) && token.load(Ordering::Relaxed) == PARKED {}
        token.swap(EMPTY, Ordering::Acquire);
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("id", &self.id())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// Waits until [`Thread::unpark`] is called for the calling thread. Returns at once if it was called since the last
/// park.
pub fn park() {
    current().park_until(None);
}

/// As [`park`], with a time limit.
pub fn park_timeout(timeout: Duration) {
    current().park_until(Deadline::after(timeout));
}
