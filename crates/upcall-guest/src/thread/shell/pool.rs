//! Free shells, and the memory of shells.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use upcall_core::stack::StackPool;
use upcall_core::{Errno, Machine, Slot, SpinLock};
use upcall_linux::{Inside, Runtime, Thread, memory};

use crate::ground::state::GUEST;

use super::{Shell, trim};

/// How large the stacks of shells are, with all that lies on them.
pub const CLASSES: [usize; 4] = [64 << 10, 256 << 10, 2 << 20, 16 << 20];

const PAGE: usize = 4096;
const LINE: usize = 64;
/// What a thread touches before its own work wants more: at the top of its memory.
const FIRST: usize = 2 * PAGE;
/// Below each stack.
const GUARD: usize = PAGE;
/// A virtual processor with more free shells than this passes half of them on.
const MOST: u32 = 64;

/// Free shells, last in, first out. A list without a lock around it belongs to the owner of a virtual processor, inside the
/// runtime. The length is read from anywhere.
struct List {
    head: Slot<Shell>,
    len: AtomicUsize,
}

impl List {
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
    fn push(&self, shell: &'static Shell) {
        shell
            .next
            .set(self.head.get(Ordering::Relaxed), Ordering::Relaxed);
        self.head.set(Some(shell), Ordering::Relaxed);
        self.len.store(self.len() + 1, Ordering::Relaxed);
    }

    #[inline]
    fn pop(&self) -> Option<&'static Shell> {
        let shell = self.head.get(Ordering::Relaxed)?;
        self.head
            .set(shell.next.get(Ordering::Relaxed), Ordering::Relaxed);
        self.len.store(self.len() - 1, Ordering::Relaxed);
        Some(shell)
    }

    fn each(&self, call: impl Fn(&'static Shell)) {
        let mut next = self.head.get(Ordering::Relaxed);
        while let Some(shell) = next {
            call(shell);
            next = shell.next.get(Ordering::Relaxed);
        }
    }

    /// Moves this many to another list.
    fn pass(&self, to: &List, count: u32) {
        for _ in 0..count {
            let Some(shell) = self.pop() else { return };
            to.push(shell);
        }
    }
}

/// Free shells by class.
type Lists = [List; CLASSES.len()];

/// What virtual processors have passed on.
struct Shared {
    free: Lists,
    /// The fewest of a class that were free since the last look: so many were not wanted.
    fewest: [usize; CLASSES.len()],
    /// Those whose stacks were given back. They are taken last.
    trimmed: Lists,
}

impl Shared {
    const fn new() -> Self {
        Shared {
            free: [const { List::new() }; CLASSES.len()],
            fewest: [0; CLASSES.len()],
            trimmed: [const { List::new() }; CLASSES.len()],
        }
    }

    /// Passes some to a virtual processor that has none.
    fn pass(&mut self, class: usize, to: &List) {
        self.free[class].pass(to, MOST / 2);
        self.fewest[class] = self.fewest[class].min(self.free[class].len());
        if to.len() == 0 {
            self.trimmed[class].pass(to, MOST / 2);
        }
    }

    /// Passes some that nobody has wanted since the last look.
    fn pass_unwanted(&mut self, class: usize, to: &List) {
        let count = self.fewest[class].min(MOST as usize / 2);
        self.fewest[class] -= count;
        self.free[class].pass(to, count as u32);
    }
}

/// Those of one virtual processor: on cache lines of their own, which its owner writes at each beginning and end.
#[repr(align(128))]
struct Local(Lists);

/// What a runtime has of shells. In this order: `local` is the last.
#[repr(C)]
struct Pools {
    memory: [StackPool; CLASSES.len()],
    shared: SpinLock<Shared>,
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
    fn local(&self, inside: &Inside) -> &Lists {
        // SAFETY: there are as many as virtual processors, behind the structure.
        unsafe { &(*self.local.as_ptr().add(inside.vp().index() as usize)).0 }
    }
}

/// Called in the child of a fork.
pub(super) fn forget() {
    POOLS.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Returns a free shell, and its thread.
#[inline(always)]
pub(super) fn take(inside: &Inside, class: usize) -> Option<(&'static Shell, &'static Thread)> {
    let pools = Pools::of(inside.runtime())?;
    let list = &pools.local(inside)[class];
    if list.len() == 0 {
        fill(inside, pools, class, list);
    }
    let shell = list.pop()?;
    Some((shell, shell.thread()?))
}

#[cold]
fn fill(inside: &Inside, pools: &Pools, class: usize, list: &List) {
    let mut shared = pools.shared.lock(inside.runtime().kernel());
    shared.pass(class, list);
}

/// Called when a shell has neither a thread of the crate nor a handle.
#[inline(always)]
pub(super) fn release(inside: &Inside, shell: &'static Shell) {
    let Some(pools) = Pools::of(inside.runtime()) else {
        unreachable!("the shell is from there");
    };
    if shell.thread().is_none() {
        return give_memory(inside.runtime(), pools, shell);
    }
    let class = shell.class as usize;
    let list = &pools.local(inside)[class];
    list.push(shell);
    if list.len() > MOST as usize {
        pass_on(inside, pools, class, list);
    }
}

#[cold]
fn pass_on(inside: &Inside, pools: &Pools, class: usize, list: &List) {
    let shared = pools.shared.lock(inside.runtime().kernel());
    list.pass(&shared.free[class], MOST / 2);
    drop(shared);
    trim::wake(inside);
}

/// Calls this for a part of the free shells that nobody has wanted since it was called last, and which are nobody else's
/// meanwhile. Returns true if there are others. Outside the runtime.
pub(super) fn trim(runtime: &'static Runtime, trim: impl Fn(&'static Shell)) -> bool {
    let Some(pools) = Pools::of(runtime) else {
        return false;
    };
    let with_shared = |change: &mut dyn FnMut(&mut Shared)| {
        let inside = runtime.enter();
        change(&mut pools.shared.lock(runtime.kernel()));
        inside.leave();
    };
    let mut others = false;
    for class in 0..CLASSES.len() {
        loop {
            // A few at a time: who wants many waits for no more than these.
            let few = List::new();
            with_shared(&mut |shared| shared.pass_unwanted(class, &few));
            if few.len() == 0 {
                break;
            }
            few.each(&trim);
            with_shared(&mut |shared| few.pass(&shared.trimmed[class], MOST));
        }
        with_shared(&mut |shared| {
            shared.fewest[class] = shared.free[class].len();
            others |= shared.fewest[class] != 0;
        });
    }
    others
}

/// As [`release`], by an outside kernel thread.
pub(super) fn release_from_outside(shell: &'static Shell) {
    let Some((runtime, pools)) = GUEST.runtime().and_then(|one| Some((one, Pools::of(one)?)))
    else {
        return;
    };
    if shell.thread().is_none() {
        return give_memory(runtime, pools, shell);
    }
    pools.shared.lock(runtime.kernel()).free[shell.class as usize].push(shell);
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
