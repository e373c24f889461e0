//! `process_fork`: a process that ends at once, made and waited for: Null Fork of processes in Anderson et al. 1991,
//! Table 1.
//!
//! `kernel_signal_wait`: a round trip over two semaphores that other processes could use, so that signal and wait go
//! through the kernel. `between=processes` is Signal-Wait of processes in that table. `between=threads` is *signal and wait
//! through the kernel* of section 5.2, which measures what the kernel's help costs: each wait blocks a thread in the kernel, and
//! each signal unblocks one.
//!
//! A figure `ns` is a mean.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::fork::{right, timed};
use super::threads::Threads;
use super::{Failure, Figures, Params};

/// Forks; the child does `body` and nothing else.
fn fork(body: impl FnOnce()) -> Result<libc::pid_t, Failure> {
    // SAFETY: the child makes calls that are safe in a signal handler, and ends.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::errno("fork")),
        0 => {
            body();
            // SAFETY: ends the child, and runs nothing of the parent's.
            unsafe { libc::_exit(0) }
        }
        child => Ok(child),
    }
}

/// Waits for a child's end.
fn join(child: libc::pid_t) -> Result<(), Failure> {
    let mut status = 0;
    loop {
        // SAFETY: room for the status of a child of this process.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(Failure::Failed(format!("waitpid: {error}")));
        }
    }
    match status {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!(
            "a child ended with status {status:#x}"
        ))),
    }
}

pub fn null(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 200)?;
    timed(samples, operations, || {
        (0..operations).try_for_each(|_| join(fork(|| ())?))
    })
}

/// Memory that a child shares with this process.
struct Shared {
    semaphores: [libc::sem_t; 2],
    /// How often one of the two went on.
    passed: AtomicUsize,
}

struct Place(NonNull<Shared>);

// SAFETY: all of it is made for use by several threads and processes.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    fn new() -> Result<Self, Failure> {
        // SAFETY: new memory, which goes away with the process. It is all zero bytes, which are a valid counter and room for
        // the semaphores.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Shared>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let place = NonNull::new(memory.cast::<Shared>()).filter(|_| memory != libc::MAP_FAILED);
        let place = Self(place.ok_or_else(|| Failure::errno("mmap"))?);
        for which in 0..2 {
            // SAFETY: room for one; value 0 cannot be rejected.
            unsafe { libc::sem_init(place.semaphore(which), 1, 0) };
        }
        Ok(place)
    }

    fn semaphore(&self, which: usize) -> *mut libc::sem_t {
        // SAFETY: a part of the memory.
        unsafe { &raw mut (*self.0.as_ptr()).semaphores[which] }
    }

    fn passed(&self) -> &AtomicUsize {
        // SAFETY: a part of the memory, which stays.
        unsafe { &(*self.0.as_ptr()).passed }
    }

    fn post(&self, which: usize) {
        // SAFETY: initialised in `new`.
        unsafe { libc::sem_post(self.semaphore(which)) };
    }

    fn wait(&self, which: usize) {
        // SAFETY: initialised in `new`. Repeated if a signal interrupts it.
        while unsafe { libc::sem_wait(self.semaphore(which)) } != 0 {}
        self.passed().fetch_add(1, Ordering::Relaxed);
    }

    fn ask(&self, operations: usize) {
        for _ in 0..operations {
            self.post(1);
            self.wait(0);
        }
    }

    fn answer(&self, operations: usize) {
        for _ in 0..operations {
            self.wait(1);
            self.post(0);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Shared>()) };
    }
}

pub fn signal_wait<T: Threads>(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 5000)?;
    let threads = match params.text("between").unwrap_or("threads") {
        "threads" => true,
        "processes" => false,
        other => {
            let text = format!("between={other}: threads or processes");
            return Err(Failure::Usage(text));
        }
    };
    timed(samples, operations, || {
        let place = Arc::new(Place::new()?);
        if threads {
            let (one, other) = (place.clone(), place.clone());
            let one = T::spawn(move || one.ask(operations));
            let other = T::spawn(move || other.answer(operations));
            T::join(one);
            T::join(other);
        } else {
            let child = fork(|| place.answer(operations))?;
            place.ask(operations);
            join(child)?;
        }
        right(
            place.passed().load(Ordering::Relaxed) as u64,
            2 * operations as u64,
        )
    })
}
