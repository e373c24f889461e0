//! Errors in the runtime's own system calls (`upcall_linux::inject`), and the table of the errors that were given.

use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Calls that a new thread needs, or the whole runtime if it is the first thread. If one fails, pthread_create returns
/// EAGAIN, and the program decides what it does then.
const FOR_THREADS: [&str; 10] = [
    "clone",
    "epoll_create1",
    "epoll_ctl",
    "eventfd2",
    "fcntl",
    "mmap",
    "mprotect",
    DISPATCH,
    // By which room is made for the runtime's descriptors under a low limit.
    "prlimit64",
    "timerfd_create",
];

/// The runtime makes this call only if system calls are dispatched, which another error may cause.
const DISPATCH: &str = "prctl";

/// How many calls of that name succeed before the sweep lets the next one fail. Memory may run out at any call: a wait
/// with a deadline once gave ENOMEM, which the C library does not expect, if it was the first wait.
pub fn skips(call: &str) -> &'static [usize] {
    match call {
        "mmap" => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        _ if FOR_THREADS.contains(&call) => &[0, 1, 2, 3, 5, 8, 20],
        _ => &[0, 20],
    }
}

/// Builds the guest library that fails on demand, beside the other one.
pub fn library(scratch: &Path) -> PathBuf {
    let target = scratch.parent().expect("it lies in the target directory");
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--profile", "soak"])
        .args(["-p", "upcall-guest", "--features", "inject", "--target-dir"])
        .arg(target)
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "building the library failed: {status}");
    target.join("soak/libupcall_guest.so")
}

/// What fails in one run.
#[derive(Clone, Debug)]
pub struct Errors {
    pub settings: String,
    pub library: PathBuf,
    pub log: PathBuf,
}

impl Errors {
    /// Draws which calls fail. Calls that a thread needs are among them only if `refuses` is true.
    pub fn drawn(random: &mut Random, refuses: bool, library: &Path, log: &Path) -> Self {
        let every = random.pick(&[2, 5, 20, 100, 500]);
        let skip = random.pick(&[0, 40, 130, 200, 500]);
        let seed = random.next();
        let spared = match refuses {
            true => String::new(),
            false => format!(",spare={}", FOR_THREADS.join(":")),
        };
        Errors {
            settings: format!("seed={seed},every={every},skip={skip}{spared}"),
            library: library.to_owned(),
            log: log.to_owned(),
        }
    }

    /// Lets each call of this name fail with this error, after `skip` calls of it. Errors that the kernel gives when
    /// a signal or another thread came in between do not last: only every other call fails with one.
    pub fn always(call: &str, error: &str, skip: usize, library: &Path, log: &Path) -> Self {
        let passes = ["epoll_pwait", "futex", "nanosleep"].contains(&call);
        let every = if passes { 2 } else { 1 };
        Errors {
            settings: format!("seed=1,every={every},skip={skip},call={call},error={error}"),
            library: library.to_owned(),
            log: log.to_owned(),
        }
    }
}

/// What was reached and given, over all runs.
#[derive(Debug, Default)]
pub struct Table {
    /// Places, by file and line, with the call.
    reached: BTreeMap<String, BTreeSet<String>>,
    /// The calls and the errors that they may fail with.
    possible: BTreeMap<String, BTreeSet<String>>,
    given: BTreeMap<(String, String), u64>,
}

impl Table {
    /// Adds the log of a run. Returns true if the runtime refused a thread after such an error.
    pub fn add(&mut self, log: &Path) -> bool {
        let (mut exhausted, mut refused) = (false, false);
        for line in fs::read_to_string(log).unwrap_or_default().lines() {
            let mut words = line.split(' ');
            let (Some(verb), Some(place), Some(call)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if verb == "refused" {
                refused |= exhausted;
                continue;
            }
            let calls = self.reached.entry(place.to_owned()).or_default();
            calls.insert(call.to_owned());
            let errors = words.map(str::to_owned);
            if verb == "gave" {
                exhausted |= FOR_THREADS.contains(&call);
                for error in errors {
                    *self.given.entry((call.to_owned(), error)).or_default() += 1;
                }
            } else {
                self.possible
                    .entry(call.to_owned())
                    .or_default()
                    .extend(errors);
            }
        }
        refused
    }

    /// Each call that was reached and may fail, with its errors.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs = self
            .possible
            .iter()
            .flat_map(|(call, errors)| errors.iter().map(|error| (call.clone(), error.clone())));
        pairs.collect()
    }

    /// The errors that no run has given, of calls that every start of the runtime makes.
    pub fn missing(&self) -> Vec<(String, String)> {
        let mut pairs = self.pairs();
        pairs.retain(|pair| {
            FOR_THREADS.contains(&&*pair.0) && pair.0 != DISPATCH && !self.given.contains_key(pair)
        });
        pairs
    }

    /// The table as text: call, error, times; calls that cannot fail; places never reached.
    pub fn text(&self) -> String {
        let mut text = String::from("call                  error       times\n");
        for (call, errors) in &self.possible {
            if errors.is_empty() {
                writeln!(text, "{call:<21} cannot fail").unwrap();
            }
            for error in errors {
                let times = self.given.get(&(call.clone(), error.clone())).unwrap_or(&0);
                writeln!(text, "{call:<21} {error:<9} {times:>7}").unwrap();
            }
        }
        let places = places();
        let unreached: Vec<_> = places
            .iter()
            .filter(|(place, _)| !self.reached.contains_key(*place))
            .collect();
        writeln!(
            text,
            "{} of {} places in the sources reached; never:",
            places.len() - unreached.len(),
            places.len()
        )
        .unwrap();
        for (place, line) in unreached {
            writeln!(text, "  {place}: {line}").unwrap();
        }
        text
    }
}

/// All places that make a system call, with the line, in the sources of what runs inside of the program.
fn places() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeMap::new();
    let mut open: Vec<PathBuf> = ["crates/upcall-linux/src", "crates/upcall-guest/src"]
        .iter()
        .map(|folder| root.join(folder))
        .collect();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let inside = fs::read_dir(&path).expect("the sources are readable");
            open.extend(inside.map(|entry| entry.expect("the sources are readable").path()));
            continue;
        }
        let name = path
            .strip_prefix(&root)
            .expect("it lies below")
            .display()
            .to_string();
        // The probes of `doctor` run in its own process, the other processor's code nowhere here.
        if ["/probe/", "aarch64", "/inject.rs", "_tests.rs"]
            .iter()
            .any(|part| name.contains(part))
        {
            continue;
        }
        let text = fs::read_to_string(&path).expect("the sources are readable");
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            if line.contains("#[cfg(test)]") {
                break;
            }
            let code = line.trim_start();
            let calls = ["sys!(", "raw_syscall(", "start_kernel_thread("];
            if code.starts_with("//")
                || code.contains("upcall_raw_syscall(")
                || code.contains("fn ")
                || !calls.iter().any(|call| code.contains(call))
            {
                continue;
            }
            let shown: Vec<&str> = lines[index..]
                .iter()
                .take(4)
                .map(|line| line.trim())
                .collect();
            let shown = shown.join(" ").chars().take(70).collect();
            found.insert(format!("{name}:{}", index + 1), shown);
        }
    }
    found
}
