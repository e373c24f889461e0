//! What a runtime costs threads that compute. The program runs the same load natively and behind a
//! prefix command, and watches it from outside.
//!
//! It measures CPU time by kernel thread, because the noise of an emulator or of a shared machine
//! changes that little. CPU time of the load that did not go to kernel threads that compute is
//! lost. With N computing threads, the N kernel threads that used most CPU time count as those
//! that compute; so the figure can only be too large. Throughput, which is noisy, is printed beside it.
//!
//! Rejected: asking the load for its threads' CPU time. A runtime that answers for its
//! threads would be measuring itself.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::Ordering::Relaxed;
use std::{collections::HashMap, env, fs, io};

use clap::{Args, Parser, Subcommand};
use serde_json::Value;
use vm_tests::progress::Progress;
use vm_tests::report::Report;
use vm_tests::sys;

/// What a runtime costs threads that compute
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    /// N threads compute, nothing blocks: how much of the processor is lost?
    NeverBlocks {
        #[command(flatten)]
        common: Common,
        /// Fail if more than this percentage of the program's CPU time is lost
        #[arg(long, default_value_t = 0.5)]
        max_lost: f64,
        /// Fail if the prefixed load computes this many percent less per second than the
        /// native one; only where a second is exact
        #[arg(long)]
        max_slower: Option<f64>,
        /// Give the load a nice-0 thread that yields beside each computing one: on a CFS
        /// kernel this must fail
        #[arg(long)]
        wrong_standby: bool,
    },
    /// N threads compute while others block all the time: do the processors stay busy?
    Blockers {
        #[command(flatten)]
        common: Common,
        /// Threads that block
        #[arg(long, default_value_t = 8)]
        blockers: usize,
        /// sleep or fault
        #[arg(long, default_value = "sleep")]
        kind: String,
        /// Microseconds of each sleep
        #[arg(long, default_value_t = 5000)]
        period_us: u64,
        /// Fail if computation loses this many percent of throughput more than native
        #[arg(long, default_value_t = 8.0)]
        max_extra: f64,
        /// Fail if the processors are idle for more than this percentage more than native
        #[arg(long, default_value_t = 2.0)]
        max_idle: f64,
        /// Fail if a blocking thread gets less than this percentage of native's blocks done
        #[arg(long, default_value_t = 10.0)]
        min_blocks: f64,
    },
}

#[derive(Args)]
struct Common {
    /// Threads that compute
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Processors that the load may use, from 0
    #[arg(long, default_value_t = 1)]
    processors: usize,
    /// Milliseconds of each window
    #[arg(long, default_value_t = 1000)]
    ms: u64,
    /// Windows, native and prefixed by turns; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The command before the load, such as `upcall run -p 1 --`; none: native only
    #[arg(last = true)]
    prefix: Vec<String>,
}

/// What one window showed.
struct Window {
    /// Nanoseconds of wall time.
    wall: f64,
    /// Nanoseconds of CPU time of the program, and of the prefix if it stays beside it.
    cpu: f64,
    /// Of which used by the kernel threads that compute.
    computing: f64,
    /// Chunks computed.
    chunks: f64,
    /// Blocks finished by the blocking thread that finished fewest.
    fewest_blocks: f64,
    /// Blocks finished by all blocking threads.
    blocks: f64,
    /// Percent of the load's processors' time that was idle.
    idle: f64,
}

impl Window {
    fn lost(&self) -> f64 {
        100.0 * (1.0 - self.computing / self.cpu)
    }
    fn per_wall(&self) -> f64 {
        self.chunks / self.wall * 1e9
    }
    fn per_cpu(&self) -> f64 {
        self.chunks / self.cpu * 1e9
    }
}

/// CPU time of a whole process, its ended threads included.
fn process_cpu_ns(pid: i32) -> f64 {
    // A process's CPU clock, as in clock_getcpuclockid(3): CPUCLOCK_SCHED of the group.
    sys::clock_ns(!pid << 3 | 2) as f64
}

/// Idle time (waiting for a disk included) of processors 0 to n, in clock ticks.
fn idle_ticks(processors: usize) -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    (0..processors)
        .filter_map(|cpu| {
            let name = format!("cpu{cpu} ");
            let line = stat.lines().find(|line| line.starts_with(&name))?;
            let fields: Vec<f64> = line
                .split(' ')
                .skip(1)
                .filter_map(|f| f.parse().ok())
                .collect();
            Some(fields.get(3)? + fields.get(4)?)
        })
        .sum()
}

struct Load<'a> {
    common: &'a Common,
    prefixed: bool,
    extra: Vec<String>,
    blockers: usize,
}

impl Load<'_> {
    fn start(&self, file: &Path) -> io::Result<Child> {
        let program = env::current_exe()?.with_file_name("vm-load");
        let mut words: Vec<String> = Vec::new();
        if self.prefixed {
            words.extend(self.common.prefix.iter().cloned());
        }
        words.push(program.to_string_lossy().into_owned());
        words.extend(["--progress".into(), file.to_string_lossy().into_owned()]);
        words.extend(["--compute".into(), self.common.threads.to_string()]);
        words.extend(["--blockers".into(), self.blockers.to_string()]);
        words.extend(self.extra.iter().cloned());
        let processors = self.common.processors;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        // SAFETY: between fork and exec only two system calls are made, on stack memory.
        unsafe {
            command.pre_exec(move || {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                for cpu in 0..processors {
                    libc::CPU_SET(cpu, &mut set);
                }
                sys::check(libc::sched_setaffinity(0, size_of_val(&set), &set).into()).map(drop)
            });
        }
        command
            .spawn()
            .map_err(|error| io::Error::other(format!("{}: {error}", words.join(" "))))
    }

    /// Runs the load once and watches it for one window.
    fn window(&self) -> io::Result<Window> {
        let file: PathBuf = env::temp_dir().join(format!("vm-share.{}", std::process::id()));
        let progress = Progress::create(&file)?;
        let mut child = self.start(&file)?;
        while progress.pid.load(Relaxed) == 0 {
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!(
                    "the load ended before it had started: {status}"
                )));
            }
            sys::sleep_ns(5_000_000);
        }
        let pid = progress.pid.load(Relaxed) as i32;
        let beside = Some(child.id() as i32).filter(|&id| id != pid);
        // Let the runtime and the kernel's balancer settle.
        sys::sleep_ns(300_000_000);
        let tasks = || -> HashMap<i32, u64> {
            let ids = sys::tasks(pid).into_iter();
            ids.filter_map(|tid| Some((tid, sys::task_cpu_ns(pid, tid)?)))
                .collect()
        };
        let cpu = || process_cpu_ns(pid) + beside.map_or(0.0, process_cpu_ns);
        let chunks = || progress.compute.iter().map(|c| c.get()).sum::<u64>() as f64;
        let blocks = || -> Vec<u64> {
            progress.blocks[..self.blockers]
                .iter()
                .map(|c| c.get())
                .collect()
        };
        let (tasks0, cpu0, chunks0, blocks0) = (tasks(), cpu(), chunks(), blocks());
        let (idle0, wall0) = (idle_ticks(self.common.processors), sys::now_ns());
        sys::sleep_ns(self.common.ms * 1_000_000);
        let (idle1, wall1) = (idle_ticks(self.common.processors), sys::now_ns());
        let (blocks1, chunks1, cpu1, tasks1) = (blocks(), chunks(), cpu(), tasks());
        progress.stop.store(1, Relaxed);
        let status = child.wait()?;
        fs::remove_file(&file)?;
        if !status.success() {
            return Err(io::Error::other(format!("the load failed: {status}")));
        }

        let mut used: Vec<u64> = tasks1
            .iter()
            .map(|(tid, ns)| ns - tasks0.get(tid).copied().unwrap_or(0))
            .collect();
        used.sort_unstable_by(|a, b| b.cmp(a));
        let computing = used.iter().take(self.common.threads).sum::<u64>() as f64;
        let wall = (wall1 - wall0) as f64;
        let tick_ns = 1e7;
        Ok(Window {
            wall,
            // The two readings are not of one instant; a part is never more than the whole.
            cpu: (cpu1 - cpu0).max(computing),
            computing,
            chunks: chunks1 - chunks0,
            fewest_blocks: blocks1
                .iter()
                .zip(&blocks0)
                .map(|(b, a)| b - a)
                .min()
                .unwrap_or(0) as f64,
            blocks: blocks1.iter().sum::<u64>() as f64 - blocks0.iter().sum::<u64>() as f64,
            idle: 100.0 * (idle1 - idle0) * tick_ns / (wall * self.common.processors as f64),
        })
    }
}

fn median(windows: &[Window], of: impl Fn(&Window) -> f64) -> f64 {
    let mut values: Vec<f64> = windows.iter().map(of).collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs loads by turns, `rounds` times.
fn interleave(loads: &[Load], rounds: usize) -> io::Result<Vec<Vec<Window>>> {
    let mut windows: Vec<Vec<Window>> = loads.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (load, into) in loads.iter().zip(&mut windows) {
            into.push(load.window()?);
        }
    }
    Ok(windows)
}

fn never_blocks(
    common: &Common,
    max_lost: f64,
    max_slower: Option<f64>,
    extra: Vec<String>,
) -> io::Result<Vec<String>> {
    let load = |prefixed| Load {
        common,
        prefixed,
        extra: extra.clone(),
        blockers: 0,
    };
    let mut loads = vec![load(false)];
    if !common.prefix.is_empty() {
        loads.push(load(true));
    }
    let windows = interleave(&loads, common.rounds)?;
    let mut report = Report::new(
        "never_blocks",
        &[
            "run",
            "threads",
            "processors",
            "lost_cpu_percent",
            "chunks_per_cpu_s",
            "chunks_per_s",
        ],
    );
    let mut violations = Vec::new();
    for (load, windows) in loads.iter().zip(&windows) {
        let name = if load.prefixed { "prefixed" } else { "native" };
        let lost = median(windows, Window::lost);
        let mut row: Vec<Value> =
            vec![name.into(), common.threads.into(), common.processors.into()];
        row.push(lost.into());
        row.push(median(windows, Window::per_cpu).round().into());
        row.push(median(windows, Window::per_wall).round().into());
        report.row(row);
        if lost > max_lost {
            violations.push(format!("{name}: {lost:.3} % of the CPU time did not go to the computing threads; at most {max_lost} % may"));
        }
    }
    if let (Some(bound), [native, prefixed]) = (max_slower, &windows[..]) {
        let slower =
            100.0 * (1.0 - median(prefixed, Window::per_wall) / median(native, Window::per_wall));
        if slower > bound {
            violations.push(format!(
                "prefixed: {slower:.3} % less computed per second than natively; at most {bound} % may be"
            ));
        }
    }
    report.print();
    Ok(violations)
}

struct Bounds {
    max_extra: f64,
    max_idle: f64,
    min_blocks: f64,
}

fn blockers(
    common: &Common,
    number: usize,
    extra: Vec<String>,
    kind: &str,
    bounds: &Bounds,
) -> io::Result<Vec<String>> {
    let load = |prefixed, blockers| Load {
        common,
        prefixed,
        extra: extra.clone(),
        blockers,
    };
    let mut loads = vec![load(false, 0), load(false, number)];
    if !common.prefix.is_empty() {
        loads.push(load(true, number));
    }
    let windows = interleave(&loads, common.rounds)?;
    let base = median(&windows[0], Window::per_wall);
    let mut report = Report::new(
        "blockers",
        &[
            "run",
            "kind",
            "threads",
            "blockers",
            "processors",
            "lost_throughput_percent",
            "idle_percent",
            "fewest_blocks_per_s",
            "lost_us_per_block",
        ],
    );
    let mut seen = Vec::new();
    for (load, windows) in loads.iter().zip(&windows) {
        let name = match (load.prefixed, load.blockers) {
            (false, 0) => "native, no blockers",
            (false, _) => "native",
            (true, _) => "prefixed",
        };
        let lost = 100.0 * (1.0 - median(windows, Window::per_wall) / base);
        let idle = median(windows, |w| w.idle);
        let blocks = median(windows, |w| w.fewest_blocks / w.wall * 1e9);
        let mut row: Vec<Value> = vec![name.into(), kind.into(), common.threads.into()];
        row.extend([load.blockers.into(), common.processors.into()]);
        // Of each processor, what a block costs: the figure that does not depend on how often.
        let each = lost * 1e4 * common.processors as f64
            / median(windows, |w| w.blocks / w.wall * 1e9).max(1.0);
        row.extend([lost.into(), idle.into(), blocks.round().into(), each.into()]);
        report.row(row);
        seen.push((lost, idle, blocks));
    }
    report.print();
    let mut violations = Vec::new();
    if let [_, native, prefixed] = seen[..] {
        if native.2 == 0.0 {
            violations
                .push("natively, a blocking thread made no progress: nothing was measured".into());
        }
        if prefixed.0 > native.0 + bounds.max_extra {
            violations.push(format!(
                "computation lost {:.1} % of its throughput, natively {:.1} %; {} points more are allowed",
                prefixed.0, native.0, bounds.max_extra
            ));
        }
        if prefixed.1 > native.1 + bounds.max_idle {
            violations.push(format!(
                "processors were idle for {:.1} % while threads were ready, natively {:.1} %; {} points more are allowed",
                prefixed.1, native.1, bounds.max_idle
            ));
        }
        if prefixed.2 * 100.0 < native.2 * bounds.min_blocks {
            violations.push(format!(
                "a blocking thread finished {:.0} blocks a second, natively {:.0}; {} % of that is the least allowed",
                prefixed.2, native.2, bounds.min_blocks
            ));
        }
    }
    Ok(violations)
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().scenario {
        Scenario::NeverBlocks {
            common,
            max_lost,
            max_slower,
            wrong_standby,
        } => {
            let extra = wrong_standby.then(|| "--wrong-standby".to_owned());
            never_blocks(&common, max_lost, max_slower, extra.into_iter().collect())
        }
        Scenario::Blockers {
            common,
            blockers: number,
            kind,
            period_us,
            max_extra,
            max_idle,
            min_blocks,
        } => {
            let extra = vec![
                "--kind".into(),
                kind.clone(),
                "--period-us".into(),
                period_us.to_string(),
            ];
            let bounds = Bounds {
                max_extra,
                max_idle,
                min_blocks,
            };
            blockers(&common, number, extra, &kind, &bounds)
        }
    };
    match outcome {
        Ok(violations) => {
            for violation in &violations {
                eprintln!("vm-share: violated: {violation}");
            }
            ExitCode::from(u8::from(!violations.is_empty()))
        }
        Err(error) => {
            eprintln!("vm-share: {error}");
            ExitCode::from(125)
        }
    }
}
