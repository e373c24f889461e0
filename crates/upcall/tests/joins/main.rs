//! Fork and join: pieces that are called, pieces that are taken, and what happens to them when something goes wrong.

mod ends;
mod filtered;
mod forks;
mod waits;
#[path = "../modes/mod.rs"]
#[macro_use]
mod modes;

use std::cell::Cell;
use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use upcall::policy::{Id, Policy, Rank, Threads, Why};
use upcall::thread::{self, Builder};

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (one, other) = upcall::join(|| fib(n - 1), || fib(n - 2));
    one + other
}

fn trees_add_up() {
    // Without a runtime each half is a kernel thread.
    let depth = if modes::has_runtime() { 24 } else { 12 };
    assert_eq!(fib(depth), if depth == 24 { 46_368 } else { 144 });
    let sums = (0..20).map(|_| thread::spawn(move || fib(depth / 2)));
    let sums: Vec<_> = sums.collect();
    for sum in sums {
        assert_eq!(sum.join().unwrap(), if depth == 24 { 144 } else { 8 });
    }
}

fn halves_borrow() {
    let mut halves = ([0u8; 10], [0u8; 10]);
    upcall::join(|| halves.0.fill(1), || halves.1.fill(2));
    assert_eq!(halves, ([1; 10], [2; 10]));
    let (one, other) = upcall::join(|| [1u64; 100], || vec![String::from("other")]);
    assert_eq!((one, other.concat().as_str()), ([1; 100], "other"));
}

/// More pieces than a list has room for: the inner ones are threads. Each ends with the right result.
fn more_pieces_than_have_room() {
    fn spine(left: u32, ran: &AtomicU32) -> u32 {
        if left == 0 {
            return 0;
        }
        let (rest, one) = upcall::join(
            || spine(left - 1, ran),
            || {
                ran.fetch_add(1, Ordering::Relaxed);
                1
            },
        );
        rest + one
    }
    let ran = AtomicU32::new(0);
    let deep = Builder::new().stack_size(2 << 20);
    thread::scope(|scope| {
        let sum = deep.spawn_scoped(scope, || spine(400, &ran)).unwrap();
        assert_eq!(sum.join().unwrap(), 400);
    });
    assert_eq!(ran.into_inner(), 400);
}

thread_local! {
    static MARK: Cell<u32> = const { Cell::new(0) };
}

/// A piece is called in the thread that forked it, with that thread's storage, or has a thread and storage of its own.
fn a_piece_is_one_thread_or_the_other() {
    let own = thread::current().id();
    MARK.set(7);
    let mut calls = 0;
    for _ in 0..1000 {
        let ((), (id, mark)) = upcall::join(|| (), || (thread::current().id(), MARK.replace(7)));
        assert_eq!(mark, if id == own { 7 } else { 0 });
        calls += u32::from(id == own);
    }
    assert!((calls == 0) != modes::has_runtime(), "{calls}");
    MARK.set(0);
}

/// A taker that one thread has made takes the piece of another one, whose signal mask is another.
fn a_piece_has_the_mask_of_its_creator() {
    let mask = |how, number| {
        // SAFETY: sets of the calling thread's.
        unsafe {
            let (mut set, mut old) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, number);
            libc::pthread_sigmask(how, &raw const set, &raw mut old);
            libc::sigismember(&raw const old, number) == 1
        }
    };
    let number = libc::SIGURG;
    let blocks = || {
        mask(libc::SIG_BLOCK, number);
        let go = upcall::sync::Semaphore::new(0);
        let other = || {
            let was_blocked = mask(libc::SIG_BLOCK, number);
            go.release();
            was_blocked
        };
        upcall::join(|| go.acquire(), other).1
    };
    let seen = thread::scope(|scope| {
        let one = || {
            let blocks = scope.spawn(blocks);
            while !blocks.is_finished() {
                thread::yield_now();
            }
            blocks.join().unwrap()
        };
        upcall::join(one, || mask(libc::SIG_UNBLOCK, number))
    });
    assert_eq!(seen, (true, false));
}

/// Those with a tag wait for all others.
struct TaggedLast;

impl Policy for TaggedLast {
    fn ready(&mut self, threads: &mut Threads, thread: Id, _: Why) -> Rank {
        Rank(Rank::COMMON.0 + threads.tag(thread).unwrap_or(0))
    }
}

const RANKED: [&str; 3] = ["priority", "deadline", "own"];

/// A process whose threads have ranks: what is forked is a thread, in its place.
fn ranked(by: &str) {
    let one = upcall::Runtime::builder().virtual_processors(1, 1);
    let below = Builder::new();
    let below = match by {
        "priority" => {
            one.policy(upcall::policy::Priority).start().unwrap();
            thread::set_priority(20);
            below.priority(10)
        }
        "deadline" => {
            let after = |seconds| Instant::now() + Duration::from_secs(seconds);
            let by_deadline = one.policy(upcall::policy::EarliestDeadline);
            by_deadline.start().unwrap();
            thread::set_deadline(after(100));
            below.deadline(after(1000))
        }
        _ => {
            one.policy(TaggedLast).start().unwrap();
            below.tag(1)
        }
    };
    let own = thread::current().id();
    let below = below.spawn(|| ()).unwrap();
    let go = upcall::sync::Semaphore::new(0);
    let ((), (id, before)) = upcall::join(
        || go.acquire(),
        || {
            go.release();
            (thread::current().id(), below.is_finished())
        },
    );
    assert_ne!(id, own);
    assert!(!before, "a less urgent thread went first");
    below.join().unwrap();
    if by == "priority" {
        // The caller keeps its own.
        upcall::join(|| (), || thread::set_priority(15));
        let between = Builder::new().priority(17).spawn(|| ()).unwrap();
        assert!(!between.is_finished(), "the caller has the other's");
        between.join().unwrap();
    }
    let (one, other) = upcall::join(|| thread::current().id(), || thread::current().id());
    assert!(one == own && other != own);
}

/// sched_setscheduler(2) gives the thread a kernel thread of its own: what that forks is a thread, too. A thread of the crate, as
/// the taker is, cannot have one.
fn a_piece_sets_its_own_thread() {
    // SAFETY: of the calling thread.
    let policy = || unsafe { libc::sched_getscheduler(0) };
    let sets = || {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: as above; reads the parameters.
        let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
        let error = std::io::Error::last_os_error().raw_os_error();
        (thread::current().id(), (set != 0).then_some(error))
    };
    let called = |taken: bool| {
        let own = thread::current().id();
        let go = upcall::sync::Semaphore::new(0);
        let one = || {
            if taken {
                go.acquire();
            }
        };
        let ((), (id, error)) = upcall::join(one, || {
            go.release();
            sets()
        });
        if id != own {
            assert_eq!(policy(), libc::SCHED_OTHER);
            assert_eq!(error, modes::has_runtime().then_some(Some(libc::EPERM)));
            return false;
        }
        assert_eq!((policy(), error), (libc::SCHED_BATCH, None));
        let id = || thread::current().id();
        assert_ne!(upcall::join(|| (), id).1, own);
        assert_ne!(thread::scope(|scope| scope.fork(id).join().unwrap()), own);
        assert!(!taken);
        true
    };
    let mut calls = 0;
    for round in 0..60 {
        // Such a one may be bound.
        std::thread::scope(|scope| {
            let called = scope.spawn(|| called(round % 2 == 1));
            calls += u32::from(called.join().unwrap());
        });
    }
    assert!((calls == 0) != modes::has_runtime(), "{calls}");
}

fn again(words: &[&str], settings: &[(&str, &str)]) -> std::process::Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(words).envs(settings.iter().copied());
    command.output().unwrap()
}

/// What the counters say where each piece must be taken.
fn counted() {
    let output = again(&["waits"], &[("UPCALL_VPS", "1"), ("UPCALL_STATS", "1")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let row = said.lines().find(|line| line.contains("pieces taken"));
    let count = row.and_then(|row| row.split_whitespace().last());
    assert_eq!(count, Some("10"), "{said}");
    println!("ok {}", stringify!(counted));
}

fn main() {
    let word = env::args().nth(1);
    match word.as_deref() {
        Some("overflows") => return ends::overflows(&env::args().nth(2).unwrap()),
        Some("filtered") => return filtered::filtered(),
        Some("ranked") => return ranked(&env::args().nth(2).unwrap()),
        Some("exits") => {
            let side = env::args().nth(2).unwrap();
            // What hangs ends by this.
            // SAFETY: asks for a signal.
            unsafe { libc::alarm(100) };
            return match env::args().nth(3).as_deref() {
                Some("main") => ends::exits(&side),
                _ => thread::spawn(move || ends::exits(&side)).join().unwrap(),
            };
        }
        Some("children") => return ends::a_child_joins_what_nobody_has_taken(),
        Some("waits") => {
            upcall::Runtime::start().unwrap();
            for _ in 0..10 {
                waits::for_a_semaphore();
            }
            return;
        }
        _ => {}
    }
    if word.is_none() && upcall_linux::arch::SERVES_PROGRAMS && env::var_os(modes::MODE).is_none() {
        ends::overflows_are_told();
        let output = again(&["filtered"], &[]);
        assert!(output.status.success(), "{output:?}");
        ends::exits_between_fork_and_join();
        for by in RANKED {
            let output = again(&["ranked", by], &[]);
            assert!(output.status.success(), "{by}: {output:?}");
        }
        let alone = [("UPCALL_VPS", "1"), ("UPCALL_SLICE_US", "1000000")];
        let output = again(&["children"], &alone);
        assert!(output.status.success(), "{output:?}");
        counted();
    }
    if env::var_os(modes::MODE).is_some() && !modes::has_runtime() {
        // No runtime takes a process that has another thread.
        std::thread::spawn(std::thread::park);
    }
    modes::main_with_slices(cases![
        trees_add_up
        halves_borrow
        more_pieces_than_have_room
        a_piece_is_one_thread_or_the_other
        a_piece_has_the_mask_of_its_creator
        a_piece_sets_its_own_thread
        waits::for_a_semaphore
        waits::for_all_pieces_at_once
        waits::for_a_lock_in_the_kernel
        waits::on_a_page_fault
        waits::by_looking_again_and_again
        waits::for_a_sleep_in_each_leaf
        ends::a_panic_comes_back
        ends::a_panic_drops_what_has_not_begun
        ends::a_panic_waits_for_what_has_begun
        ends::an_early_end_of_the_creator
        ends::a_child_of_fork_joins
        ends::a_child_of_fork_waits_for_nobody_of_its_parent
        ends::joins_at_the_end_of_a_thread
        forks::in_any_order
        forks::run_where_their_thread_waits
        forks::are_joined_by_dropping
        forks::hand_panics_on
        forks::are_dropped_by_a_panic
    ]);
}
