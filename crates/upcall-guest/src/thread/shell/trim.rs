//! Gives back the pages of free shells' stacks. See docs/adr/0063.
//!
//! A thread leaves its stack's pages to the next one in its shell. If none comes they would stay for as long as the program
//! runs. So a thread of the runtime's own looks each second how many shells nobody has wanted since its last look, and frees
//! the pages of as many stacks, all but those on which their threads rest. While no shell has become free it waits. There is
//! such a thread where there are more than [`MANY`] shells.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::ffi::c_void;

use upcall_core::Machine;
use upcall_linux::{Inside, Runtime, Thread};

use crate::ground::caller;

use super::{Shell, make_thread, pool, serve};

/// So many shells keep what they have.
const MANY: usize = 256;
const PERIOD_NS: u64 = 1_000_000_000;
const PAGE: usize = 4096;

/// How many shells were made.
static MADE: AtomicUsize = AtomicUsize::new(0);
static IS_STARTED: AtomicBool = AtomicBool::new(false);
/// The thread; null if there is none.
static TRIMMER: AtomicPtr<Thread> = AtomicPtr::new(null_mut());
/// 1 if shells have become free since the thread looked last.
static CAME: AtomicU32 = AtomicU32::new(0);

/// Called in the child of a fork: the shells and the thread are the parent's.
pub(super) fn forget() {
    MADE.store(0, Ordering::Relaxed);
    IS_STARTED.store(false, Ordering::Relaxed);
    TRIMMER.store(null_mut(), Ordering::Relaxed);
    CAME.store(0, Ordering::Relaxed);
}

/// Returns true if this is the thread that does it.
pub fn is_trimmer(thread: &'static Thread) -> bool {
    core::ptr::eq(thread, TRIMMER.load(Ordering::Relaxed))
}

/// Called when a shell was made, outside the runtime. Without memory for the thread, the next one that is made tries again.
/// None where threads have ranks: a policy would have to rank it.
pub(super) fn made(runtime: &'static Runtime) {
    if MADE.fetch_add(1, Ordering::Relaxed) < MANY
        || runtime.is_ranked()
        || IS_STARTED.swap(true, Ordering::Relaxed)
    {
        return;
    }
    // SAFETY: the thread needs nothing of the caller's.
    if unsafe { make_thread(None, main, null_mut(), true) }.is_err() {
        IS_STARTED.store(false, Ordering::Relaxed);
    }
}

/// Called when shells have become free.
pub(super) fn wake(inside: &Inside) {
    if CAME.load(Ordering::Relaxed) == 0 && CAME.swap(1, Ordering::Release) == 0 {
        inside.futex_wake(CAME.as_ptr() as usize, 1, u32::MAX);
    }
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    let (Some(runtime), Some(own)) = (caller::runtime(), caller::own_thread()) else {
        unreachable!("a runtime has made this thread, and stays");
    };
    serve();
    TRIMMER.store(core::ptr::from_ref(own).cast_mut(), Ordering::Relaxed);
    // SAFETY: the calling thread's own name, shorter than 16 bytes.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), c"upcall-trim".as_ptr()) };
    loop {
        while CAME.swap(0, Ordering::Acquire) == 0 {
            let none_came = || CAME.load(Ordering::Relaxed) == 0;
            let inside = runtime.enter();
            let (inside, _) = inside.futex_wait(CAME.as_ptr() as usize, u32::MAX, None, none_came);
            inside.leave();
        }
        loop {
            pause(runtime);
            if !pool::trim(runtime, free_pages) {
                break;
            }
        }
    }
}

fn pause(runtime: &'static Runtime) {
    let until = runtime.kernel().now() + PERIOD_NS;
    while runtime.kernel().now() < until {
        let (inside, _) = runtime.enter().sleep_until(until);
        inside.leave();
    }
}

/// Frees what lies below the place where the shell's thread rests. The shell is the caller's: nobody runs in it meanwhile.
fn free_pages(shell: &'static Shell) {
    // SAFETY: it was saved before its shell became free, and who takes the shell lets it go on.
    let saved = unsafe { shell.thread().saved_here() };
    let low = pool::stack_of(shell).start;
    let high = saved.sp / PAGE * PAGE;
    if low < high {
        // SAFETY: free pages of a stack; what they hold is nobody's any more. Where they are locked it fails, and they stay.
        unsafe { libc::madvise(low as *mut c_void, high - low, libc::MADV_DONTNEED) };
    }
}
