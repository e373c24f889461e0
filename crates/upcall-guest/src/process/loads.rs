//! Code that comes while the program runs: libraries by dlopen(3), and code made at run time.
//!
//! The loader calls one function of its own, `r_brk` of `struct r_debug` (<link.h>), whenever the list of objects is about
//! to change and when the change is complete; debuggers put a breakpoint there. At start it is overwritten with a jump to
//! `objects_changed`.
//!
//! 1. The loader maps a segment executable: the mapping is noted as *due*.
//! 2. It calls `r_brk` in state `RT_CONSISTENT`: every new object is rewritten. At that moment all new objects are mapped
//!    and listed, and none of their constructors has run. Nobody else knows their addresses, so nothing runs in them. glibc
//!    up to 2.40 relocates after this call, newer ones before it: then resolvers of indirect functions have run and
//!    returned.
//! 3. What was due and belongs to no listed object (another namespace, dlmopen(3)) cannot be rewritten: dispatch is
//!    switched on ([`dispatch::turn_on`]). The same holds for refused sites.
//! 4. Objects that are gone are forgotten: their stubs are free, and other objects may come at their addresses. The same
//!    call notices that, before the next object can be mapped there.
//!
//! The decoder needs more stack than small threads have, so it runs on a stack of its own. One is enough, since the
//! loader's lock is held, or the process has one thread.
//!
//! Before there are threads, of a new object only the first sites are rewritten ([`Extent::First`]).
//!
//! Any other mapping that becomes executable may hold anything at any time, so dispatch is switched on before the program
//! gets it. A compiler at run time whose code makes no system call then pays a few tens of nanoseconds at each system call
//! for nothing.

use std::arch::naked_asm;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::ground::entry::Frame;
use crate::ground::hooks::hooks;
use crate::ground::{heap, memory, state};
use crate::rewrite::kept;
use crate::rewrite::object::{self, LoaderDebug, Object, Role};
use crate::rewrite::patch::{self, Extent, ObjectReport, Report};
use crate::signal::dispatch;
use crate::thread::agents;

/// `r_state`: the list is complete.
const RT_CONSISTENT: i32 = 0;
/// The flag of shmat(2) that asks for executable memory.
const SHM_EXEC: u64 = 0o100000;

/// The size of the stack for the decoder, and where that ends; its last page is a guard.
const STACK: usize = 256 << 10;
static STACK_TOP: AtomicUsize = AtomicUsize::new(0);

static DEBUG: AtomicPtr<LoaderDebug> = AtomicPtr::new(std::ptr::null_mut());
/// The loader's own code.
static LOADER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Mappings that the loader has made executable and not listed yet. Only the thread that holds the
/// loader's lock touches them.
static DUE: [[AtomicUsize; 2]; 64] = [const { [const { AtomicUsize::new(0) }; 2] }; 64];
static DUE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The objects that were looked at. Held as long as one is rewritten.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

struct Known {
    object: Object,
    /// True if all that can be rewritten was.
    is_done: bool,
}

impl Known {
    fn is(&self, object: &Object) -> bool {
        self.object.span() == object.span() && self.object.path == object.path
    }
}

/// Rewrites what was left of the objects that are loaded. Called while there is one kernel thread. Returns how many sites
/// stay as they are although they may make a call.
pub fn patch_rest() -> usize {
    // If it is held, then by a thread that stayed behind when this process was forked: there was nothing left.
    let Ok(mut known) = KNOWN.try_lock() else {
        return 0;
    };
    let (mut rest, done): (Vec<_>, Vec<_>) = known.drain(..).partition(|known| !known.is_done);
    let objects: Vec<Object> = rest.iter().map(|known| known.object.clone()).collect();
    // SAFETY: there is one kernel thread; the loader holds the objects, or this would have been told.
    let report = unsafe { patch::patch_objects(&objects, Extent::All) };
    for known in &mut rest {
        known.is_done = true;
    }
    known.extend(done);
    known.extend(rest);
    report.objects.iter().map(ObjectReport::left_alone).sum()
}

/// Notes what is loaded and was rewritten in part or completely, and makes the loader report later objects. Called at
/// start, while there is one kernel thread. Returns false if the loader will not: then all later code is left to dispatch.
pub fn watch(objects: Vec<Object>, report: &Report) -> bool {
    let loader = objects.iter().find(|o| o.role == Role::Loader);
    let hooked = loader.is_some_and(|loader| {
        let debug = object::loader_debug();
        // SAFETY: null, or the loader's structure, which lives as long as the process.
        let Some(brk) = unsafe { debug.as_ref() }.map(|debug| debug.brk) else {
            return false;
        };
        let Some(code) = loader
            .segments
            .iter()
            .find(|s| s.is_executable() && s.range.contains(&brk))
        else {
            return false;
        };
        DEBUG.store(debug, Ordering::Relaxed);
        object::note_change();
        // SAFETY: start-up; the function has the type of the loader's own, and `loader` is it.
        unsafe { patch::divert(loader, brk, objects_changed) }.is_ok() && {
            LOADER[0].store(code.range.start, Ordering::Relaxed);
            LOADER[1].store(code.range.end, Ordering::Relaxed);
            true
        }
    });
    let is_done = |object: &Object| {
        let mut reports = report.objects.iter();
        reports.any(|of| of.path == object.path && of.left.is_none())
    };
    let known = objects.into_iter().map(|object| Known {
        is_done: is_done(&object),
        object,
    });
    *KNOWN.lock().unwrap_or_else(|e| e.into_inner()) = known.collect();
    hooked
}

/// Returns true if mmap, mprotect, pkey_mprotect or shmat asks for executable memory.
#[inline]
pub fn is_executable(frame: &Frame) -> bool {
    let bit = if frame.rax as i64 == libc::SYS_shmat {
        SHM_EXEC
    } else {
        libc::PROT_EXEC as u64
    };
    frame.rdx & bit != 0
}

/// Returns true if the process may be made ready at this trapped call: neither the loader nor libc's heap is in the middle of its
/// work, which both may be needed for that.
pub fn may_make_ready(frame: &Frame) -> bool {
    let is_of_memory = matches!(
        frame.rax as i64,
        libc::SYS_mmap
            | libc::SYS_munmap
            | libc::SYS_mremap
            | libc::SYS_mprotect
            | libc::SYS_madvise
            | libc::SYS_brk
    );
    !is_of_memory && !is_of_loader(frame)
}

/// Returns true if the loader's own code makes the call.
fn is_of_loader(frame: &Frame) -> bool {
    let text = LOADER[0].load(Ordering::Relaxed)..LOADER[1].load(Ordering::Relaxed);
    text.contains(&(frame.rip as usize))
}

/// Makes such a call.
pub fn map(frame: &Frame) -> i64 {
    let of_object = frame.rax as i64 == libc::SYS_mmap
        && frame.r10 & libc::MAP_ANONYMOUS as u64 == 0
        && is_of_loader(frame);
    if !of_object {
        dispatch::turn_on();
    }
    // SAFETY: the program's own call.
    let answer = unsafe { frame.raw() } as i64;
    if of_object && !(-4095..0).contains(&answer) {
        let start = answer as usize;
        let count = DUE_COUNT.load(Ordering::Relaxed);
        match DUE.get(count) {
            Some([from, to]) => {
                from.store(start, Ordering::Relaxed);
                to.store(start + frame.rsi as usize, Ordering::Relaxed);
                DUE_COUNT.store(count + 1, Ordering::Relaxed);
            }
            None => dispatch::turn_on(),
        }
    }
    answer
}

/// munmap(2). A mapping that is gone is not due any more (a library that could not be loaded).
pub fn unmap(frame: &Frame) -> i64 {
    // SAFETY: the program's own call.
    let answer = unsafe { frame.raw() } as i64;
    if answer == 0 && DUE_COUNT.load(Ordering::Relaxed) != 0 && is_of_loader(frame) {
        let gone = frame.rdi as usize..(frame.rdi + frame.rsi) as usize;
        for [from, to] in &DUE[..DUE_COUNT.load(Ordering::Relaxed)] {
            if gone.contains(&from.load(Ordering::Relaxed)) {
                // An empty mapping lies within any object.
                from.store(0, Ordering::Relaxed);
                to.store(0, Ordering::Relaxed);
            }
        }
    }
    answer
}

/// Called by the loader instead of its `r_brk`.
extern "C" fn objects_changed() {
    on_stack(look);
}

/// Calls a function on the decoder's stack, which is mapped for the first one. Without memory for it the caller's has to
/// do.
pub fn on_stack(function: extern "C" fn()) {
    let top = match STACK_TOP.load(Ordering::Relaxed) {
        0 => memory::map_stack(STACK).map_or(0, |stack| stack + STACK),
        top => top,
    };
    STACK_TOP.store(top, Ordering::Relaxed);
    let here = core::ptr::from_ref(&top) as usize;
    if top == 0 || (top - STACK..top).contains(&here) {
        function();
    } else {
        // SAFETY: the stack is ours, and nobody is on it: the caller holds the loader's lock, or is alone.
        unsafe { call_on(top, function) };
    }
}

/// Calls `function` with the stack that ends at `top`.
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: usize, function: extern "C" fn()) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

/// [`objects_changed`], on the decoder's stack.
extern "C" fn look() {
    // SAFETY: set by `watch` before this can be called; the loader's lock is held.
    let state = unsafe { (*DEBUG.load(Ordering::Relaxed)).state };
    if state != RT_CONSISTENT {
        return;
    }
    // SAFETY: the calling thread's own errno.
    let errno = unsafe { *libc::__errno_location() };
    object::note_change();
    let objects = object::loaded();
    // The loader's lock keeps others out: if it is held, then by a thread that stayed behind when
    // this process was forked, in the middle of its work.
    let Ok(mut known) = KNOWN.try_lock() else {
        dispatch::turn_on();
        return;
    };
    known.retain(|known| {
        let stays = objects.iter().any(|o| known.is(o));
        if !stays {
            // SAFETY: the loader has unmapped the object.
            unsafe { patch::forget(&known.object.span()) };
            kept::forget(known.object.span().start);
        }
        stays
    });
    let mut refused = 0;
    // With a refused site dispatch is switched on, and the sites that are left would be trapped.
    let mut makes_ready = false;
    let extent = if state::is_ready() {
        Extent::All
    } else {
        Extent::First
    };
    for object in &objects {
        if known.iter().any(|known| known.is(object)) {
            continue;
        }
        // SAFETY: the loader holds the object, and none of its code has run (the module's text).
        let report = unsafe { patch::patch_object(object, extent) };
        match report.left {
            None => refused += report.left_alone(),
            Some(_) => makes_ready |= report.left_alone() > 0,
        }
        patch::log_object(&report);
        known.push(Known {
            object: object.clone(),
            is_done: report.left.is_none(),
        });
    }
    drop(known);
    patch::tell_unwinder();
    if makes_ready {
        (hooks().make_ready)();
    }
    if extent == Extent::All {
        agents::imports::look();
    }
    let due = &DUE[..DUE_COUNT.swap(0, Ordering::Relaxed)];
    let strange = due.iter().any(|[from, to]| {
        let (from, to) = (from.load(Ordering::Relaxed), to.load(Ordering::Relaxed));
        from < to
            && !objects.iter().any(|o| {
                let span = o.span();
                span.start & !4095 <= from && to <= span.end.next_multiple_of(4096)
            })
    });
    if strange {
        dispatch::turn_on();
    }
    dispatch::refused(refused);
    drop(objects);
    heap::trim();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}
