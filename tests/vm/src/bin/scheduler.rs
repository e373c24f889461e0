//! Loads and measurements for the scheduler of `upcalld`. Each is run natively or behind `upcall run`, by `machine/scheduler`.

use std::fs::File;
use std::hint::black_box;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::{io, thread};

use clap::{Parser, Subcommand};
use serde_json::Value;
use vm_tests::report::Report;
use vm_tests::sys::{self, check, now_ns};

/// Loads and measurements for the scheduler of `upcalld`
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Processes that compute: what each has of the processors that they share
    Fair {
        /// Nice value and number of threads of each; or of a program under `upcall run`, which is to have its share of what
        /// all such programs have
        #[arg(value_name = "NICE:THREADS|share=N:THREADS")]
        processes: Vec<String>,
        /// Processors that they may use
        #[arg(long, value_delimiter = ',', default_values = ["0"])]
        on: Vec<usize>,
        #[arg(long, default_value_t = 3000)]
        ms: u64,
        /// Percent of the ideal by which a part may differ
        #[arg(long, default_value_t = 3.0)]
        bound: f64,
    },
    /// A process that sleeps and then works for 1 ms, beside processes that compute: how late it runs
    Wake {
        /// Processes that compute, of a thread each
        #[arg(long, default_value_t = 2)]
        hogs: usize,
        #[arg(long, default_value_t = 400)]
        rounds: usize,
        /// The 99th of a hundred may be so late, in microseconds
        #[arg(long)]
        bound: Option<u64>,
    },
    /// Two threads on one processor that wake each other: half of a round
    Futex {
        #[arg(long, default_value_t = 2000)]
        rounds: usize,
    },
    /// Behind `upcall run -p 1`: a thread that blocks in the kernel beside one that computes, until another process wakes it
    Blocks {
        #[arg(long, default_value_t = 300)]
        rounds: usize,
    },
    /// Behind `upcall run`: an ordinary process waits for a lock of the kernel that an activation holds which was just woken
    Lock {
        #[arg(long, default_value_t = 1000)]
        rounds: usize,
        /// Microseconds that it may wait
        #[arg(long)]
        bound: Option<u64>,
    },
    /// Threads that compute, without end
    Spin { threads: usize },
    /// Threads that compute, sleep and wait for a lock of the kernel; each must come forward
    Work {
        #[arg(long, default_value_t = 3000)]
        ms: u64,
    },
    /// Stops each kernel thread of a process as a debugger does, and lets it go
    Trace { pid: i32 },
    /// Computes as a real-time thread on this processor
    RealTime { cpu: usize, ms: u64 },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().what {
        What::Fair {
            processes,
            on,
            ms,
            bound,
        } => fair(&processes, &on, ms, bound),
        What::Wake {
            hogs,
            rounds,
            bound,
        } => wake(hogs, rounds, bound),
        What::Futex { rounds } => futex(rounds),
        What::Blocks { rounds } => blocks(rounds),
        What::Lock { rounds, bound } => lock(rounds, bound),
        What::Spin { threads } => compute_in(threads),
        What::Work { ms } => work(ms),
        What::Trace { pid } => trace(pid),
        What::RealTime { cpu, ms } => real_time(cpu, ms),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("vm-scheduler: {error}");
            ExitCode::from(2)
        }
    }
}

/// A child process that does this, and is killed when it is dropped.
struct Child(i32);

impl Child {
    fn new(act: impl FnOnce()) -> io::Result<Self> {
        // SAFETY: the child calls nothing that a process of one thread may not.
        let pid = check(unsafe { libc::fork() }.into())? as i32;
        if pid == 0 {
            // SAFETY: no memory involved: it ends with its parent.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            act();
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        Ok(Child(pid))
    }

    /// What it has had of processors, in nanoseconds.
    fn used(&self) -> u64 {
        let all = sys::tasks(self.0).into_iter();
        all.filter_map(|tid| sys::task_cpu_ns(self.0, tid)).sum()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: a child of ours, which nobody else waits for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

fn compute_for_ever() -> ! {
    loop {
        black_box(0u64);
    }
}

fn spin(ns: u64) {
    let end = now_ns() + ns;
    while now_ns() < end {
        black_box(end);
    }
}

/// What the kernel says that nice values weigh.
const WEIGHTS: [(i32, f64); 5] = [
    (-5, 3121.0),
    (0, 1024.0),
    (5, 335.0),
    (10, 110.0),
    (19, 15.0),
];

fn compute_in(threads: usize) -> ! {
    for _ in 1..threads {
        thread::spawn(|| compute_for_ever());
    }
    compute_for_ever();
}

/// A process of `fair`.
struct Process {
    name: String,
    threads: usize,
    nice: i32,
    /// Under `upcall run`, with this share; 0: natively.
    share: u32,
}

impl Process {
    fn read(text: &str) -> io::Result<Self> {
        let wrong = || io::Error::other(format!("{text}: NICE:THREADS or share=N:THREADS"));
        let (kind, threads) = text.split_once(':').ok_or_else(wrong)?;
        let share = match kind.strip_prefix("share=") {
            Some(share) => share.parse().map_err(|_| wrong())?,
            None => 0,
        };
        let nice = match share {
            0 => kind.parse().map_err(|_| wrong())?,
            _ => 0,
        };
        Ok(Process {
            name: text.into(),
            threads: threads.parse().map_err(|_| wrong())?,
            nice,
            share,
        })
    }

    /// What it is to have, where all under Upcall together have what each of them would have natively. `shares` is the sum of theirs,
    /// and `spaces` their number.
    fn weight(&self, shares: u32, spaces: usize) -> io::Result<f64> {
        let weight = WEIGHTS.iter().find(|(known, _)| *known == self.nice);
        let (_, weight) =
            weight.ok_or_else(|| io::Error::other("a nice value without a weight"))?;
        Ok(match self.share {
            0 => *weight,
            share => *weight * spaces as f64 * f64::from(share) / f64::from(shares),
        })
    }

    fn run(&self, on: &[usize]) {
        let _ = sys::restrict(on);
        if self.share == 0 {
            let _ = sys::set_nice(self.nice);
            compute_in(self.threads);
        }
        let (threads, share) = (self.threads.to_string(), self.share.to_string());
        let own = std::env::current_exe().unwrap_or_default();
        let error = std::process::Command::new("upcall")
            .args(["run", "-p", &threads, "--share", &share, "--"])
            .arg(own)
            .args(["spin", &threads])
            .exec();
        eprintln!("vm-scheduler: upcall: {error}");
    }
}

fn fair(processes: &[String], on: &[usize], ms: u64, bound: f64) -> io::Result<bool> {
    let processes: Vec<Process> = processes
        .iter()
        .map(|text| Process::read(text))
        .collect::<io::Result<_>>()?;
    let children: Vec<Child> = processes
        .iter()
        .map(|process| Child::new(|| process.run(on)))
        .collect::<io::Result<_>>()?;
    let shares: u32 = processes.iter().map(|process| process.share).sum();
    let spaces = processes
        .iter()
        .filter(|process| process.share != 0)
        .count();
    // Those under Upcall start, and find each other.
    sys::sleep_ns(if spaces == 0 {
        300_000_000
    } else {
        12_000_000_000
    });
    let before: Vec<u64> = children.iter().map(Child::used).collect();
    sys::sleep_ns(ms * 1_000_000);
    let had: Vec<u64> = children
        .iter()
        .zip(before)
        .map(|(child, before)| child.used() - before)
        .collect();
    let all: u64 = had.iter().sum();
    let weights: Vec<f64> = processes
        .iter()
        .map(|process| process.weight(shares, spaces))
        .collect::<io::Result<_>>()?;
    let whole: f64 = weights.iter().sum();
    let mut report = Report::new(
        "fair",
        &["process", "part_percent", "ideal_percent", "off_percent"],
    );
    let mut holds = true;
    for ((process, weight), had) in processes.iter().zip(weights).zip(had) {
        let part = had as f64 * 100.0 / all as f64;
        let ideal = weight * 100.0 / whole;
        let off = (part - ideal).abs();
        holds &= off <= bound;
        let name = Value::from(process.name.as_str());
        report.row(vec![name, part.into(), ideal.into(), off.into()]);
    }
    report.print();
    Ok(holds)
}

/// The one of these at which so many of a thousand are not greater.
fn at(values: &mut [u64], of_thousand: usize) -> u64 {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values
        .get((values.len() * of_thousand / 1000).min(last))
        .copied()
        .unwrap_or(0)
}

fn spread(name: &str, values: &mut [u64]) {
    let mut report = Report::new(
        "spread",
        &["what", "count", "min_us", "median_us", "p99_us", "max_us"],
    );
    let us = |ns: u64| Value::from(ns as f64 / 1000.0);
    report.row(vec![
        name.into(),
        values.len().into(),
        us(at(values, 0)),
        us(at(values, 500)),
        us(at(values, 990)),
        us(at(values, 1000)),
    ]);
    report.print();
}

fn wake(hogs: usize, rounds: usize, bound: Option<u64>) -> io::Result<bool> {
    let hogs: Vec<Child> = (0..hogs)
        .map(|_| Child::new(|| compute_for_ever()))
        .collect::<io::Result<_>>()?;
    sys::sleep_ns(200_000_000);
    let mut late = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let due = now_ns() + 5_000_000;
        sys::sleep_ns(5_000_000);
        late.push(now_ns() - due);
        spin(1_000_000);
    }
    drop(hogs);
    spread("late", &mut late);
    Ok(bound.is_none_or(|bound| at(&mut late, 990) <= bound * 1000))
}

fn futex(rounds: usize) -> io::Result<bool> {
    static TURN: AtomicU32 = AtomicU32::new(0);
    static SENT: AtomicU64 = AtomicU64::new(0);
    sys::pin(0)?;
    let wait = move |turn: u32| {
        while TURN.load(SeqCst) % 2 != turn {
            sys::futex_wait(&TURN, 1 - turn, None);
        }
        now_ns() - SENT.load(SeqCst)
    };
    let send = |turn: u32| {
        SENT.store(now_ns(), SeqCst);
        TURN.store(1 - turn, SeqCst);
        sys::futex_wake(&TURN);
    };
    let other = thread::spawn(move || {
        for _ in 0..rounds {
            wait(1);
            send(1);
        }
    });
    let mut all = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        send(0);
        all.push(wait(0));
    }
    other.join().map_err(|_| io::Error::other("panicked"))?;
    spread("futex half round", &mut all);
    Ok(true)
}

fn lock_file() -> io::Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open("/tmp/vm-scheduler-lock")
}

fn flock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: no memory involved.
    check(unsafe { libc::flock(file.as_raw_fd(), how) }.into()).map(drop)
}

/// Words that a child sees, too.
struct Common {
    /// A round: odd while the other process has the lock.
    round: AtomicU32,
    asks: AtomicU64,
    freed: AtomicU64,
}

fn common() -> io::Result<&'static Common> {
    // SAFETY: a new mapping of zeros, which stays; all-zero is a valid value of atomics.
    unsafe {
        let place = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(&*place.cast::<Common>())
    }
}

/// 1. The other process takes the lock, and says so.
/// 2. The first thread asks for the lock and blocks. The second one computes, and sees how soon it does after that.
/// 3. The other process frees the lock when both have been so for a while. The first thread sees how soon it goes on.
fn blocks(rounds: usize) -> io::Result<bool> {
    let common = common()?;
    let _other = Child::new(|| {
        let Ok(file) = lock_file() else { return };
        loop {
            if flock(&file, libc::LOCK_EX).is_err() {
                return;
            }
            common.round.fetch_add(1, SeqCst);
            while common.asks.load(SeqCst) == 0 {
                sys::sleep_ns(300_000);
            }
            sys::sleep_ns(2_000_000);
            common.freed.store(now_ns(), SeqCst);
            let _ = flock(&file, libc::LOCK_UN);
            while common.round.load(SeqCst) % 2 != 0 {
                sys::sleep_ns(300_000);
            }
        }
    })?;
    static DONE: AtomicBool = AtomicBool::new(false);
    static BLOCKED: AtomicU64 = AtomicU64::new(0);
    let second = thread::spawn(move || {
        let mut soon = Vec::new();
        let (mut last, mut seen) = (0, 0);
        while !DONE.load(SeqCst) {
            let now = now_ns();
            let at = BLOCKED.load(SeqCst);
            // It ran before that, and not since.
            if at != 0 && at != seen && now > at {
                seen = at;
                if last < at {
                    soon.push(now - at);
                }
            }
            last = now;
        }
        soon
    });
    let file = lock_file()?;
    let mut woken = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        while common.round.load(SeqCst) % 2 == 0 {
            sys::sleep_ns(300_000);
        }
        spin(200_000);
        let at = now_ns();
        common.asks.store(at, SeqCst);
        BLOCKED.store(at, SeqCst);
        flock(&file, libc::LOCK_EX)?;
        woken.push(now_ns() - common.freed.load(SeqCst));
        BLOCKED.store(0, SeqCst);
        common.asks.store(0, SeqCst);
        flock(&file, libc::LOCK_UN)?;
        common.round.fetch_add(1, SeqCst);
    }
    DONE.store(true, SeqCst);
    let mut soon = second.join().map_err(|_| io::Error::other("panicked"))?;
    spread("block, other thread computes", &mut soon);
    spread("woken by another process, thread goes on", &mut woken);
    Ok(soon.len() > rounds / 2)
}

const PAGE: usize = 4096;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_COPY: libc::c_ulong = 0xc028_aa03;
const UFFD_API: u64 = 0xaa;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

/// A page that is not there, and what resolves faults on it.
fn missing_page() -> io::Result<(usize, OwnedFd)> {
    // SAFETY: a new descriptor, which nobody else owns; a new mapping, which stays; the structures have the kernel's sizes.
    unsafe {
        let uffd = check(libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC))?;
        let uffd = OwnedFd::from_raw_fd(uffd as i32);
        let mut api = [UFFD_API, 0, 0];
        check(libc::ioctl(uffd.as_raw_fd(), UFFDIO_API, &raw mut api).into())?;
        let page = libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut register = [page as u64, PAGE as u64, UFFDIO_REGISTER_MODE_MISSING, 0];
        check(libc::ioctl(uffd.as_raw_fd(), UFFDIO_REGISTER, &raw mut register).into())?;
        Ok((page as usize, uffd))
    }
}

/// 1. A thread writes from a page that is not there into a file. It blocks on the page, with the file's lock (of the kernel).
/// 2. Another process, without threads, writes into the same file: that waits for the lock.
/// 3. A third one puts the page in place, and sees for how long the lock is not free after that.
fn lock(rounds: usize, bound: Option<u64>) -> io::Result<bool> {
    let (page, uffd) = missing_page()?;
    let common = common()?;
    let path = "/tmp/vm-scheduler-write";
    let file = File::create(path)?;
    let writer = Child::new(|| {
        let Ok(file) = File::options().write(true).open(path) else {
            return;
        };
        loop {
            let round = common.round.load(SeqCst);
            if round % 2 == 0 {
                sys::sleep_ns(100_000);
                continue;
            }
            common.asks.store(1, SeqCst);
            // SAFETY: reads the bytes.
            unsafe { libc::pwrite(file.as_raw_fd(), [7u8; 64].as_ptr().cast(), 64, 0) };
            common.freed.store(now_ns(), SeqCst);
            common.asks.store(0, SeqCst);
            common.round.store(round + 1, SeqCst);
        }
    })?;
    let other = Child::new(|| {
        let mut waits = Vec::with_capacity(rounds);
        let filled = [7u8; PAGE];
        for _ in 0..rounds {
            let mut message = [0u64; 4];
            // SAFETY: reads one message of 32 bytes.
            let read = unsafe { libc::read(uffd.as_raw_fd(), message.as_mut_ptr().cast(), 32) };
            if read != 32 {
                break;
            }
            common.round.fetch_add(1, SeqCst);
            while common.asks.load(SeqCst) == 0 && common.round.load(SeqCst) % 2 != 0 {
                sys::sleep_ns(100_000);
            }
            // It waits for the lock by then, or later, and then for less long.
            sys::sleep_ns(1_000_000);
            let mut copy = [page as u64, filled.as_ptr() as u64, PAGE as u64, 0, 0];
            let at = now_ns();
            // SAFETY: reads a page of bytes; the structure has the kernel's size.
            unsafe { libc::ioctl(uffd.as_raw_fd(), UFFDIO_COPY, &raw mut copy) };
            while common.round.load(SeqCst) % 2 != 0 {
                sys::sleep_ns(100_000);
            }
            waits.push(common.freed.load(SeqCst).saturating_sub(at));
        }
        spread("a lock that a woken activation holds", &mut waits);
        let holds = bound.is_none_or(|bound| at(&mut waits, 1000) <= bound * 1000);
        let holds = holds && waits.len() == rounds;
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!holds)) };
    })?;
    for _ in 0..2 {
        thread::spawn(|| compute_for_ever());
    }
    for _ in 0..rounds {
        // SAFETY: reads the page; the kernel finds it missing, and waits. Then it is missing again.
        unsafe {
            check(libc::pwrite(file.as_raw_fd(), page as *const _, PAGE, 0) as i64)?;
            check(libc::madvise(page as *mut _, PAGE, libc::MADV_DONTNEED).into())?;
        }
        // The writer has had the lock: it is not taken from under its nose.
        while common.round.load(SeqCst) % 2 != 0 {
            sys::sleep_ns(100_000);
        }
    }
    let mut status = 0;
    // SAFETY: fills in the status of a child of ours.
    check(unsafe { libc::waitpid(other.0, &raw mut status, 0) }.into())?;
    std::mem::forget(other);
    drop(writer);
    Ok(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
}

fn work(ms: u64) -> io::Result<bool> {
    static DONE: AtomicBool = AtomicBool::new(false);
    static ROUNDS: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];
    let file = std::sync::Arc::new(lock_file()?);
    let threads: Vec<_> = (0..ROUNDS.len())
        .map(|number| {
            let file = std::sync::Arc::clone(&file);
            thread::spawn(move || {
                let own = if number < 4 { None } else { lock_file().ok() };
                while !DONE.load(SeqCst) {
                    match (number, &own) {
                        (0 | 1, _) => spin(100_000),
                        (_, Some(own)) => {
                            let _ = flock(own, libc::LOCK_EX);
                            spin(200_000);
                            let _ = flock(own, libc::LOCK_UN);
                            sys::sleep_ns(1_000_000);
                        }
                        _ => {
                            let _ = file.metadata();
                            sys::sleep_ns(2_000_000);
                        }
                    }
                    ROUNDS[number].fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    sys::sleep_ns(ms * 1_000_000);
    DONE.store(true, SeqCst);
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("panicked"))?;
    }
    let all: Vec<u64> = ROUNDS.iter().map(|it| it.load(SeqCst)).collect();
    eprintln!("work: {all:?}");
    Ok(all.iter().all(|&rounds| rounds > 1))
}

fn trace(pid: i32) -> io::Result<bool> {
    let mut stopped = 0;
    for tid in sys::tasks(pid) {
        match stop_and_let_go(tid) {
            Ok(()) => stopped += 1,
            // It has ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(stopped > 1)
}

fn stop_and_let_go(tid: i32) -> io::Result<()> {
    // SAFETY: no memory of this process involved.
    unsafe {
        check(libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0))?;
        check(libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0))?;
        check(libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL).into())?;
        sys::sleep_ns(20_000_000);
        check(libc::ptrace(libc::PTRACE_DETACH, tid, 0, 0)).map(drop)
    }
}

fn real_time(cpu: usize, ms: u64) -> io::Result<bool> {
    sys::pin(cpu)?;
    let parameter = libc::sched_param { sched_priority: 10 };
    // SAFETY: reads the parameter.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) }.into())?;
    spin(ms * 1_000_000);
    Ok(true)
}
