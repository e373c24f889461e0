//! `upcall_thread_t`: a thread in a shell where this library serves the process, else one of libc's, which is a
//! user-level thread as well if `upcall run` serves it.

mod libc_thread;
mod priority;
mod record;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod shell;

use std::ffi::{c_char, c_void};
use std::sync::Once;

use libc::{c_int, timespec};

use crate::answer::unless;
use crate::options::ThreadAttributes;
use crate::versioned::versioned;
use record::{Kind, current, extra, own};

pub use record::{Record, Start};

/// What a thread's stack measures where nothing is said.
const STACK: usize = 256 << 10;

/// A thread that is to be made.
#[derive(Clone, Copy)]
struct Plan<'a> {
    start: Start,
    argument: *mut c_void,
    attributes: &'a ThreadAttributes,
    /// See [`extra`].
    extra: u32,
}

impl Plan<'_> {
    /// Writes a record where `place` is, or says what it is.
    #[inline]
    fn record(&self, kind: Kind) -> Record {
        let record = Record::new(kind, self.start, self.argument, self.extra);
        if self.extra & extra::NAMED != 0 {
            // SAFETY: the caller's string, as upcall_thread_create was promised.
            unsafe { record.note_name(self.attributes.name) };
        }
        record
    }

    /// Makes it; `made` gets its record before it begins.
    #[inline]
    fn create(&self, made: impl FnOnce(*mut Record)) -> Result<(), c_int> {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            // Where it cannot be started, or is another's, threads are libc's.
            let _ = upcall::Runtime::start();
        });
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(runtime) = upcall_guest::direct::runtime()
            && let Some(class) = shell::class_of(self.attributes.stack_size)
        {
            return shell::create(runtime, class, self, made);
        }
        libc_thread::create(self, made)
    }
}

/// Makes a thread with properties that not every thread has.
#[cold]
fn create_with(thread: *mut *mut Record, attributes: &ThreadAttributes, plan: Plan<'_>) -> c_int {
    let detached = attributes.detached != 0;
    let urgent = attributes.priority_class != priority::INHERITED;
    if attributes.reserved != 0
        || attributes.stack_size > isize::MAX as usize
        || thread.is_null() && !detached
        || !priority::is_one(attributes.priority_class, attributes.priority, true)
    {
        return libc::EINVAL;
    }
    let named = if attributes.name.is_null() {
        0
    } else {
        extra::NAMED
    };
    let gated = if urgent { extra::GATED } else { 0 };
    let plan = Plan {
        attributes,
        extra: named | gated,
        ..plan
    };
    if !thread.is_aligned() {
        return libc::EINVAL;
    }
    let mut made = std::ptr::null_mut();
    let note = |record| {
        made = record;
        if !thread.is_null() {
            // Before it begins: it may look there.
            // SAFETY: the caller's promise.
            unsafe { thread.write(record) };
        }
    };
    if let Err(number) = plan.create(note) {
        return number;
    }
    // SAFETY: made just now, and nobody else has it.
    let record = unsafe { &*made };
    if urgent {
        let refusal = priority::set(record, attributes.priority_class, attributes.priority);
        record.open(refusal == 0);
        if refusal != 0 {
            record.take_right();
            join(record, true);
            return refusal;
        }
    }
    if detached {
        record.take_right();
        detach(record);
    }
    0
}

/// What the thread has given; `None`: it has not ended, and `waits` is not wanted. The right to it is the caller's, and
/// used, unless `None`.
#[inline]
fn join(record: &Record, waits: bool) -> Option<*mut c_void> {
    match record.kind {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        Kind::Shell => shell::join(record, waits),
        _ => libc_thread::join(record, waits),
    }
}

/// As [`join`].
fn detach(record: &Record) {
    match record.kind {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        Kind::Shell => shell::detach(record),
        _ => libc_thread::detach(record),
    }
}

#[inline]
fn join_one(thread: &Record, result: *mut *mut c_void, waits: bool) -> c_int {
    if is_own(thread) {
        return libc::EDEADLK;
    }
    if !thread.take_right() {
        return libc::EINVAL;
    }
    match join(thread, waits) {
        Some(value) => {
            put!(result, value, or nowhere);
            0
        }
        None => {
            thread.return_right();
            libc::EBUSY
        }
    }
}

#[inline]
fn is_own(record: &Record) -> bool {
    own().is_some_and(|own| std::ptr::eq(own, record))
}

/// The thread of a handle; the calling function answers ESRCH if it is none.
macro_rules! thread {
    ($pointer:expr) => {{
        let pointer = $pointer;
        if pointer.is_null() || !pointer.is_aligned() {
            return libc::ESRCH;
        }
        // SAFETY: as the function's caller has promised.
        unsafe { &*pointer }
    }};
}

c_functions! {
    /// Makes a thread.
    fn upcall_thread_create(
        thread: *mut *mut Record,
        attributes: *const ThreadAttributes,
        start: Option<Start>,
        argument: *mut c_void,
    ) -> c_int {
        let Some(start) = start else {
            return libc::EINVAL;
        };
        let plan = Plan {
            start,
            argument,
            attributes: &ThreadAttributes::DEFAULT,
            extra: 0,
        };
        if !attributes.is_null() {
            // SAFETY: the caller's promise.
            return match unsafe { versioned(attributes, ThreadAttributes::DEFAULT) } {
                Ok(attributes) => create_with(thread, &attributes, plan),
                Err(number) => number,
            };
        }
        if thread.is_null() || !thread.is_aligned() {
            return libc::EINVAL;
        }
        // Before it begins: it may look there.
        // SAFETY: the caller's promise.
        match plan.create(|record| unsafe { thread.write(record) }) {
            Ok(()) => 0,
            Err(number) => number,
        }
    }

    /// Waits for its end.
    fn upcall_thread_join(thread: *const Record, result: *mut *mut c_void) -> c_int {
        join_one(thread!(thread), result, true)
    }

    /// The same, if it has ended.
    fn upcall_thread_tryjoin(thread: *const Record, result: *mut *mut c_void) -> c_int {
        join_one(thread!(thread), result, false)
    }

    /// Nobody will join it.
    fn upcall_thread_detach(thread: *const Record) -> c_int {
        let thread = thread!(thread);
        if !thread.take_right() {
            return libc::EINVAL;
        }
        detach(thread);
        0
    }

    /// The calling thread.
    fn upcall_thread_self() -> *const Record {
        current().map_or(std::ptr::null(), std::ptr::from_ref)
    }

    /// Gives way.
    fn upcall_thread_yield() -> () {
        upcall::thread::yield_now();
    }

    /// Waits for upcall_thread_unpark.
    fn upcall_thread_park() -> c_int {
        let Some(own) = current() else {
            return libc::ENOMEM;
        };
        own.park(None);
        0
    }

    /// The same, for a limited time.
    fn upcall_thread_timedpark(deadline: *const timespec) -> c_int {
        let deadline = limit!(deadline);
        let Some(own) = current() else {
            return libc::ENOMEM;
        };
        unless(own.park(deadline), libc::ETIMEDOUT)
    }

    /// Ends its park.
    fn upcall_thread_unpark(thread: *const Record) -> c_int {
        thread!(thread).unpark();
        0
    }

    /// The calling thread's name.
    fn upcall_thread_setname(name: *const c_char) -> c_int {
        if name.is_null() {
            return libc::EINVAL;
        }
        let Some(own) = current() else {
            return libc::ENOMEM;
        };
        // SAFETY: the caller's string.
        unsafe { own.note_name(name) };
        own.rename();
        0
    }

    /// A thread's name.
    fn upcall_thread_getname(thread: *const Record, name: *mut c_char, size: usize) -> c_int {
        let thread = thread!(thread);
        if name.is_null() {
            return libc::EINVAL;
        }
        let bytes = thread.name();
        let needed = bytes.iter().position(|&byte| byte == 0).unwrap_or(15) + 1;
        if needed > size {
            return libc::ERANGE;
        }
        // SAFETY: the caller has room for so many.
        unsafe { name.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), needed) };
        0
    }

    /// How urgent it is from now on.
    fn upcall_thread_setpriority(thread: *const Record, class: c_int, priority: c_int) -> c_int {
        let thread = thread!(thread);
        if !priority::is_one(class, priority, false) {
            return libc::EINVAL;
        }
        priority::set(thread, class, priority)
    }

    /// How urgent it is.
    fn upcall_thread_getpriority(thread: *const Record, class: *mut c_int, priority: *mut c_int) -> c_int {
        match priority::get(thread!(thread)) {
            Ok((of_class, number)) => {
                put!(class, of_class, or nowhere);
                put!(priority, number, or nowhere);
                0
            }
            Err(number) => number,
        }
    }
}

/// Ends the calling thread.
///
/// # Safety
///
/// As pthread_exit(3): what is on the thread's stack is given up, by its destructors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn upcall_thread_exit(result: *mut c_void) -> ! {
    if let Some(own) = own() {
        own.set_result(result);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_exit(result) }
}
