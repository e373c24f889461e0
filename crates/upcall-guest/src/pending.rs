//! Signals on their way to a thread that is not running.
//!
//! A signal for a parked thread is kept with the thread and interrupts its wait; when the thread
//! leaves the runtime it is queued to the activation's kernel thread (rt_tgsigqueueinfo(2), with
//! all of its information) and delivered by the kernel at once. For a running thread the
//! activation is interrupted, which makes it leave the runtime anew.
//!
//! A receiver is named by its id as well: [`Thread`] objects are recycled, and a signal for a thread
//! that ends at this moment must not reach the next one. Queueing and the end are decided under
//! one lock; so is what else one thread does to another by its id ([`while_it_lives`]).
//!
//! Where the kernel's limit of queued signals is reached (RLIMIT_SIGPENDING), it delivers a signal
//! without its information or not at all; then it is sent in the one way that needs no room, and
//! `complete` gives it its information back. A signal that nobody accepts waits in the kernel: with
//! no room for it there, it waits without information, once for each number.

use core::ptr;
use core::sync::atomic::Ordering;

use upcall_core::thread::Claim;
use upcall_core::{Kernel, SpinLock};
use upcall_linux::{Activation, Runtime, Thread};

use crate::entry::raw_syscall;
use crate::guest::GUEST;
use crate::masks;
use crate::signal::{self, Disposition, bit};

/// siginfo_t: 128 bytes.
pub type Information = [u64; 16];
const SI_TKILL: i32 = -6;
const NODES: usize = 1 << 16;

struct Node {
    next: *mut Node,
    signal: i32,
    information: Information,
}

struct Pool {
    free: *mut Node,
}

// SAFETY: the nodes are reached only under the lock.
unsafe impl Send for Pool {}

static POOL: SpinLock<Pool> = SpinLock::new(Pool {
    free: ptr::null_mut(),
});

/// The child of a fork: nobody holds the pool any more. What it held was the parent's.
///
/// # Safety
///
/// There is one thread, and it is not in this module.
pub unsafe fn forget(runtime: &'static Runtime) {
    // SAFETY: nobody else can be in the section. The nodes may have been left in any state: they
    // stay behind.
    unsafe { POOL.unlock() };
    POOL.lock(runtime.kernel()).free = ptr::null_mut();
}

/// A siginfo_t for a signal that one thread of this process sends to another.
pub fn from_self(signal: i32) -> Information {
    let mut information = [0; 16];
    information[0] = signal as u32 as u64;
    information[1] = SI_TKILL as u32 as u64;
    // SAFETY: asks only.
    let uid = unsafe { raw_syscall(libc::SYS_getuid, [0; 6]) } as u32;
    information[2] = u64::from(GUEST.pid.load(Ordering::Relaxed)) | u64::from(uid) << 32;
    information
}

/// What became of a signal for a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is on its way, or ignored, or merged with one that waits.
    Yes,
    /// The thread has ended.
    Gone,
    /// There is no memory for it.
    Full,
}

/// Whether the object still is the thread of that id.
fn is_thread(thread: &'static Thread, id: i32) -> bool {
    thread.kernel.tid.load(Ordering::SeqCst) == id
}

/// Adds a signal to what the thread has not seen yet and, if it `interrupts`, claims it: then the
/// caller must make it ready (`true`).
fn enqueue(
    runtime: &'static Runtime,
    (thread, id): (&'static Thread, i32),
    signal: i32,
    information: &Information,
    interrupts: impl FnOnce() -> bool,
) -> Result<bool, Sent> {
    let mut pool = POOL.lock(runtime.kernel());
    if !is_thread(thread, id) {
        return Err(Sent::Gone);
    }
    let pending = &thread.kernel.pending;
    if signal < 32 && pending.load(Ordering::Relaxed) & bit(signal) != 0 {
        return Err(Sent::Yes);
    }
    if pool.free.is_null() {
        let Ok(chunk) = runtime.kernel().map(NODES) else {
            return Err(Sent::Full);
        };
        let chunk = chunk.as_ptr().cast::<Node>();
        for index in 0..NODES / size_of::<Node>() {
            // SAFETY: inside the mapping.
            unsafe {
                let node = chunk.add(index);
                (*node).next = pool.free;
                pool.free = node;
            }
        }
    }
    let node = pool.free;
    // SAFETY: a free node of the pool, under its lock; appended behind the thread's others.
    unsafe {
        pool.free = (*node).next;
        node.write(Node {
            next: ptr::null_mut(),
            signal,
            information: *information,
        });
        let mut at = thread.kernel.queue.load(Ordering::Relaxed) as *mut Node;
        if at.is_null() {
            thread.kernel.queue.store(node as usize, Ordering::Relaxed);
        } else {
            while !(*at).next.is_null() {
                at = (*at).next;
            }
            (*at).next = node;
        }
    }
    pending.fetch_or(bit(signal), Ordering::SeqCst);
    if !interrupts() {
        return Err(Sent::Yes);
    }
    // Under the lock, without which the thread cannot end.
    Ok(runtime.interrupt(thread) == Claim::Ready)
}

/// Takes the first signal in `set` that the thread has not seen.
pub fn dequeue(
    runtime: &'static Runtime,
    thread: &'static Thread,
    set: u64,
) -> Option<(i32, Information)> {
    if thread.kernel.pending.load(Ordering::SeqCst) & set == 0 {
        return None;
    }
    let mut pool = POOL.lock(runtime.kernel());
    let mut before: *mut Node = ptr::null_mut();
    let mut at = thread.kernel.queue.load(Ordering::Relaxed) as *mut Node;
    let mut found = None;
    let mut others = 0u64;
    while !at.is_null() {
        // SAFETY: nodes of the thread's queue, under the pool's lock.
        unsafe {
            let next = (*at).next;
            if found.is_none() && set & bit((*at).signal) != 0 {
                found = Some(((*at).signal, (*at).information));
                if before.is_null() {
                    thread.kernel.queue.store(next as usize, Ordering::Relaxed);
                } else {
                    (*before).next = next;
                }
                (*at).next = pool.free;
                pool.free = at;
            } else {
                others |= bit((*at).signal);
                before = at;
            }
            at = next;
        }
    }
    thread.kernel.pending.store(others, Ordering::SeqCst);
    found
}

/// Looks at the thread with that id, or changes it; it does not end meanwhile. `None`: it has ended.
/// Outside the runtime, where `act` must not go.
pub fn while_it_lives<R>(
    runtime: &'static Runtime,
    (thread, id): (&'static Thread, i32),
    act: impl FnOnce() -> R,
) -> Option<R> {
    let activation = runtime.enter();
    let done = {
        let _pool = POOL.lock(runtime.kernel());
        is_thread(thread, id).then(act)
    };
    runtime.leave(activation);
    done
}

/// A thread has ended: nothing is queued to it any more, and what it has not seen is gone.
pub fn close(runtime: &'static Runtime, thread: &'static Thread) {
    {
        let _pool = POOL.lock(runtime.kernel());
        thread.kernel.tid.store(0, Ordering::SeqCst);
    }
    while dequeue(runtime, thread, !0).is_some() {}
}

/// Sends a signal to the thread with that id. Inside the runtime.
pub fn send(
    runtime: &'static Runtime,
    activation: &'static Activation,
    (thread, id): (&'static Thread, i32),
    signal: i32,
    information: &Information,
) -> Sent {
    let blocked = thread.kernel.mask.load(Ordering::SeqCst) & bit(signal) != 0;
    // Looked at afterwards: if it is the thread still, the mask was its own.
    if !is_thread(thread, id) {
        return Sent::Gone;
    }
    match signal::disposition(signal) {
        Disposition::Ignored if !blocked => return Sent::Yes,
        Disposition::Default if !blocked => {
            // Ends or stops the whole process: the kernel's business, here and now.
            signal::take_default(signal);
            let own = activation.kernel.mask.load(Ordering::Relaxed);
            signal::set_kernel_mask(own & !bit(signal));
            queue_to_kernel(activation, signal, information);
            signal::set_kernel_mask(own);
            return Sent::Yes;
        }
        _ => {}
    }
    let interrupts =
        || !blocked || thread.kernel.waited_for.load(Ordering::SeqCst) & bit(signal) != 0;
    match enqueue(runtime, (thread, id), signal, information, interrupts) {
        Ok(true) => {
            runtime.make_ready(activation, thread);
            return Sent::Yes;
        }
        Ok(false) => {}
        Err(answer) => return answer,
    }
    // Running, or about to: the activation that installs it looks at its pending signals after
    // it has noted itself as carrier. A trip through the kernel makes both stores visible.
    for _ in 0..2 {
        if let Some(carrier) = thread.carrier() {
            carrier.attend(Activation::DEFERRED);
            runtime.kernel().interrupt(carrier);
            break;
        }
        runtime.kernel().yield_processor();
    }
    Sent::Yes
}

/// A siginfo_t that says no more than what kill(2) says: the kernel delivers such a signal even
/// when it has no room to queue it.
const fn bare(signal: i32) -> Information {
    let mut information = [0; 16];
    information[0] = signal as u32 as u64;
    information
}

/// Queues a signal to the calling activation's kernel thread.
fn queue_to_kernel(activation: &'static Activation, signal: i32, information: &Information) {
    let queue = |information: &Information| {
        // SAFETY: reads 128 bytes.
        (unsafe {
            raw_syscall(
                libc::SYS_rt_tgsigqueueinfo,
                [
                    u64::from(GUEST.pid.load(Ordering::Relaxed)),
                    activation.kernel.tid.load(Ordering::Relaxed) as u64,
                    signal as u64,
                    information.as_ptr() as u64,
                    0,
                    0,
                ],
            )
        }) as i64
    };
    activation.kernel.queued.put_over(signal, information);
    if queue(information) == -i64::from(libc::EAGAIN) {
        queue(&bare(signal));
    }
}

/// A signal was delivered on an activation: if the kernel had no room for what it was queued with,
/// and it is the one that the runtime has queued, it is completed.
///
/// # Safety
///
/// `information` is what the kernel passed to the handler.
pub unsafe fn complete(
    activation: &'static Activation,
    signal: i32,
    information: *mut libc::siginfo_t,
) {
    if activation.kernel.queued.signal() != signal {
        return;
    }
    let Some((_, queued)) = activation.kernel.queued.take() else {
        return;
    };
    // SAFETY: the caller's promise; a siginfo_t is 128 bytes.
    let words = unsafe { &mut *information.cast::<Information>() };
    // Code SI_USER of process and user 0.
    if words[1] as u32 == 0 && words[2] == 0 {
        *words = queued;
    }
}

/// Queues the first signal that `mask` lets through to the activation's kernel thread. One at a
/// time: the handler may migrate, and what the kernel still held would meet another thread.
pub fn queue_one(
    runtime: &'static Runtime,
    activation: &'static Activation,
    thread: &'static Thread,
    mask: u64,
) {
    if let Some((signal, information)) = dequeue(runtime, thread, !mask) {
        queue_to_kernel(activation, signal, &information);
    }
}

/// A signal that came while the activation was inside the runtime, now that it leaves with
/// a thread whose mask is `mask`: to the thread, or, if it blocks the signal, to where it waits.
pub fn restore(
    runtime: &'static Runtime,
    activation: &'static Activation,
    signal: i32,
    information: &Information,
    mask: u64,
) {
    if mask & bit(signal) == 0 {
        queue_to_kernel(activation, signal, information);
    } else {
        pass(runtime, activation, signal, information);
    }
}

/// Gives a signal back to the kernel, to the same receiver.
pub fn give_back(activation: &'static Activation, signal: i32, information: &Information) {
    if information[1] as u32 as i32 == SI_TKILL {
        queue_to_kernel(activation, signal, information);
    } else {
        queue_to_process(activation, signal, information);
    }
}

fn queue_to_process(activation: &'static Activation, signal: i32, information: &Information) {
    // Only to its own id may a kernel thread send what looks as if the kernel had sent it; the
    // signal is the process's all the same.
    let queue = |information: &Information| {
        // SAFETY: reads 128 bytes.
        (unsafe {
            raw_syscall(
                libc::SYS_rt_sigqueueinfo,
                [
                    activation.kernel.tid.load(Ordering::Relaxed) as u64,
                    signal as u64,
                    information.as_ptr() as u64,
                    0,
                    0,
                    0,
                ],
            )
        }) as i64
    };
    if queue(information) == -i64::from(libc::EAGAIN) {
        queue(&bare(signal));
    }
}

/// Passes a signal that an activation has taken to a thread that accepts it, or leaves it pending.
/// Inside the runtime, with all of the program's signals blocked.
pub fn pass(
    runtime: &'static Runtime,
    activation: &'static Activation,
    signal: i32,
    information: &Information,
) {
    if information[1] as u32 as i32 == SI_TKILL
        && let Some(first) = GUEST.identities.first()
    {
        // From another process, which knows the first thread's id only.
        let id = GUEST.pid.load(Ordering::Relaxed) as i32;
        send(runtime, activation, (first, id), signal, information);
        return;
    }
    loop {
        let receiver = masks::find_or_close(signal, || receiver(signal));
        let Some(receiver) = receiver else {
            queue_to_process(activation, signal, information);
            return;
        };
        match send(runtime, activation, receiver, signal, information) {
            Sent::Yes => return,
            // It has ended just now, and is in nobody's list.
            Sent::Gone => {}
            Sent::Full => {
                queue_to_process(activation, signal, information);
                return;
            }
        }
    }
}

/// Takes a blocked signal in `set` from the kernel, one for the calling kernel thread alone first.
fn take(set: u64) -> Option<(i32, Information)> {
    let now = [0u64; 2];
    let mut information: Information = [0; 16];
    // SAFETY: reads the set and the time, writes 128 bytes.
    let signal = unsafe {
        raw_syscall(
            libc::SYS_rt_sigtimedwait,
            [
                (&raw const set) as u64,
                information.as_mut_ptr() as u64,
                now.as_ptr() as u64,
                8,
                0,
                0,
            ],
        )
    } as i32;
    (signal > 0).then_some((signal, information))
}

/// The kernel thread becomes an activation: what waits for it waits for its thread, which may be
/// carried by another one soon.
pub fn adopt(runtime: &'static Runtime, thread: &'static Thread) {
    let id = thread.kernel.tid.load(Ordering::Relaxed);
    loop {
        let set = upcall_linux::own_pending() & thread.kernel.mask.load(Ordering::Relaxed);
        let Some((signal, information)) = (set != 0).then(|| take(set)).flatten() else {
            return;
        };
        // Without memory it is lost, and the program has other worries.
        let _ = enqueue(runtime, (thread, id), signal, &information, || false);
    }
}

/// Takes the process's signals in `set` and passes each on. Inside the runtime.
pub fn pass_pending(runtime: &'static Runtime, activation: &'static Activation, set: u64) {
    let mut left = set;
    while let Some((signal, information)) = take(left) {
        // Whatever becomes of it, it is not taken twice in a row.
        left &= !bit(signal);
        pass(runtime, activation, signal, &information);
    }
}

/// A thread that accepts the signal, and its id.
fn receiver(signal: i32) -> Option<(&'static Thread, i32)> {
    let mut found = None;
    GUEST.identities.each(|thread| {
        let id = thread.kernel.tid.load(Ordering::SeqCst);
        if id != 0 && thread.kernel.mask.load(Ordering::SeqCst) & bit(signal) == 0 {
            found = Some((thread, id));
        }
        found.is_none()
    });
    found
}
