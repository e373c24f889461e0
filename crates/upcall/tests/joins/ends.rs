//! Panics, threads that end early, processes that are copied, and stacks that end.

use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use upcall::sync::Semaphore;
use upcall::thread::{self, Builder};

use super::{again, fib, modes};

unsafe extern "C-unwind" {
    fn pthread_exit(value: *mut libc::c_void) -> !;
    fn pause() -> i32;
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> i32;
}

/// Counts how often it is dropped.
struct Dropped<'a>(&'a AtomicU32);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn panics_with<R>(body: impl FnOnce() -> R) -> i32 {
    let panic = catch_unwind(AssertUnwindSafe(body)).map(drop);
    *panic.unwrap_err().downcast::<i32>().unwrap()
}

/// Of a piece that is a call, and of one that is a thread.
pub fn a_panic_comes_back() {
    for (one, other, seen) in [
        (Some(1), None, 1),
        (None, Some(2), 2),
        (Some(1), Some(2), 1),
    ] {
        for taken in [false, true] {
            let go = Semaphore::new(0);
            let dropped = AtomicU32::new(0);
            let (left, right) = (Dropped(&dropped), Dropped(&dropped));
            let found = panics_with(|| {
                upcall::join(
                    || {
                        let _left = left;
                        if taken {
                            go.acquire();
                        }
                        one.map(|one| resume_unwind(Box::new(one)))
                    },
                    || {
                        let _right = right;
                        go.release();
                        other.map(|other| resume_unwind(Box::new(other)))
                    },
                )
            });
            assert_eq!((found, dropped.into_inner()), (seen, 2));
        }
    }
}

/// From within two others. On one virtual processor nothing takes the pieces before.
pub fn a_panic_drops_what_has_not_begun() {
    for _ in 0..100 {
        let (ran, dropped) = (AtomicU32::new(0), AtomicU32::new(0));
        let pieces = [(); 3].map(|()| Dropped(&dropped));
        let piece = |kept: Dropped| {
            ran.fetch_add(1, Ordering::Relaxed);
            drop(kept);
        };
        let [outer, middle, inner] = pieces;
        let innermost = || upcall::join(|| resume_unwind(Box::new(5)), move || piece(inner));
        let found = panics_with(|| {
            upcall::join(
                || upcall::join(innermost, move || piece(middle)),
                move || piece(outer),
            )
        });
        assert_eq!((found, dropped.load(Ordering::Relaxed)), (5, 3));
        assert!(ran.load(Ordering::Relaxed) <= 3);
    }
    assert_eq!(fib(10), 55);
}

/// The piece uses the stack that the panic unwinds.
pub fn a_panic_waits_for_what_has_begun() {
    let begun = Semaphore::new(0);
    let over = AtomicBool::new(false);
    let found = panics_with(|| {
        upcall::join(
            || {
                begun.acquire();
                resume_unwind(Box::new(6))
            },
            || {
                begun.release();
                for _ in 0..50 {
                    thread::yield_now();
                }
                over.store(true, Ordering::Relaxed);
            },
        )
    });
    assert_eq!((found, over.into_inner()), (6, true));
}

/// pthread_exit(3) and a cancellation run the destructors of what is on the stack. In a thread of C's: those of Rust
/// do not let them pass, and without a runtime a scope of them is in between.
pub fn an_early_end_of_the_creator() {
    if !modes::has_runtime() {
        return;
    }
    struct Seen {
        taken: bool,
        /// By another thread, while it waits. Otherwise the thread ends itself.
        cancelled: bool,
        waits: Semaphore,
        go: Semaphore,
        ended: AtomicU32,
        dropped: AtomicU32,
    }
    extern "C-unwind" fn body(seen: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: its creator waits for the thread.
        let seen = unsafe { &*seen.cast::<Seen>() };
        let _ended = Dropped(&seen.ended);
        let kept = Dropped(&seen.dropped);
        let one = || {
            if seen.taken {
                seen.go.acquire();
            }
            if seen.cancelled {
                seen.waits.release();
                // SAFETY: as below. A handler of a signal ends the call, and the next one waits again.
                while unsafe { pause() } != 0 {}
            }
            // SAFETY: what is on this stack is dropped.
            unsafe { pthread_exit(std::ptr::null_mut()) }
        };
        let other = || {
            seen.go.release();
            // It runs when its thread is cancelled.
            for _ in 0..if seen.taken { 50 } else { 0 } {
                thread::yield_now();
            }
            drop(kept);
        };
        upcall::join(one, other).0
    }
    for (taken, cancelled) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut seen = Seen {
            taken,
            cancelled,
            waits: Semaphore::new(0),
            go: Semaphore::new(0),
            ended: AtomicU32::new(0),
            dropped: AtomicU32::new(0),
        };
        // SAFETY: a thread that is joined here, of a function that it calls as C does.
        unsafe {
            let body: extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void = body;
            let body = std::mem::transmute::<
                extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void,
                extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
            >(body);
            let mut thread = 0;
            let argument = (&raw mut seen).cast();
            let made = libc::pthread_create(&raw mut thread, std::ptr::null(), body, argument);
            assert_eq!(made, 0);
            if cancelled {
                seen.waits.acquire();
                assert_eq!(pthread_cancel(thread), 0);
            }
            assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
        }
        let counts = [seen.ended, seen.dropped].map(AtomicU32::into_inner);
        assert_eq!(counts, [1, 1], "taken: {taken}, cancelled: {cancelled}");
    }
    assert_eq!(fib(10), 55);
}

/// With a piece that was forked before.
pub fn a_child_of_fork_joins() {
    let (status, ()) = upcall::join(
        || {
            // SAFETY: the child uses its own thread, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let (one, other) = upcall::join(|| fib(8), || fib(7));
                // Somebody of the child's own takes it.
                let go = Semaphore::new(0);
                upcall::join(|| go.acquire(), || go.release());
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(one + other == 34)) };
            }
            let mut status = 0;
            // SAFETY: a child of ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        },
        || (),
    );
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1,
        "{status:#x}"
    );
}

/// A piece that another thread has begun before the fork has no thread in the child. It was waited for for ever.
pub fn a_child_of_fork_waits_for_nobody_of_its_parent() {
    if !modes::has_runtime() {
        return;
    }
    let forks = |begun: &Semaphore, go: &Semaphore| {
        begun.acquire();
        // SAFETY: the child joins, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // What hangs ends by this.
            // SAFETY: asks for a signal.
            unsafe { libc::alarm(20) };
            return;
        }
        let mut status = 0;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT,
            "{status:#x}"
        );
        go.release();
    };
    let (begun, go) = (Semaphore::new(0), Semaphore::new(0));
    let own = std::process::id();
    let other = || {
        begun.release();
        go.acquire();
    };
    upcall::join(|| forks(&begun, &go), other);
    assert_eq!(std::process::id(), own, "the child has joined");
    thread::scope(|scope| {
        let handle = scope.fork(other);
        forks(&begun, &go);
        handle.join().unwrap();
    });
    assert_eq!(std::process::id(), own, "the child has joined");
    // A panic waits for it, too.
    let found = panics_with(|| {
        let one = || {
            forks(&begun, &go);
            resume_unwind(Box::new(4))
        };
        upcall::join(one, other)
    });
    assert_eq!((found, std::process::id()), (4, own));
}

/// Both in the parent and in the child, where it makes no difference who has forked the process.
pub fn a_child_joins_what_nobody_has_taken() {
    let own = thread::current().id();
    let taken = AtomicBool::new(false);
    let fib = |n| {
        // What its thread itself calls, nobody had taken.
        if thread::current().id() != own {
            taken.store(true, Ordering::Relaxed);
        }
        fib(n)
    };
    let forks = || {
        // SAFETY: the child joins, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // What hangs ends by this.
            // SAFETY: asks for a signal.
            unsafe { libc::alarm(20) };
        }
        child
    };
    let ((child, inner), value) = upcall::join(
        || {
            thread::scope(|scope| {
                let handle = scope.fork(|| fib(7));
                (forks(), handle.join().unwrap())
            })
        },
        || fib(8),
    );
    assert_eq!((inner, value), (13, 21));
    if child == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if taken.into_inner() {
        return println!("skipped: a_child_joins_what_nobody_has_taken: fork(2) has blocked");
    }
    let ended = (libc::WIFEXITED(status), libc::WEXITSTATUS(status));
    assert_eq!(ended, (true, 7));
}

/// exit(3) destroys the thread-local storage of a thread whose frames are all there. The process ended by SIGABRT, or the thread
/// that had forked went on.
pub fn exits(side: &str) {
    static NEVER: Semaphore = Semaphore::new(0);
    extern "C" fn last() {
        assert_eq!(fib(10), 55);
        if !WAITED_FOR.load(Ordering::Relaxed) {
            return;
        }
        // What nobody has begun is begun now.
        WAITS.acquire();
    }
    static WAITED_FOR: AtomicBool = AtomicBool::new(false);
    static WAITS: Semaphore = Semaphore::new(0);
    // SAFETY: a function that is there.
    assert_eq!(unsafe { libc::atexit(last) }, 0);
    let begun = Semaphore::new(0);
    let exits = || std::process::exit(3);
    match side {
        "creator" => upcall::join(
            || {
                begun.acquire();
                exits()
            },
            || {
                begun.release();
                NEVER.acquire();
            },
        ),
        "creator in time" => {
            WAITED_FOR.store(true, Ordering::Relaxed);
            upcall::join(exits, || WAITS.release())
        }
        _ => upcall::join(
            || begun.acquire(),
            || {
                begun.release();
                exits()
            },
        ),
    };
}

pub fn exits_between_fork_and_join() {
    for thread in ["main", "other"] {
        for side in ["creator", "creator in time", "taker"] {
            for vps in ["1", "2"] {
                let output = again(&["exits", side, thread], &[("UPCALL_VPS", vps)]);
                let said = String::from_utf8_lossy(&output.stderr);
                assert_eq!(
                    output.status.code(),
                    Some(3),
                    "{side} {thread} {vps}: {said}"
                );
                assert_eq!(said, "", "{side} {thread} {vps}");
            }
        }
    }
    println!("ok {}", stringify!(exits_between_fork_and_join));
}

/// In a destructor of thread-local storage, after that of the thread's own list or before.
pub fn joins_at_the_end_of_a_thread() {
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            assert_eq!(fib(6), 8);
            ENDS.fetch_add(1, Ordering::Relaxed);
        }
    }
    static ENDS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static LAST: Cell<Option<Last>> = const { Cell::new(None) };
    }
    ENDS.store(0, Ordering::Relaxed);
    for before in [false, true] {
        thread::spawn(move || {
            if before {
                fib(3);
            }
            LAST.set(Some(Last));
            fib(3);
        })
        .join()
        .unwrap();
    }
    // Of a thread of the crate they run before it has ended.
    if modes::has_runtime() {
        assert_eq!(ENDS.load(Ordering::Relaxed), 2);
    }
}

/// A thread uses up its stack by joins within one another.
pub fn overflows(half: &str) {
    fn first(last: u8) -> u8 {
        let next = std::hint::black_box([last; 64]);
        let (one, other) = upcall::join(|| first(next[1]), || next[2]);
        one.wrapping_add(other)
    }
    fn second(last: u8) -> u8 {
        let next = std::hint::black_box([last; 64]);
        let (one, other) = upcall::join(|| next[2], || second(next[1]));
        one.wrapping_add(other)
    }
    fn forked(last: u8) -> u8 {
        let next = std::hint::black_box([last; 64]);
        thread::scope(|scope| {
            let other = scope.fork(|| forked(next[1]));
            next[2].wrapping_add(other.join().unwrap())
        })
    }
    let body: fn(u8) -> u8 = match half {
        "second" => second,
        "fork" => forked,
        _ => first,
    };
    let is_taken = half == "taken";
    let thread = Builder::new().name("the deep one".to_owned());
    let thread = thread.spawn(move || {
        if !is_taken {
            return body(1);
        }
        let (begun, own) = (Semaphore::new(0), thread::current().id());
        let piece = || {
            begun.release();
            assert_ne!(thread::current().id(), own);
            name_thread("the taken one");
            body(1)
        };
        upcall::join(|| begun.acquire(), piece).1
    });
    thread.unwrap().join().unwrap();
}

fn name_thread(name: &str) {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: reads the name.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

pub fn overflows_are_told() {
    for half in ["first", "second", "fork", "taken"] {
        let alone = [("UPCALL_VPS", "1"), ("UPCALL_SLICE_US", "1000000")];
        let output = again(&["overflows", half], &alone);
        let said = String::from_utf8_lossy(&output.stderr);
        let status = output.status;
        assert_eq!(
            status.signal(),
            Some(libc::SIGSEGV),
            "{half}: {status}\n{said}"
        );
        let name = if half == "taken" {
            "the taken one"
        } else {
            "the deep one"
        };
        assert!(
            said.contains(&format!("thread '{name}' has overflowed its stack")),
            "{half}: {said}"
        );
    }
    println!("ok {}", stringify!(overflows_are_told));
}
