//! Policies: in which order threads run, and that a bad policy orders them badly and nothing worse. Each case is
//! a process of its own, since a process has one runtime.

mod order;
mod own;

use std::env;
use std::hint::spin_loop;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use upcall::policy::{
    EarliestDeadline, Fifo, ForkedFirst, Gang, Id, Lifo, Policy, Priority, Rank, RoundRobin,
    Threads, Why,
};
use upcall::sync::{Barrier, Mutex, Semaphore};
use upcall::thread::{self, Builder};

const SLICE: Duration = Duration::from_micros(200);

/// Starts a runtime with a policy and so many virtual processors.
fn start(vps: u32, policy: impl Policy) {
    upcall::Runtime::builder()
        .virtual_processors(vps, vps)
        .time_slice(SLICE)
        .policy(policy)
        .start()
        .expect("starts");
}

/// What happened, in its order.
type Log = Arc<StdMutex<Vec<u32>>>;

/// Computes for some time slices of its own.
fn compute() {
    compute_for(20);
}

/// Computes for so many time slices of its own.
fn compute_for(slices: u32) {
    let cpu_ns = || {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: writes the structure.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let end = cpu_ns() + (slices * SLICE).as_nanos() as u64;
    while cpu_ns() < end {
        spin_loop();
    }
}

/// Runs a case with 1, 2 and 4 virtual processors: a process each.
fn for_vps(case: impl Fn(u32)) {
    match env::var("UPCALL_TEST_VPS") {
        Ok(vps) => case(vps.parse().unwrap()),
        Err(_) => {
            for vps in ["1", "2", "4"] {
                let output = Command::new(env::current_exe().unwrap())
                    .args(env::args_os().skip(1))
                    .env("UPCALL_TEST_VPS", vps)
                    .output()
                    .unwrap();
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(
                    output.status.success(),
                    "{vps} virtual processors: {}\n{errors}",
                    output.status
                );
                // What it says itself is the case's to look at, where there is one virtual processor.
                eprint!("{errors}");
            }
        }
    }
}

/// Threads of all kinds come to their ends.
fn everything_works() {
    let barrier = Arc::new(Barrier::new(8));
    let sum = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let (barrier, sum) = (barrier.clone(), sum.clone());
            Builder::new()
                .tag(1 + number % 2)
                .spawn(move || {
                    for _ in 0..20 {
                        barrier.wait();
                        std::thread::sleep(Duration::from_micros(50));
                        thread::yield_now();
                    }
                    compute();
                    sum.fetch_add(1, Ordering::SeqCst);
                })
                .unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(sum.load(Ordering::SeqCst), 8);
}

macro_rules! cases {
    ($($within:ident :: $case:ident)*) => {
        [$((stringify!($case), $within::$case as fn())),*]
    };
}

fn main() {
    let cases = cases! {
        order::in_fifo_each_runs_to_its_end
        order::in_fifo_a_lost_turn_costs_no_place
        order::in_round_robin_nobody_runs_alone
        order::a_new_thread_of_the_crate_goes_first
        order::in_lifo_every_new_thread_goes_first
        order::in_round_robin_new_threads_queue
        order::the_more_urgent_runs_at_once
        order::who_waits_for_a_mutex_lends_its_priority
        order::what_was_lent_is_given_back
        order::the_nearest_deadline_goes_first
        own::a_policy_is_told_of_all_transitions
        own::an_end_of_which_it_hears_late_is_told
        own::who_panics_is_not_asked_again
        own::who_loops_takes_turns
        own::who_waits_keeps_nobody_waiting
        own::who_is_held_does_not_run own::that_all_are_held_is_said
        order::gangs_come_to_their_ends
    };
    if !upcall_linux::arch::SERVES_PROGRAMS {
        println!("skipped: not on this architecture");
        return;
    }
    let named = env::args().nth(1).filter(|arg| !arg.starts_with('-'));
    let one = named.and_then(|name| cases.iter().find(|case| case.0 == name));
    if let Some((_, case)) = one {
        // What hangs ends by this.
        // SAFETY: asks for a signal.
        unsafe { libc::alarm(100) };
        return case();
    }
    for (name, _) in cases {
        let status = Command::new(env::current_exe().unwrap())
            .arg(name)
            .status()
            .unwrap();
        assert!(status.success(), "{name}: {status}");
        println!("ok {name}");
    }
}
