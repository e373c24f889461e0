//! The POSIX calls that the workloads make, each behind a small safe function.
//!
//! They go through libc's own `pthread_*`, `sem_*` and so on rather than through `std::thread` and
//! `std::sync`: the standard library brings its own mutexes and condition variables, so a program
//! written with it would exercise futexes alone and none of libc's synchronisation.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::threads::{self, Threads, no_thread};
use super::{Failure, Params};

/// Nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of CPU time that this process has used so far.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer; both clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// `iterations` turns of an empty loop that the compiler must keep.
#[inline(never)]
pub fn spin(iterations: u64) {
    spin_here(iterations);
}

/// The same within its caller.
#[inline(always)]
pub fn spin_here(iterations: u64) {
    for _ in 0..iterations {
        // SAFETY: an empty statement.
        unsafe { std::arch::asm!("", options(nostack, preserves_flags)) };
    }
}

/// `sched_yield`.
pub fn yield_now() {
    // SAFETY: no arguments, cannot fail on Linux.
    unsafe { libc::sched_yield() };
}

/// `nanosleep` for `ns` nanoseconds, through libc's function or, if `raw`, through `syscall(2)`.
pub fn nanosleep(ns: u64, raw: bool) {
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    };
    let none = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: `time` is valid for the call and the remainder is not wanted.
    unsafe {
        if raw {
            libc::syscall(libc::SYS_nanosleep, &time, none);
        } else {
            libc::nanosleep(&time, none);
        }
    }
}

fn check(what: &str, code: i32) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        code => {
            let reason = std::io::Error::from_raw_os_error(code);
            Err(Failure::Failed(format!("{what}: {reason}")))
        }
    }
}

fn not_made(error: &std::io::Error) -> Failure {
    Failure::Failed(format!("pthread_create: {error}"))
}

/// A thread made by `pthread_create` that has not been joined.
pub struct Thread(libc::pthread_t);

extern "C" fn null_routine(argument: *mut c_void) -> *mut c_void {
    argument
}

extern "C" fn boxed_routine(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `Thread::spawn` passed the only pointer to this box.
    let body = unsafe { Box::from_raw(argument.cast::<Box<dyn FnOnce()>>()) };
    body();
    std::ptr::null_mut()
}

impl Thread {
    /// Starts a thread that runs `body`.
    pub fn spawn(body: impl FnOnce() + Send + 'static) -> Result<Self, Failure> {
        let body: Box<dyn FnOnce()> = Box::new(body);
        let argument = Box::into_raw(Box::new(body)).cast::<c_void>();
        let made = Self::create(boxed_routine, argument);
        if made.is_err() {
            // SAFETY: no thread was made, so the pointer is still ours alone.
            drop(unsafe { Box::from_raw(argument.cast::<Box<dyn FnOnce()>>()) });
        }
        made.map_err(|error| not_made(&error))
    }

    /// Starts a thread that returns at once and allocates nothing of its own.
    pub fn spawn_null() -> Result<Self, Failure> {
        Self::create(null_routine, std::ptr::null_mut()).map_err(|error| not_made(&error))
    }

    fn create(
        routine: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> std::io::Result<Self> {
        let mut thread = MaybeUninit::uninit();
        // SAFETY: the routine takes `argument` over; `thread` is written on success.
        let code = unsafe {
            libc::pthread_create(thread.as_mut_ptr(), std::ptr::null(), routine, argument)
        };
        if code != 0 {
            return Err(std::io::Error::from_raw_os_error(code));
        }
        // SAFETY: success, so it was written.
        Ok(Self(unsafe { thread.assume_init() }))
    }

    /// Waits for the thread to end.
    pub fn join(self) -> Result<(), Failure> {
        // SAFETY: the thread exists and is joined once, since `self` is consumed.
        check("pthread_join", unsafe {
            libc::pthread_join(self.0, std::ptr::null_mut())
        })
    }
}

/// POSIX threads as a package.
pub struct Posix;

/// A thread's body, then its result.
enum Packet<F, R> {
    Body(F),
    Result(R),
    Running,
}

extern "C" fn packet_routine<F: FnOnce() -> R, R>(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `Posix::spawn` passed it; nobody else looks at it until this thread has ended.
    let packet = unsafe { &mut *argument.cast::<Packet<F, R>>() };
    if let Packet::Body(body) = std::mem::replace(packet, Packet::Running) {
        *packet = Packet::Result(body());
    }
    argument
}

/// A thread of [`Posix`] that has not been joined.
pub struct Handle<R> {
    thread: Thread,
    /// Takes the result out of what the thread returns.
    open: unsafe fn(*mut c_void) -> Option<R>,
}

/// # Safety
///
/// The box that `Posix::spawn` gave the thread, whose thread has ended.
unsafe fn open<F, R>(argument: *mut c_void) -> Option<R> {
    // SAFETY: the caller's promise.
    match *unsafe { Box::from_raw(argument.cast::<Packet<F, R>>()) } {
        Packet::Result(result) => Some(result),
        Packet::Body(_) | Packet::Running => None,
    }
}

impl Threads for Posix {
    type Handle<R: Send + 'static> = Handle<R>;
    type Semaphore = Semaphore;
    type Mutex<V: Send + 'static> = Mutex<V>;
    type Reader = OwnedFd;
    type Writer = OwnedFd;
    type Stream = UnixStream;

    fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
        pipe()
    }

    fn stream(fd: OwnedFd) -> std::io::Result<UnixStream> {
        Ok(fd.into())
    }

    fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> Handle<R> {
        fn start<F: FnOnce() -> R, R>(body: F) -> Handle<R> {
            let packet: *mut Packet<F, R> = Box::into_raw(Box::new(Packet::Body(body)));
            match Thread::create(packet_routine::<F, R>, packet.cast()) {
                Ok(thread) => Handle {
                    thread,
                    open: open::<F, R>,
                },
                Err(error) => no_thread(&error),
            }
        }
        start(body)
    }

    fn join<R: Send + 'static>(handle: Handle<R>) -> R {
        let mut packet = std::ptr::null_mut();
        // SAFETY: the thread exists and is joined once, since `handle` is consumed.
        let code = unsafe { libc::pthread_join(handle.thread.0, &raw mut packet) };
        assert_eq!(code, 0, "pthread_join");
        // SAFETY: it has ended, and returned its packet.
        unsafe { (handle.open)(packet) }.expect("a thread that has run to its end")
    }

    fn yield_now() {
        yield_now();
    }
}

/// Joins all threads of `threads`.
pub fn join_all(threads: Vec<Thread>) -> Result<(), Failure> {
    threads.into_iter().try_for_each(Thread::join)
}

/// A POSIX semaphore at a fixed address, never destroyed while a thread could use it.
pub struct Semaphore(Box<UnsafeCell<libc::sem_t>>);

// SAFETY: a semaphore is made for use by several threads.
unsafe impl Send for Semaphore {}
// SAFETY: as above.
unsafe impl Sync for Semaphore {}

impl threads::Semaphore for Semaphore {
    fn new() -> Self {
        // SAFETY: all-zero bytes are a valid `sem_t` object to initialise; it does not move after.
        let this = Self(Box::new(UnsafeCell::new(unsafe { std::mem::zeroed() })));
        // SAFETY: the object lives in the box; value 0 cannot be rejected.
        unsafe { libc::sem_init(this.0.get(), 0, 0) };
        this
    }

    fn post(&self) {
        // SAFETY: initialised in `new`.
        unsafe { libc::sem_post(self.0.get()) };
    }

    /// Repeated if a signal interrupts it.
    fn wait(&self) {
        // SAFETY: initialised in `new`.
        while unsafe { libc::sem_wait(self.0.get()) } != 0 {}
    }
}

/// A POSIX mutex at a fixed address, and the value that it guards.
pub struct Mutex<V>(Box<UnsafeCell<(libc::pthread_mutex_t, V)>>);

// SAFETY: a mutex is made for use by several threads; only the thread that has locked it touches the value.
unsafe impl<V: Send> Send for Mutex<V> {}
// SAFETY: as above.
unsafe impl<V: Send> Sync for Mutex<V> {}

impl<V> Mutex<V> {
    fn place(&self) -> *mut libc::pthread_mutex_t {
        // SAFETY: a part of the box.
        unsafe { &raw mut (*self.0.get()).0 }
    }
}

/// The lock of a [`Mutex`], held.
pub struct Guard<'a, V>(&'a Mutex<V>, PhantomData<*mut ()>);

impl<V> Deref for Guard<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        // SAFETY: this thread holds the mutex.
        unsafe { &(*self.0.0.get()).1 }
    }
}

impl<V> DerefMut for Guard<'_, V> {
    fn deref_mut(&mut self) -> &mut V {
        // SAFETY: this thread holds the mutex.
        unsafe { &mut (*self.0.0.get()).1 }
    }
}

impl<V> Drop for Guard<'_, V> {
    fn drop(&mut self) {
        // SAFETY: this thread has locked it.
        unsafe { libc::pthread_mutex_unlock(self.0.place()) };
    }
}

/// A POSIX condition variable at a fixed address.
pub struct Condition(Box<UnsafeCell<libc::pthread_cond_t>>);

// SAFETY: a condition variable is made for use by several threads.
unsafe impl Send for Condition {}
// SAFETY: as above.
unsafe impl Sync for Condition {}

impl<V: Send + 'static> threads::Mutex<V> for Mutex<V> {
    type Guard<'a> = Guard<'a, V>;
    type Condition = Condition;

    fn new(value: V) -> Self {
        Self(Box::new(UnsafeCell::new((
            libc::PTHREAD_MUTEX_INITIALIZER,
            value,
        ))))
    }

    fn lock(&self) -> Guard<'_, V> {
        // SAFETY: initialised; no thread of the workloads locks twice.
        unsafe { libc::pthread_mutex_lock(self.place()) };
        Guard(self, PhantomData)
    }

    fn condition() -> Condition {
        Condition(Box::new(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER)))
    }

    fn wait<'a>(&'a self, condition: &Condition, guard: Guard<'a, V>) -> Guard<'a, V> {
        // SAFETY: both are initialised and the mutex is held by this thread, before and after.
        unsafe { libc::pthread_cond_wait(condition.0.get(), self.place()) };
        guard
    }

    fn signal(condition: &Condition) {
        // SAFETY: initialised.
        unsafe { libc::pthread_cond_signal(condition.0.get()) };
    }

    fn signal_all(condition: &Condition) {
        // SAFETY: initialised.
        unsafe { libc::pthread_cond_broadcast(condition.0.get()) };
    }
}

/// A pipe with blocking ends: (read, write).
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(Failure::errno("pipe"));
    }
    // SAFETY: two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

impl threads::Reader for OwnedFd {
    fn read_byte(&self) -> bool {
        read_byte(self)
    }
}

impl threads::Writer for OwnedFd {
    fn write_byte(&self) -> bool {
        write_byte(self)
    }
}

/// Reads one byte, blocking; false at the end of the file or on an error.
pub fn read_byte(fd: &impl AsRawFd) -> bool {
    let mut byte = 0u8;
    // SAFETY: room for one byte.
    unsafe { libc::read(fd.as_raw_fd(), (&raw mut byte).cast(), 1) == 1 }
}

/// With `gate=1`: waits for the byte on standard input by which several copies begin at once. Returns true if there is a gate.
pub fn pass_gate(params: &Params) -> Result<bool, Failure> {
    let is_there = params.number("gate", 0)? != 0;
    if is_there && !read_byte(&0) {
        let why = "standard input closed before the start signal";
        return Err(Failure::Failed(why.into()));
    }
    Ok(is_there)
}

/// Writes one byte; false on an error.
pub fn write_byte(fd: &impl AsRawFd) -> bool {
    let byte = 1u8;
    // SAFETY: one readable byte.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const byte).cast(), 1) == 1 }
}
