//! Critical sections of the program: see [`critical`].

use std::io;
use std::marker::PhantomData;
use std::ops::Range;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use upcall_guest::direct;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use upcall_linux::Thread;

/// Calls a function in a critical section: while it runs, the calling thread is not preempted by others of the program.
///
/// This is for locks whose waiters spin. If the holder of such a lock is preempted, the others spin for nothing until it
/// runs again. Locks of [`sync`](crate::sync) need no section: those who wait for them give their processor away.
///
/// The end of the thread's time slice comes later: when the section ends, and at the latest after two more slices. If
/// the thread loses its processor all the same, it goes on before all that are in no section: the thread that runs in its place
/// gives way, unless that is in a section itself. The kernel, or a daemon, may have given its processor to another program, or the thread may have waited in a
/// system call or on a page fault. A thread may wait in a section. While it waits its processor runs other threads.
///
/// A section costs a store at its beginning and one at its end, behind some instructions that find the calling thread. It makes
/// no system call unless others were to run meanwhile. Sections may be inside of each other; the outermost counts. A section ends
/// when the function returns, when it panics, and when the thread is cancelled.
///
/// With ranks ([`policy`](crate::policy)) a more urgent thread waits for the end of a section, too. Where no runtime
/// serves the program, and under `upcall run`, this calls the function and does nothing else.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// static LOCKED: AtomicBool = AtomicBool::new(false);
///
/// fn with_spin_lock<R>(change: impl FnOnce() -> R) -> R {
///     upcall::critical(|| {
///         while LOCKED.swap(true, Ordering::Acquire) {
///             std::hint::spin_loop();
///         }
///         let result = change();
///         LOCKED.store(false, Ordering::Release);
///         result
///     })
/// }
/// # assert_eq!(with_spin_lock(|| 7), 7);
/// ```
///
/// Here those who wait for the lock are in a section, too. To keep a processor while one waits is of use where the holder runs
/// on another one. [`CriticalSection`] begins where the lock is taken.
#[inline]
pub fn critical<R>(section: impl FnOnce() -> R) -> R {
    let _inside = CriticalSection::enter();
    section()
}

/// A critical section of the calling thread, from [`CriticalSection::enter`] until this is dropped: for guards of
/// locks. See [`critical`].
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use upcall::CriticalSection;
///
/// struct SpinLock(AtomicBool);
///
/// impl SpinLock {
///     fn lock(&self) -> Held<'_> {
///         loop {
///             let section = CriticalSection::enter();
///             if !self.0.swap(true, Ordering::Acquire) {
///                 return Held(self, section);
///             }
///             drop(section);
///             while self.0.load(Ordering::Relaxed) {
///                 std::hint::spin_loop();
///             }
///         }
///     }
/// }
///
/// // The lock is free before the section ends: it is dropped last.
/// struct Held<'a>(&'a SpinLock, #[allow(dead_code)] CriticalSection);
///
/// impl Drop for Held<'_> {
///     fn drop(&mut self) {
///         self.0.0.store(false, Ordering::Release);
///     }
/// }
/// # drop(SpinLock(AtomicBool::new(false)).lock());
/// ```
///
/// A section that is forgotten ([`std::mem::forget`]) ends with its thread.
#[derive(Debug)]
#[must_use = "the section ends when this is dropped"]
pub struct CriticalSection {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    thread: Of,
    /// It is the calling thread's.
    here: PhantomData<*const ()>,
}

/// The thread whose section it is, if a runtime serves it.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
struct Of(Option<&'static Thread>);

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl std::fmt::Debug for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "served" } else { "native" })
    }
}

impl CriticalSection {
    /// The calling thread enters a section.
    #[inline]
    pub fn enter() -> Self {
        CriticalSection {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            thread: Of(enter()),
            here: PhantomData,
        }
    }
}

impl Drop for CriticalSection {
    #[inline]
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(thread) = self.thread.0 {
            // The thread's block stays where it is, also in the child of a fork, and for a thread that was bound
            // meanwhile.
            leave(thread);
        }
    }
}

/// Makes code a critical section: a thread that is stopped in it, at the end of its time slice or for another one, goes on to
/// the end of the code first, as in [`critical`]. `code` is a range of addresses, from the first to behind the last. It holds
/// for as long as the process lives.
///
/// The code makes no store when it begins or ends: nothing is paid while nobody is to run instead. A thread that is to leave the code
/// is stopped every 50 µs until it is met outside, or has had two more slices. Only where the thread *is* counts: a function that is called from
/// the code belongs to it only if it lies in the range, so that the compiler should inline what the code calls. A thread
/// that waits in the code, for a lock or in a system call, goes on as others do; use [`critical`] where that matters.
///
/// Where no runtime serves the program, and under `upcall run`, this does nothing.
///
/// # Errors
///
/// - [`InvalidInput`](std::io::ErrorKind::InvalidInput): the range is empty.
/// - [`StorageFull`](std::io::ErrorKind::StorageFull): 16 ranges are there already. Functions that are put into one section of the program
///   need one range:
///
/// ```
/// #[unsafe(link_section = "critical_code")]
/// #[inline(never)]
/// fn change(counter: &mut u64) {
///     *counter += 1;
/// }
///
/// // The linker makes these names of the section's.
/// unsafe extern "C" {
///     #[link_name = "__start_critical_code"]
///     static BEGIN: u8;
///     #[link_name = "__stop_critical_code"]
///     static END: u8;
/// }
///
/// upcall::critical_code(&raw const BEGIN..&raw const END)?;
/// let mut counter = 6;
/// change(&mut counter);
/// # assert_eq!(counter, 7);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn critical_code(code: Range<*const u8>) -> io::Result<()> {
    let range = code.start as usize..code.end as usize;
    if range.is_empty() {
        let why = "the range of critical code is empty: its end must be behind its beginning";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    upcall_linux::critical_code::register(range).map_err(|_| {
        let most = upcall_linux::critical_code::MOST;
        let why = format!("{most} ranges of critical code are registered already; put the functions into one section of the program");
        io::Error::new(io::ErrorKind::StorageFull, why)
    })?;
    Ok(())
}

/// Enters a section; returns the calling thread, if a runtime serves it.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline]
pub fn enter() -> Option<&'static Thread> {
    let thread = direct::own_thread()?;
    thread.enter_section();
    // What the section does is done after the store: the runtime looks in the thread itself.
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    Some(thread)
}

/// Leaves a section of the thread, which is the calling one.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline]
pub fn leave(thread: &'static Thread) {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    if thread.leave_section() {
        give_way();
    }
}

/// The same for a caller that does not know which thread it is.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline]
pub fn leave_own() {
    if let Some(thread) = direct::own_thread() {
        leave(thread);
    }
}

/// Others were to run meanwhile.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[cold]
#[inline(never)]
fn give_way() {
    if let Some(runtime) = direct::runtime() {
        runtime.end_section();
    }
}
