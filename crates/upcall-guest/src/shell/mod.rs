//! Shells: threads of libc's in which threads of the crate run, one after another.
//!
//! A shell is what makes a thread a thread for code that knows nothing of the crate: libc's control block,
//! thread-local storage and a stack, made by pthread_create(3) once. A thread of the crate takes a shell that is
//! free, and leaves it as it found it (`tls`): to create one is to write down what it is to do and to make
//! it ready.
//!
//! ```text
//!   low | guard | stack ........ first frames | storage, control block | Shell | high
//!                                             |<-------- one page ------------>|
//! ```
//!
//! | state | meaning | what follows |
//! |---|---|---|
//! | `RUNNING` | the thread runs, and somebody has its handle | any |
//! | a thread | as `RUNNING`, and that thread waits for its end | `ENDED` |
//! | `FOREIGN` | the same for a kernel thread, in futex(2) | `ENDED` |
//! | `DROPPED` | the thread runs, and nobody will ask for its result | `ENDED` |
//! | `LEAVING` | its result is there; what it leaves behind must be taken back by libc, with the shell | a thread, `FOREIGN`, `DROPPED`, `ENDED` |
//! | `ENDED` | it has ended, and is parked or gone | `RUNNING`, once its handle has released it |
//!
//! Free shells wait where they were released: their virtual processor's owner takes them without a lock,
//! since nobody else can be inside the runtime there.
//!
//! Approaches rejected: see `docs/adr/0001-threads-of-the-crate.md`.

mod pool;
mod tls;

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::cell::UnsafeCell;
use std::ffi::c_void;

use upcall_core::runtime::After;
use upcall_core::thread::Claim;
use upcall_core::{Errno, Slot, WakeReason};
use upcall_linux::{Activation, Linux, Runtime, Thread, sys};

use crate::guest::GUEST;
use crate::{caller, direct, futex, names, scheduling, threads};

pub use pool::{CLASSES, forget};

/// What a thread and its result may measure to find room in the shell.
pub const ROOM: usize = 320;

const RUNNING: usize = 0;
const ENDED: usize = 1;
const DROPPED: usize = 2;
const LEAVING: usize = 3;
const FOREIGN: usize = 4;

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
    state: AtomicUsize,
    /// Its thread; null once that is gone.
    thread: AtomicPtr<Thread>,
    /// Link in the list of free shells.
    next: Slot<Shell>,
    work: UnsafeCell<Work>,
    class: u32,
    /// The thread was woken to drop its result.
    drops: AtomicBool,
    room: UnsafeCell<Room>,
}

#[repr(align(16))]
struct Room(#[expect(dead_code, reason = "bytes")] [u8; ROOM]);

// SAFETY: `work` and `room` belong to whoever the state says.
unsafe impl Sync for Shell {}

/// The one right to a thread's result.
pub struct Handle(&'static Shell);

impl Shell {
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
    work: Work,
    fill: impl FnOnce(*mut u8),
) -> Result<Handle, Errno> {
    let activation = runtime.enter();
    if let Some((shell, thread)) = pool::take(runtime, activation, class) {
        fill(shell.place());
        // SAFETY: the shell is free: nobody else looks.
        unsafe { *shell.work.get() = work };
        shell.state.store(RUNNING, Ordering::Relaxed);
        inherit(runtime, activation, thread);
        runtime.make_ready_forked(activation, thread);
        runtime.leave(activation);
        return Ok(Handle(shell));
    }
    runtime.leave(activation);
    create(runtime, class, work, fill)
}

/// What a thread has from its creator.
#[inline]
fn inherit(runtime: &'static Runtime, activation: &'static Activation, thread: &'static Thread) {
    let Some(creator) = activation.thread() else {
        return;
    };
    let mask = creator.kernel.mask.load(Ordering::Relaxed);
    thread.kernel.mask.store(mask, Ordering::Relaxed);
    if GUEST.orders_by_priority() {
        scheduling::inherit(runtime, activation, (Some(creator), thread));
    }
}

#[cold]
fn create(
    runtime: &'static Runtime,
    class: usize,
    work: Work,
    fill: impl FnOnce(*mut u8),
) -> Result<Handle, Errno> {
    let (stack, size, place) = pool::memory(runtime, class)?;
    let shell = place.cast::<Shell>();
    // SAFETY: the memory is ours, aligned, and nobody else's.
    let shell: &'static Shell = unsafe {
        shell.write(Shell {
            state: AtomicUsize::new(RUNNING),
            thread: AtomicPtr::new(core::ptr::null_mut()),
            next: Slot::empty(),
            work: UnsafeCell::new(work),
            class: class as u32,
            drops: AtomicBool::new(false),
            room: UnsafeCell::new(Room([0; ROOM])),
        });
        shell.as_ref()
    };
    fill(shell.place());
    tls::prepare();
    // SAFETY: attributes that are made here; the stack is ours and stays for ever; the thread is detached,
    // and gets a shell that lives as long as it does.
    let refusal = unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let refusal = libc::pthread_attr_setstack(&raw mut attributes, stack.cast(), size);
        let mut thread: libc::pthread_t = 0;
        let refusal = match refusal {
            0 => libc::pthread_create(
                &raw mut thread,
                &raw const attributes,
                main,
                core::ptr::from_ref(shell).cast_mut().cast(),
            ),
            number => number,
        };
        libc::pthread_attr_destroy(&raw mut attributes);
        refusal
    };
    if refusal != 0 {
        // The room is the caller's to empty: nothing has run.
        pool::give_back(runtime, shell);
        return Err(Errno(refusal));
    }
    Ok(Handle(shell))
}

/// What the thread of libc's does: threads of the crate, one after another.
extern "C" fn main(shell: *mut c_void) -> *mut c_void {
    // SAFETY: `create` passes it; it is there for as long as this runs.
    let shell = unsafe { &*shell.cast::<Shell>() };
    let (Some(runtime), Some(thread)) = (direct::runtime(), caller::own_thread()) else {
        unreachable!("a runtime has made this thread, and stays");
    };
    shell
        .thread
        .store(core::ptr::from_ref(thread).cast_mut(), Ordering::Relaxed);
    thread
        .kernel
        .shell
        .store(core::ptr::from_ref(shell) as usize, Ordering::Relaxed);
    loop {
        // SAFETY: the state is not `ENDED`: the work is this thread's.
        let work = unsafe { *shell.work.get() };
        // SAFETY: as `spawn` was promised.
        unsafe { (work.run)(shell.place()) };
        // In the child of a fork it is another thread now, or none.
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

/// libc ends the thread, and the shell with it.
#[cold]
fn leave(shell: &'static Shell, work: Work) {
    // Release: the result is there. Pairs with the Acquire of the handle.
    if shell
        .state
        .compare_exchange(RUNNING, LEAVING, Ordering::Release, Ordering::Acquire)
        == Err(DROPPED)
    {
        // SAFETY: the work is this thread's, and its handle is gone.
        unsafe { (work.drop_result)(shell.place()) };
    }
}

/// Parks the shell's thread until it has work again.
fn rest(runtime: &'static Runtime, shell: &'static Shell, after: After<Linux>) {
    let activation = runtime.enter();
    let activation = runtime.park(activation, after, core::ptr::from_ref(shell) as usize);
    runtime.leave(activation);
}

/// The shell's thread is saved: it has ended for everybody else.
fn finished(
    runtime: &'static Runtime,
    activation: &'static Activation,
    thread: &'static Thread,
    shell: usize,
) -> Option<&'static Thread> {
    // SAFETY: `rest` passes its shell.
    let shell = unsafe { &*(shell as *const Shell) };
    let mut state = shell.state.load(Ordering::Relaxed);
    loop {
        if state == DROPPED {
            // It goes on, and drops its result.
            shell.drops.store(true, Ordering::Relaxed);
            return Some(thread);
        }
        // Release: the result is there; Acquire: who waits is saved. Pairs with `Handle`. SeqCst: it has ended
        // before the look whether the first thread has; pairs with `count_ended`.
        match shell
            .state
            .compare_exchange(state, ENDED, Ordering::SeqCst, Ordering::Relaxed)
        {
            Ok(_) => break,
            Err(now) => state = now,
        }
    }
    if state == RUNNING {
        threads::end_with_the_last();
        return None;
    }
    wake(runtime, activation, shell, state)
}

/// As [`finished`], where nobody has a handle any more.
fn release_own(
    runtime: &'static Runtime,
    activation: &'static Activation,
    _: &'static Thread,
    shell: usize,
) -> Option<&'static Thread> {
    // SAFETY: `rest` passes its shell.
    let shell = unsafe { &*(shell as *const Shell) };
    // SeqCst: as in `finished`.
    shell.state.store(ENDED, Ordering::SeqCst);
    pool::release(runtime, activation, shell);
    threads::end_with_the_last();
    None
}

/// Who waits for the end of a thread: runs next, if it is a thread.
fn wake(
    runtime: &'static Runtime,
    activation: &'static Activation,
    shell: &'static Shell,
    waiting: usize,
) -> Option<&'static Thread> {
    if waiting == FOREIGN {
        futex::wake_kernel(shell.state.as_ptr() as usize, 1, true);
        return None;
    }
    // SAFETY: none of the numbers: a thread, whose memory is there for ever.
    let joiner = unsafe { &*(waiting as *const Thread) };
    if joiner.claim(WakeReason::Woken) != Claim::Ready {
        return None;
    }
    if GUEST.orders_by_priority() {
        runtime.make_ready(activation, joiner);
        return None;
    }
    Some(joiner)
}

/// A thread has ended by libc's hand. Its handle may still be there.
#[cold]
pub fn ended(runtime: &'static Runtime, activation: &'static Activation, thread: &'static Thread) {
    let shell = thread.kernel.shell.swap(0, Ordering::Relaxed) as *const Shell;
    // SAFETY: null, or the thread's shell.
    let Some(shell) = (unsafe { shell.as_ref() }) else {
        return;
    };
    shell.thread.store(core::ptr::null_mut(), Ordering::Relaxed);
    match shell.state.swap(ENDED, Ordering::AcqRel) {
        RUNNING | LEAVING => {}
        DROPPED => pool::release(runtime, activation, shell),
        waiting => {
            if let Some(joiner) = wake(runtime, activation, shell, waiting) {
                runtime.make_ready(activation, joiner);
            }
        }
    }
}

/// A thread has no room for the handler of a fault at this address: says so, if it has used up its stack. The process
/// is about to end by SIGSEGV.
#[cold]
pub fn report_overflow(thread: &'static Thread, address: usize) {
    let shell = thread.kernel.shell.load(Ordering::Relaxed) as *const Shell;
    // SAFETY: null, or the thread's shell.
    let Some(shell) = (unsafe { shell.as_ref() }) else {
        return;
    };
    if !pool::guard_of(shell).contains(&address) {
        return;
    }
    let name = names::get(thread);
    sys::say(b"\nupcall: thread '");
    sys::say(name.split(|&byte| byte == 0).next().unwrap_or_default());
    sys::say(b"' has overflowed its stack\n");
}

/// In how many shells nothing runs.
pub fn count_ended() -> usize {
    let mut count = 0;
    GUEST.identities.each(|thread| {
        let shell = thread.kernel.shell.load(Ordering::Relaxed) as *const Shell;
        // SAFETY: null, or the shell of a thread that lives: memory of shells is there for ever.
        let shell = unsafe { shell.as_ref() };
        // SeqCst: pairs with `finished`.
        count += usize::from(shell.is_some_and(|one| one.state.load(Ordering::SeqCst) == ENDED));
        true
    });
    count
}

impl Handle {
    /// Where the thread's room is.
    pub fn place(&self) -> *mut u8 {
        self.0.place()
    }

    /// Whether the thread has ended.
    #[inline]
    pub fn is_ended(&self) -> bool {
        // Acquire: pairs with the Release in `finished`.
        self.0.state.load(Ordering::Acquire) == ENDED
    }

    /// Waits for the thread's end, calls `take` with the room, and gives the shell back. `take` must not
    /// fault, block, or run code of others: it moves the result out.
    #[inline]
    pub fn join<R>(self, take: impl FnOnce(*mut u8) -> R) -> R {
        let shell = self.0;
        core::mem::forget(self);
        let Some(runtime) = direct::runtime() else {
            return join_from_outside(shell, take);
        };
        let mut activation = runtime.enter();
        // Acquire: as in `is_ended`.
        while shell.state.load(Ordering::Acquire) != ENDED {
            let Some(joiner) = activation.thread() else {
                unreachable!("a thread joins");
            };
            runtime.begin_park(joiner);
            let argument = core::ptr::from_ref(shell) as usize;
            activation = runtime.park(activation, await_end, argument);
            if shell.state.load(Ordering::Acquire) != ENDED {
                // Something came for the joiner itself.
                let own = core::ptr::from_ref(joiner) as usize;
                let state = &shell.state;
                let _ = state.compare_exchange(own, RUNNING, Ordering::Relaxed, Ordering::Relaxed);
                runtime.leave(activation);
                activation = runtime.enter();
            }
        }
        let result = take(shell.place());
        pool::release(runtime, activation, shell);
        runtime.leave(activation);
        result
    }
}

/// The joiner is saved.
fn await_end(
    runtime: &'static Runtime,
    activation: &'static Activation,
    thread: &'static Thread,
    shell: usize,
) -> Option<&'static Thread> {
    // SAFETY: `join` passes its shell.
    let shell = unsafe { &*(shell as *const Shell) };
    let own = core::ptr::from_ref(thread) as usize;
    let mut state = shell.state.load(Ordering::Relaxed);
    loop {
        if state == ENDED {
            return Some(thread);
        }
        // SeqCst: before the look for what came for the joiner itself. Acquire: as in `Handle::is_ended`.
        match shell
            .state
            .compare_exchange(state, own, Ordering::SeqCst, Ordering::Acquire)
        {
            Ok(_) => break,
            Err(now) => state = now,
        }
    }
    runtime.finish_park(activation, thread);
    None
}

#[cold]
fn join_from_outside<R>(shell: &'static Shell, take: impl FnOnce(*mut u8) -> R) -> R {
    loop {
        let state = shell.state.load(Ordering::Acquire);
        if state == ENDED {
            break;
        }
        if state != FOREIGN
            && shell
                .state
                .compare_exchange(state, FOREIGN, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
        {
            continue;
        }
        let word = shell.state.as_ptr().cast::<AtomicU32>();
        // SAFETY: the lower half of the state, which is there for ever.
        futex::wait_kernel(unsafe { &*word }, FOREIGN as u32);
    }
    let result = take(shell.place());
    pool::release_from_outside(shell);
    result
}

impl Drop for Handle {
    fn drop(&mut self) {
        let shell = self.0;
        // AcqRel: pairs with `finished`.
        let mut state = shell.state.load(Ordering::Acquire);
        while matches!(state, RUNNING | LEAVING) {
            if state == LEAVING {
                // SAFETY: the thread has run: its work and its result are the handle's.
                unsafe { ((*shell.work.get()).drop_result)(shell.place()) };
            }
            match shell
                .state
                .compare_exchange(state, DROPPED, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return,
                Err(now) if state == LEAVING => {
                    debug_assert_eq!(now, ENDED);
                    return give_back(shell);
                }
                Err(now) => state = now,
            }
        }
        // SAFETY: as above.
        unsafe { ((*shell.work.get()).drop_result)(shell.place()) };
        give_back(shell);
    }
}

fn give_back(shell: &'static Shell) {
    let Some(runtime) = direct::runtime() else {
        return pool::release_from_outside(shell);
    };
    let activation = runtime.enter();
    pool::release(runtime, activation, shell);
    runtime.leave(activation);
}
