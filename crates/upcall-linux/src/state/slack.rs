//! The timer slack of threads: by how much the kernel may end a sleep late, to end several at once (prctl(2),
//! PR_SET_TIMERSLACK). The runtime's own deadlines use the thread's slack ([`upcall_core::kernel::Poll::slack`]). A sleep
//! in the kernel has the slack of the activation.
//!
//! Activations inherit the slack with which the process began. Until a thread changes its own, that is right for every
//! thread. From then on each activation gets the slack of the thread that it runs (`follows`).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::state::{Activation, Inside, Thread, follows};

/// What a thread has of it.
#[derive(Default)]
pub struct Slack {
    /// In nanoseconds.
    pub(crate) now: AtomicU64,
    /// What it goes back to: its creator's.
    first: AtomicU64,
}

fn of_kernel_thread() -> u64 {
    // SAFETY: asks only.
    unsafe { sys!(libc::SYS_prctl, libc::PR_GET_TIMERSLACK) }.max(0) as u64
}

fn set_kernel_thread(ns: u64) {
    // SAFETY: changes an attribute of the calling kernel thread.
    unsafe { sys!(libc::SYS_prctl, libc::PR_SET_TIMERSLACK, ns) };
}

impl Slack {
    /// The first thread takes over what its kernel thread has.
    pub(crate) fn adopt(&self) {
        let now = of_kernel_thread();
        self.now.store(now, Ordering::Relaxed);
        self.first.store(now, Ordering::Relaxed);
        // A real-time thread has none, and cannot get any.
        if now != 0 {
            set_kernel_thread(0);
            self.first.store(of_kernel_thread(), Ordering::Relaxed);
            set_kernel_thread(now);
        }
    }

    /// A new thread begins with its creator's.
    pub fn inherit(&self, creator: &Slack) {
        let now = creator.ns();
        self.now.store(now, Ordering::Relaxed);
        self.first.store(now, Ordering::Relaxed);
    }

    /// In nanoseconds.
    pub fn ns(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }
}

/// The current thread changes its own; 0 or less: back to what it began with.
pub fn set(inside: &Inside, thread: &'static Thread, ns: i64) {
    let slack = &thread.kernel.slack;
    let ns = match u64::try_from(ns) {
        Ok(ns) if ns != 0 => ns,
        _ => slack.first.load(Ordering::Relaxed),
    };
    slack.now.store(ns, Ordering::Relaxed);
    follows::begin(follows::SLACK);
    install(inside, thread);
}

/// The thread is about to run on the calling activation.
pub(super) fn install(activation: &Activation, thread: &'static Thread) {
    let ns = thread.kernel.slack.ns();
    if activation.kernel.slack.swap(ns, Ordering::Relaxed) != ns {
        // 0 would mean the kernel thread's first.
        set_kernel_thread(ns.max(1));
    }
}
