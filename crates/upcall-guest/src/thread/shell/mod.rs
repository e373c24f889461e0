//! Shells: threads of libc's in which threads of the crate run, one after another. See docs/adr/0001.
//!
//! A shell makes a thread real for code that knows nothing of the crate. It has libc's control block, thread-local storage
//! and a stack, which pthread_create(3) makes once. A thread of the crate takes a free shell, and leaves it as it found it
//! (`tls`). So to create a thread is to write down its work and to make it ready.
//!
//! ```text
//!   low | guard | stack ........ first frames | storage, control block | Shell | Thread | high
//!                              |<-------------------- two pages ----------------------->|
//! ```
//!
//! The two pages hold all that a thread touches before its own work wants more. They are populated in one call.
//!
//! A thread's end, its handle and its joiner meet in one word, [`Ending`]. If a thread leaves something behind that only
//! libc can take back, libc ends it, and its shell with it. Its result stays until its handle has taken it.
//!
//! Free shells wait where they were released: the owner of their virtual processor takes them without a lock, since no
//! other activation can be inside the runtime there.

mod pool;
mod tls;
mod trim;

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::cell::UnsafeCell;
use std::ffi::c_void;

use upcall_core::ending::{Ended, Ending};
use upcall_core::runtime::{Step, Transition};
use upcall_core::{Errno, Slot};
use upcall_linux::{Inside, Linux, Runtime, Thread, sys};

use crate::ground::attributes::GuestAttributes;
use crate::ground::mask::{UNBLOCKABLE, bit};
use crate::ground::state::GUEST;
use crate::ground::{caller, kernel_futex};
use crate::signal::everywhere::{CANCEL, SETXID};
use crate::signal::pending;
use crate::thread::lending::{self, Asks};
use crate::thread::{lifetime, names};

/// Threads of the runtime's own, which do not keep the process.
static SERVING: AtomicUsize = AtomicUsize::new(0);
/// Pieces of work that a thread has forked and another one has run.
static PIECES_TAKEN: AtomicU64 = AtomicU64::new(0);

pub use pool::CLASSES;
pub use trim::is_trimmer;

/// Called in the child of a fork: the shells are the parent's, and so are the threads that serve.
pub fn forget() {
    SERVING.store(0, Ordering::Relaxed);
    pool::forget();
    trim::forget();
}

/// All signals that a program can block, by its libc's interface.
pub(super) const ALL_OF_PROGRAM: u64 = !(UNBLOCKABLE | bit(CANCEL) | bit(SETXID));

/// The largest size of a thread and its result in the shell.
pub const ROOM: usize = 320;

/// What a thread of the crate does.
#[derive(Clone, Copy)]
pub struct Work {
    /// Runs it; its result is then in the room, which the argument points to.
    pub run: unsafe fn(*mut u8),
    /// Drops the result.
    pub drop_result: unsafe fn(*mut u8),
}

/// See the module's text.
#[repr(C, align(64))]
pub struct Shell {
    ending: Ending<Linux>,
    /// Its thread; null once that is gone.
    thread: AtomicPtr<Thread>,
    /// Link in the list of free shells.
    next: Slot<Shell>,
    work: UnsafeCell<Work>,
    /// See [`counts`]. Null if there is no such word.
    counted: AtomicPtr<AtomicU32>,
    class: u32,
    /// What its first thread asks for.
    asks: Option<Asks>,
    /// Behind it there is room for a thread's block, which nobody has taken.
    has_block: AtomicBool,
    /// The thread of libc's, from its creation on.
    identity: AtomicUsize,
    /// The thread was woken to drop its result.
    drops: AtomicBool,
    room: UnsafeCell<Room>,
}

#[repr(align(16))]
struct Room(#[expect(dead_code, reason = "bytes")] [u8; ROOM]);

// SAFETY: `work` and `room` belong to the one that the state names.
unsafe impl Sync for Shell {}

/// The one right to a thread's result.
pub struct Handle(&'static Shell);

impl Shell {
    /// Offset of the word that is [`Ending::OVER`] if no thread runs in it. For debuggers.
    pub const OFFSET_ENDING: usize = core::mem::offset_of!(Shell, ending);

    fn place(&self) -> *mut u8 {
        self.room.get().cast()
    }

    fn thread(&self) -> Option<&'static Thread> {
        // SAFETY: null, or a thread, whose memory is there for ever.
        unsafe { self.thread.load(Ordering::Relaxed).as_ref() }
    }
}

/// Makes a thread, in a shell of this class ([`CLASSES`]). `fill` writes what it needs into the room.
///
/// # Errors
///
/// EAGAIN: there is no more memory, or no more threads.
///
/// # Safety
///
/// `work` fits what `fill` writes.
pub unsafe fn spawn(
    runtime: &'static Runtime,
    class: usize,
    asks: Option<Asks>,
    work: Work,
    fill: impl FnOnce(*mut u8),
) -> Result<Handle, Errno> {
    let inside = runtime.enter();
    if let Some((shell, thread)) = pool::take(&inside, class) {
        fill(shell.place());
        // SAFETY: the shell is free: nobody else looks.
        unsafe { *shell.work.get() = work };
        shell.ending.begin();
        inherit(&inside, thread, asks);
        inside.make_ready_forked(thread);
        inside.leave();
        return Ok(Handle(shell));
    }
    inside.leave();
    create(runtime, class, asks, work, fill)
}

/// What a thread has from its creator.
#[inline]
fn inherit(inside: &Inside, thread: &'static Thread, asks: Option<Asks>) {
    let Some(creator) = inside.thread() else {
        return;
    };
    let mask = creator.kernel.mask.load(Ordering::Relaxed);
    thread.kernel.mask.store(mask, Ordering::Relaxed);
    if inside.runtime().is_ranked() || asks.is_some() {
        lending::begin(inside, thread, asks.unwrap_or_default());
    }
}

#[cold]
fn create(
    runtime: &'static Runtime,
    class: usize,
    asks: Option<Asks>,
    work: Work,
    fill: impl FnOnce(*mut u8),
) -> Result<Handle, Errno> {
    let serves = asks.is_some_and(|asks| asks.serves);
    // As pthread_create(3) says it.
    let memory = pool::memory(runtime, class).map_err(|_| Errno(libc::EAGAIN));
    let (stack, size, place, fresh) = memory?;
    let shell = place.cast::<Shell>();
    // SAFETY: the memory is ours, aligned, and nobody else's.
    let shell: &'static Shell = unsafe {
        shell.write(Shell {
            ending: Ending::default(),
            thread: AtomicPtr::new(core::ptr::null_mut()),
            next: Slot::empty(),
            work: UnsafeCell::new(work),
            counted: AtomicPtr::new(core::ptr::null_mut()),
            class: class as u32,
            asks,
            has_block: AtomicBool::new(fresh),
            identity: AtomicUsize::new(0),
            drops: AtomicBool::new(false),
            room: UnsafeCell::new(Room([0; ROOM])),
        });
        shell.as_ref()
    };
    fill(shell.place());
    tls::prepare();
    makes(core::ptr::from_ref(shell) as usize);
    let argument = core::ptr::from_ref(shell).cast_mut().cast();
    // SAFETY: the stack is ours and stays for ever; the thread gets a shell that lives as long as it does.
    let made = unsafe { make_thread(Some((stack, size)), main, argument, serves) };
    makes(0);
    match made {
        Ok(thread) => shell.identity.store(thread as usize, Ordering::Relaxed),
        Err(refusal) => {
            // The room is the caller's to empty: nothing has run.
            pool::give_back(runtime, shell);
            return Err(refusal);
        }
    }
    trim::made(runtime);
    Ok(Handle(shell))
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
) -> Result<libc::pthread_t, Errno> {
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
        0 => Ok(thread),
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

/// What the thread of libc's does: threads of the crate, one after another.
pub(crate) extern "C" fn main(shell: *mut c_void) -> *mut c_void {
    // SAFETY: `create` passes it; it is there for as long as this runs.
    let shell = unsafe { &*shell.cast::<Shell>() };
    let (Some(runtime), Some(thread)) = (caller::runtime(), caller::own_thread()) else {
        unreachable!("a runtime has made this thread, and stays");
    };
    shell
        .thread
        .store(core::ptr::from_ref(thread).cast_mut(), Ordering::Relaxed);
    thread
        .guest()
        .shell
        .store(core::ptr::from_ref(shell) as usize, Ordering::Relaxed);
    loop {
        // SAFETY: it is not over: the work is this thread's.
        let work = unsafe { *shell.work.get() };
        // SAFETY: as `spawn` was promised.
        unsafe { (work.run)(shell.place()) };
        // In the child of a fork this is another thread, or none.
        let same = caller::own_thread().is_some_and(|now| core::ptr::eq(now, thread));
        if !same || !tls::reset(thread) {
            leave(shell, work);
            return core::ptr::null_mut();
        }
        rest(runtime, shell, finished);
        if shell.drops.load(Ordering::Relaxed) {
            shell.drops.store(false, Ordering::Relaxed);
            // SAFETY: as above; its handle is gone.
            unsafe { (work.drop_result)(shell.place()) };
            if !tls::reset(thread) {
                return core::ptr::null_mut();
            }
            rest(runtime, shell, release_own);
        }
    }
}

/// Has libc end the thread, and the shell with it.
#[cold]
fn leave(shell: &'static Shell, work: Work) {
    if !shell.ending.leave() {
        // SAFETY: the work is this thread's, and its handle is gone.
        unsafe { (work.drop_result)(shell.place()) };
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

/// Called when the shell's thread is saved: for all others it has ended.
#[inline]
fn finished(inside: &Inside, thread: &'static Thread, shell: usize) -> Option<&'static Thread> {
    // SAFETY: `rest` passes its shell.
    let shell = unsafe { &*(shell as *const Shell) };
    match end(inside, thread, shell, false) {
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
            wake(inside, shell, waits);
            None
        }
    }
}

/// The shell's thread has ended, unless it has to drop its result. From then on it accepts no signal: those for the process are
/// others'.
#[inline]
fn end(
    inside: &Inside,
    thread: &'static Thread,
    shell: &'static Shell,
    dropped: bool,
) -> Ended<Linux> {
    let mask = thread.kernel.mask.load(Ordering::Relaxed);
    // Who takes the shell gives it the new thread's.
    thread.kernel.mask.store(!0, Ordering::Relaxed);
    let ended = shell.ending.end(dropped);
    if matches!(ended, Ended::Dropped) && !dropped {
        thread.kernel.mask.store(mask, Ordering::Relaxed);
    } else if pending::has_some(thread) {
        // A locked instruction is between the mask and this look: who sends a signal looks at the mask afterwards.
        pending::pass_shared(inside, thread, !0);
    }
    ended
}

/// As [`finished`], where nobody has a handle any more.
fn release_own(inside: &Inside, thread: &'static Thread, shell: usize) -> Option<&'static Thread> {
    // SAFETY: `rest` passes its shell.
    let shell = unsafe { &*(shell as *const Shell) };
    end(inside, thread, shell, true);
    release(inside, shell);
    lifetime::end_with_the_last();
    None
}

/// Gives back the shell of a thread that has ended, whose result is gone.
#[inline(always)]
fn release(inside: &Inside, shell: &'static Shell) {
    // Before it is another thread's.
    let counted = no_longer_counted(shell);
    pool::release(inside, shell);
    if !counted.is_null() {
        count_down(inside, counted);
    }
}

#[inline(never)]
fn count_down(inside: &Inside, counted: *const AtomicU32) {
    if is_last(counted) {
        let woken = inside.futex_wake(counted as usize, 1, u32::MAX);
        kernel_futex::wake_outside(counted as usize, 1 - woken);
    }
}

/// As [`release`], by an outside kernel thread.
fn release_from_outside(shell: &'static Shell) {
    let counted = no_longer_counted(shell);
    pool::release_from_outside(shell);
    if is_last(counted) && kernel_futex::wake_kernel(counted as usize, 1, true) == 0 {
        let wake = |runtime: &'static Runtime| {
            runtime.futex_wake_from_outside(counted as usize, 1, u32::MAX)
        };
        GUEST
            .runtime()
            .map(|runtime| caller::outside_with(|| wake(runtime)));
    }
}

/// Makes a word count the thread of which this is the room among others: it is one less when the thread has ended and its
/// result is nobody's any more. Who waits for the word is woken when it becomes 0. Called by what fills the room.
///
/// # Safety
///
/// It is the room of a thread that is being made. The word is there until it becomes 0.
pub unsafe fn counts(room: *mut u8, word: *const AtomicU32) {
    // SAFETY: the caller's promise.
    let shell = unsafe { shell_of(room) };
    shell.counted.store(word.cast_mut(), Ordering::Relaxed);
}

/// Returns the word that has counted the shell's thread; null if there is none.
#[inline]
fn no_longer_counted(shell: &Shell) -> *const AtomicU32 {
    let counted = shell.counted.load(Ordering::Relaxed);
    shell
        .counted
        .store(core::ptr::null_mut(), Ordering::Relaxed);
    counted
}

/// Counts a thread no more. Returns true if it was the last: from then on the word may be gone, and its address is a name.
fn is_last(counted: *const AtomicU32) -> bool {
    // Release: what the thread did is done for who finds 0.
    // SAFETY: null, or there until it is 0, as `counts` was promised.
    unsafe { counted.as_ref() }.is_some_and(|word| word.fetch_sub(1, Ordering::Release) == 1)
}

/// Wakes the thread that waits for the end of a thread.
fn wake(inside: &Inside, shell: &'static Shell, ended: Ended<Linux>) {
    match ended {
        Ended::Joined(joiner) => inside.make_ready(joiner),
        Ended::Outside => {
            kernel_futex::wake_kernel(shell.ending.address(), 1, true);
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

/// Called when libc has ended the thread of a shell, and nothing will touch its memory any more. Its handle may still be
/// there.
#[cold]
pub fn ended(inside: &Inside, shell: &'static Shell) {
    shell.thread.store(core::ptr::null_mut(), Ordering::Relaxed);
    match shell.ending.end(true) {
        Ended::Dropped => release(inside, shell),
        ended => wake(inside, shell, ended),
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
    of(thread).is_some_and(|shell| shell.ending.is_over())
}

/// Returns the room of the calling thread's shell, if it runs in one.
#[inline]
pub fn own_room() -> Option<*mut u8> {
    Some(of(caller::own_thread()?)?.place())
}

/// Returns in how many shells nothing runs.
pub fn count_ended() -> usize {
    let mut count = 0;
    GUEST.identities.each(|thread| {
        count += usize::from(is_free(thread));
        true
    });
    count
}

/// Returns the shell with this room.
///
/// # Safety
///
/// It is the room of a shell, whose memory is there for ever.
#[inline]
unsafe fn shell_of(room: *mut u8) -> &'static Shell {
    // SAFETY: the caller's promise.
    unsafe { &*room.sub(core::mem::offset_of!(Shell, room)).cast::<Shell>() }
}

impl Handle {
    /// Returns the address of the thread's room.
    pub fn place(&self) -> *mut u8 {
        self.0.place()
    }

    /// Returns the handle as the address of its thread's room, for languages without moves.
    pub fn into_room(self) -> *mut u8 {
        let place = self.place();
        core::mem::forget(self);
        place
    }

    /// Returns the handle for such an address.
    ///
    /// # Safety
    ///
    /// The room is of a thread whose handle was turned into it, and of that one right one use is made.
    #[inline]
    pub unsafe fn of_room(room: *mut u8) -> Self {
        // SAFETY: the caller's promise.
        Handle(unsafe { shell_of(room) })
    }

    /// Returns what pthread_self(3) is in the thread.
    pub fn identity(&self) -> libc::pthread_t {
        self.0.identity.load(Ordering::Relaxed) as libc::pthread_t
    }

    /// Returns true if the thread has ended.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.0.ending.is_over()
    }

    /// Waits for the thread's end, calls `take`, and gives the shell back with its room. `take` must not
    /// fault, block, or run code of others: it moves the result out.
    #[inline]
    pub fn join<R>(self, take: impl FnOnce() -> R) -> R {
        let shell = self.0;
        core::mem::forget(self);
        let Some(runtime) = caller::runtime() else {
            return join_from_outside(shell, take);
        };
        let mut inside = runtime.enter();
        while !shell.ending.is_over() {
            inside = inside.await_end(&shell.ending);
            if !shell.ending.is_over() {
                // A signal came for the joiner itself.
                inside.leave();
                inside = runtime.enter();
            }
        }
        let result = take();
        release(&inside, shell);
        inside.leave();
        result
    }
}

#[cold]
fn join_from_outside<R>(shell: &'static Shell, take: impl FnOnce() -> R) -> R {
    while let Some(hangs) = shell.ending.hang_outside() {
        let word = shell.ending.address() as *const AtomicU32;
        // SAFETY: the lower half of the word, which is there for ever.
        kernel_futex::wait_kernel(unsafe { &*word }, hangs);
    }
    let result = take();
    release_from_outside(shell);
    result
}

impl Drop for Handle {
    fn drop(&mut self) {
        let shell = self.0;
        let over = shell.ending.drop_handle(|| {
            // SAFETY: the thread has run: its work and its result are the handle's.
            unsafe { ((*shell.work.get()).drop_result)(shell.place()) };
        });
        if over {
            give_back(shell);
        }
    }
}

fn give_back(shell: &'static Shell) {
    let Some(runtime) = caller::runtime() else {
        return release_from_outside(shell);
    };
    let inside = runtime.enter();
    release(&inside, shell);
    inside.leave();
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
