//! Free tasks, spare shells and tickets, and the memory of all these.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use upcall_core::list::Linked;
use upcall_core::stack::StackPool;
use upcall_core::{Errno, Machine, Slot, SpinLock};
use upcall_linux::{Inside, Linux, Runtime, Thread, memory};

use crate::ground::state::GUEST;

use super::task::Task;
use super::{Shell, trim};

/// How large the stacks of shells are, with all that lies on them.
pub const CLASSES: [usize; 4] = [64 << 10, 256 << 10, 2 << 20, 16 << 20];

const PAGE: usize = 4096;
const LINE: usize = 64;
/// What a thread touches before its own work wants more: at the top of its memory.
const FIRST: usize = 2 * PAGE;
/// Below each stack.
const GUARD: usize = PAGE;
/// A virtual processor with more free tasks, or tickets, than this passes half of them on.
const MOST: u32 = 64;
/// There is a spare shell for so many tasks of a class, until each virtual processor has one.
const TASKS_A_SPARE: usize = 16;
/// Memory for tasks and tickets is mapped by so many bytes.
const CHUNK: usize = 64 << 10;

/// Free objects, last in, first out. A list without a lock around it belongs to the owner of a virtual processor, inside the
/// runtime. The length is read from anywhere.
struct List<T: 'static> {
    head: Slot<T>,
    len: AtomicUsize,
}

impl<T: Linked> List<T> {
    const fn new() -> Self {
        List {
            head: Slot::empty(),
            len: AtomicUsize::new(0),
        }
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    #[inline]
    fn push(&self, object: &'static T) {
        object
            .after()
            .set(self.head.get(Ordering::Relaxed), Ordering::Relaxed);
        self.head.set(Some(object), Ordering::Relaxed);
        self.len.store(self.len() + 1, Ordering::Relaxed);
    }

    #[inline]
    fn pop(&self) -> Option<&'static T> {
        let object = self.head.get(Ordering::Relaxed)?;
        self.head
            .set(object.after().get(Ordering::Relaxed), Ordering::Relaxed);
        self.len.store(self.len() - 1, Ordering::Relaxed);
        Some(object)
    }

    fn each(&self, call: impl Fn(&'static T)) {
        let mut next = self.head.get(Ordering::Relaxed);
        while let Some(object) = next {
            call(object);
            next = object.after().get(Ordering::Relaxed);
        }
    }

    /// Moves this many to another list.
    fn pass(&self, to: &List<T>, count: u32) {
        for _ in 0..count {
            let Some(object) = self.pop() else { return };
            to.push(object);
        }
    }
}

/// Free tasks by class. Their own shells rest.
type Lists = [List<Task>; CLASSES.len()];

/// Memory for objects that stay for ever.
struct Memory {
    next: usize,
    end: usize,
}

impl Memory {
    /// Memory for an object.
    fn take<T>(&mut self, kernel: &Linux) -> Result<NonNull<T>, Errno> {
        const { assert!(CHUNK.is_multiple_of(align_of::<T>()) && size_of::<T>() <= CHUNK) };
        self.next = self.next.next_multiple_of(align_of::<T>());
        if self.end.saturating_sub(self.next) < size_of::<T>() {
            self.next = kernel.map(CHUNK)?.as_ptr() as usize;
            self.end = self.next + CHUNK;
        }
        let place = self.next;
        self.next += size_of::<T>();
        NonNull::new(place as *mut T).ok_or(Errno(libc::ENOMEM))
    }
}

/// What virtual processors have passed on.
struct Shared {
    free: Lists,
    /// The fewest of a class that were free since the last look: so many were not wanted.
    fewest: [usize; CLASSES.len()],
    /// Those whose stacks were given back. They are taken last.
    trimmed: Lists,
    /// Tasks without shells.
    bare: Lists,
    /// How many tasks of a class there are, and spare shells.
    tasks: [usize; CLASSES.len()],
    spares: [usize; CLASSES.len()],
    tickets: List<Thread>,
    memory: Memory,
}

impl Shared {
    const fn new() -> Self {
        const fn lists() -> Lists {
            [const { List::new() }; CLASSES.len()]
        }
        Shared {
            free: lists(),
            fewest: [0; CLASSES.len()],
            trimmed: lists(),
            bare: lists(),
            tasks: [0; CLASSES.len()],
            spares: [0; CLASSES.len()],
            tickets: List::new(),
            memory: Memory { next: 0, end: 0 },
        }
    }

    /// Passes some to a virtual processor that has none.
    fn pass(&mut self, class: usize, to: &List<Task>) {
        self.free[class].pass(to, MOST / 2);
        self.fewest[class] = self.fewest[class].min(self.free[class].len());
        if to.len() == 0 {
            self.trimmed[class].pass(to, MOST / 2);
        }
    }

    /// Passes some that nobody has wanted since the last look.
    fn pass_unwanted(&mut self, class: usize, to: &List<Task>) {
        let count = self.fewest[class].min(MOST as usize / 2);
        self.fewest[class] -= count;
        self.free[class].pass(to, count as u32);
    }

    /// Passes some tickets to a virtual processor that has none, or makes some.
    fn pass_tickets(&mut self, kernel: &Linux, to: &List<Thread>) {
        self.tickets.pass(to, MOST / 2);
        while to.len() < MOST as usize / 2 {
            let Ok(place) = self.memory.take::<Thread>(kernel) else {
                return;
            };
            // SAFETY: taken here, and nobody else's.
            to.push(unsafe { Thread::ticket_at(place.cast()) });
        }
    }
}

/// Those of one virtual processor: on cache lines of their own, which its owner writes at each beginning and end.
#[repr(align(128))]
struct Local {
    free: Lists,
    /// The spare shell that has run a task here last, and rests.
    rests: [Slot<Shell>; CLASSES.len()],
    tickets: List<Thread>,
}

/// What a runtime has of shells. In this order: `local` is the last.
#[repr(C)]
struct Pools {
    memory: [StackPool; CLASSES.len()],
    shared: SpinLock<Shared>,
    /// Spare shells that rest, and are of no virtual processor. Changed with `shared` locked.
    spares: [List<Shell>; CLASSES.len()],
    /// Those of each virtual processor.
    local: [Local; 0],
}

const _: () = assert!(core::mem::offset_of!(Pools, local) == size_of::<Pools>());

static POOLS: AtomicPtr<Pools> = AtomicPtr::new(core::ptr::null_mut());

impl Pools {
    /// Those of the runtime. Inside of it, or at rest.
    #[inline]
    fn of(runtime: &'static Runtime) -> Option<&'static Pools> {
        let pools = POOLS.load(Ordering::Acquire);
        // SAFETY: null, or mapped for ever.
        unsafe { pools.as_ref() }.or_else(|| Self::make(runtime))
    }

    #[cold]
    fn make(runtime: &'static Runtime) -> Option<&'static Pools> {
        let count = runtime.vps().len();
        let size = size_of::<Pools>() + count * size_of::<Local>();
        let pools = runtime.kernel().map(size).ok()?.as_ptr().cast::<Pools>();
        // SAFETY: room for all that, aligned to a page; what follows is zero, which is empty lists.
        unsafe {
            pools.write(Pools {
                memory: CLASSES.map(StackPool::new),
                shared: SpinLock::new(Shared::new()),
                spares: [const { List::new() }; CLASSES.len()],
                local: [],
            });
        }
        let null = core::ptr::null_mut();
        // Another thread may have been first; then this mapping stays unused.
        let first = match POOLS.compare_exchange(null, pools, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => pools,
            Err(first) => first,
        };
        // SAFETY: as in `of`.
        unsafe { first.as_ref() }
    }

    /// Returns the lists of the virtual processor of the activation, which owns it.
    #[inline]
    fn local(&self, inside: &Inside) -> &Local {
        // SAFETY: there are as many as virtual processors, behind the structure.
        unsafe { &*self.local.as_ptr().add(inside.vp().index() as usize) }
    }

    /// Those of the runtime, which has a task.
    #[inline]
    fn there(runtime: &'static Runtime) -> &'static Pools {
        let Some(pools) = Pools::of(runtime) else {
            unreachable!("the task is from there");
        };
        pools
    }
}

/// Called in the child of a fork.
pub(super) fn forget() {
    POOLS.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Returns a free task with a shell.
#[inline(always)]
pub(super) fn take(inside: &Inside, class: usize) -> Option<&'static Task> {
    let pools = Pools::of(inside.runtime())?;
    let list = &pools.local(inside).free[class];
    if list.len() == 0 {
        fill(inside, pools, class, list);
    }
    list.pop()
}

#[cold]
fn fill(inside: &Inside, pools: &Pools, class: usize, list: &List<Task>) {
    let mut shared = pools.shared.lock(inside.runtime().kernel());
    shared.pass(class, list);
}

/// Called when a task has ended and has no handle any more.
#[inline(always)]
pub(super) fn release(inside: &Inside, task: &'static Task) {
    let pools = Pools::there(inside.runtime());
    let class = task.class as usize;
    if task.own.get(Ordering::Relaxed).is_none() {
        return release_bare(inside.runtime(), pools, task);
    }
    let list = &pools.local(inside).free[class];
    list.push(task);
    if list.len() > MOST as usize {
        pass_on(inside, pools, class, list);
    }
}

#[cold]
fn pass_on(inside: &Inside, pools: &Pools, class: usize, list: &List<Task>) {
    let shared = pools.shared.lock(inside.runtime().kernel());
    list.pass(&shared.free[class], MOST / 2);
    drop(shared);
    trim::wake(inside);
}

#[cold]
fn release_bare(runtime: &'static Runtime, pools: &Pools, task: &'static Task) {
    pools.shared.lock(runtime.kernel()).bare[task.class as usize].push(task);
}

/// Returns a free ticket. `None`: there is no memory.
#[inline]
pub(super) fn ticket(inside: &Inside) -> Option<&'static Thread> {
    let pools = Pools::of(inside.runtime())?;
    let list = &pools.local(inside).tickets;
    if list.len() == 0 {
        fill_tickets(inside, pools, list);
    }
    list.pop()
}

#[cold]
fn fill_tickets(inside: &Inside, pools: &Pools, list: &List<Thread>) {
    let kernel = inside.runtime().kernel();
    pools.shared.lock(kernel).pass_tickets(kernel, list);
}

/// Gives a ticket back, which is in no list.
#[inline]
pub(super) fn return_ticket(inside: &Inside, ticket: &'static Thread) {
    let pools = Pools::there(inside.runtime());
    let list = &pools.local(inside).tickets;
    list.push(ticket);
    if list.len() > MOST as usize {
        let shared = pools.shared.lock(inside.runtime().kernel());
        list.pass(&shared.tickets, MOST / 2);
    }
}

/// Returns the shell in which the task begins now: the spare one that rests here, or its own.
#[inline]
pub(super) fn shell_for(inside: &Inside, task: &'static Task) -> &'static Shell {
    let pools = Pools::there(inside.runtime());
    let class = task.class as usize;
    let rests = &pools.local(inside).rests[class];
    let spare = match rests.get(Ordering::Relaxed) {
        None if pools.spares[class].len() != 0 => take_spare(inside, pools, class),
        spare => {
            rests.set(None, Ordering::Relaxed);
            spare
        }
    };
    spare.unwrap_or_else(|| task.own())
}

#[cold]
fn take_spare(inside: &Inside, pools: &Pools, class: usize) -> Option<&'static Shell> {
    let _shared = pools.shared.lock(inside.runtime().kernel());
    pools.spares[class].pop()
}

/// Called when nothing runs in a spare shell any more.
// Beside the way of tasks in shells of their own.
#[inline(never)]
pub(super) fn rests(inside: &Inside, shell: &'static Shell) {
    let pools = Pools::there(inside.runtime());
    let class = shell.class as usize;
    let rests = &pools.local(inside).rests[class];
    // What has run there may be over, or begin again elsewhere.
    shell.task.set(None, Ordering::Relaxed);
    if let Some(another) = rests.get(Ordering::Relaxed) {
        give_spare(inside, pools, another);
    }
    rests.set(Some(shell), Ordering::Relaxed);
}

#[cold]
fn give_spare(inside: &Inside, pools: &Pools, shell: &'static Shell) {
    let _shared = pools.shared.lock(inside.runtime().kernel());
    pools.spares[shell.class as usize].push(shell);
}

/// Returns true if there are tasks enough for another spare shell, which the caller then makes.
pub(super) fn wants_spare(runtime: &'static Runtime, class: u32) -> bool {
    let class = class as usize;
    with_shared(runtime, |shared| {
        let (tasks, spares) = (shared.tasks[class], &mut shared.spares[class]);
        let wants = *spares < runtime.vps().len() && tasks / TASKS_A_SPARE > *spares;
        *spares += usize::from(wants);
        wants
    })
}

/// The spare shell could not be made.
pub(super) fn has_no_spare(runtime: &'static Runtime, class: u32) {
    with_shared(runtime, |shared| shared.spares[class as usize] -= 1);
}

/// Called when the thread of a shell is gone, and nobody has its memory.
#[cold]
pub(super) fn gone(inside: &Inside, shell: &'static Shell) {
    let runtime = inside.runtime();
    let pools = Pools::there(runtime);
    if shell.is_spare {
        pools.shared.lock(runtime.kernel()).spares[shell.class as usize] -= 1;
    }
    give_memory(runtime, pools, shell);
}

/// Returns a task without a shell.
///
/// # Errors
///
/// EAGAIN: there is no memory, as pthread_create(3) says it.
#[cold]
pub(super) fn bare(runtime: &'static Runtime, class: usize) -> Result<&'static Task, Errno> {
    let inside = runtime.enter();
    let task = (|| {
        let kernel = runtime.kernel();
        let mut shared = Pools::of(runtime)?.shared.lock(kernel);
        if let Some(task) = shared.bare[class].pop() {
            return Some(task);
        }
        let place = shared.memory.take::<Task>(kernel).ok()?;
        shared.tasks[class] += 1;
        // SAFETY: taken here, and nobody else's.
        unsafe {
            place.write(Task::new(class as u32));
            Some(place.as_ref())
        }
    })();
    inside.leave();
    task.ok_or(Errno(libc::EAGAIN))
}

/// Gives back a task that got no shell. Outside the runtime.
#[cold]
pub(super) fn give_back_bare(runtime: &'static Runtime, task: &'static Task) {
    with_shared(runtime, |shared| {
        shared.bare[task.class as usize].push(task)
    });
}

/// Outside the runtime, which has a task.
fn with_shared<R>(runtime: &'static Runtime, change: impl FnOnce(&mut Shared) -> R) -> R {
    let inside = runtime.enter();
    let result = change(&mut Pools::there(runtime).shared.lock(runtime.kernel()));
    inside.leave();
    result
}

/// Calls this for a part of the free tasks' shells that nobody has wanted since it was called last, and which are nobody else's
/// meanwhile. Returns true if there are others. Outside the runtime.
pub(super) fn trim(runtime: &'static Runtime, trim: impl Fn(&'static Shell)) -> bool {
    if Pools::of(runtime).is_none() {
        return false;
    }
    let mut others = false;
    for class in 0..CLASSES.len() {
        loop {
            // A few at a time: who wants many waits for no more than these.
            let few = List::new();
            with_shared(runtime, |shared| shared.pass_unwanted(class, &few));
            if few.len() == 0 {
                break;
            }
            few.each(|task: &Task| trim(task.own()));
            with_shared(runtime, |shared| few.pass(&shared.trimmed[class], MOST));
        }
        others |= with_shared(runtime, |shared| {
            shared.fewest[class] = shared.free[class].len();
            shared.fewest[class] != 0
        });
    }
    others
}

/// As [`release`], by an outside kernel thread.
pub(super) fn release_from_outside(task: &'static Task) {
    let Some((runtime, pools)) = GUEST.runtime().and_then(|one| Some((one, Pools::of(one)?)))
    else {
        return;
    };
    if task.own.get(Ordering::Relaxed).is_none() {
        return release_bare(runtime, pools, task);
    }
    pools.shared.lock(runtime.kernel()).free[task.class as usize].push(task);
}

/// Memory for a shell: where its stack begins, how large it is, where the shell is, and whether nobody has had it before.
pub(super) fn memory(
    runtime: &'static Runtime,
    class: usize,
) -> Result<(*mut u8, usize, NonNull<u8>, bool), Errno> {
    let inside = runtime.enter();
    let top = match Pools::of(runtime) {
        Some(pools) => pools.memory[class].take(runtime.kernel()),
        None => Err(Errno(libc::ENOMEM)),
    };
    inside.leave();
    let (top, fresh) = top?;
    if fresh {
        // Not inside the runtime: it may wait for memory, as a page fault does.
        memory::populate(top - FIRST..top);
    }
    let shell = top - colour_of(top, class) - size_of::<Thread>() - size_of::<Shell>();
    let stack = top - CLASSES[class] + GUARD;
    let place = NonNull::new(shell as *mut u8).ok_or(Errno(libc::ENOMEM))?;
    Ok((stack as *mut u8, shell - stack, place, fresh))
}

/// How far below the top of its memory a thread's block ends. Otherwise frames of threads that alternate would lie at equal
/// places of their pages, and a load of one would wait for an unrelated store of the other. At least a line, in which the
/// pool of stacks has its link.
fn colour_of(top: usize, class: usize) -> usize {
    const COLOURS: usize = 15;
    (top / CLASSES[class] % COLOURS + 1) * LINE
}

/// Returns where a thread's block has room, behind the shell.
pub(super) fn block_of(shell: &'static Shell) -> Option<NonNull<u8>> {
    NonNull::new((core::ptr::from_ref(shell) as usize + size_of::<Shell>()) as *mut u8)
}

/// Returns the top of a shell's memory: pages, of which it has not left more than a part at the end.
fn top_of(shell: &'static Shell) -> usize {
    (core::ptr::from_ref(shell) as usize + size_of::<Shell>()).next_multiple_of(PAGE)
}

/// Returns the addresses that are below its stack, and nobody's.
pub(super) fn guard_of(shell: &'static Shell) -> core::ops::Range<usize> {
    let low = top_of(shell) - CLASSES[shell.class as usize];
    low..low + GUARD
}

/// Where the thread of a shell has its stack: from the guard to the shell itself.
pub(super) fn stack_of(shell: &'static Shell) -> core::ops::Range<usize> {
    guard_of(shell).end..core::ptr::from_ref(shell) as usize
}

/// Gives back the memory of a shell that never had a thread. Outside the runtime.
pub(super) fn give_back(runtime: &'static Runtime, shell: &'static Shell) {
    let inside = runtime.enter();
    if let Some(pools) = Pools::of(runtime) {
        give_memory(runtime, pools, shell);
    }
    inside.leave();
}

#[cold]
fn give_memory(runtime: &'static Runtime, pools: &Pools, shell: &'static Shell) {
    let top = top_of(shell);
    // SAFETY: `memory` took it there; nobody has the shell any more.
    unsafe { pools.memory[shell.class as usize].give(runtime.kernel(), top) };
}
