//! Policies as tables of callbacks, over [`upcall::policy::Policy`].

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::time::Duration;

use upcall::policy::{Id, Policy, Rank, Threads, Why};

/// What a callback gets to ask about threads with.
type About = *mut Threads;

/// `struct upcall_policy`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Callbacks {
    size: usize,
    context: *mut c_void,
    ready: Option<unsafe extern "C" fn(*mut c_void, About, u64, c_int) -> u64>,
    blocked: Option<unsafe extern "C" fn(*mut c_void, About, u64)>,
    ended: Option<unsafe extern "C" fn(*mut c_void, About, u64)>,
    idle: Option<unsafe extern "C" fn(*mut c_void, About)>,
    tick: Option<unsafe extern "C" fn(*mut c_void, About)>,
    period_ns: u64,
    warned: Option<unsafe extern "C" fn(*mut c_void, About, u64)>,
}

impl Callbacks {
    const NONE: Self = Callbacks {
        size: size_of::<Self>(),
        context: std::ptr::null_mut(),
        ready: None,
        blocked: None,
        ended: None,
        idle: None,
        tick: None,
        period_ns: 0,
        warned: None,
    };
}

/// Makes a policy of a table.
///
/// # Errors
///
/// EINVAL: the table does not say which thread runs first. As [`crate::versioned::versioned`].
///
/// # Safety
///
/// As there; the callbacks may be called from a thread of the library's for as long as the process lives.
pub(crate) unsafe fn own(table: *const Callbacks) -> Result<Own, c_int> {
    // SAFETY: the caller's promise.
    let table = unsafe { crate::versioned::versioned(table, Callbacks::NONE) }?;
    match table.ready {
        Some(_) => Ok(Own(table)),
        None => Err(libc::EINVAL),
    }
}

/// A policy of the program's.
pub(crate) struct Own(Callbacks);

// SAFETY: the context is the program's to share, as the header says.
unsafe impl Send for Own {}

impl Policy for Own {
    fn ready(&mut self, threads: &mut Threads, thread: Id, why: Why) -> Rank {
        let why = match why {
            Why::Created => 0,
            Why::Unblocked => 1,
            Why::Yielded => 2,
            Why::Preempted => 3,
        };
        match self.0.ready {
            // SAFETY: the program's callback, with its own context; here and below.
            Some(ready) => Rank(unsafe { ready(self.0.context, threads, thread.number(), why) }),
            None => Rank::COMMON,
        }
    }

    fn blocked(&mut self, threads: &mut Threads, thread: Id) {
        if let Some(blocked) = self.0.blocked {
            // SAFETY: see `ready`.
            unsafe { blocked(self.0.context, threads, thread.number()) };
        }
    }

    fn ended(&mut self, threads: &mut Threads, thread: Id) {
        if let Some(ended) = self.0.ended {
            // SAFETY: see `ready`.
            unsafe { ended(self.0.context, threads, thread.number()) };
        }
    }

    fn idle(&mut self, threads: &mut Threads) {
        if let Some(idle) = self.0.idle {
            // SAFETY: see `ready`.
            unsafe { idle(self.0.context, threads) };
        }
    }

    fn warned(&mut self, threads: &mut Threads, left: Duration) {
        if let Some(warned) = self.0.warned {
            let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            // SAFETY: see `ready`.
            unsafe { warned(self.0.context, threads, left_ns) };
        }
    }

    fn tick(&mut self, threads: &mut Threads) {
        if let Some(tick) = self.0.tick {
            // SAFETY: see `ready`.
            unsafe { tick(self.0.context, threads) };
        }
    }

    fn period(&self) -> Option<Duration> {
        let ticks = self.0.tick.is_some() && self.0.period_ns != 0;
        ticks.then(|| Duration::from_nanos(self.0.period_ns))
    }
}

/// The threads of a callback, which are its alone while it runs.
macro_rules! threads {
    ($pointer:expr) => {{
        let pointer: About = $pointer;
        if pointer.is_null() {
            return libc::EINVAL;
        }
        // SAFETY: what the callback was given, as the header demands.
        unsafe { &mut *pointer }
    }};
}

c_functions! {
    /// Gives a thread another rank.
    fn upcall_policy_setrank(threads: About, thread: u64, rank: u64) -> c_int {
        let threads = threads!(threads);
        match threads.find(thread) {
            Some(thread) if threads.set_rank(thread, Rank(rank)) => 0,
            _ => libc::ESRCH,
        }
    }

    /// What the program says of a thread.
    fn upcall_policy_gettag(threads: About, thread: u64, tag: *mut u64) -> c_int {
        let threads = threads!(threads);
        match threads.find(thread).and_then(|thread| threads.tag(thread)) {
            Some(known) => {
                put!(tag, known);
                0
            }
            None => libc::ESRCH,
        }
    }
}
