//! How soon a ready thread runs on a processor whose thread has just blocked, for each kind of
//! standby, with and without a hog on the same processor.
//!
//! 1. The owner (nice 0) computes, writes down that it blocks, and blocks in a sleep.
//! 2. The kernel runs the sentinel when it has nothing better to run. The sentinel reads what the owner
//!    wrote and wakes the heir (nice 0), which was parked on a futex.
//! 3. The heir notes how long that took and computes until the owner is back.
//!
//! A hog rightly shares the processor. But the sentinel must get its turn, or the heir would never run.

use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::{env, io, thread};

use clap::{Parser, ValueEnum};
use vm_tests::report::Report;
use vm_tests::sys;

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Hog {
    None,
    /// In this session: the same automatic group.
    Same,
    /// In a session of its own.
    Session,
    /// In a cgroup of its own, this process in another (needs root).
    Cgroup,
}

/// Latency from a block to the heir, by sentinel and hog
#[derive(Parser)]
struct Arguments {
    /// Milliseconds of each run
    #[arg(long, default_value_t = 2000)]
    ms: u64,
    /// Hogs to try; all but cgroup by default
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["none", "same", "session"])]
    hogs: Vec<Hog>,
    /// Be the hog
    #[arg(long, hide = true)]
    spin: bool,
}

/// How the sentinel stands by.
#[derive(Clone, Copy)]
enum Sentinel {
    /// Always runnable, yielding, with this policy and nice value.
    Yield(i32, i32),
    /// Sleeps for this many nanoseconds between looks, nice 0.
    Timer(u64),
}

#[derive(Default)]
struct Shared {
    quit: AtomicBool,
    /// The time at which the owner blocked; 0 while it runs.
    blocked_at: AtomicU64,
    /// Counts hand-overs; the heir parks on it.
    handed: AtomicU32,
    latencies: Mutex<Vec<u64>>,
    sentinel_tid: AtomicU32,
    heir_tid: AtomicU32,
    owner_tid: AtomicU32,
}

fn spin(ns: u64) {
    let end = sys::now_ns() + ns;
    while sys::now_ns() < end {
        black_box(end);
    }
}

fn owner(shared: &Shared) {
    shared.owner_tid.store(sys::tid() as u32, SeqCst);
    while !shared.quit.load(SeqCst) {
        spin(500_000);
        shared.blocked_at.store(sys::now_ns(), SeqCst);
        sys::sleep_ns(3_000_000);
        shared.blocked_at.store(0, SeqCst);
    }
    shared.handed.fetch_add(1, SeqCst);
    sys::futex_wake(&shared.handed);
}

fn sentinel(shared: &Shared, kind: Sentinel) -> io::Result<()> {
    if let Sentinel::Yield(policy, nice) = kind {
        sys::set_policy(policy)?;
        sys::set_nice(nice)?;
    }
    shared.sentinel_tid.store(sys::tid() as u32, SeqCst);
    let mut seen = 0;
    while !shared.quit.load(SeqCst) {
        match kind {
            Sentinel::Yield(..) => thread::yield_now(),
            Sentinel::Timer(ns) => sys::sleep_ns(ns),
        }
        let at = shared.blocked_at.load(SeqCst);
        if at != 0 && at != seen {
            seen = at;
            shared.handed.fetch_add(1, SeqCst);
            sys::futex_wake(&shared.handed);
        }
    }
    Ok(())
}

fn heir(shared: &Shared) {
    shared.heir_tid.store(sys::tid() as u32, SeqCst);
    let mut known = 0;
    while !shared.quit.load(SeqCst) {
        sys::futex_wait(&shared.handed, known, None);
        let now = sys::now_ns();
        known = shared.handed.load(SeqCst);
        let at = shared.blocked_at.load(SeqCst);
        if at == 0 {
            // Too late: the owner was back first. That counts as the whole block.
            shared
                .latencies
                .lock()
                .expect("not poisoned")
                .push(u64::MAX);
            continue;
        }
        shared
            .latencies
            .lock()
            .expect("not poisoned")
            .push(now - at);
        while shared.blocked_at.load(SeqCst) == at && !shared.quit.load(SeqCst) {
            black_box(at);
        }
    }
}

fn start_hog(hog: Hog) -> io::Result<Option<Child>> {
    if hog == Hog::None {
        return Ok(None);
    }
    let mut command = Command::new(env::current_exe()?);
    command.arg("--spin");
    if hog == Hog::Cgroup {
        let base = "/sys/fs/cgroup";
        std::fs::write(format!("{base}/cgroup.subtree_control"), "+cpu")?;
        std::fs::create_dir_all(format!("{base}/hog"))?;
        std::fs::create_dir_all(format!("{base}/own"))?;
        std::fs::write(format!("{base}/own/cgroup.procs"), "0")?;
    }
    // SAFETY: between fork and exec: one system call, or one small file written.
    unsafe {
        command.pre_exec(move || match hog {
            Hog::Session => sys::check(libc::setsid().into()).map(drop),
            Hog::Cgroup => std::fs::write("/sys/fs/cgroup/hog/cgroup.procs", "0"),
            Hog::None | Hog::Same => Ok(()),
        });
    }
    command.spawn().map(Some)
}

fn measure(name: &str, kind: Sentinel, hog: Hog, ms: u64, report: &mut Report) -> io::Result<()> {
    let mut child = start_hog(hog)?;
    let shared = Arc::new(Shared::default());
    let on_processor_0 = |body: Box<dyn FnOnce(&Shared) + Send>| {
        let shared = shared.clone();
        thread::spawn(move || {
            sys::pin(0).expect("processor 0 is allowed");
            body(&shared);
        })
    };
    let threads = [
        on_processor_0(Box::new(heir)),
        on_processor_0(Box::new(move |shared| {
            sentinel(shared, kind).expect("entering a lesser policy needs no privilege");
        })),
        on_processor_0(Box::new(owner)),
    ];
    sys::sleep_ns(200_000_000);
    let pid = std::process::id() as i32;
    let cpu = |tid: &AtomicU32| sys::task_cpu_ns(pid, tid.load(SeqCst) as i32).unwrap_or(0);
    let all = || {
        [
            cpu(&shared.owner_tid),
            cpu(&shared.heir_tid),
            cpu(&shared.sentinel_tid),
        ]
    };
    let (before, from) = (all(), sys::now_ns());
    shared.latencies.lock().expect("not poisoned").clear();
    sys::sleep_ns(ms * 1_000_000);
    let (after, wall) = (all(), (sys::now_ns() - from) as f64);
    let mut found = shared.latencies.lock().expect("not poisoned").clone();
    shared.quit.store(true, SeqCst);
    for thread in threads {
        thread.join().expect("does not panic");
    }
    if let Some(child) = &mut child {
        child.kill()?;
        child.wait()?;
    }
    let percent = |i: usize| 100.0 * (after[i] - before[i]) as f64 / wall;
    found.sort_unstable();
    let missed = found.iter().filter(|&&ns| ns == u64::MAX).count();
    found.truncate(found.len() - missed);
    let at = |part: f64| {
        found
            .get(((found.len().saturating_sub(1)) as f64 * part) as usize)
            .map_or(serde_json::Value::Null, |&ns| (ns as f64 / 1000.0).into())
    };
    let hog_name = hog
        .to_possible_value()
        .map_or(String::new(), |v| v.get_name().to_owned());
    let mut row = vec![
        name.into(),
        hog_name.into(),
        found.len().into(),
        missed.into(),
    ];
    row.extend([at(0.0), at(0.5), at(0.9), at(1.0)]);
    row.extend([percent(0).into(), percent(1).into(), percent(2).into()]);
    report.row(row);
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    if arguments.spin {
        sys::pin(0)?;
        loop {
            black_box(0);
        }
    }
    // The measuring thread stays off the processor where there is another.
    let _ = sys::pin(1);
    let columns = [
        "sentinel",
        "hog",
        "handed",
        "too_late",
        "min_us",
        "median_us",
        "p90_us",
        "max_us",
        "owner_percent",
        "heir_percent",
        "sentinel_percent",
    ];
    let mut report = Report::new("sentinel", &columns);
    let kinds = [
        ("idle", Sentinel::Yield(libc::SCHED_IDLE, 0)),
        ("nice19", Sentinel::Yield(libc::SCHED_OTHER, 19)),
        ("nice0", Sentinel::Yield(libc::SCHED_OTHER, 0)),
        ("timer 250us", Sentinel::Timer(250_000)),
        ("timer 1ms", Sentinel::Timer(1_000_000)),
    ];
    for hog in &arguments.hogs {
        for (name, kind) in kinds {
            measure(name, kind, *hog, arguments.ms, &mut report)?;
        }
    }
    report.print();
    Ok(())
}
