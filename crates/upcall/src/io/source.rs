//! What may wait: a non-blocking descriptor with a deadline for each direction.
//!
//! 1. The deadline is looked at: when it has passed, nothing is tried.
//! 2. The edges that the descriptor has seen are noted, and the call is tried.
//! 3. If it would block, the thread counts itself among those that wait, and looks at the deadline again. A thread
//!    that moves the deadline stores it first and then looks whether any thread waits: one of the two sees the other.
//!    A thread of the runtime parks until there is another edge since step 2, or the deadline passes
//!    ([`upcall_linux::poller`]); then all begins anew. Moving the deadline under a wait counts an edge.
//! 4. Any other kernel thread waits in poll(2), for the descriptor and for an eventfd(2) that is there as long as no
//!    deadline has been moved since it was made. A thread that moves one takes it away and makes it readable for ever:
//!    all that wait with it see that, and the next thread makes another.
//!
//! A thread that has read less from a TCP stream than there was room for has emptied it, as long as no edge comes. The
//! next read waits without being tried, which saves the call that would say so (epoll(7), questions and answers). Data
//! that comes meanwhile is an edge, which the parking thread finds or waits for. This does not hold after an edge for
//! an end, an error or urgent data, because there may be no second one. It does not hold on Unix's sockets either,
//! where a read ends before what another process has sent, or before descriptors (unix(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// More than any count of edges.
const UNKNOWN: u64 = u64::MAX;

/// What a call moves, and which deadline holds for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// Reads, receives or accepts.
    In = 0,
    /// Writes or sends.
    Out = 1,
}

/// A non-blocking descriptor, in a type of std.
pub(crate) struct Source<T> {
    inner: T,
    /// By direction, in nanoseconds since [`base`].
    deadlines: [AtomicU64; 2],
    /// How many threads wait, or are about to.
    waiting: AtomicU32,
    /// How many edges there were when it was found empty, or [`UNKNOWN`].
    empty_at: AtomicU64,
    /// Becomes readable when a deadline is moved, for kernel threads that wait.
    moved: Mutex<Option<Arc<OwnedFd>>>,
}

impl<T: AsFd> Source<T> {
    /// `inner` is in non-blocking mode.
    pub(crate) fn new(inner: T) -> Self {
        Source {
            inner,
            deadlines: [const { AtomicU64::new(NEVER) }; 2],
            waiting: AtomicU32::new(0),
            empty_at: AtomicU64::new(UNKNOWN),
            moved: Mutex::new(None),
        }
    }

    pub(crate) fn get(&self) -> &T {
        &self.inner
    }

    pub(crate) fn into_inner(self) -> T {
        self.inner
    }

    /// The number of the descriptor.
    #[inline]
    pub(crate) fn number(&self) -> i32 {
        self.inner.as_fd().as_raw_fd()
    }

    /// Makes `call`, which does not wait, until it does not answer that it would have to.
    #[inline]
    pub(crate) fn until_done<R>(
        &self,
        direction: Direction,
        call: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.until(direction, false, call, |_| false)
    }

    /// As [`Source::until_done`], for reading what is known to be empty once `empties` says so of an answer, until there
    /// is more.
    #[inline]
    pub(crate) fn until_read<R>(
        &self,
        call: impl FnMut(&T) -> io::Result<R>,
        empties: impl Fn(&R) -> bool,
    ) -> io::Result<R> {
        self.until(Direction::In, true, call, empties)
    }

    #[inline(always)]
    fn until<R>(
        &self,
        direction: Direction,
        mut trusts: bool,
        mut call: impl FnMut(&T) -> io::Result<R>,
        empties: impl Fn(&R) -> bool,
    ) -> io::Result<R> {
        let own = &self.deadlines[direction as usize];
        loop {
            let deadline = own.load(Ordering::Relaxed);
            if deadline != NEVER && deadline <= since_base(Instant::now()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            let watch = upcall_guest::direct::runtime().map(|runtime| {
                let out = direction == Direction::Out;
                upcall_guest::direct::Wait::new(runtime, self.number(), out)
            });
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            let edges = watch.as_ref().and_then(|watch| watch.plain_edges());
            #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
            let edges = None::<u32>;
            // A thread that has waited tries, whatever has ended the wait.
            let is_empty = core::mem::take(&mut trusts)
                && edges.map(u64::from) == Some(self.empty_at.load(Ordering::Relaxed));
            if !is_empty {
                match call(&self.inner) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(answer) => {
                        if empties(&answer)
                            && let Some(edges) = edges
                        {
                            self.empty_at.store(edges.into(), Ordering::Relaxed);
                        }
                        return Ok(answer);
                    }
                    failed => return failed,
                }
            }
            // SeqCst: pairs with those in `set_deadlines`.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            let parked = watch.is_some_and(|watch| {
                let deadline = own.load(Ordering::SeqCst);
                let until = (deadline != NEVER).then(|| base().1.saturating_add(deadline));
                watch.park(until)
            });
            #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
            let parked = false;
            let waited = match parked {
                true => Ok(()),
                false => self.wait_in_kernel(direction),
            };
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            waited?;
        }
    }

    #[cold]
    fn wait_in_kernel(&self, direction: Direction) -> io::Result<()> {
        // Before the deadline is read: a thread that moves it afterwards finds this one.
        let moved = {
            let mut place = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
            match &*place {
                Some(known) => known.clone(),
                None => place.insert(Arc::new(event()?)).clone(),
            }
        };
        let file = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let events = match direction {
            Direction::In => libc::POLLIN | libc::POLLRDHUP,
            Direction::Out => libc::POLLOUT,
        };
        let mut files = [
            file(self.number(), events),
            file(moved.as_raw_fd(), libc::POLLIN),
        ];
        let deadline = self.deadlines[direction as usize].load(Ordering::SeqCst);
        let left = (deadline != NEVER)
            .then(|| Duration::from_nanos(deadline.saturating_sub(since_base(Instant::now()))));
        match poll(&mut files, left) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Sets the deadlines of some directions, and ends waits that it concerns.
    pub(crate) fn set_deadlines(&self, directions: &[Direction], deadline: Option<Instant>) {
        let new = deadline.map_or(NEVER, |deadline| since_base(deadline).min(NEVER - 1));
        let mut waits_end = false;
        for &direction in directions {
            // SeqCst: pairs with those in `until_done`.
            let before = self.deadlines[direction as usize].swap(new, Ordering::SeqCst);
            // A later one is found when the earlier one passes.
            waits_end |= new < before;
        }
        if waits_end && self.waiting.load(Ordering::SeqCst) != 0 {
            self.end_waits();
        }
    }

    fn end_waits(&self) {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(runtime) = upcall_guest::direct::runtime_of_process() {
            upcall_guest::direct::end_waits(runtime, self.number());
        }
        let moved = self
            .moved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(moved) = moved {
            // Nobody has written to it before: there is room.
            // SAFETY: reads eight bytes.
            unsafe { libc::write(moved.as_raw_fd(), (&raw const ONE).cast(), 8) };
        }
    }
}

static ONE: u64 = 1;

fn event() -> io::Result<OwnedFd> {
    // SAFETY: makes a descriptor.
    let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// ppoll(2), for at most `left`.
pub(crate) fn poll(files: &mut [libc::pollfd], left: Option<Duration>) -> io::Result<usize> {
    let time = left.map(|left| libc::timespec {
        tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(left.subsec_nanos()),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: as many structures as there are; reads the time.
    let count = unsafe {
        libc::ppoll(
            files.as_mut_ptr(),
            files.len() as libc::nfds_t,
            time,
            std::ptr::null(),
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// A moment before which no deadline differs from any other, and CLOCK_MONOTONIC in it, in nanoseconds.
fn base() -> &'static (Instant, u64) {
    static BASE: LazyLock<(Instant, u64)> =
        LazyLock::new(|| (Instant::now(), crate::waiting::now_ns()));
    &BASE
}

/// Nanoseconds, none before the base.
fn since_base(moment: Instant) -> u64 {
    let since = moment.saturating_duration_since(base().0).as_nanos();
    u64::try_from(since).unwrap_or(NEVER)
}

/// Sets when waits for a descriptor end.
///
/// A deadline is a moment from which on every call in that direction fails with [`TimedOut`](io::ErrorKind::TimedOut),
/// whether there is data or not, until another one is set. Any thread may set a deadline at any time. It also holds
/// for waits that have begun: a moment that has passed ends them at once. A wait ends late by up to the thread's timer
/// slack (50 µs unless set by prctl(2)). What has moved before a deadline stays moved: a `write_all` that times out
/// has written some of it.
pub trait Deadlines {
    /// Sets the deadline for reading, receiving and accepting; `None` for none.
    fn set_read_deadline(&self, deadline: Option<Instant>);

    /// Sets the deadline for writing, sending and connecting; `None` for none.
    fn set_write_deadline(&self, deadline: Option<Instant>);

    /// Sets both deadlines.
    fn set_deadline(&self, deadline: Option<Instant>) {
        self.set_read_deadline(deadline);
        self.set_write_deadline(deadline);
    }
}

/// What a system call answered, as std says it.
#[inline]
fn result(answer: isize) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::from_raw_os_error(-answer as i32))
}

/// A call on a descriptor with five more words, by an instruction that is not rewritten.
///
/// # Safety
///
/// What the call itself asks for; it does not wait.
#[inline]
pub(crate) unsafe fn call(number: i64, descriptor: i32, words: [usize; 5]) -> io::Result<usize> {
    let [a, b, c, d, e] = words;
    // SAFETY: the caller's promise.
    result(unsafe { upcall_linux::arch::call(number, [descriptor as usize, a, b, c, d, e]) })
}
