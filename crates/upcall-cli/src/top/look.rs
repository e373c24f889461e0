//! What is seen of the programs at one moment: their counters, what procfs says of their kernel threads, and, where the
//! kernel lets this user read their memory, the states of their threads.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use upcall_linux::turns::daemon::{self, Trouble};

use crate::stacks::{self, Thread};

use crate::live::{self, Contents, Counters};

/// One moment.
pub struct Moment {
    pub at: Instant,
    pub programs: Vec<Program>,
    pub processors: Vec<Processor>,
    /// Why no counters can be found.
    pub trouble: Option<String>,
    pub daemon: Daemon,
}

/// If there is a daemon that divides the processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Daemon {
    There,
    None,
    Silent,
}

/// A program under Upcall.
pub struct Program {
    pub pid: i32,
    /// When it began: another process with its number began at another time.
    pub began: u64,
    pub name: String,
    pub user: String,
    pub counters: Result<Counters, String>,
    pub threads: Result<Vec<Thread>, String>,
    pub turn: Option<&'static str>,
    /// By kernel thread: its processor time, in the kernel's ticks, and its last processor.
    pub kernel_threads: HashMap<i32, (u64, u32)>,
}

/// A processor's time since the machine began, in the kernel's ticks.
pub struct Processor {
    pub number: u32,
    pub idle: u64,
    pub all: u64,
}

/// What is kept between two moments.
#[derive(Default)]
pub struct Looker {
    users: HashMap<u32, String>,
    /// By process and its beginning: it has loaded the guest library.
    loaded: HashMap<(i32, u64), bool>,
}

impl Looker {
    /// Looks at all programs, or at these.
    pub fn look(&mut self, only: &[i32]) -> Moment {
        let (rows, daemon) = match daemon::spaces() {
            Ok(rows) => (rows, Daemon::There),
            Err(Trouble::NoPlace | Trouble::NoDaemon(..)) => (Vec::new(), Daemon::None),
            Err(Trouble::Version(_) | Trouble::Silent(_)) => (Vec::new(), Daemon::Silent),
        };
        let turns: HashMap<i32, &str> = rows
            .iter()
            .map(|row| (row.pid as i32, row.state_name()))
            .collect();
        let (segments, trouble) = match live::all() {
            Ok(segments) => (segments, None),
            Err(error) => (Vec::new(), Some(format!("/proc/sysvipc/shm: {error}"))),
        };
        let segments: HashMap<i32, Contents> = segments.into_iter().collect();
        let mut programs = Vec::new();
        let mut loaded = HashMap::new();
        for pid in numbers_in("/proc") {
            if !only.is_empty() && !only.contains(&pid) {
                continue;
            }
            let Some(process) = Process::read(&format!("/proc/{pid}/stat")) else {
                continue;
            };
            let counters = match segments.get(&pid) {
                Some(Contents::Counters(counters)) => Ok(*counters),
                Some(Contents::Version(version)) => Err(format!(
                    "its library is of another version: its counters have version {version}, this command reads {}",
                    upcall_abi::live::VERSION
                )),
                None => {
                    let key = (pid, process.began);
                    let has = self.loaded.get(&key).copied();
                    let has = has.unwrap_or_else(|| process.nr_threads > 1 && has_library(pid));
                    if process.nr_threads > 1 {
                        loaded.insert(key, has);
                    }
                    if !has {
                        continue;
                    }
                    Err("it shows no counters: it is filtered (seccomp), in another IPC namespace, another user's, of an \
                         older version, or runs natively"
                        .into())
                }
            };
            let threads = stacks::threads_of(pid)
                .map_err(|refusal| format!("{}; try: {}", refusal.checked, refusal.remedy));
            if threads.is_err() && Process::read(&format!("/proc/{pid}/stat")).is_none() {
                // It has ended just now.
                continue;
            }
            programs.push(Program {
                pid,
                began: process.began,
                name: comm(pid),
                user: self.user(pid),
                counters,
                threads,
                turn: turns.get(&pid).copied(),
                kernel_threads: kernel_threads(pid),
            });
        }
        self.loaded = loaded;
        Moment {
            at: Instant::now(),
            programs,
            processors: processors(&fs::read_to_string("/proc/stat").unwrap_or_default()),
            trouble,
            daemon,
        }
    }

    fn user(&mut self, pid: i32) -> String {
        let Ok(process) = fs::metadata(format!("/proc/{pid}")) else {
            return String::new();
        };
        let id = process.uid();
        self.users.entry(id).or_insert_with(|| name_of(id)).clone()
    }
}

fn numbers_in(directory: &str) -> Vec<i32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut all: Vec<i32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    all.sort_unstable();
    all
}

fn kernel_threads(pid: i32) -> HashMap<i32, (u64, u32)> {
    let directory = format!("/proc/{pid}/task");
    let all = numbers_in(&directory).into_iter();
    all.filter_map(|tid| {
        let seen = Process::read(&format!("{directory}/{tid}/stat"))?;
        Some((tid, (seen.ticks, seen.processor)))
    })
    .collect()
}

/// The name of a process.
pub fn comm(pid: i32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// A kernel thread, as the kernel sees it.
pub struct KernelThread {
    pub tid: i32,
    seen: char,
    ticks: u64,
    pub processor: u32,
}

/// The kernel threads of a process.
pub fn of_kernel(pid: i32) -> Vec<KernelThread> {
    let directory = format!("/proc/{pid}/task");
    let all = numbers_in(&directory).into_iter();
    all.filter_map(|tid| {
        let seen = Process::read(&format!("{directory}/{tid}/stat"))?;
        Some(KernelThread {
            tid,
            seen: seen.state,
            ticks: seen.ticks,
            processor: seen.processor,
        })
    })
    .collect()
}

impl KernelThread {
    /// What it does.
    pub fn state(&self) -> &'static str {
        match self.seen {
            'R' => "runnable",
            'S' | 'D' | 'I' => "blocked",
            'T' | 't' => "stopped",
            'Z' | 'X' => "ended",
            _ => "unknown",
        }
    }

    /// Why it does not run, as far as this user may know.
    pub fn reason(&self, pid: i32) -> Option<String> {
        match self.seen {
            't' => return Some("a debugger".into()),
            'T' => return Some("a signal has stopped it".into()),
            'S' | 'D' => {}
            _ => return None,
        }
        let text = fs::read_to_string(format!("/proc/{pid}/task/{}/syscall", self.tid)).ok()?;
        let mut words = text.split_whitespace();
        match words.next()?.parse::<i64>().ok()? {
            // Outside of any system call.
            -1 => Some("a page".into()),
            number => {
                let first = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
                Some(stacks::calls::describe(number as u64, first))
            }
        }
    }

    /// Its processor time.
    pub fn cpu_ms(&self) -> u64 {
        // SAFETY: asks only.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
        self.ticks.saturating_mul(1000) / ticks
    }
}

/// True if the library that `upcall run` puts before programs is mapped there, as far as this user may know.
fn has_library(pid: i32) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    String::from_utf8_lossy(&maps).contains("/libupcall_guest.so")
}

/// What /proc/PID/stat says (proc(5)).
#[derive(Debug, PartialEq, Eq)]
struct Process {
    state: char,
    ticks: u64,
    nr_threads: u64,
    began: u64,
    processor: u32,
}

impl Process {
    fn read(path: &str) -> Option<Self> {
        Self::of(&String::from_utf8_lossy(&fs::read(path).ok()?))
    }

    /// The command's name, which may hold anything, ends with the last bracket.
    fn of(line: &str) -> Option<Self> {
        let rest = line.get(line.rfind(')')? + 1..)?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        Some(Process {
            state: words.first()?.chars().next()?,
            ticks: number(11)?.saturating_add(number(12)?),
            nr_threads: number(17)?,
            began: number(19)?,
            processor: number(36)? as u32,
        })
    }
}

/// The processors of /proc/stat.
fn processors(text: &str) -> Vec<Processor> {
    let lines = text.lines().filter_map(|line| {
        // The first line, without a number, is of all.
        let (number, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        let (number, words) = (number.parse().ok()?, rest.split_whitespace());
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        // Of user, nice, system, idle, iowait, irq, softirq, steal; what guests have is in the first two.
        let idle = ticks.get(3)?.saturating_add(*ticks.get(4).unwrap_or(&0));
        Some(Processor {
            number,
            idle,
            all: ticks
                .iter()
                .take(8)
                .fold(0, |sum, &one| sum.saturating_add(one)),
        })
    });
    lines.collect()
}

fn name_of(user: u32) -> String {
    let mut buffer = [0; 4096];
    // SAFETY: all-zero is a valid passwd; the call fills it in, with pointers into the buffer.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let room = buffer.len();
        libc::getpwuid_r(
            user,
            &raw mut entry,
            buffer.as_mut_ptr(),
            room,
            &raw mut found,
        );
        if found.is_null() {
            return user.to_string();
        }
        CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_command_with_brackets_and_blanks_hides_nothing() {
        let line = "7 (a) 1 (b) S 1 7 7 0 -1 4194560 104 0 0 0 30 12 0 0 20 0 3 0 5291 2596864 358 0 0 0 0 0 0 0 0 0 0 0 0 0 17 5 0 0 0\n";
        let expected = Process {
            state: 'S',
            ticks: 42,
            nr_threads: 3,
            began: 5291,
            processor: 5,
        };
        assert_eq!(Process::of(line), Some(expected));
    }

    #[test]
    fn processors_are_those_with_a_number() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 40 5 6 7 8 1 1\ncpu12 0 0 0 4\nintr 5\n";
        let seen = processors(text);
        let all: Vec<_> = seen
            .iter()
            .map(|one| (one.number, one.idle, one.all))
            .collect();
        assert_eq!(all, [(0, 45, 72), (12, 4, 4)]);
    }

    #[test]
    fn a_user_without_a_name_is_a_number() {
        assert_eq!(name_of(0), "root");
        assert_eq!(name_of(3_999_999_999), "3999999999");
    }

    proptest! {
        #[test]
        fn any_text_of_the_kernel_is_read(text in "[cpu0-9 ()\\n-]{0,200}") {
            let _ = Process::of(&text);
            let _ = processors(&text);
        }
    }
}
