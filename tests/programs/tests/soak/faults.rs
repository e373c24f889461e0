//! Faults from outside: what another process of the same user, the administrator or the machine may do to
//! a program that runs.
//!
//! A seed decides a [`Plan`]: which faults, for how long, how far apart. The machine decides when a fault is
//! delivered, and to which kernel thread of the program; the log tells both.
//!
//! A fault ends before the next begins, and the test undoes it. SIGSTOP to one kernel thread stops the whole
//! process.

use crate::random::Random;
use program_tests::group::Group;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Signals without effect on a program that does not handle them.
const HARMLESS: [libc::c_int; 4] = [libc::SIGWINCH, libc::SIGURG, libc::SIGCHLD, libc::SIGCONT];
/// Signals for programs with handlers.
const HANDLED: [libc::c_int; 2] = [libc::SIGUSR1, libc::SIGALRM];

/// What a program can bear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bears {
    /// A new thread may be refused: the program ends then.
    pub refused_threads: bool,
    /// A call may fail always: the program does not repeat it for ever.
    pub lasting_errors: bool,
    /// It has handlers for [`HANDLED`].
    pub signals: bool,
    /// Its children may be killed: it reports how they ended, and waits for that.
    pub killed_children: bool,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGSTOP, later SIGCONT; to the process or to one kernel thread.
    Stop { one: bool },
    /// Harmless signals, so many in a row.
    Harmless { one: bool, count: usize },
    /// Handled signals.
    Storm { one: bool, count: usize },
    /// One processor only, then all again; of one kernel thread or all.
    Affinity { one: bool },
    /// Another process computes on each processor.
    Hogs,
    /// Into a control group and out again, by its number in [`Groups`].
    Group(usize),
    /// Its pages are taken away.
    PageOut,
    /// A processor is taken from the machine and given back.
    Unplug,
    /// A child is killed.
    KillChild,
}

/// Control groups into which a program is put for a while; those that can be made here.
#[derive(Debug)]
pub struct Groups {
    all: Vec<(&'static str, Group)>,
}

/// Files of a control group, and what is written to them.
type Settings<'a> = Vec<(&'a str, &'a str)>;

impl Groups {
    pub fn new() -> Self {
        let root = program_tests::group::ROOT;
        let memory = fs::read_to_string(format!("{root}/cpuset/cpuset.mems")).unwrap_or_default();
        let wanted: [(&str, Settings<'_>, Settings<'_>); 3] = [
            (
                "cpu",
                vec![("cpu.cfs_period_us", "20000"), ("cpu.cfs_quota_us", "5000")],
                vec![("cpu.max", "5000 20000")],
            ),
            (
                "cpuset",
                vec![("cpuset.mems", memory.trim()), ("cpuset.cpus", "0")],
                vec![("cpuset.cpus", "0")],
            ),
            // Of the older hierarchies none will do: at its limit the program is killed, or, where it is
            // not, the kernel cannot write the frames of signals, and kills it for that.
            (
                "memory",
                vec![("memory.high", "4M")],
                vec![("memory.high", "4M")],
            ),
        ];
        let mut all = Vec::new();
        for (name, first, second) in wanted {
            match Group::new(name, &first, &second) {
                Ok(group) => all.push((name, group)),
                Err(error) => program_tests::provision::skip(
                    "soak",
                    &format!("no control group for {name} can be made: {error}"),
                ),
            }
        }
        Groups { all }
    }
}

/// Where a process is in the hierarchy of `controller`.
fn home(pid: libc::pid_t, controller: &str) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let root = PathBuf::from(program_tests::group::ROOT);
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (names, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        if names.is_empty() {
            // The one hierarchy of version 2.
            root.join("cgroup.controllers")
                .exists()
                .then(|| root.join(path))
        } else {
            let has = names.split(',').any(|name| name == controller);
            has.then(|| root.join(controller).join(path))
        }
    })
}

/// A sequence of faults.
#[derive(Debug)]
pub struct Plan<'a> {
    random: Random,
    bears: Bears,
    groups: &'a Groups,
    unplugs: bool,
    /// What was done, and when.
    pub log: Vec<String>,
}

impl<'a> Plan<'a> {
    pub fn new(seed: u64, bears: Bears, groups: &'a Groups, unplugs: bool) -> Self {
        Plan {
            random: Random::new(seed),
            bears,
            groups,
            unplugs,
            log: Vec::new(),
        }
    }

    fn draw(&mut self) -> (Fault, Duration) {
        let random = &mut self.random;
        let one = random.below(2) == 0;
        let mut kinds = vec![
            Fault::Stop { one },
            Fault::Harmless { one, count: 1 },
            Fault::Harmless { one, count: 100 },
            Fault::Affinity { one },
            Fault::Affinity { one },
            Fault::Hogs,
            Fault::PageOut,
        ];
        kinds.extend((0..self.groups.all.len()).map(Fault::Group));
        if self.bears.signals {
            kinds.push(Fault::Storm { one, count: 1 });
            kinds.push(Fault::Storm { one, count: 300 });
        }
        if self.bears.killed_children {
            kinds.extend([Fault::KillChild; 6]);
        }
        if self.unplugs {
            kinds.extend([Fault::Unplug; 3]);
        }
        let fault = *random.pick(&kinds);
        let length = Duration::from_micros(1 << random.below(17));
        (fault, length)
    }

    /// Delivers faults until the process has ended or it is enough; at the end nothing of them is left.
    /// The process must not have been waited for: its id is its own.
    pub fn disturb(&mut self, pid: libc::pid_t, enough: impl Fn() -> bool) {
        let start = Instant::now();
        while !enough() && !has_ended(pid) {
            let (fault, length) = self.draw();
            let pause = Duration::from_micros(1 << self.random.below(16));
            let chosen = self.random.next();
            let after = start.elapsed().as_micros();
            let said = self.deliver(pid, fault, length, chosen);
            self.log
                .push(format!("{after:>9} us {fault:?} for {length:?}: {said}"));
            thread::sleep(pause);
        }
    }

    /// Children that only end by being killed, when the time of faults is over.
    pub fn kill_children(&mut self, pid: libc::pid_t) {
        let mut number = 0;
        while self.bears.killed_children && !has_ended(pid) {
            kill_child(pid, number);
            number += 1;
            thread::sleep(Duration::from_millis(1));
            if number > 60_000 {
                // It hangs: the guard says how.
                return;
            }
        }
    }

    fn deliver(&self, pid: libc::pid_t, fault: Fault, length: Duration, chosen: u64) -> String {
        let tids = kernel_threads(pid);
        let Some(&tid) = tids.get(chosen as usize % tids.len().max(1)) else {
            return "it has no kernel threads any more".into();
        };
        let whom = |one: bool| if one { (pid, Some(tid)) } else { (pid, None) };
        match fault {
            Fault::Stop { one } => {
                send(whom(one), libc::SIGSTOP);
                thread::sleep(length);
                send(whom(false), libc::SIGCONT);
                format!("{:?}", whom(one))
            }
            Fault::Harmless { one, count } => {
                for number in 0..count {
                    send(
                        whom(one),
                        HARMLESS[(chosen as usize + number) % HARMLESS.len()],
                    );
                }
                format!("{:?}", whom(one))
            }
            Fault::Storm { one, count } => {
                let mut sent = 0;
                for number in 0..count {
                    let signal = HANDLED[(chosen as usize + number) % HANDLED.len()];
                    if handles(pid, signal) {
                        send(whom(one), signal);
                        sent += 1;
                    }
                }
                format!("{:?}, {sent} sent", whom(one))
            }
            Fault::Affinity { one } => {
                let processors = allowed();
                let single = processors[chosen as usize / 7 % processors.len()];
                let some = if one { vec![tid] } else { tids };
                for &tid in &some {
                    bind(tid, &[single]);
                }
                thread::sleep(length);
                // Those that it has by now, too.
                let all = if one { some } else { kernel_threads(pid) };
                for &tid in &all {
                    bind(tid, &processors);
                }
                format!("{} kernel threads on processor {single}", all.len())
            }
            Fault::Hogs => {
                let over = AtomicBool::new(false);
                thread::scope(|scope| {
                    for _ in allowed() {
                        scope.spawn(|| {
                            while !over.load(Ordering::Relaxed) {
                                std::hint::spin_loop();
                            }
                        });
                    }
                    thread::sleep(length);
                    over.store(true, Ordering::Relaxed);
                });
                "beside it".into()
            }
            Fault::Group(number) => {
                let (controller, group) = &self.groups.all[number];
                let Some(home) = home(pid, controller) else {
                    return format!("no way back from {controller}");
                };
                let entry = group.directory().join("cgroup.procs");
                if let Err(error) = fs::write(entry, pid.to_string()) {
                    return format!("{controller}: {error}");
                }
                thread::sleep(length);
                // Its children were born there.
                let procs = fs::read_to_string(group.directory().join("cgroup.procs"));
                let procs = procs.unwrap_or_default();
                for pid in procs.lines() {
                    // One that has ended since is nowhere.
                    let _ = fs::write(home.join("cgroup.procs"), pid);
                }
                format!(
                    "{controller}: {} processes out again",
                    procs.lines().count()
                )
            }
            Fault::PageOut => format!("{} bytes", page_out(pid)),
            Fault::Unplug => {
                let last = allowed().last().copied().unwrap_or(0);
                let file = format!("/sys/devices/system/cpu/cpu{last}/online");
                if let Err(error) = fs::write(&file, "0") {
                    return format!("{file}: {error}");
                }
                thread::sleep(length);
                let back = fs::write(&file, "1");
                format!("{file}: back: {back:?}")
            }
            Fault::KillChild => kill_child(pid, chosen),
        }
    }
}

/// Takes the process's pages away, as the kernel does when memory is short (process_madvise(2)), and returns the number of
/// bytes. Pages of files are read again at the next touch; the rest is swapped out if there is swap.
fn page_out(pid: libc::pid_t) -> i64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let ranges = maps.lines().filter_map(|line| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        Some((start, usize::from_str_radix(end, 16).ok()? - start))
    });
    // SAFETY: system calls on plain values and one iovec each; the memory named is the other's, whose
    // contents do not change; the descriptor is closed by who opened it.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        let mut bytes = 0;
        for (start, length) in ranges {
            let range = libc::iovec {
                iov_base: start as *mut libc::c_void,
                iov_len: length,
            };
            let number = libc::SYS_process_madvise;
            let advice = libc::MADV_PAGEOUT;
            bytes += libc::syscall(number, process, &raw const range, 1, advice, 0).max(0);
        }
        libc::close(process as libc::c_int);
        bytes
    }
}

fn kill_child(pid: libc::pid_t, chosen: u64) -> String {
    let children = children(pid);
    let Some(&child) = children.get(chosen as usize % children.len().max(1)) else {
        return "it has no children".into();
    };
    // SAFETY: a system call on plain values. A child whose end its parent has seen since is a number
    // that the kernel does not give to another soon.
    unsafe { libc::kill(child, libc::SIGKILL) };
    format!("child {child} of {}", children.len())
}

fn kernel_threads(pid: libc::pid_t) -> Vec<libc::pid_t> {
    fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The children that execute another program already. Before that, a parent that waits for the execution would see the
/// kill as a failure to execute.
fn children(pid: libc::pid_t) -> Vec<libc::pid_t> {
    let own = fs::read_link(format!("/proc/{pid}/exe")).ok();
    kernel_threads(pid)
        .iter()
        .filter_map(|tid| fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect::<Vec<libc::pid_t>>()
        })
        .filter(|child| {
            let exe = fs::read_link(format!("/proc/{child}/exe")).ok();
            exe.is_some() && exe != own
        })
        .collect()
}

fn send((pid, tid): (libc::pid_t, Option<libc::pid_t>), signal: libc::c_int) {
    // SAFETY: system calls on plain values; the process has not been waited for.
    unsafe {
        match tid {
            Some(tid) => libc::syscall(libc::SYS_tgkill, pid, tid, signal),
            None => i64::from(libc::kill(pid, signal)),
        }
    };
}

/// Returns true if the process has a handler for the signal (`SigCgt` in proc(5)).
fn handles(pid: libc::pid_t, signal: libc::c_int) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// The processors that this process may use.
fn allowed() -> Vec<usize> {
    // SAFETY: an all-zero set is valid; the call fills it in.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        set
    };
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: below the set's size.
        .filter(|&processor| unsafe { libc::CPU_ISSET(processor, &set) })
        .collect()
}

fn bind(tid: libc::pid_t, processors: &[usize]) {
    // SAFETY: an all-zero set is valid; processors of `allowed` are below its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &processor in processors {
            libc::CPU_SET(processor, &mut set);
        }
        libc::sched_setaffinity(tid, size_of_val(&set), &raw const set);
    }
}

/// Returns true if the process is a zombie. It stays one until its parent waits for it.
pub fn has_ended(pid: libc::pid_t) -> bool {
    // SAFETY: an all-zero siginfo is valid; the call fills it in and leaves the child as it is.
    unsafe {
        let mut information: libc::siginfo_t = std::mem::zeroed();
        let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut information, how) != 0
            || information.si_pid() == pid
    }
}
