//! Programs under faults: no data may be lost, and no program may hang or crash.
//!
//! Each round starts an unmodified program under `upcall run`. It disturbs the program from outside ([`faults`]), lets
//! system calls of the runtime fail ([`errors`]), or does both. Then it compares output, files and exit status with
//! the native run ([`round`]). If a program hangs, `program_tests::diagnosis` describes it before it is killed. A
//! failure prints the seed of its round and the log of faults.
//!
//! ```text
//! cargo test --release -p program-tests --test soak -- [--seconds N] [--seed S] [--round S] \
//!     [--errors|--outside] [--unplug] [PART OF A PROGRAM'S NAME ...]
//! ```
//!
//! | option | meaning |
//! |---|---|
//! | `--seconds N` | no round begins later than N seconds after the start; 60 |
//! | `--seed S` | decides all rounds; 1 |
//! | `--round S` | repeats the one round whose failure printed this seed |
//! | `--errors` | errors in system calls only |
//! | `--outside` | faults from outside only |
//! | `--unplug` | also takes the machine's last processor away and gives it back; only on a machine of one's own |
//!
//! `soak_forks` links the crate, and has a runtime of its own: it is only disturbed from outside.
//!
//! The test begins with a sweep, unless `--outside` is given: each call of the runtime that may fail fails always,
//! with each of its errors. A program to which the runtime refuses a thread may end for that reason, and must say so.

mod errors;
mod faults;
mod random;
mod round;
mod subjects;

use errors::{Errors, Table};
use faults::Groups;
use program_tests::case::Case;
use program_tests::provision;
use random::Random;
use round::{Disturbance, End, Native};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use subjects::{BRIEF, Subject};

/// Settings of the runtime. Together they reach all of its code.
const SETTINGS: &[&[(&str, &str)]] = &[
    &[],
    &[("UPCALL_SLICE_US", "200"), ("UPCALL_VPS", "4")],
    &[("UPCALL_SENTINEL", "1")],
    &[("UPCALL_PROBE", "perf")],
    &[("UPCALL_PROBE", "yields")],
];

/// Failures of the past that the sweep does not find. Each is a program, its calls, their error, and how many calls
/// succeed first. They run with [`TWO`].
const ONCE_FAILED: &[(&str, &str, &str, usize)] = &[
    // A watch on what is not known to be an epoll instance stayed, and the program's own nested less deep.
    ("epoll_threads.c", "fstat", "ENOMEM", 0),
    // A socket was taken for something without a time limit: a read with one waited for ever.
    ("rs_tcp.rs", "fstat", "ENOMEM", 0),
    ("rs_tcp.rs", "getsockopt", "ENOMEM", 0),
    // A descriptor of ours that was closed still counted as ours, and under a low limit the program's
    // next file had its number.
    ("descriptor_limits.c", "pread64", "ESRCH", 0),
    // What a runtime that did not start had mapped stayed, each time.
    ("start_again.c", "epoll_ctl", "ENOMEM", 0),
    ("start_again.c", "clone", "EAGAIN", 0),
    // Once the runtime has started (it watches two descriptors of its own, and has one activation more)
    // nothing could be watched, and the last activation blocked in a read, while who would write was ready.
    (BRIEF, "clone:epoll_ctl", "ENOMEM", 3),
];

const TWO: &[(&str, &str)] = &[("UPCALL_VPS", "2")];

struct Options {
    seconds: u64,
    seed: u64,
    round: Option<u64>,
    errors: bool,
    outside: bool,
    unplug: bool,
    only: Vec<String>,
}

fn options() -> Options {
    let mut options = Options {
        seconds: 60,
        seed: 1,
        round: None,
        errors: true,
        outside: true,
        unplug: false,
        only: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().unwrap_or_default();
            text.parse()
                .unwrap_or_else(|_| panic!("{word} {text}: want a number"))
        };
        match word.as_str() {
            "--seconds" => options.seconds = number(),
            "--seed" => options.seed = number(),
            "--round" => options.round = Some(number()),
            "--errors" => options.outside = false,
            "--outside" => options.errors = false,
            "--unplug" => options.unplug = true,
            other if other.starts_with('-') => panic!("unknown option {other}"),
            other => options.only.push(other.to_owned()),
        }
    }
    options
}

/// The rounds of one program so far.
#[derive(Default)]
struct Count {
    rounds: usize,
    refused: usize,
    faults: usize,
}

struct Soak {
    case: Case,
    options: Options,
    groups: Groups,
    library: std::path::PathBuf,
    natives: BTreeMap<String, Native>,
    counts: BTreeMap<String, Count>,
    table: Table,
}

impl Soak {
    fn round(
        &mut self,
        subject: &Subject,
        seed: u64,
        settings: &[(&'static str, &'static str)],
        errors: Option<Errors>,
        outside: bool,
    ) {
        if !self.natives.contains_key(&subject.name) {
            let native = round::native(&self.case, subject, &self.groups);
            self.natives.insert(subject.name.clone(), native);
        }
        let disturbance = Disturbance {
            seed,
            outside,
            unplugs: self.options.unplug,
            errors,
            settings: settings.to_vec(),
            groups: &self.groups,
        };
        let native = &self.natives[&subject.name];
        match round::round(&self.case, subject, native, &disturbance, &mut self.table) {
            Ok((end, faults)) => {
                let count = self.counts.entry(subject.name.clone()).or_default();
                count.rounds += 1;
                count.refused += usize::from(end == End::Refused);
                count.faults += faults;
            }
            Err(what) => {
                println!("{what}");
                panic!("round {seed} of seed {} failed", self.options.seed);
            }
        }
    }

    /// Where the errors of a run are written.
    fn log(&self) -> std::path::PathBuf {
        let name = format!("soak-errors-{}", std::process::id());
        self.case.scratch().join(name)
    }

    /// A round in which the seed decides all: the program, and what is done to it.
    fn drawn(&mut self, subjects: &[Subject], seed: u64) {
        let mut random = Random::new(seed ^ 0x5eed);
        let subject = random.pick(subjects);
        let log = self.log();
        let refuses = subject.bears.refused_threads;
        let drawn = Errors::drawn(&mut random, refuses, &self.library, &log);
        let kind = random.below(5);
        let errors = self.options.errors && (kind >= 3 || !self.options.outside);
        let errors = errors && !subject.has_runtime;
        let outside = self.options.outside && (kind != 3 || !errors);
        let settings = random.pick(SETTINGS);
        // Known also if somebody else ends this process.
        println!("round {seed}: {}", subject.name);
        self.round(subject, seed, settings, errors.then_some(drawn), outside);
    }

    fn once_failed(&mut self, subjects: &[Subject]) {
        let log = self.log();
        for &(name, call, error, skip) in ONCE_FAILED {
            for subject in subjects.iter().filter(|subject| subject.name == name) {
                let errors = Errors::always(call, error, skip, &self.library, &log);
                self.round(subject, 0, TWO, Some(errors), false);
            }
        }
    }

    /// Each call that is reached, with each error: from the first time on, and from later ones.
    fn sweep(&mut self, subjects: &[Subject]) {
        let log = self.log();
        let mut done = BTreeSet::new();
        for settings in SETTINGS {
            for subject in subjects {
                let none = Errors::always("none", "none", 0, &self.library, &log);
                self.round(subject, 0, settings, Some(none), false);
            }
            // An error may lead to calls that are not made without it.
            while let Some(pair) = self
                .table
                .pairs()
                .into_iter()
                .find(|pair| !done.contains(pair))
            {
                for &skip in errors::skips(&pair.0) {
                    for subject in subjects {
                        let errors = Errors::always(&pair.0, &pair.1, skip, &self.library, &log);
                        self.round(subject, 0, settings, Some(errors), false);
                    }
                }
                done.insert(pair);
            }
        }
    }

    fn report(&self) {
        println!("program                 rounds  threads refused   faults from outside");
        for (name, count) in &self.counts {
            println!(
                "{name:<22} {:>7} {:>16} {:>21}",
                count.rounds, count.refused, count.faults
            );
        }
        println!("{}", self.table.text());
    }
}

fn main() {
    let options = options();
    let case = Case::new("soak", Path::new(env!("CARGO_TARGET_TMPDIR")));
    if case.launcher().upcall().is_none() {
        provision::skip("soak", "the launcher is no `upcall run`");
        return;
    }
    println!("soak: seed {}", options.seed);
    let library = errors::library(case.scratch());
    let mut subjects = subjects::all(&case, &options.only);
    subjects.retain(|subject| options.outside || !subject.has_runtime);
    if subjects.is_empty() {
        println!("soak: no program's name contains {:?}", options.only);
        return;
    }
    let mut swept = subjects.clone();
    swept.retain(|subject| subject.bears.lasting_errors);
    if options.only.is_empty() || swept.is_empty() {
        swept = subjects::all(&case, &[BRIEF.into()]);
    }
    let (seed, only_round) = (options.seed, options.round);
    let (seconds, errors) = (options.seconds, options.errors);
    let mut soak = Soak {
        case,
        options,
        groups: Groups::new(),
        library,
        natives: BTreeMap::new(),
        counts: BTreeMap::new(),
        table: Table::default(),
    };
    if let Some(round) = only_round {
        soak.drawn(&subjects, round);
        return soak.report();
    }
    let start = Instant::now();
    if errors {
        soak.once_failed(&subjects);
        soak.sweep(&swept);
        println!("swept in {} s", start.elapsed().as_secs());
    }
    let mut random = Random::new(seed);
    while start.elapsed() < Duration::from_secs(seconds) {
        let round = random.next();
        soak.drawn(&subjects, round);
    }
    soak.report();
    let missing = soak.table.missing();
    assert!(!errors || missing.is_empty(), "never given: {missing:?}");
}
