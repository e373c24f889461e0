//! The beginning and end of threads: clone(2) with CLONE_THREAD makes a user-level thread, exit(2) ends one.
//!
//! The new thread starts as the kernel would start it: with a copy of its creator's registers, 0 as result, and its own
//! stack pointer and thread pointer. libc has made the stack and the thread control block before, and takes them back when
//! the word at `clear_tid` becomes 0.
//!
//! A program that calls clone(2) itself may give its thread a small stack. Until the thread runs, the frame from which it
//! starts (448 bytes) lies at its top. A system call takes 650 bytes for the red zone and its frame, and what the handler
//! uses below. The last call, which ends the thread, takes least: most of its work is done when the thread has left its
//! stack (`ended`). So a kilobyte is enough for a thread, or a process that shares the memory, that only ends. Preemption
//! takes a frame of the kernel's.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use upcall_core::{Errno, Machine};
use upcall_linux::{Inside, Runtime, Thread};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{self, Frame, mode, raw_syscall};
use crate::ground::hooks::hooks;
use crate::ground::state::GUEST;
use crate::ground::{access, caller, mask};
use crate::rewrite::object;
use crate::rewrite::unwind::Tables;
use crate::signal::{self, dispatch, pending};
use crate::thread::{
    affinity, agents, bound, kept_stacks, lending, listed, names, outside, robust, scheduling,
    shell,
};

/// The arguments of clone(2) and clone3(2), as far as threads need them.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// CLONE_… flags.
    pub flags: u64,
    /// The initial stack pointer.
    pub stack: usize,
    /// Where the stack begins; 0 if that is not said.
    pub stack_start: usize,
    /// The thread pointer.
    pub tls: usize,
    /// Where the creator wants the id.
    pub parent_tid: usize,
    /// Where the child wants the id, and the address that is cleared at the end.
    pub child_tid: usize,
}

impl Request {
    /// Returns the arguments of a system call, if it is clone or clone3 and they can be read as that call reads them.
    pub fn of(frame: &Frame) -> Option<Self> {
        if frame.rax as i64 == libc::SYS_clone {
            return Some(Request {
                flags: frame.rdi,
                stack: frame.rsi as usize,
                stack_start: 0,
                tls: frame.r8 as usize,
                parent_tid: frame.rdx as usize,
                child_tid: frame.r10 as usize,
            });
        }
        if frame.rax as i64 != libc::SYS_clone3 {
            return None;
        }
        // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
        if frame.rsi < 64 {
            return None;
        }
        let word = |index: usize| access::load_u64(frame.rdi as usize + 8 * index).ok();
        Some(Request {
            flags: word(0)?,
            stack: (word(5)? + word(6)?) as usize,
            stack_start: word(5)? as usize,
            tls: word(7)? as usize,
            parent_tid: word(3)? as usize,
            child_tid: word(2)? as usize,
        })
    }

    /// Returns true if a thread of this process is asked for, and not a process.
    pub fn is_thread(&self) -> bool {
        self.flags & libc::CLONE_THREAD as u64 != 0
    }

    /// Returns true if there can be such a thread.
    fn can_be_served(&self) -> bool {
        /// Less than any stack that libc makes, more than what is written below its top.
        const LEAST_STACK: usize = 2048;
        let needed = (libc::CLONE_VM | libc::CLONE_SIGHAND) as u64;
        self.flags & needed == needed && self.stack >= LEAST_STACK
    }
}

/// The option of prctl(2).
pub const PR_GET_TID_ADDRESS: i32 = 40;

/// The range of libc's code. Found at start.
static LIBC_TEXT: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Where the start routine is in libc's control block of a thread; 0 when libc does not say.
static START_ROUTINE: AtomicUsize = AtomicUsize::new(0);

/// Where the id is in it; 0 when libc does not say.
static ID: AtomicUsize = AtomicUsize::new(0);
/// Where the word is in it that the thread's end clears; 0 before the first thread.
static CLEARED: AtomicUsize = AtomicUsize::new(0);

/// The range of syscall(2) in it.
static RAW_CALL: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Returns true if the call that ends at this address is made by one of libc's functions: the site is in libc, and not in
/// syscall(2), by which the program makes calls itself.
pub fn is_libcs_call(rip: usize) -> bool {
    let within = |range: &[AtomicUsize; 2]| {
        let [start, end] = range.each_ref().map(|one| one.load(Ordering::Relaxed));
        (start..end).contains(&rip)
    };
    within(&LIBC_TEXT) && !within(&RAW_CALL)
}

/// Notes where syscall(2) is.
fn note_raw_call(libc: &object::Object) {
    // SAFETY: dlsym with a constant name.
    let start = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"syscall".as_ptr()) } as usize;
    // SAFETY: libc stays where it is.
    let image = unsafe { libc.image() };
    let function = Tables::new(&image).and_then(|tables| tables.function_at(start));
    if let Some(function) = function {
        RAW_CALL[0].store(function.range.start, Ordering::Relaxed);
        RAW_CALL[1].store(function.range.end, Ordering::Relaxed);
    }
}

/// Notes where libc's code is, and what its control blocks look like. At start.
pub fn note_libc() {
    let objects = object::loaded();
    let Some(libc) = objects
        .iter()
        .find(|object| object.path.ends_with("/libc.so.6"))
    else {
        return;
    };
    for segment in libc
        .segments
        .iter()
        .filter(|segment| segment.is_executable())
    {
        LIBC_TEXT[0].store(segment.range.start, Ordering::Relaxed);
        LIBC_TEXT[1].store(segment.range.end, Ordering::Relaxed);
    }
    note_raw_call(libc);
    for (name, own) in [
        (c"_thread_db_pthread_start_routine", &START_ROUTINE),
        (c"_thread_db_pthread_tid", &ID),
    ] {
        // What libthread_db reads: the field's size in bits, the number of elements, the offset.
        // SAFETY: dlsym with a constant name; the symbol is three words of libc's.
        unsafe {
            let field = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            if !field.is_null() {
                own.store(*field.cast::<u32>().add(2) as usize, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the id in the control block of the thread whose end clears the word at `address`, if it is such a word.
pub fn id_beside(address: usize) -> Option<i32> {
    let (offset, id) = (CLEARED.load(Ordering::Relaxed), ID.load(Ordering::Relaxed));
    // In older releases the word is the id itself.
    if id == 0 || offset == 0 || offset == id {
        return None;
    }
    let id = access::load_u32(address.checked_sub(offset)?.checked_add(id)?).ok()? as i32;
    (id != 0).then_some(id)
}

/// Returns true if the new thread is a helper (SIGEV_THREAD timers, aio, mq_notify): its start routine, which is in its
/// control block, lies in libc. A helper waits for signals that the kernel sends to it, so it stays a kernel thread. A libc
/// that does not tell where the routine is has no helpers that we know of.
fn is_libcs_own(tls: usize) -> bool {
    let libc = LIBC_TEXT[0].load(Ordering::Relaxed)..LIBC_TEXT[1].load(Ordering::Relaxed);
    start_routine(tls).is_some_and(|routine| libc.contains(&routine))
}

/// Returns the start routine of a new thread with this control block, if libc says where it is.
fn start_routine(tls: usize) -> Option<usize> {
    let offset = START_ROUTINE.load(Ordering::Relaxed);
    if offset == 0 {
        return None;
    }
    let routine = access::load_u64(tls.checked_add(offset)?).ok()?;
    Some(routine as usize)
}

/// Serves a clone or clone3 that asks for a thread. Sets the frame's result, or its mode.
pub fn create(frame: &mut Frame, request: &Request, creator: Option<&'static Thread>) {
    (hooks().make_ready)();
    let stays = GUEST.runtime().is_none() && has_what_forbids_runtime();
    if stays || is_libcs_own(request.tls) {
        signal::pass_mask_on(creator);
        create_helper(frame, request);
        return;
    }
    if !request.can_be_served() {
        frame.rax = -i64::from(libc::EINVAL) as u64;
        return;
    }
    frame.rax = match create_thread(frame, request) {
        Ok(tid) => tid as u64,
        // EAGAIN for everything that is exhausted, also where the kernel says EINVAL (fcntl(2) beyond a limit):
        // pthread_create expects that.
        Err(Errno(_)) => {
            #[cfg(feature = "inject")]
            upcall_linux::inject::refused();
            -i64::from(libc::EAGAIN) as u64
        }
    };
}

/// Returns true if the process, which has no runtime yet, has attributes in the kernel with which no runtime can work. libc
/// has blocked all signals, and a filter may trap the calls here: see [`mask::ALL`].
#[inline(never)]
fn has_what_forbids_runtime() -> bool {
    let before = mask::change_kernel_mask(mask::ALL);
    let has = scheduling::is_real_time() || time_stamps_fault();
    mask::set_kernel_mask(before);
    has
}

/// Serves a clone or clone3 for a thread that stays a kernel thread: a helper, or one that a helper makes.
pub fn create_helper(frame: &mut Frame, request: &Request) {
    if !request.can_be_served() {
        frame.rax = -i64::from(libc::EINVAL) as u64;
        return;
    }
    if let Err(Errno(number)) = dispatch::may_start().and_then(|()| agents::expect_outsider()) {
        frame.rax = -i64::from(number) as u64;
        return;
    }
    // Before it exists: it may end at once.
    GUEST.helpers.fetch_add(1, Ordering::SeqCst);
    let answer = outside::start(frame, request, request.flags);
    if answer < 0 {
        GUEST.helpers.fetch_sub(1, Ordering::SeqCst);
    }
    frame.rax = answer as u64;
}

fn create_thread(frame: &Frame, request: &Request) -> Result<i32, Errno> {
    let runtime = GUEST.start()?;
    // Touch the stack before the runtime is entered: a bad one faults here, in the program.
    let place = (request.stack - size_of::<Frame>()) & !63;
    let copy = place as *mut Frame;
    // SAFETY: the program gives the stack to its new thread, which has nothing there before it runs.
    unsafe {
        copy.write(frame.clone());
        (*copy).rax = 0;
        (*copy).rsp = request.stack as u64;
        (*copy).mode = mode::RELOAD;
        (*copy).wide = core::ptr::null_mut();
    }
    kept_stacks::used_again(request.stack);
    let inside = runtime.enter();
    let creator = inside.thread();
    let result = launch(&inside, request, place);
    inside.leave();
    if let (Some(creator), Ok(id)) = (creator, result) {
        affinity::pass_on(runtime, creator, id);
    }
    result
}

/// Notes the stack that the kernel has given to the process, if the calling thread, the only one, is on it.
pub fn note_first_stack(thread: &'static Thread) {
    /// The usual limit. The kernel maps nothing else within the limit that there was at the start of the program.
    const MOST: u64 = 8 << 20;
    const PAGE: usize = 4096;
    let local = 0u64;
    let mut limits = [MOST; 2];
    let words = [
        0,
        libc::RLIMIT_STACK as u64,
        0,
        limits.as_mut_ptr() as u64,
        0,
        0,
    ];
    // SAFETY: asks only. The name of the program is above everything else there.
    let end = unsafe {
        raw_syscall(libc::SYS_prlimit64, words);
        libc::getauxval(libc::AT_EXECFN)
    };
    let end = (end as usize).next_multiple_of(PAGE);
    let range = end.saturating_sub(limits[0].min(MOST) as usize)..end;
    if range.contains(&(&raw const local as usize)) {
        note_stack(thread, range);
    }
}

fn note_stack(thread: &'static Thread, range: Range<usize>) {
    let [start, end] = &thread.guest().stack;
    start.store(range.start, Ordering::Relaxed);
    end.store(range.end, Ordering::Relaxed);
}

fn launch(inside: &Inside, request: &Request, copy: usize) -> Result<i32, Errno> {
    let Some(creator) = inside.thread() else {
        inside
            .runtime()
            .kernel()
            .broken("a thread is made without a creator");
    };
    note_first_id_word(request);
    let agent = agents::create(inside)?;
    let thread = match shell::block_by(creator) {
        // SAFETY: the shell's memory is there for ever, and is asked once for each piece.
        Some(place) => unsafe { inside.runtime().new_thread_at(place, creator) },
        None => inside
            .runtime()
            .new_thread(creator)
            .inspect_err(|_| agents::take_back(inside, agent))?,
    };
    let state = &thread.kernel;
    agents::appoint(thread, agent);
    let flag = |bit: i32| request.flags & bit as u64 != 0;
    if flag(libc::CLONE_SETTLS) {
        state.thread_pointer.store(request.tls, Ordering::Relaxed);
    }
    let base = state.thread_pointer.load(Ordering::Relaxed);
    lending::inherit(inside, (Some(creator), thread));
    // Only now: signals for the process may be passed to it as soon as it has an id.
    let id = agent.map(agents::Agent::tid);
    let Some(tid) = GUEST.identities.assign(inside, thread, id) else {
        inside.runtime().free_thread(thread);
        agents::take_back(inside, agent);
        return Err(Errno(libc::EAGAIN));
    };
    names::note_new(thread);
    if request.stack_start != 0 {
        note_stack(thread, request.stack_start..request.stack);
    }
    if request.child_tid > base {
        CLEARED.store(request.child_tid - base, Ordering::Relaxed);
    }
    if flag(libc::CLONE_CHILD_CLEARTID) {
        thread
            .guest()
            .clear_tid
            .store(request.child_tid, Ordering::Relaxed);
    }
    if flag(libc::CLONE_PARENT_SETTID) {
        // As the kernel, which ignores the error too.
        let _ = access::store_u32(request.parent_tid, tid as u32);
    }
    if flag(libc::CLONE_CHILD_SETTID) {
        let _ = access::store_u32(request.child_tid, tid as u32);
    }
    GUEST.living.fetch_add(1, Ordering::Relaxed);
    // The first thread of a shell runs as those that follow it there, or a program that divides its work would
    // make a shell for each part before it runs one.
    let forked = start_routine(request.tls) == Some(shell::main as *const () as usize);
    // What runs in a shell calls the runtime itself.
    if forked {
        state.program_base.store(0, Ordering::Relaxed);
    }
    // SAFETY: the stack below the copied frame belongs to the new thread alone; `begin` does not
    // return.
    unsafe {
        inside.launch(
            thread,
            forked,
            copy,
            begin,
            [copy, core::ptr::from_ref(inside.runtime()) as usize, 0],
        );
    }
    Ok(tid)
}

/// Returns the word that the end of the calling kernel thread clears. libc has told the kernel before this library was
/// loaded. 0 if there is none, or if the kernel, which has no checkpoints, does not say: then see [`note_first_id_word`].
pub fn cleared_by_kernel() -> usize {
    let mut word = 0usize;
    let at = (&raw mut word) as u64;
    // SAFETY: writes one word.
    unsafe { raw_syscall(libc::SYS_prctl, [PR_GET_TID_ADDRESS as u64, at, 0, 0, 0, 0]) };
    word
}

/// It lies in the control block at the same place as in every other thread's, and may hold the id.
fn note_first_id_word(request: &Request) {
    let Some(first) = GUEST.identities.first() else {
        return;
    };
    let state = first.guest();
    if state.clear_tid.load(Ordering::Relaxed) != 0 || request.tls == 0 {
        return;
    }
    let offset = request.child_tid.wrapping_sub(request.tls);
    let word = first
        .kernel
        .thread_pointer
        .load(Ordering::Relaxed)
        .wrapping_add(offset);
    if access::load_u32(word) == Ok(state.tid.load(Ordering::Relaxed) as u32) {
        state.clear_tid.store(word, Ordering::Relaxed);
    }
}

/// The first steps of a new thread, inside the runtime.
extern "C" fn begin(copy: usize, runtime: usize, _: usize) -> ! {
    // SAFETY: `launch` passes its runtime, which lives for ever, and a frame on this stack.
    unsafe {
        let runtime = &*(runtime as *const Runtime);
        runtime.arrive().leave();
        if let Some(thread) = caller::current_thread() {
            if thread.guest().bound.load(Ordering::Relaxed) != 0 {
                bound::go(runtime, thread);
            }
            caller::give_back(thread);
        }
        entry::resume(copy as *const Frame)
    }
}

/// exit(2). Ends the current thread, and the process with the last one.
// The stack may be small: nearly all is done when the thread has left it, in `ended`.
pub fn exit(runtime: &'static Runtime, thread: &'static Thread, status: u64) -> ! {
    let first = GUEST.identities.first();
    if first.is_some_and(|first| core::ptr::eq(first, thread)) {
        FIRST_STATUS.store(status, Ordering::Relaxed);
        GUEST.first_ended.store(true, Ordering::SeqCst);
    }
    if agents::of(thread).is_some() {
        agents::dismiss(runtime, thread, || GUEST.identities.release(thread));
    }
    runtime.enter().exit_thread(ended, 0)
}

/// The first thread's argument of exit(2): the process's status, unless another one is set.
static FIRST_STATUS: AtomicU64 = AtomicU64::new(0);

/// Called when a thread has ended. Once the first thread has ended, shells in which nothing runs do not keep the process.
#[inline]
pub fn end_with_the_last() {
    if GUEST.first_ended.load(Ordering::SeqCst)
        && GUEST.helpers.load(Ordering::SeqCst) == 0
        && only_shells_are_left()
    {
        end_process();
    }
}

#[cold]
#[inline(never)]
fn only_shells_are_left() -> bool {
    GUEST.first_ended.load(Ordering::SeqCst)
        && shell::count_ended() + shell::serving() == GUEST.living.load(Ordering::SeqCst)
}

fn end_process() -> ! {
    GUEST.report();
    let status = FIRST_STATUS.load(Ordering::Relaxed);
    loop {
        // SAFETY: ends the process.
        unsafe { entry::raw_syscall(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    }
}

/// exit(2) by an outside kernel thread: a helper, with which the process ends if it outlives all threads, or a child on
/// borrowed memory.
// The stack may be small: the two steps use the same part of it.
pub fn exit_outside(frame: &mut Frame) {
    if is_last_helper() {
        end_process();
    }
    // SAFETY: the program's own call.
    frame.rax = unsafe { frame.raw() } as u64;
}

/// Counts the calling kernel thread down, if it is a helper. Returns true if the process ends with it.
#[inline(never)]
fn is_last_helper() -> bool {
    // SAFETY: asks only.
    let process = unsafe { upcall_linux::sys!(libc::SYS_getpid) } as u32;
    if process != GUEST.pid.load(Ordering::Relaxed) {
        return false;
    }
    listed::end();
    GUEST.helpers.fetch_sub(1, Ordering::SeqCst) == 1
        // Without a runtime no thread has been counted, and the kernel knows which is the last.
        && GUEST.runtime().is_some()
        && (GUEST.living.load(Ordering::SeqCst) == 0 || only_shells_are_left())
}

/// Called when nothing runs on the thread's stack any more. Hands on what the thread holds, and lets libc have the stack.
fn ended(inside: &Inside, thread: &'static Thread, _: usize) -> Option<&'static Thread> {
    robust::release_all(inside, thread);
    // SeqCst: of this count and that of the helpers, the one that ends last sees both at 0.
    if GUEST.living.fetch_sub(1, Ordering::SeqCst) == 1 && GUEST.helpers.load(Ordering::SeqCst) == 0
    {
        end_process();
    }
    end_with_the_last();
    let clear = thread.guest().clear_tid.swap(0, Ordering::Relaxed);
    GUEST.identities.release(thread);
    pending::close(inside, thread);
    bound::ended(inside, thread);
    let shell = shell::of(thread);
    inside.runtime().free_thread(thread);
    if clear != 0 && access::store_u32(clear, 0).is_ok() {
        inside.futex_wake(clear, usize::MAX, u32::MAX);
        crate::ground::kernel_futex::wake_outside(clear, 1);
        crate::ground::kernel_futex::wake_shared(clear);
    }
    if let Some(shell) = shell {
        // Last: the word above was in its memory.
        shell::ended(inside, shell);
    }
    None
}

/// Returns true if reading the time stamp counter is a fault in the calling kernel thread (PR_SET_TSC). The runtime
/// reads it, and new threads have what their creator has.
pub fn time_stamps_fault() -> bool {
    let mut word = libc::PR_TSC_ENABLE;
    let words = [libc::PR_GET_TSC as u64, (&raw mut word) as u64, 0, 0, 0, 0];
    // SAFETY: writes the word.
    unsafe { raw_syscall(libc::SYS_prctl, words) };
    word == libc::PR_TSC_SIGSEGV
}
