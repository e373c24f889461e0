//! Making threads.

use std::io;
use std::sync::Once;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use super::Thread;
use super::handle::{JoinHandle, Kind};
use super::urgency::{Asks, check_priority};
use crate::current;
use crate::runtime::usual_stack_size;

/// Makes a thread with properties; as [`std::thread::Builder`].
///
/// ```
/// let thread = upcall::thread::Builder::new()
///     .name("counter".to_owned())
///     .spawn(|| upcall::thread::current().name().map(str::len))?;
/// assert_eq!(thread.join().unwrap(), Some(7));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
    stack: Option<usize>,
    asks: Option<Asks>,
}

/// Makes a thread that runs `body`. It goes on if the handle is dropped.
///
/// ```
/// let thread = upcall::thread::spawn(|| 6 * 7);
/// assert_eq!(thread.join().unwrap(), 42);
/// ```
///
/// # Panics
///
/// If there is no memory, or the kernel gives no thread; [`Builder::spawn`] returns an error instead.
#[inline]
pub fn spawn<F, T>(body: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(body).expect("failed to spawn thread")
}

impl Builder {
    /// Makes a builder for a thread without a name, with a stack of 256 KiB, or as large as
    /// [`runtime::Builder::stack_size`](crate::Builder::stack_size) says.
    pub const fn new() -> Self {
        Builder {
            name: None,
            stack: None,
            asks: None,
        }
    }

    /// Sets its name. Panics and deadlock reports show it. Other processes do not see it, except for threads of `std`
    /// without a runtime: of those the system shows the first 15 bytes.
    #[must_use]
    pub fn name(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }

    /// Sets how urgent it is, from 1 to 99. A larger number is more urgent. The default is its creator's. It counts
    /// only if threads are ordered by [`Priority`](crate::policy::Priority).
    ///
    /// # Panics
    ///
    /// If the priority is not from 1 to 99.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        check_priority(priority);
        self.asks.get_or_insert_default().priority = Some(priority);
        self
    }

    /// Sets when its work must be done. The default is its creator's deadline. It counts only if threads are ordered
    /// by [`EarliestDeadline`](crate::policy::EarliestDeadline).
    #[must_use]
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.asks.get_or_insert_default().deadline = Some(deadline);
        self
    }

    /// Sets a number for the program's scheduling policy ([`policy::Threads::tag`](crate::policy::Threads::tag)),
    /// which defines its meaning: a group, a class. The default is 0.
    #[must_use]
    pub fn tag(mut self, tag: u64) -> Self {
        self.asks.get_or_insert_default().tag = tag;
        self
    }

    /// It serves other threads, which the program knows. It blocks all signals from its beginning.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(crate) fn serves(mut self) -> Self {
        self.asks.get_or_insert_default().serves = true;
        self
    }

    /// Sets the least size of its stack, in bytes. Only the part that is used takes memory.
    #[must_use]
    pub fn stack_size(mut self, size: usize) -> Self {
        self.stack = Some(size);
        self
    }

    /// Makes the thread.
    ///
    /// # Errors
    ///
    /// There is no memory, or the kernel gives no thread: EAGAIN, as in pthread_create(3).
    ///
    /// # Panics
    ///
    /// If the name contains a zero byte.
    #[inline]
    pub fn spawn<F, T>(self, body: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: nothing is borrowed.
        unsafe { self.spawn_unchecked(body) }
    }

    /// As [`Builder::spawn`], for a thread that borrows.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    ///
    /// # Safety
    ///
    /// What `body` and its result borrow must outlive the thread, and the handle.
    #[inline]
    pub unsafe fn spawn_unchecked<F, T>(self, body: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: the caller's promise.
        unsafe { self.spawn_counted(std::ptr::null(), |_| body) }
    }

    /// As [`Builder::spawn_unchecked`], for a thread that a word counts among others, if that is not null: once there is a
    /// thread, the word is one less after its end. If `body` is told that it is not so, its closure must see to that.
    ///
    /// # Errors
    ///
    /// As [`Builder::spawn`].
    ///
    /// # Safety
    ///
    /// As [`Builder::spawn_unchecked`]; the word is there until it is 0.
    #[inline]
    pub(super) unsafe fn spawn_counted<F, T>(
        self,
        word: *const AtomicU32,
        body: impl FnOnce(bool) -> F,
    ) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        start();
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(runtime) = upcall_guest::direct::runtime()
            && let Some(class) = class_of(self.stack_or_usual())
        {
            let asks = self.asks.map(Asks::of_guest);
            // SAFETY: the caller's promise.
            return unsafe { own::spawn(runtime, class, asks, word, self.thread(), body(true)) };
        }
        let _ = word;
        // SAFETY: the caller's promise.
        unsafe { self.spawn_std(body(false)) }
    }

    #[inline]
    fn stack_or_usual(&self) -> usize {
        self.stack.unwrap_or_else(usual_stack_size)
    }

    /// The thread's handle, if it is known now.
    #[inline]
    fn thread(self) -> Option<Thread> {
        let name = self.name?;
        assert!(
            !name.contains('\0'),
            "thread name may not contain interior null bytes"
        );
        Some(Thread::new(Some(name.into())))
    }

    /// # Safety
    ///
    /// As [`Builder::spawn_unchecked`].
    unsafe fn spawn_std<F, T>(self, body: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let mut builder = std::thread::Builder::new().stack_size(self.stack_or_usual());
        if let Some(name) = &self.name {
            builder = builder.name(name.clone());
        }
        let thread = self.thread().unwrap_or_else(|| Thread::new(None));
        let own = std::sync::OnceLock::from(thread.clone());
        let body = move || {
            current::enter(&own);
            let _leaves = Leaves;
            body()
        };
        // SAFETY: the caller's promise.
        let handle = unsafe { builder.spawn_unchecked(body) }?;
        Ok(JoinHandle(Kind::Std(handle, thread)))
    }
}

struct Leaves;

impl Drop for Leaves {
    fn drop(&mut self) {
        current::leave();
    }
}

/// Starts the runtime, unless that was tried before.
#[inline]
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        // If it cannot be started, or is another's, threads are those of std.
        let _ = crate::Runtime::start();
    });
}

/// The smallest class of stacks that has room.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline]
fn class_of(size: usize) -> Option<usize> {
    upcall_guest::shell::CLASSES
        .iter()
        .position(|&class| size <= class)
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod own {
    use std::io;
    use std::mem::{ManuallyDrop, MaybeUninit, align_of, size_of};
    use std::sync::atomic::AtomicU32;

    use upcall_guest::lending::Asks;
    use upcall_guest::shell::{self, ROOM, Work};
    use upcall_linux::Runtime;

    use super::super::handle::{JoinHandle, Kind, Own};
    use super::super::packet::{Outcome, Packet};
    use super::Thread;

    /// # Safety
    ///
    /// As [`super::Builder::spawn_counted`].
    #[inline]
    pub(super) unsafe fn spawn<F, T>(
        runtime: &'static Runtime,
        class: usize,
        asks: Option<Asks>,
        counted: *const AtomicU32,
        thread: Option<Thread>,
        body: F,
    ) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let packet = Packet::new(thread, body);
        let counts = |room| {
            if !counted.is_null() {
                // SAFETY: called to fill the room; the caller's promise.
                unsafe { shell::counts(room, counted) };
            }
        };
        if size_of::<Packet<F, T>>() <= ROOM && align_of::<Packet<F, T>>() <= 16 {
            let packet = ManuallyDrop::new(packet);
            let work = Work {
                run: run::<F, T>,
                drop_result: drop_packet::<F, T>,
            };
            // SAFETY: it fits, and is moved there; the functions are for it.
            let shell = unsafe {
                shell::spawn(runtime, class, asks, work, |room| {
                    room.cast::<ManuallyDrop<Packet<F, T>>>()
                        .copy_from_nonoverlapping(&raw const packet, 1);
                    counts(room);
                })
            };
            match shell {
                Ok(shell) => Ok(JoinHandle(Kind::Own(Own {
                    // A packet begins with it.
                    outcome: shell.place().cast::<Outcome<T>>(),
                    shell,
                    free: None,
                }))),
                Err(error) => {
                    drop(ManuallyDrop::into_inner(packet));
                    Err(io::Error::from_raw_os_error(error.0))
                }
            }
        } else {
            let packet = Box::into_raw(Box::new(packet));
            let work = Work {
                run: run_boxed::<F, T>,
                drop_result: drop_boxed::<F, T>,
            };
            // SAFETY: a pointer fits; the functions are for it.
            let shell = unsafe {
                shell::spawn(runtime, class, asks, work, |room| {
                    room.cast::<MaybeUninit<*mut Packet<F, T>>>()
                        .write(MaybeUninit::new(packet));
                    counts(room);
                })
            };
            match shell {
                Ok(shell) => Ok(JoinHandle(Kind::Own(Own {
                    shell,
                    outcome: packet.cast::<Outcome<T>>(),
                    free: Some(free::<F, T>),
                }))),
                Err(error) => {
                    // SAFETY: nobody has got it.
                    drop(unsafe { Box::from_raw(packet) });
                    Err(io::Error::from_raw_os_error(error.0))
                }
            }
        }
    }

    /// # Safety
    ///
    /// The room holds such a packet, and it is the caller's. So too below.
    unsafe fn run<F: FnOnce() -> T, T>(room: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { (*room.cast::<Packet<F, T>>()).run() };
    }

    unsafe fn run_boxed<F: FnOnce() -> T, T>(room: *mut u8) {
        // SAFETY: the caller's promise: the room holds the box's address.
        unsafe { (**room.cast::<*mut Packet<F, T>>()).run() };
    }

    unsafe fn drop_packet<F, T>(room: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { room.cast::<Packet<F, T>>().drop_in_place() };
    }

    unsafe fn drop_boxed<F, T>(room: *mut u8) {
        // SAFETY: the caller's promise: the room holds the box's address.
        drop(unsafe { Box::from_raw(*room.cast::<*mut Packet<F, T>>()) });
    }

    unsafe fn free<F, T>(outcome: *mut Outcome<T>) {
        // SAFETY: the caller's promise: it is the beginning of a packet in a box.
        drop(unsafe { Box::from_raw(outcome.cast::<Packet<F, T>>()) });
    }
}
