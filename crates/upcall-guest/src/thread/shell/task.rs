//! Threads of the crate as tasks: what each is to do, its result, and its end. See docs/adr/0069.
//!
//! Each task has a shell of its own, so that it never waits for one. A task that is made where few others are ready begins
//! there. Otherwise a *ticket* waits in its place, a thread without registers, and the task gets its shell only when it is
//! chosen: its virtual processor's spare one, if that rests, since that has run the task before it and is in the caches. So
//! many tasks that wait for nothing run one after another on one stack.
//!
//! A task's end, its handle and its joiner meet in one word, [`Ending`]. Its result stays until its handle has taken it.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::cell::UnsafeCell;

use upcall_core::ending::Ending;
use upcall_core::list::Linked;
use upcall_core::{Errno, Slot, arch};
use upcall_linux::{Inside, Linux, Runtime, Thread, sys};

use crate::ground::attributes::GuestAttributes;
use crate::ground::state::GUEST;
use crate::ground::{caller, kernel_futex};
use crate::thread::lending::{self, Asks};

use super::{Shell, create, pool};

/// The largest size of a thread and its result in its task.
pub const ROOM: usize = 304;

/// Behind so many ready threads a task has a ticket. The first pages of so many shells stay in the processor's caches of pages.
const MANY: usize = 64;

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
pub(super) struct Task {
    pub(super) ending: Ending<Linux>,
    /// Link in the list of free tasks.
    next: Slot<Task>,
    pub(super) work: UnsafeCell<Work>,
    /// See [`counts`]. Null if there is no such word.
    counted: AtomicPtr<AtomicU32>,
    /// The class of its shell.
    pub(super) class: u32,
    /// While it has a ticket: the processor's control words where it was made, with which it begins.
    control: AtomicU64,
    /// Its own shell; none once that is gone.
    pub(super) own: Slot<Shell>,
    /// The shell in which it is to run, runs or has run; none while it has a ticket.
    pub(super) runs_in: Slot<Shell>,
    room: UnsafeCell<Room>,
}

#[repr(align(16))]
struct Room(#[expect(dead_code, reason = "bytes")] [u8; ROOM]);

// SAFETY: `work` and `room` belong to the one that the state names.
unsafe impl Sync for Task {}

impl Linked for Task {
    #[inline(always)]
    fn after(&self) -> &Slot<Self> {
        &self.next
    }
}

impl Task {
    pub(super) fn new(class: u32) -> Self {
        Task {
            ending: Ending::default(),
            next: Slot::empty(),
            work: UnsafeCell::new(Work {
                run: nothing,
                drop_result: nothing,
            }),
            counted: AtomicPtr::new(core::ptr::null_mut()),
            class,
            control: AtomicU64::new(0),
            own: Slot::empty(),
            runs_in: Slot::empty(),
            room: UnsafeCell::new(Room([0; ROOM])),
        }
    }

    pub(super) fn place(&self) -> *mut u8 {
        self.room.get().cast()
    }

    /// Gives a free task its work.
    ///
    /// # Safety
    ///
    /// It is free, and `work` fits what `fill` writes.
    #[inline(always)]
    pub(super) unsafe fn begin(&self, work: Work, fill: impl FnOnce(*mut u8)) {
        fill(self.place());
        // SAFETY: the task is free: nobody else looks.
        unsafe { *self.work.get() = work };
        self.ending.begin();
    }

    /// Its own shell. Not of one that is bare, which is in no list of free ones.
    #[inline(always)]
    pub(super) fn own(&self) -> &'static Shell {
        let Some(own) = self.own.get(Ordering::Relaxed) else {
            unreachable!("the task is bare");
        };
        own
    }

    /// Its thread could not be made.
    pub(super) fn forget(&self) {
        no_longer_counted(self);
    }

    /// The task of a ticket.
    fn of(ticket: &'static Thread) -> &'static Task {
        let task = ticket.guest().shell.load(Ordering::Relaxed) as *const Task;
        // SAFETY: `ticket_for` has put it there; the memory of tasks is there for ever.
        unsafe { &*task }
    }
}

// Whole cache lines.
const _: () = assert!(size_of::<Task>() == 384);

unsafe fn nothing(_: *mut u8) {}

/// The one right to a thread's result.
pub struct Handle(&'static Task);

/// Makes a thread, in a shell of this class ([`CLASSES`](super::CLASSES)). `fill` writes what it needs into the room.
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
    if let Some(task) = pool::take(&inside, class) {
        // SAFETY: it was free; the caller's promise.
        unsafe { task.begin(work, fill) };
        inside.make_ready_forked(waits(&inside, task, asks));
        inside.leave();
        return Ok(Handle(task));
    }
    inside.leave();
    let task = pool::bare(runtime, class)?;
    // SAFETY: as above.
    unsafe { task.begin(work, fill) };
    create(runtime, task, asks)?;
    Ok(Handle(task))
}

/// What waits in a ready list until the task runs: its own thread, or a ticket.
#[inline(always)]
fn waits(inside: &Inside, task: &'static Task, asks: Option<Asks>) -> &'static Thread {
    if inside.vp().nr_ready() >= MANY
        && asks.is_none()
        && let Some(ticket) = ticket_for(inside, task)
    {
        return ticket;
    }
    let own = task.own();
    task.runs_in.set(Some(own), Ordering::Relaxed);
    let thread = own.thread();
    inherit(inside, thread);
    // SAFETY: a free task's shell rests: its thread is saved.
    unsafe { thread.inherit_control() };
    if inside.runtime().is_ranked() || asks.is_some() {
        lending::begin(inside, thread, asks.unwrap_or_default());
    }
    thread
}

/// `None`: there is no memory, or somebody is told of threads, or orders them, and wants the thread itself.
#[inline(never)]
fn ticket_for(inside: &Inside, task: &'static Task) -> Option<&'static Thread> {
    if inside.runtime().has_listeners() {
        return None;
    }
    let ticket = pool::ticket(inside)?;
    task.runs_in.set(None, Ordering::Relaxed);
    task.control.store(arch::control(), Ordering::Relaxed);
    let address = core::ptr::from_ref(task) as usize;
    ticket.guest().shell.store(address, Ordering::Relaxed);
    inherit(inside, ticket);
    Some(ticket)
}

/// What a thread has from its creator.
#[inline]
fn inherit(inside: &Inside, thread: &'static Thread) {
    if let Some(creator) = inside.thread() {
        let mask = creator.kernel.mask.load(Ordering::Relaxed);
        thread.kernel.mask.store(mask, Ordering::Relaxed);
    }
}

/// The task begins for which the ticket has waited: its thread. The ticket is free. Called by the owner of a virtual processor.
pub fn begins(inside: &Inside, ticket: &'static Thread) -> &'static Thread {
    let task = Task::of(ticket);
    let shell = pool::shell_for(inside, task);
    let thread = shell.thread();
    // SAFETY: the shell rests: its thread is saved.
    unsafe { thread.set_control(task.control.load(Ordering::Relaxed)) };
    begin_in(inside, (shell, thread), (task, ticket));
    thread
}

/// As [`begins`], in the spare shell of the calling thread, whose task has ended. Returns false if the ticket's task must have
/// another shell.
#[inline(always)]
pub(super) fn goes_on(
    inside: &Inside,
    (shell, thread): (&'static Shell, &'static Thread),
    ticket: &'static Thread,
) -> bool {
    let task = Task::of(ticket);
    if task.class != shell.class {
        return false;
    }
    arch::load_control(task.control.load(Ordering::Relaxed));
    begin_in(inside, (shell, thread), (task, ticket));
    inside.goes_on(thread);
    true
}

#[inline(always)]
fn begin_in(
    inside: &Inside,
    (shell, thread): (&'static Shell, &'static Thread),
    (task, ticket): (&'static Task, &'static Thread),
) {
    shell.task.set(Some(task), Ordering::Relaxed);
    // Release: the shell's thread has been made. Pairs with the Acquire in `Handle::identity`.
    task.runs_in.set(Some(shell), Ordering::Release);
    let mask = ticket.kernel.mask.load(Ordering::Relaxed);
    thread.kernel.mask.store(mask, Ordering::Relaxed);
    pool::return_ticket(inside, ticket);
}

/// Gives back a task that has ended, and whose result is gone.
#[inline(always)]
pub(super) fn release(inside: &Inside, task: &'static Task) {
    // Before it is another thread's.
    let counted = no_longer_counted(task);
    pool::release(inside, task);
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
fn release_from_outside(task: &'static Task) {
    let counted = no_longer_counted(task);
    pool::release_from_outside(task);
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
    let task = unsafe { task_of(room) };
    task.counted.store(word.cast_mut(), Ordering::Relaxed);
}

/// Returns the word that has counted the task; null if there is none.
#[inline]
fn no_longer_counted(task: &Task) -> *const AtomicU32 {
    let counted = task.counted.load(Ordering::Relaxed);
    task.counted.store(core::ptr::null_mut(), Ordering::Relaxed);
    counted
}

/// Counts a thread no more. Returns true if it was the last: from then on the word may be gone, and its address is a name.
fn is_last(counted: *const AtomicU32) -> bool {
    // Release: what the thread did is done for who finds 0.
    // SAFETY: null, or there until it is 0, as `counts` was promised.
    unsafe { counted.as_ref() }.is_some_and(|word| word.fetch_sub(1, Ordering::Release) == 1)
}

/// Returns the task with this room.
///
/// # Safety
///
/// It is the room of a task, whose memory is there for ever.
#[inline]
unsafe fn task_of(room: *mut u8) -> &'static Task {
    // SAFETY: the caller's promise.
    unsafe { &*room.sub(core::mem::offset_of!(Task, room)).cast::<Task>() }
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
        Handle(unsafe { task_of(room) })
    }

    /// Returns what pthread_self(3) is in the thread, once that has begun: gives way to it meanwhile.
    pub fn identity(&self) -> libc::pthread_t {
        loop {
            let shell = self.0.runs_in.get(Ordering::Acquire);
            match shell.map_or(0, |shell| shell.identity.load(Ordering::Acquire)) {
                0 => give_way(),
                identity => return identity as libc::pthread_t,
            }
        }
    }

    /// Returns true if the thread has ended.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.0.ending.is_over()
    }

    /// Waits for the thread's end, calls `take`, and gives the task back with its room. `take` must not
    /// fault, block, or run code of others: it moves the result out.
    #[inline]
    pub fn join<R>(self, take: impl FnOnce() -> R) -> R {
        let task = self.0;
        core::mem::forget(self);
        let Some(runtime) = caller::runtime() else {
            return join_from_outside(task, take);
        };
        let mut inside = runtime.enter();
        while !task.ending.is_over() {
            inside = inside.await_end(&task.ending);
            if !task.ending.is_over() {
                // A signal came for the joiner itself.
                inside.leave();
                inside = runtime.enter();
            }
        }
        let result = take();
        release(&inside, task);
        inside.leave();
        result
    }
}

#[cold]
fn give_way() {
    match caller::runtime() {
        Some(runtime) => runtime.yield_now(),
        // SAFETY: takes nothing.
        None => drop(unsafe { sys!(libc::SYS_sched_yield) }),
    }
}

#[cold]
fn join_from_outside<R>(task: &'static Task, take: impl FnOnce() -> R) -> R {
    while let Some(hangs) = task.ending.hang_outside() {
        let word = task.ending.address() as *const AtomicU32;
        // SAFETY: the lower half of the word, which is there for ever.
        kernel_futex::wait_kernel(unsafe { &*word }, hangs);
    }
    let result = take();
    release_from_outside(task);
    result
}

impl Drop for Handle {
    fn drop(&mut self) {
        let task = self.0;
        let over = task.ending.drop_handle(|| {
            // SAFETY: the thread has run: its work and its result are the handle's.
            unsafe { ((*task.work.get()).drop_result)(task.place()) };
        });
        if over {
            give_back(task);
        }
    }
}

fn give_back(task: &'static Task) {
    let Some(runtime) = caller::runtime() else {
        return release_from_outside(task);
    };
    let inside = runtime.enter();
    release(&inside, task);
    inside.leave();
}
