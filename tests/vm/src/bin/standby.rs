//! The share of a processor that an always-runnable standby takes from a thread that computes there,
//! by CPU time, for each way to schedule the standby.
//!
//! This needs nothing of the project. It shows which standby a kernel allows, and that the
//! kernel behaves as its version promises.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;

use clap::Parser;
use vm_tests::report::Report;
use vm_tests::sys;

/// Share of the processor that a yielding standby takes from a computing thread
#[derive(Parser)]
struct Arguments {
    /// Milliseconds measured for each kind of standby
    #[arg(long, default_value_t = 1500)]
    ms: u64,
    /// Fail if a SCHED_IDLE standby takes more than this percentage
    #[arg(long)]
    max_idle: Option<f64>,
    /// Fail if a nice-0 standby takes less than this percentage (what CFS kernels do)
    #[arg(long)]
    min_nice0: Option<f64>,
    /// Fail if a nice-0 standby takes more than this percentage
    #[arg(long)]
    max_nice0: Option<f64>,
}

struct Shared {
    quit: AtomicBool,
    ready: AtomicU32,
    yields: AtomicU64,
}

/// Percentage of the two threads' CPU time that the standby used, and its yields a second.
fn measure(policy: i32, nice: i32, ms: u64) -> (f64, f64) {
    let shared = Arc::new(Shared {
        quit: AtomicBool::new(false),
        ready: AtomicU32::new(0),
        yields: AtomicU64::new(0),
    });
    let ids = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let compute = {
        let (shared, ids) = (shared.clone(), ids.clone());
        thread::spawn(move || {
            sys::pin(0).expect("processor 0 is allowed");
            ids[0].store(sys::tid() as u32, Relaxed);
            shared.ready.fetch_add(1, Relaxed);
            let mut value = 1u64;
            while !shared.quit.load(Relaxed) {
                for _ in 0..1000 {
                    value = black_box(value.wrapping_mul(6364136223846793005).wrapping_add(1));
                }
            }
        })
    };
    let standby = {
        let (shared, ids) = (shared.clone(), ids.clone());
        thread::spawn(move || {
            sys::pin(0).expect("processor 0 is allowed");
            sys::set_policy(policy).expect("entering a lesser policy needs no privilege");
            sys::set_nice(nice).expect("a higher nice value needs no privilege");
            ids[1].store(sys::tid() as u32, Relaxed);
            shared.ready.fetch_add(1, Relaxed);
            while !shared.quit.load(Relaxed) {
                thread::yield_now();
                shared.yields.fetch_add(1, Relaxed);
            }
        })
    };
    while shared.ready.load(Relaxed) < 2 {
        sys::sleep_ns(1_000_000);
    }
    sys::sleep_ns(100_000_000);
    let pid = std::process::id() as i32;
    let cpu = |which: usize| {
        sys::task_cpu_ns(pid, ids[which].load(Relaxed) as i32).expect("the thread is alive")
    };
    let before = (cpu(0), cpu(1), shared.yields.load(Relaxed), sys::now_ns());
    sys::sleep_ns(ms * 1_000_000);
    let (computed, stood) = (cpu(0) - before.0, cpu(1) - before.1);
    let yields = (shared.yields.load(Relaxed) - before.2) as f64;
    let seconds = (sys::now_ns() - before.3) as f64 * 1e-9;
    shared.quit.store(true, Relaxed);
    compute.join().expect("does not panic");
    standby.join().expect("does not panic");
    (
        100.0 * stood as f64 / (computed + stood) as f64,
        yields / seconds,
    )
}

fn main() {
    let arguments = Arguments::parse();
    // The measuring thread must not be a third on the processor.
    if sys::pin(1).is_err() {
        eprintln!("vm-standby: only one processor here; the measuring thread shares it");
    }
    let mut report = Report::new("standby", &["standby", "share_percent", "yields_per_s"]);
    let kinds = [
        ("other_nice0", libc::SCHED_OTHER, 0),
        ("other_nice19", libc::SCHED_OTHER, 19),
        ("batch_nice0", libc::SCHED_BATCH, 0),
        ("idle", libc::SCHED_IDLE, 0),
    ];
    let mut violations = Vec::new();
    for (name, policy, nice) in kinds {
        let (share, rate) = measure(policy, nice, arguments.ms);
        report.row(vec![name.into(), share.into(), rate.round().into()]);
        let (at_least, at_most) = match name {
            "idle" => (None, arguments.max_idle),
            "other_nice0" => (arguments.min_nice0, arguments.max_nice0),
            _ => (None, None),
        };
        if at_most.is_some_and(|bound| share > bound) || at_least.is_some_and(|bound| share < bound)
        {
            violations.push(format!(
                "{name}: {share:.3} % is outside {} to {} %",
                at_least.unwrap_or(0.0),
                at_most.unwrap_or(100.0)
            ));
        }
    }
    report.print();
    for violation in &violations {
        eprintln!("vm-standby: {violation}");
    }
    std::process::exit(i32::from(!violations.is_empty()));
}
