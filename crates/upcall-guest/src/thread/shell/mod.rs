//! Shells: threads of libc's in which threads of the crate run, one after another. See docs/adr/0001.
//!
//! A shell makes a thread real for code that knows nothing of the crate. It has libc's control block, thread-local storage
//! and a stack, which pthread_create(3) makes once. A thread of the crate, a *task* (`task`), takes a free shell when it
//! begins, and leaves it as it found it (`tls`). So to create a thread is to write down its work and to make it ready.
//!
//! ```text
//!   low | guard | stack ........ first frames | storage, control block | Shell | Thread | high
//!                              |<-------------------- two pages ----------------------->|
//! ```
//!
//! The two pages hold all that a thread touches before its own work wants more. They are populated in one call.
//!
//! If a thread leaves something behind that only libc can take back, libc ends it, and its shell with it.
//!
//! A shell is a task's own, made with it, or a spare one. There is a spare one for each virtual processor on which many threads
//! are made. Free tasks wait where they were released, and the spare shell where it has run last: the owner of their virtual
//! processor takes them without a lock, since no other activation can be inside the runtime there.

mod pool;
mod task;
mod tls;
mod trim;

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::ffi::c_void;

use upcall_core::ending::Ended;
use upcall_core::list::Linked;
use upcall_core::runtime::{Step, Transition};
use upcall_core::{Errno, Slot};
use upcall_linux::{Inside, Linux, Runtime, Thread, sys};

use crate::ground::attributes::GuestAttributes;
use crate::ground::mask::{UNBLOCKABLE, bit};
use crate::ground::state::GUEST;
use crate::ground::{caller, kernel_futex};
use crate::signal::everywhere::{CANCEL, SETXID};
use crate::signal::pending;
use crate::thread::lending::Asks;
use crate::thread::{lifetime, names};

use self::task::Task;

/// Threads of the runtime's own, which do not keep the process.
static SERVING: AtomicUsize = AtomicUsize::new(0);
/// Pieces of work that a thread has forked and another one has run.
static PIECES_TAKEN: AtomicU64 = AtomicU64::new(0);

pub use pool::CLASSES;
pub use task::{Handle, ROOM, Work, begins, counts, spawn};
pub use trim::is_trimmer;

/// Called in the child of a fork: the shells are the parent's, and so are the threads that serve.
pub fn forget() {
    SERVING.store(0, Ordering::Relaxed);
    pool::forget();
    trim::forget();
}

/// All signals that a program can block, by its libc's interface.
pub(super) const ALL_OF_PROGRAM: u64 = !(UNBLOCKABLE | bit(CANCEL) | bit(SETXID));

/// See the module's text.
#[repr(C, align(64))]
pub struct Shell {
    /// Whose own it is; of a spare one, what runs in it.
    task: Slot<Task>,
    is_spare: bool,
    /// Its thread; null once that is gone.
    thread: AtomicPtr<Thread>,
    /// The thread of libc's, once it runs.
    identity: AtomicUsize,
    /// Link in the list of spare shells.
    next: Slot<Shell>,
    class: u32,
    /// What its first thread asks for.
    asks: Option<Asks>,
    /// Behind it there is room for a thread's block, which nobody has taken.
    has_block: AtomicBool,
    /// The thread was woken to drop its result.
    drops: AtomicBool,
}

impl Linked for Shell {
    #[inline(always)]
    fn after(&self) -> &Slot<Self> {
        &self.next
    }
}

impl Shell {
    /// Offset of the address of its task, or 0. For debuggers.
    pub const OFFSET_TASK: usize = core::mem::offset_of!(Shell, task);
    /// Offset, in a task, of the address of the shell in which it runs. For debuggers.
    pub const OFFSET_IN_TASK: usize = core::mem::offset_of!(Task, runs_in);
    /// Offset, in a task, of the word that is `Ending::OVER` if it has ended. For debuggers.
    pub const OFFSET_ENDING: usize = core::mem::offset_of!(Task, ending);

    /// Its thread, which has not ended.
    #[inline(always)]
    fn thread(&self) -> &'static Thread {
        // SAFETY: null, or a thread, whose memory is there for ever.
        let thread = unsafe { self.thread.load(Ordering::Relaxed).as_ref() };
        let Some(thread) = thread else {
            unreachable!("a shell whose thread has ended is nobody's");
        };
        thread
    }

    /// Its own task, or what a spare one was given. Not of a spare one that rests.
    #[inline(always)]
    fn task(&self) -> &'static Task {
        let Some(task) = self.task.get(Ordering::Relaxed) else {
            unreachable!("its thread runs a task");
        };
        task
    }

    /// Returns true if nothing runs in it.
    fn is_free(&'static self) -> bool {
        self.task.get(Ordering::Relaxed).is_none_or(|task| {
            task.ending.is_over() || !task.runs_in.holds(self, Ordering::Relaxed)
        })
    }
}

/// Makes a shell for the task, which has its work, and runs it there.
///
/// # Errors
///
/// As [`spawn`]. The room is the caller's to empty: nothing has run.
#[cold]
fn create(runtime: &'static Runtime, task: &'static Task, asks: Option<Asks>) -> Result<(), Errno> {
    if let Err(refusal) = make(runtime, task.class, Some(task), asks) {
        task.own.set(None, Ordering::Relaxed);
        task.forget();
        pool::give_back_bare(runtime, task);
        return Err(refusal);
    }
    trim::made(runtime);
    // Who is told of threads has no tickets.
    if !runtime.has_listeners()
        && pool::wants_spare(runtime, task.class)
        && make(runtime, task.class, None, None).is_err()
    {
        pool::has_no_spare(runtime, task.class);
    }
    Ok(())
}

/// Makes a shell, for this task or as a spare one.
fn make(
    runtime: &'static Runtime,
    class: u32,
    home: Option<&'static Task>,
    asks: Option<Asks>,
) -> Result<(), Errno> {
    // A spare one has no signals of its own, nor takes those of the process.
    let serves = home.is_none() || asks.is_some_and(|asks| asks.serves);
    // As pthread_create(3) says it.
    let memory = pool::memory(runtime, class as usize).map_err(|_| Errno(libc::EAGAIN));
    let (stack, size, place, fresh) = memory?;
    let place = place.cast::<Shell>();
    // SAFETY: the memory is ours, aligned, and nobody else's.
    let shell: &'static Shell = unsafe {
        place.write(Shell {
            task: Slot::empty(),
            is_spare: home.is_none(),
            thread: AtomicPtr::new(core::ptr::null_mut()),
            identity: AtomicUsize::new(0),
            next: Slot::empty(),
            class,
            asks,
            has_block: AtomicBool::new(fresh),
            drops: AtomicBool::new(false),
        });
        place.as_ref()
    };
    shell.task.set(home, Ordering::Relaxed);
    if let Some(task) = home {
        task.own.set(Some(shell), Ordering::Relaxed);
        task.runs_in.set(Some(shell), Ordering::Relaxed);
    }
    tls::prepare();
    makes(core::ptr::from_ref(shell) as usize);
    let argument = core::ptr::from_ref(shell).cast_mut().cast();
    // SAFETY: the stack is ours and stays for ever; the thread gets a shell that lives as long as it does.
    let made = unsafe { make_thread(Some((stack, size)), main, argument, serves) };
    makes(0);
    if made.is_err() {
        pool::give_back(runtime, shell);
    }
    made
}

/// Makes a detached thread of libc's, on this stack or one of libc's. If it `serves`, it blocks all signals.
///
/// # Errors
///
/// What pthread_create(3) answers.
///
/// # Safety
///
/// The stack is nobody else's and stays; the routine may be called with the argument.
unsafe fn make_thread(
    stack: Option<(*mut u8, usize)>,
    routine: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
    serves: bool,
) -> Result<(), Errno> {
    let mut thread: libc::pthread_t = 0;
    // SAFETY: attributes that are made here; else the caller's promise.
    let refusal = unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let attributes = &raw mut attributes;
        libc::pthread_attr_init(attributes);
        libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        let refusal = match stack {
            Some((start, size)) => libc::pthread_attr_setstack(attributes, start.cast(), size),
            None => 0,
        };
        let mut create = || libc::pthread_create(&raw mut thread, attributes, routine, argument);
        let refusal = match refusal {
            0 if serves && !block_all(attributes) => make_own(create),
            0 => create(),
            number => number,
        };
        libc::pthread_attr_destroy(attributes);
        refusal
    };
    match refusal {
        0 => Ok(()),
        number => Err(Errno(number)),
    }
}

/// Lets a thread with these attributes block all signals of the program's. Returns false if libc has no such attribute
/// (glibc has it from 2.32 on).
unsafe fn block_all(attributes: *mut libc::pthread_attr_t) -> bool {
    type SetMask = unsafe extern "C" fn(*mut libc::pthread_attr_t, *const libc::sigset_t) -> i32;
    let name = c"pthread_attr_setsigmask_np";
    // SAFETY: a constant name; null, or the function of that name; a set that is made here, and the caller's attributes.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let Some(set_mask) = core::mem::transmute::<*mut c_void, Option<SetMask>>(found) else {
            return false;
        };
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        set_mask(attributes, &raw const all) == 0
    }
}

/// Called before the calling thread makes this shell's thread.
fn makes(shell: usize) {
    if let Some(creator) = caller::own_thread() {
        creator.guest().makes.store(shell, Ordering::Relaxed);
    }
}

/// Returns what the thread asks for that this thread is making.
pub fn asked_by(creator: &'static Thread) -> Option<Asks> {
    let shell = creator.guest().makes.load(Ordering::Relaxed) as *const Shell;
    // SAFETY: null, or a shell, whose memory is there for ever.
    unsafe { shell.as_ref() }?.asks
}

/// Returns memory for the block of the thread that this thread is making: once for each piece of memory, since a block stays
/// one for ever, whose thread it ever is.
pub fn block_by(creator: &'static Thread) -> Option<NonNull<u8>> {
    let shell = creator.guest().makes.load(Ordering::Relaxed) as *const Shell;
    // SAFETY: null, or a shell, whose memory is there for ever.
    let shell = unsafe { shell.as_ref() }?;
    let is_there = shell.has_block.swap(false, Ordering::Relaxed);
    if is_there {
        pool::block_of(shell)
    } else {
        None
    }
}

/// What the thread of libc's does: tasks, one after another.
pub(crate) extern "C" fn main(shell: *mut c_void) -> *mut c_void {
    // SAFETY: `make` passes it; it is there for as long as this runs.
    let shell = unsafe { &*shell.cast::<Shell>() };
    let (Some(runtime), Some(thread)) = (caller::runtime(), caller::own_thread()) else {
        unreachable!("a runtime has made this thread, and stays");
    };
    // SAFETY: asks only.
    let identity = unsafe { libc::pthread_self() } as usize;
    // Release: it is there. Pairs with the Acquire in `Handle::identity`.
    shell.identity.store(identity, Ordering::Release);
    shell
        .thread
        .store(core::ptr::from_ref(thread).cast_mut(), Ordering::Relaxed);
    thread
        .guest()
        .shell
        .store(core::ptr::from_ref(shell) as usize, Ordering::Relaxed);
    if shell.is_spare {
        rest(runtime, shell, begun);
    }
    loop {
        let task = shell.task();
        // SAFETY: it is not over: the work is this thread's.
        let work = unsafe { *task.work.get() };
        // SAFETY: as `spawn` was promised.
        unsafe { (work.run)(task.place()) };
        // In the child of a fork this is another thread, or none.
        let same = caller::own_thread().is_some_and(|now| core::ptr::eq(now, thread));
        if !same || !tls::reset(thread) {
            leave(task, work);
            return core::ptr::null_mut();
        }
        if shell.is_spare {
            finish_spare(runtime, shell, thread);
        } else {
            rest(runtime, shell, finished);
        }
        if shell.drops.load(Ordering::Relaxed) {
            shell.drops.store(false, Ordering::Relaxed);
            // SAFETY: as above; its handle is gone.
            unsafe { (work.drop_result)(task.place()) };
            if !tls::reset(thread) {
                return core::ptr::null_mut();
            }
            rest(runtime, shell, release_own);
        }
    }
}

/// Has libc end the thread, and the shell with it.
#[cold]
fn leave(task: &'static Task, work: Work) {
    if !task.ending.leave() {
        // SAFETY: the work is this thread's, and its handle is gone.
        unsafe { (work.drop_result)(task.place()) };
    }
}

/// Parks the shell's thread until it has work again. Part of `main`, which is where the thread then resumes.
#[inline(always)]
fn rest(runtime: &'static Runtime, shell: &'static Shell, after: impl Step<Linux>) {
    let inside = runtime.enter();
    inside.tell_of_current(Transition::Ended);
    let inside = inside.park_owner(after, core::ptr::from_ref(shell) as usize);
    inside.leave();
}

/// Called when the thread of a spare shell is saved for the first time.
fn begun(inside: &Inside, thread: &'static Thread, shell: usize) -> Option<&'static Thread> {
    // SAFETY: `rest` passes its shell.
    let shell = unsafe { &*(shell as *const Shell) };
    thread.kernel.mask.store(!0, Ordering::Relaxed);
    pool::rests(inside, shell);
    lifetime::end_with_the_last();
    None
}

/// Called when the thread of a task's own shell is saved: for all others it has ended.
#[inline]
fn finished(inside: &Inside, thread: &'static Thread, shell: usize) -> Option<&'static Thread> {
    // SAFETY: `rest` passes its shell.
    let shell = unsafe { &*(shell as *const Shell) };
    finish(inside, thread, shell)
}

/// As [`rest`] in a spare shell, in which nobody else runs anything: its task ends before the thread is saved, and if a ticket is
/// next, the thread goes on with that one's task.
#[inline]
fn finish_spare(runtime: &'static Runtime, shell: &'static Shell, thread: &'static Thread) {
    let inside = runtime.enter();
    inside.tell_of_current(Transition::Ended);
    let next = finish(&inside, thread, shell).or_else(|| inside.choose_plainly());
    let goes_on = match next {
        Some(next) if next.is_ticket() => task::goes_on(&inside, (shell, thread), next),
        // It has to drop its result.
        Some(next) => core::ptr::eq(next, thread),
        None => false,
    };
    let inside = if goes_on {
        inside
    } else {
        // Not `park_owner`: what can be chosen plainly has been.
        inside.park(
            move |inside, _, shell| {
                // SAFETY: passed here.
                pool::rests(inside, unsafe { &*(shell as *const Shell) });
                next
            },
            core::ptr::from_ref(shell) as usize,
        )
    };
    inside.leave();
}

/// The shell's thread has ended for all others. Returns which one must run next, if that is known: itself, if it has to drop its
/// result.
#[inline(always)]
fn finish(
    inside: &Inside,
    thread: &'static Thread,
    shell: &'static Shell,
) -> Option<&'static Thread> {
    let task = shell.task();
    match end(inside, thread, task, false) {
        Ended::Kept => {
            lifetime::end_with_the_last();
            None
        }
        Ended::Dropped => {
            // It goes on, and drops its result.
            shell.drops.store(true, Ordering::Relaxed);
            Some(thread)
        }
        Ended::Joined(joiner) if !inside.runtime().is_ranked() => Some(joiner),
        waits => {
            wake(inside, task, waits);
            None
        }
    }
}

/// The task in the shell has ended, unless it has to drop its result. From then on its thread accepts no signal: those for the
/// process are others'.
#[inline(always)]
fn end(
    inside: &Inside,
    thread: &'static Thread,
    task: &'static Task,
    dropped: bool,
) -> Ended<Linux> {
    let mask = thread.kernel.mask.load(Ordering::Relaxed);
    // Who takes the shell gives it the new thread's.
    thread.kernel.mask.store(!0, Ordering::Relaxed);
    let ended = task.ending.end(dropped);
    if matches!(ended, Ended::Dropped) && !dropped {
        thread.kernel.mask.store(mask, Ordering::Relaxed);
        return ended;
    }
    if pending::has_some(thread) {
        // A locked instruction is between the mask and this look: who sends a signal looks at the mask afterwards.
        pending::pass_shared(inside, thread, !0);
    }
    ended
}

/// As [`finished`], where nobody has a handle any more.
fn release_own(inside: &Inside, thread: &'static Thread, shell: usize) -> Option<&'static Thread> {
    // SAFETY: `rest` passes its shell.
    let shell = unsafe { &*(shell as *const Shell) };
    let task = shell.task();
    end(inside, thread, task, true);
    if shell.is_spare {
        pool::rests(inside, shell);
    }
    task::release(inside, task);
    lifetime::end_with_the_last();
    None
}

/// Wakes the thread that waits for the end of a task.
fn wake(inside: &Inside, task: &'static Task, ended: Ended<Linux>) {
    match ended {
        Ended::Joined(joiner) => inside.make_ready(joiner),
        Ended::Outside => {
            kernel_futex::wake_kernel(task.ending.address(), 1, true);
        }
        Ended::Kept | Ended::Dropped => {}
    }
}

/// Returns the shell of a thread.
pub fn of(thread: &'static Thread) -> Option<&'static Shell> {
    let shell = thread.guest().shell.load(Ordering::Relaxed) as *const Shell;
    // SAFETY: null, or the thread's shell, whose memory is there for ever.
    unsafe { shell.as_ref() }
}

/// Called when libc has ended the thread of a shell, and nothing will touch its memory any more. The task's handle may still
/// be there.
#[cold]
pub fn ended(inside: &Inside, shell: &'static Shell) {
    let task = shell.task();
    if !shell.is_spare {
        task.own.set(None, Ordering::Relaxed);
    }
    pool::gone(inside, shell);
    match task.ending.end(true) {
        Ended::Dropped => task::release(inside, task),
        ended => wake(inside, task, ended),
    }
}

/// Returns true if an address is in the guard of a thread's stack: a fault there says that the thread has used the
/// stack up.
pub fn is_in_guard(thread: &'static Thread, address: usize) -> bool {
    of(thread).is_some_and(|shell| pool::guard_of(shell).contains(&address))
}

/// Returns the stack that the thread began on; none if its maker did not say.
pub fn stack_began_on(thread: &'static Thread) -> Range<usize> {
    match of(thread) {
        Some(shell) => pool::stack_of(shell),
        None => {
            let [start, end] = &thread.guest().stack;
            start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)
        }
    }
}

/// Returns true if a frame may begin at `place` that goes below this stack pointer of a thread's. It may not lie outside of
/// the stack on which the thread is, since beyond the guard is another thread's. Nothing is known about a stack of the
/// program's own.
pub fn has_room(thread: &'static Thread, stack_pointer: usize, place: usize) -> bool {
    let Some(shell) = of(thread) else {
        return true;
    };
    let (guard, stack) = (pool::guard_of(shell), pool::stack_of(shell));
    let is_on = (guard.start..stack.end).contains(&stack_pointer);
    !is_on || place >= stack.start
}

/// Called when a thread has no room for the handler of a fault at this address, and SIGSEGV is about to end the process. If
/// the thread has used up its stack, reports that and returns true.
#[cold]
pub fn report_overflow(thread: &'static Thread, address: usize) -> bool {
    if !is_in_guard(thread, address) {
        return false;
    }
    let name = names::get(thread);
    sys::say(b"\nupcall: thread '");
    sys::say(name.split(|&byte| byte == 0).next().unwrap_or_default());
    sys::say(b"' has overflowed its stack\n");
    true
}

/// Returns true if the thread is that of a shell in which nothing runs.
pub fn is_free(thread: &'static Thread) -> bool {
    of(thread).is_some_and(Shell::is_free)
}

/// Returns the room of the task that the calling thread is, if it is one.
#[inline]
pub fn own_room() -> Option<*mut u8> {
    Some(of(caller::own_thread()?)?.task().place())
}

/// Returns how many of the living threads do not keep the process: those of spare shells, and those of shells whose tasks have
/// ended. A task that has not begun, or runs in a spare shell, does keep it, by the shell of its own.
pub fn count_ended() -> usize {
    let mut count = 0;
    GUEST.identities.each(|thread| {
        let ended = of(thread).is_some_and(|shell| shell.is_spare || shell.task().ending.is_over());
        count += usize::from(ended);
        true
    });
    count
}

/// Returns how many threads of the process are the runtime's own.
pub fn serving() -> usize {
    SERVING.load(Ordering::SeqCst)
}

/// Makes a thread of the runtime's own, by `make`. It blocks all signals from its beginning: they are the program's.
pub fn make_own<R>(make: impl FnOnce() -> R) -> R {
    // SAFETY: sets of the caller's own; its mask is as before in the end.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let made = make();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        made
    }
}

/// Makes the calling thread the runtime's own: the process does not go on for it. All others may have ended before it began.
pub fn serve() {
    // SeqCst: of this count and that of the living, the last thread to end and this one do not both miss the other's.
    SERVING.fetch_add(1, Ordering::SeqCst);
    lifetime::end_with_the_last();
}

/// Called when a thread runs a piece of work that another one has forked.
pub fn count_piece() {
    PIECES_TAKEN.fetch_add(1, Ordering::Relaxed);
}

/// Returns how often that has happened.
pub fn pieces_taken() -> u64 {
    PIECES_TAKEN.load(Ordering::Relaxed)
}
