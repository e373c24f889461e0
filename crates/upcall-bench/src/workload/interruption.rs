//! `interruption`: what a thread that computes loses when the kernel takes the processor from it for a moment.
//!
//! Table 1 of Danjean and Namyst 2003. A timer expires while the thread looks at the clock again and again. A figure `ns`
//! is the longest time between two looks.
//!
//! | `how=` | the kernel, once the timer has expired | the paper |
//! |---|---|---|
//! | `return` | goes back to the thread: nobody waits for the timer | regular path |
//! | `signal` | runs the thread's signal handler | signal handler |
//! | `upcall` | finds that another thread of the program, blocked in a read of the timer, can run; that one runs, and blocks again | upcall |
//!
//! A figure of `signal` or `upcall` counts only once the handler or the other thread has run.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::posix::now_ns;
use super::threads::Threads;
use super::{Failure, Figures, Params};

/// When a timer expires, and how long the thread goes on after that, at least.
const DUE_NS: u64 = 100_000;

/// Runs of the handler.
static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn once() -> libc::itimerspec {
    let time = |ns| libc::timespec {
        tv_sec: 0,
        tv_nsec: ns,
    };
    libc::itimerspec {
        it_interval: time(0),
        it_value: time(DUE_NS as libc::c_long),
    }
}

/// What expires.
enum Timer {
    File(OwnedFd),
    Signal(libc::timer_t),
}

// SAFETY: libc's name of a timer, which all threads may use.
unsafe impl Send for Timer {}
// SAFETY: as above.
unsafe impl Sync for Timer {}

impl Timer {
    fn file() -> Result<Self, Failure> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(Failure::errno("timerfd_create"));
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self::File(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// One whose signal is for the calling thread.
    fn signal() -> Result<Self, Failure> {
        let mut timer = std::ptr::null_mut();
        // SAFETY: all-zero bytes are valid structures. The handler may run in any thread at any time. The event and the
        // place for the timer are valid during the call.
        let made = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::gettid();
            libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) == 0
                && libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) == 0
        };
        match made {
            true => Ok(Self::Signal(timer)),
            false => Err(Failure::errno("timer_create")),
        }
    }

    fn arm(&self) -> Result<(), Failure> {
        let (once, old) = (once(), std::ptr::null_mut());
        // SAFETY: a timer of ours, and a valid time.
        let code = unsafe {
            match self {
                Self::File(file) => {
                    libc::timerfd_settime(file.as_raw_fd(), 0, &raw const once, old)
                }
                Self::Signal(timer) => libc::timer_settime(*timer, 0, &raw const once, old),
            }
        };
        match code {
            0 => Ok(()),
            _ => Err(Failure::errno("starting a timer")),
        }
    }

    /// Waits until it has expired; false once it never will.
    fn wait(&self) -> bool {
        let mut count = 0_u64;
        match self {
            // SAFETY: room for the number.
            Self::File(file) => unsafe {
                libc::read(file.as_raw_fd(), (&raw mut count).cast(), 8) == 8
            },
            Self::Signal(_) => false,
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Self::Signal(timer) = self {
            // SAFETY: ours, and gone after this.
            unsafe { libc::timer_delete(*timer) };
        }
    }
}

/// The longest time without the processor from now on, until some time after the timer has expired and `happened`.
fn longest(happened: impl Fn() -> bool) -> u64 {
    let begin = now_ns();
    let (mut last, mut longest) = (begin, 0);
    while last < begin + 2 * DUE_NS || !happened() {
        let now = now_ns();
        longest = longest.max(now - last);
        last = now;
    }
    longest
}

/// The body of the thread that computes.
fn compute(
    timer: &Timer,
    rounds: [usize; 2],
    happened: impl Fn() -> usize,
) -> Result<Figures, Failure> {
    let [warm_up, samples] = rounds;
    let mut figures = Figures::default();
    for round in 0..warm_up + samples {
        timer.arm()?;
        let lost = longest(|| happened() > round);
        if round >= warm_up {
            figures.push("ns", lost.max(1) as f64);
        }
    }
    Ok(figures)
}

pub fn run<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let rounds = [
        params.number("warm_up", 20)?,
        params.number("samples", 300)?,
    ];
    let join = |body: Box<dyn FnOnce() -> Result<Figures, Failure> + Send>| T::join(T::spawn(body));
    match params.text("how").unwrap_or("upcall") {
        "return" => join(Box::new(move || {
            compute(&Timer::file()?, rounds, || usize::MAX)
        })),
        "signal" => join(Box::new(move || {
            let before = HANDLED.load(Ordering::Relaxed);
            let handled = || HANDLED.load(Ordering::Relaxed) - before;
            compute(&Timer::signal()?, rounds, handled)
        })),
        "upcall" => {
            let timer = Arc::new(Timer::file()?);
            let woken = Arc::new(AtomicUsize::new(0));
            let stop = Arc::new(AtomicBool::new(false));
            let waits = {
                let (timer, woken, stop) = (timer.clone(), woken.clone(), stop.clone());
                T::spawn(move || {
                    while timer.wait() && !stop.load(Ordering::Relaxed) {
                        woken.fetch_add(1, Ordering::Relaxed);
                    }
                })
            };
            let computes = timer.clone();
            let count = woken.clone();
            let figures = join(Box::new(move || {
                compute(&computes, rounds, || count.load(Ordering::Relaxed))
            }));
            stop.store(true, Ordering::Relaxed);
            timer.arm()?;
            T::join(waits);
            figures
        }
        other => Err(Failure::Usage(format!(
            "how={other}: return, signal or upcall"
        ))),
    }
}
