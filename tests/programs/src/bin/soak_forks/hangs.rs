//! What hangs ends by SIGALRM. The soak sends that signal, too, so a handler looks if the time has come.

use std::sync::atomic::{AtomicU64, Ordering};

/// When the process is taken to hang, in seconds of the monotonic clock.
static HANGS_AT: AtomicU64 = AtomicU64::new(u64::MAX);

fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64
}

extern "C" fn handle(signal: libc::c_int) {
    if signal == libc::SIGALRM && now() >= HANGS_AT.load(Ordering::Relaxed) {
        // SAFETY: what a handler may call. The default action comes when this one is over.
        unsafe {
            libc::signal(libc::SIGALRM, libc::SIG_DFL);
            libc::raise(libc::SIGALRM);
        }
    }
}

/// Handles the signals that the soak sends.
pub fn begin() {
    // SAFETY: an action that is made here; the handler does what handlers may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        for signal in [libc::SIGUSR1, libc::SIGALRM] {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// The process ends if this is not called again for so many seconds.
pub fn end_after(seconds: u32) {
    // The alarm comes later than that, whatever is lost by rounding.
    HANGS_AT.store(now() + u64::from(seconds) - 1, Ordering::Relaxed);
    // SAFETY: asks for a signal.
    unsafe { libc::alarm(seconds) };
}
