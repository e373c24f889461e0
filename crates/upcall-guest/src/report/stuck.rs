//! Deadlock: no thread of the process can ever run again. It is found when the last virtual processor falls idle, and
//! reported by a thread that waits for that ([`await_stuck`]), or where `upcall run --report-deadlocks` has asked for it by
//! another process (`ground::command`). See docs/adr/0015.
//!
//! A reported deadlock is certain, as far as one process can know. Every thread waits, in its own memory, for another one.
//! None is in the kernel, or waits for a descriptor, a time or a signal. Nothing from outside can come in between: there is
//! no timer and no handler of a signal. Programs that have any of these are never reported.

use core::ffi::CStr;
use core::fmt::Write;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use upcall_linux::{Inside, Thread, sys};

use crate::call::direct;
use crate::ground::attributes::GuestAttributes;
use crate::ground::state::GUEST;
use crate::ground::{caller, command};
use crate::report::backtrace;
use crate::report::text::Text;
use crate::rewrite::object::{self, Image};
use crate::rewrite::unwind::Tables;
use crate::signal::{self, timers};
use crate::thread::names;
use crate::thread::shell::{self, serve};

/// Set to 1 when a deadlock was found.
static FOUND: AtomicU32 = AtomicU32::new(0);
/// The thread that reports it; null if nobody does, and then nothing is looked for.
static REPORTER: AtomicPtr<Thread> = AtomicPtr::new(core::ptr::null_mut());
/// Called in the child of a fork: the threads are its parent's.
pub fn forget() {
    REPORTER.store(core::ptr::null_mut(), Ordering::Relaxed);
    FOUND.store(0, Ordering::Relaxed);
}

/// A thread that waits for another one.
pub struct Waiter {
    /// Its number, as gettid(2) returns it.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// Where it waits: instructions, the innermost first.
    pub frames: Vec<usize>,
}

/// Waits, in a thread for that purpose, until the process is stuck. Returns its threads.
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
                tid: thread.guest().tid.load(Ordering::Relaxed),
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
    !core::ptr::eq(thread, REPORTER.load(Ordering::Relaxed))
        && !shell::is_trimmer(thread)
        && !shell::is_free(thread)
}

/// Called when a virtual processor is about to sleep. Inside the runtime, without a thread.
pub fn look(inside: &Inside) {
    let has_reporter = !REPORTER.load(Ordering::Relaxed).is_null();
    let command = GUEST.reports_deadlocks().filter(|_| !has_reporter);
    if command.is_none() && !has_reporter
        || FOUND.load(Ordering::Relaxed) != 0
        || !inside.runtime().is_stuck()
        || GUEST.helpers.load(Ordering::SeqCst) != 0
        || timers::are_there()
        || signal::has_handlers()
    {
        return;
    }
    let mut waiting = 0_usize;
    let mut all_wait = true;
    GUEST.identities.each(|thread| {
        if is_counted(thread) {
            waiting += 1;
            all_wait &=
                thread.waits_for_word() && thread.guest().waited_for.load(Ordering::SeqCst) == 0;
        }
        all_wait
    });
    // Looked at after the threads: what one of them did before it waited may have woken another.
    if all_wait && waiting > 0 && inside.runtime().is_stuck() {
        FOUND.store(1, Ordering::Release);
        match command {
            Some(command) => say(command, waiting),
            None => {
                inside.futex_wake(FOUND.as_ptr() as usize, 1, u32::MAX);
            }
        }
    }
}

#[cold]
fn say(command: &CStr, waiting: usize) {
    let pid = GUEST.pid.load(Ordering::Relaxed);
    let mut text = Text::<128>::new();
    let _ = writeln!(
        text,
        "upcall: deadlock: all {waiting} threads of process {pid} wait for one another"
    );
    sys::say(text.as_bytes());
    command::show_stacks(command, pid);
}
