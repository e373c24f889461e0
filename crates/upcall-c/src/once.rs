//! `upcall_once_t`: three states, and one bit that says that somebody waits.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;
use upcall::raw;

const NEW: u32 = 0;
const RUNS: u32 = 1;
/// It runs, and others wait.
const AWAITED: u32 = 2;
const DONE: u32 = 3;

/// See the module's text.
#[repr(C)]
pub struct Once {
    state: AtomicU32,
    reserved: u32,
}

type Init = extern "C" fn(*mut c_void) -> c_int;

impl Once {
    #[cold]
    fn call(&self, init: Init, argument: *mut c_void) -> c_int {
        loop {
            // Acquire: pairs with the Release below: what `init` did is seen.
            match self
                .state
                .compare_exchange(NEW, RUNS, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => break,
                Err(DONE) => return 0,
                Err(RUNS) => {
                    let _ = self.state.compare_exchange(
                        RUNS,
                        AWAITED,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                }
                Err(_) => {
                    raw::wait(&self.state, AWAITED, None);
                }
            }
        }
        let answer = init(argument);
        let state = if answer == 0 { DONE } else { NEW };
        // Release: pairs with the Acquires above and in `upcall_once`.
        if self.state.swap(state, Ordering::Release) == AWAITED {
            raw::wake(&self.state, u32::MAX);
        }
        answer
    }
}

c_functions! {
    /// Calls `init` unless it has succeeded.
    fn upcall_once(once: *const Once, init: Option<Init>, argument: *mut c_void) -> c_int {
        let once = at!(once);
        let Some(init) = init else {
            return libc::EINVAL;
        };
        // Acquire: pairs with the Release in `call`.
        if once.state.load(Ordering::Acquire) == DONE {
            return 0;
        }
        once.call(init, argument)
    }
}
