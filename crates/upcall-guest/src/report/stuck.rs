//! Deadlock: no thread of the process can ever run again. Found when the last virtual processor falls idle, and
//! said by a thread that waits for it ([`await_stuck`]).
//!
//! What is looked for is certain, as far as one process can know: every thread waits, in memory of its own, for
//! another one; none is in the kernel, waits for a descriptor, a time or a signal; and nothing from
//! outside can come in between: no timer and no handler of a signal. Programs that have any of these are never said to be
//! stuck.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use upcall_linux::{Activation, Runtime, Thread};

use crate::call::direct;
use crate::ground::caller;
use crate::ground::state::GUEST;
use crate::report::backtrace;
use crate::rewrite::object::{self, Image};
use crate::rewrite::unwind::Tables;
use crate::signal::{self, timers};
use crate::thread::names;
use crate::thread::shell::{self, serve};

/// Is 1 from when it was found.
static FOUND: AtomicU32 = AtomicU32::new(0);
/// Who says it; null: nobody, and it is not looked for.
static REPORTER: AtomicPtr<Thread> = AtomicPtr::new(core::ptr::null_mut());
/// The process is the child of a fork: those threads are the parent's.
pub fn forget() {
    REPORTER.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// A thread that waits for another one.
pub struct Waiter {
    /// Its number, as gettid(2) says it.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Where it waits: instructions, the innermost first.
    pub frames: Vec<usize>,
}

/// Waits until the process is stuck, in a thread for that; then its threads.
pub fn await_stuck() -> Option<Vec<Waiter>> {
    let runtime = caller::runtime()?;
    let own = caller::own_thread()?;
    serve();
    REPORTER.store(core::ptr::from_ref(own).cast_mut(), Ordering::SeqCst);
    while FOUND.load(Ordering::Acquire) == 0 {
        direct::wait(runtime, &FOUND, 0, None);
    }
    let mut waiters = Vec::new();
    let objects = object::loaded();
    // SAFETY: objects in which threads wait are not unloaded.
    let images: Vec<Image<'_>> = unsafe { objects.iter().map(|object| object.image()) }.collect();
    let tables: Vec<Tables<'_>> = images.iter().filter_map(Tables::new).collect();
    GUEST.identities.each(|thread| {
        if is_counted(thread) {
            let name = names::get(thread);
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            waiters.push(Waiter {
                tid: thread.kernel.tid.load(Ordering::Relaxed),
                name: String::from_utf8_lossy(name).into_owned(),
                frames: thread
                    .saved()
                    .map_or_else(Vec::new, |saved| backtrace::frames(saved, &tables)),
            });
        }
        true
    });
    Some(waiters)
}

/// Returns true if a thread is the program's, and has not ended.
fn is_counted(thread: &'static Thread) -> bool {
    !core::ptr::eq(thread, REPORTER.load(Ordering::Relaxed)) && !shell::is_free(thread)
}

/// A virtual processor is about to sleep. Inside the runtime, without a thread.
pub fn look(runtime: &'static Runtime, activation: &'static Activation) {
    if REPORTER.load(Ordering::Relaxed).is_null()
        || FOUND.load(Ordering::Relaxed) != 0
        || !runtime.is_stuck()
        || GUEST.helpers.load(Ordering::SeqCst) != 0
        || timers::are_there()
        || signal::has_handlers()
    {
        return;
    }
    let mut waiting = 0;
    let mut all_wait = true;
    GUEST.identities.each(|thread| {
        if is_counted(thread) {
            waiting += 1;
            all_wait &=
                thread.waits_for_word() && thread.kernel.waited_for.load(Ordering::SeqCst) == 0;
        }
        all_wait
    });
    // Looked at after the threads: what one of them did before it waited may have woken another.
    if all_wait && waiting > 0 && runtime.is_stuck() {
        FOUND.store(1, Ordering::Release);
        runtime.futex_wake(activation, FOUND.as_ptr() as usize, 1, u32::MAX);
    }
}
