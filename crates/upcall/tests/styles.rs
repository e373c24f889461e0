//! Other ways to write a program down: futures, fork and join, parallel iterators, a heap of problems, actors. Each
//! setting is a process of its own: without a runtime, and with virtual processors and time slices.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rayon::prelude::*;
use upcall::actor::{self, Actor, Address, NoReply, Reply};
use upcall::future::{block_on, blocking, spawn};
use upcall::sync::Semaphore;
use upcall::{thread, workers};

/// Asks for nothing, and wakes its waker in between: yields so many times.
struct Yields(u32);

impl Future for Yields {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// A waker that is called by another thread, early or late, or more than once.
fn wakers_are_heard_whenever_they_are_called() {
    for round in 0..500u32 {
        let (stage, other) = {
            let stage = Arc::new((AtomicU32::new(0), Mutex::new(None::<Waker>)));
            (stage.clone(), stage)
        };
        let teller = thread::spawn(move || {
            if round.is_multiple_of(3) {
                thread::yield_now();
            }
            other.0.store(1, Ordering::SeqCst);
            let waker = other.1.lock().unwrap().take();
            if let Some(waker) = waker {
                waker.wake_by_ref();
                waker.wake();
            }
        });
        block_on(std::future::poll_fn(|context| {
            *stage.1.lock().unwrap() = Some(context.waker().clone());
            match stage.0.load(Ordering::SeqCst) {
                0 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        }));
        teller.join().unwrap();
    }
    block_on(Yields(1000));
    // One within another has signals of its own.
    assert_eq!(block_on(async { block_on(async { 5 }) + 1 }), 6);
}

fn futures_wait_for_threads_and_threads_for_futures() {
    let futures: Vec<_> = (0..50u64)
        .map(|number| {
            spawn(async move {
                Yields(3).await;
                let slept = blocking(move || {
                    std::thread::sleep(Duration::from_millis(2));
                    number
                });
                slept.await.unwrap()
            })
        })
        .collect();
    let sum: u64 = futures.into_iter().map(|one| one.join().unwrap()).sum();
    assert_eq!(sum, 49 * 50 / 2);
    let panic = block_on(blocking(|| -> u32 { resume_unwind(Box::new(7)) }));
    assert_eq!(*panic.unwrap_err().downcast::<i32>().unwrap(), 7);
    let panic = spawn(async { resume_unwind(Box::new(8)) }).join();
    let panic: thread::Result<()> = panic;
    assert_eq!(*panic.unwrap_err().downcast::<i32>().unwrap(), 8);
    // Nobody has its result, but it runs to its end.
    let ended = Arc::new(AtomicU32::new(0));
    let counts = ended.clone();
    drop(blocking(move || counts.fetch_add(1, Ordering::SeqCst)));
    while ended.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (one, other) = upcall::join(|| fib(n - 1), || fib(n - 2));
    one + other
}

fn both_halves_are_joined() {
    assert_eq!(fib(15), 610);
    let mut halves = ([0u8; 10], [0u8; 10]);
    upcall::join(|| halves.0.fill(1), || halves.1.fill(2));
    assert_eq!(halves, ([1; 10], [2; 10]));
    for (one, other, seen) in [
        (Some(1), None, 1),
        (None, Some(2), 2),
        (Some(1), Some(2), 1),
    ] {
        let panics = |what: Option<i32>| {
            if let Some(what) = what {
                resume_unwind(Box::new(what));
            }
        };
        let found = catch_unwind(|| upcall::join(|| panics(one), || panics(other)));
        assert_eq!(*found.unwrap_err().downcast::<i32>().unwrap(), seen);
    }
}

fn parallel_iterators_run_on_threads_that_may_block() {
    let pool = upcall::rayon::pool(16).unwrap();
    assert_eq!(pool.current_num_threads(), 16);
    let sum: u64 = pool.install(|| (1..=100_000u64).into_par_iter().map(|one| one * 2).sum());
    assert_eq!(sum, 100_000 * 100_001);
    let mut numbers: Vec<u32> = (0..20_000u32)
        .map(|one| one.wrapping_mul(2_654_435_761))
        .collect();
    pool.install(|| numbers.par_sort_unstable());
    assert!(numbers.is_sorted());
    let slept = AtomicU32::new(0);
    pool.install(|| {
        (0..64).into_par_iter().for_each(|_| {
            std::thread::sleep(Duration::from_millis(1));
            slept.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(slept.into_inner(), 64);
    // What a thread of the pool forks itself.
    let (waited, sum) = pool.install(|| {
        (0..64u64)
            .into_par_iter()
            .map(|number| {
                let go = Semaphore::new(0);
                let ((), one) = upcall::join(
                    || go.acquire(),
                    || {
                        go.release();
                        1
                    },
                );
                let inside = || (0..8u64).into_par_iter().sum::<u64>();
                let (inner, fib) = upcall::join(inside, || fib(8));
                (one, number + inner + fib)
            })
            .reduce(|| (0, 0), |one, other| (one.0 + other.0, one.1 + other.1))
    });
    assert_eq!((waited, sum), (64, 64 * 63 / 2 + 64 * (28 + 21)));
    let panic = catch_unwind(AssertUnwindSafe(|| {
        pool.install(|| {
            (0..10)
                .into_par_iter()
                .for_each(|_| resume_unwind(Box::new(1)))
        });
    }));
    assert!(panic.is_err());
}

fn problems_are_solved_once() {
    for count in [1, 2, 8] {
        let solved: Vec<_> = (0..1000).map(|_| AtomicU32::new(0)).collect();
        workers::solve(count, [0..500usize, 500..1000], |heap, problem| {
            if problem.len() == 1 {
                solved[problem.start].fetch_add(1, Ordering::Relaxed);
                if problem.start.is_multiple_of(100) {
                    std::thread::sleep(Duration::from_micros(100));
                }
                return;
            }
            let middle = problem.start.midpoint(problem.end);
            heap.put(problem.start..middle);
            heap.put(middle..problem.end);
        });
        assert!(
            solved
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 1)
        );
    }
    workers::solve(3, [], |_, ()| unreachable!("there is no problem"));
}

/// The others do not wait for what it would have put.
fn a_worker_that_panics_ends_all() {
    let solved = AtomicU32::new(0);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        workers::solve(4, 0..1_000_000u32, |_, problem| {
            if problem == 999_900 {
                resume_unwind(Box::new(6));
            }
            solved.fetch_add(1, Ordering::Relaxed);
        });
    }));
    assert_eq!(*panic.unwrap_err().downcast::<i32>().unwrap(), 6);
    assert!(solved.into_inner() < 1_000_000);
}

/// Adds up what it is sent, and blocks now and then.
struct Adds(u64);

enum ToAdd {
    Number(u64),
    Sum(Reply<u64>),
    Nothing(Reply<u64>),
    Panic,
}

impl Actor for Adds {
    type Message = ToAdd;

    fn receive(&mut self, message: ToAdd) {
        match message {
            ToAdd::Number(number) => {
                if number.is_multiple_of(500) {
                    std::thread::sleep(Duration::from_micros(100));
                }
                self.0 += number;
            }
            ToAdd::Sum(reply) => reply.send(self.0),
            ToAdd::Nothing(reply) => drop(reply),
            ToAdd::Panic => resume_unwind(Box::new(3)),
        }
    }
}

fn actors_receive_all_and_end_with_their_addresses() {
    for places in [0, 1, 100] {
        let (address, handle) = actor::spawn(Adds(0), places);
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let address = address.clone();
                thread::spawn(move || {
                    for number in 1..=1000 {
                        address.send(ToAdd::Number(number)).unwrap();
                    }
                })
            })
            .collect();
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
        assert_eq!(address.ask(ToAdd::Sum), Ok(4 * 500_500));
        assert_eq!(address.ask(ToAdd::Nothing), Err(NoReply));
        assert!(!handle.is_finished());
        drop(address);
        assert_eq!(handle.join().unwrap().0, 4 * 500_500);
    }
}

fn an_actor_that_panics_says_so() {
    let (address, handle) = actor::spawn(Adds(0), 4);
    // A thread that waits for a reply is told, and so is one that waits for a place.
    let asks: Vec<_> = (0..8)
        .map(|_| {
            let address = address.clone();
            thread::spawn(move || address.ask(ToAdd::Sum))
        })
        .collect();
    address.send(ToAdd::Panic).unwrap();
    for ask in asks {
        let answer = ask.join().unwrap();
        assert!([Ok(0), Err(NoReply)].contains(&answer));
    }
    let panic = handle.join().map(|adds| adds.0);
    assert_eq!(*panic.unwrap_err().downcast::<i32>().unwrap(), 3);
    assert!(address.send(ToAdd::Number(1)).is_err());
    assert_eq!(address.ask(ToAdd::Sum), Err(NoReply));
}

/// One of many in a ring.
struct Passes(Option<Address<u64>>, Arc<AtomicU64>);

impl Actor for Passes {
    type Message = u64;

    fn receive(&mut self, number: u64) {
        match &self.0 {
            Some(next) => next.send(number + 1).unwrap(),
            None => drop(self.1.fetch_add(number, Ordering::SeqCst)),
        }
    }
}

/// The end of one is the end of the next.
fn a_chain_of_actors_ends_from_the_front() {
    let sum = Arc::new(AtomicU64::new(0));
    let (mut next, last) = actor::spawn(Passes(None, sum.clone()), 2);
    let mut handles = vec![last];
    for _ in 0..200 {
        let (address, handle) = actor::spawn(Passes(Some(next), sum.clone()), 2);
        next = address;
        handles.push(handle);
    }
    (0..20).for_each(|_| next.send(0).unwrap());
    drop(next);
    for handle in handles.into_iter().rev() {
        drop(handle.join().unwrap());
    }
    assert_eq!(sum.load(Ordering::SeqCst), 20 * 200);
}

fn cases() {
    let cases: &[(&str, fn())] = &[
        (
            "wakers_are_heard_whenever_they_are_called",
            wakers_are_heard_whenever_they_are_called,
        ),
        (
            "futures_wait_for_threads_and_threads_for_futures",
            futures_wait_for_threads_and_threads_for_futures,
        ),
        ("both_halves_are_joined", both_halves_are_joined),
        (
            "parallel_iterators_run_on_threads_that_may_block",
            parallel_iterators_run_on_threads_that_may_block,
        ),
        ("problems_are_solved_once", problems_are_solved_once),
        (
            "a_worker_that_panics_ends_all",
            a_worker_that_panics_ends_all,
        ),
        (
            "actors_receive_all_and_end_with_their_addresses",
            actors_receive_all_and_end_with_their_addresses,
        ),
        ("an_actor_that_panics_says_so", an_actor_that_panics_says_so),
        (
            "a_chain_of_actors_ends_from_the_front",
            a_chain_of_actors_ends_from_the_front,
        ),
    ];
    for (name, case) in cases {
        case();
        println!("ok {name}");
    }
}

/// Runs the cases in a process of its own.
fn again(word: &str, settings: &[(&str, &str)]) {
    println!("{word} {settings:?}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    let status = command.arg(word).envs(settings.iter().copied()).status();
    let status = status.unwrap();
    assert!(status.success(), "{word} {settings:?}: {status}");
}

fn main() {
    // What hangs ends by this.
    // SAFETY: asks for a signal.
    unsafe { libc::alarm(200) };
    match std::env::args().nth(1).as_deref() {
        Some("without") => {
            // Where there is a second thread, no runtime can be started any more.
            let other = std::thread::spawn(std::thread::park);
            assert!(upcall::Runtime::start().is_err());
            cases();
            other.thread().unpark();
            other.join().unwrap();
        }
        Some("with") => {
            upcall::Runtime::start().unwrap();
            cases();
        }
        _ => {
            again("without", &[]);
            if !upcall_linux::arch::SERVES_PROGRAMS {
                println!("skipped: with a runtime: not on this architecture");
                return;
            }
            for vps in ["1", "2", "4"] {
                for slice in ["5000", "100"] {
                    again("with", &[("UPCALL_VPS", vps), ("UPCALL_SLICE_US", slice)]);
                }
            }
        }
    }
}
