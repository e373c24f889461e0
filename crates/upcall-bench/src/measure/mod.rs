//! Interleaved rounds of the programs under test.
//!
//! 1. Round 0 warms caches, page tables and peers up; its figures are thrown away. A quick run has none: it shows nothing
//!    anyway.
//! 2. In every round each variant runs once on each runtime, A B C, A B C, and so on: a slow spell
//!    of the machine meets all of them. What is compared within one runtime (with and without
//!    blocking threads, alone and paired) runs back to back instead.
//! 3. A program that fails is reported at once, with its status and its last words, and tried
//!    again in the next round; one that fails twice is left out of the rest, aloud. One that
//!    declines (exit status 77) is left out with its reason.

mod others;
mod pairs;
mod share;
mod traced;
mod warning;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use indicatif::ProgressBar;

use crate::affinity::Processors;
use crate::args::BenchArgs;
use crate::builds::Built;
use crate::catalogue::{Kind, Variant, Workload};
use crate::child::{self, Failure, Figures};
use crate::choice::{self, Choice};
use crate::noise::Watch;
use crate::results::LeftOut;
use crate::runtime::{Runtime, Runtimes};
use crate::servers::House;
use crate::terminal::for_people;

/// Samples by (variant, series, index of the runtime).
pub type Samples = BTreeMap<(&'static str, &'static str, usize), Vec<f64>>;

/// What all measurements share.
pub struct Bench<'a> {
    /// The command line.
    pub args: &'a BenchArgs,
    pub runtimes: &'a Runtimes,
    pub allowed: Processors,
    /// Where the cold file is.
    pub cache: PathBuf,
    /// The OpenMP program, or why there is none.
    pub openmp: Result<Built, String>,
    /// The servers that are up.
    pub house: RefCell<House>,
    /// The progress bar; hidden where standard error is no terminal.
    pub progress: ProgressBar,
    /// Whether the machine was quiet.
    pub watch: Watch,
    /// What was left out or failed so far.
    pub left_out: Vec<LeftOut>,
}

/// One program to run: a variant of a workload on a runtime.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub workload: &'static Workload,
    pub variant: &'static Variant,
    pub runtime: &'a Runtime,
    pub index: usize,
}

/// The failures of one workload so far.
#[derive(Default)]
struct Trouble {
    count: BTreeMap<(&'static str, usize), usize>,
    gone: BTreeSet<(&'static str, usize)>,
}

impl<'a> Bench<'a> {
    /// How many processors `variant` of `workload` gets.
    pub fn workers(&self, workload: &Workload, variant: &Variant) -> usize {
        let own = self.args.workers.or(variant.workers);
        own.unwrap_or(workload.workers)
    }

    /// How many steps the progress bar takes for `choice`.
    pub fn steps(&self, choice: &Choice) -> u64 {
        let each = choice.variants.len() * self.runtimes.all.len();
        (self.rounds(choice.workload) * each) as u64
    }

    /// Rounds, the first one included: more of them where a few percent or half of one must show.
    fn rounds(&self, workload: &Workload) -> usize {
        let times = match workload.kind {
            Kind::Samples | Kind::Pair | Kind::Share | Kind::Speedup(_) => 1,
            Kind::Server | Kind::Job | Kind::Warning => 1,
            Kind::Loss | Kind::Traced => 2,
            Kind::Overhead => 3,
        };
        self.warming() + self.args.rounds * times
    }

    /// Rounds that do not count.
    fn warming(&self) -> usize {
        usize::from(!self.args.quick)
    }

    /// Says something on standard error without spoiling the progress bar.
    pub fn say(&self, text: &str) {
        let text = for_people(text);
        self.progress.suspend(|| eprintln!("upcall bench: {text}"));
    }

    pub fn measure(&mut self, choice: &Choice) -> Samples {
        let mut samples = Samples::new();
        let mut trouble = Trouble::default();
        self.progress.set_message(choice.workload.name);
        for round in 0..self.rounds(choice.workload) {
            self.watch.calibrate();
            for &variant in &choice.variants {
                for (index, runtime) in self.runtimes.all.iter().enumerate() {
                    let subject = Subject {
                        workload: choice.workload,
                        variant,
                        runtime,
                        index,
                    };
                    let has_it = variant.runs_on(runtime.name);
                    if has_it && !trouble.gone.contains(&(variant.name, index)) {
                        self.one(
                            &subject,
                            round >= self.warming(),
                            &mut samples,
                            &mut trouble,
                        );
                    }
                    self.progress.inc(1);
                }
            }
        }
        self.house.get_mut().clear();
        samples
    }

    fn one(
        &mut self,
        subject: &Subject,
        counts: bool,
        samples: &mut Samples,
        trouble: &mut Trouble,
    ) {
        let key = (subject.variant.name, subject.index);
        let Subject {
            workload,
            variant,
            runtime,
            ..
        } = *subject;
        let name = choice::full_name(workload, variant.name);
        let who = format!("{name} on {}", runtime.name.as_str());
        match self.figures(subject) {
            Ok(found) if counts => {
                for (series, mut values) in found {
                    samples
                        .entry((variant.name, series, subject.index))
                        .or_default()
                        .append(&mut values);
                }
            }
            Ok(_) => {}
            Err(Failure::Skipped(why)) => {
                trouble.gone.insert(key);
                self.say(&format!("{who} is left out: {why}"));
                self.note(subject, false, why);
            }
            Err(Failure::Failed(why)) => {
                self.say(&format!("{who} failed: {why}"));
                self.note(subject, true, why);
                let count = trouble.count.entry(key).or_default();
                *count += 1;
                if *count == 2 {
                    trouble.gone.insert(key);
                    self.say(&format!(
                        "{who} failed twice and is left out of the other rounds"
                    ));
                }
            }
        }
    }

    /// Notes what a subject has no figures for: once, however often it failed.
    fn note(&mut self, subject: &Subject, failed: bool, why: String) {
        let workload = choice::full_name(subject.workload, subject.variant.name);
        let runtime = subject.runtime.name.as_str();
        let same = |one: &LeftOut| one.workload == workload && one.runtime == runtime;
        if !self.left_out.iter().any(same) {
            self.left_out.push(LeftOut {
                workload,
                runtime: runtime.into(),
                failed,
                why,
            });
        }
    }

    /// One round of one subject: figures by series.
    fn figures(&self, subject: &Subject) -> Result<Vec<(&'static str, Vec<f64>)>, Failure> {
        let Subject {
            workload, variant, ..
        } = *subject;
        match workload.kind {
            Kind::Samples => {
                let mut found = self.program(subject, &[])?;
                let unit = workload.unit;
                Ok(vec![(unit, series(&mut found, unit)?)])
            }
            Kind::Overhead => {
                let threads = format!("threads={}", self.workers(workload, variant));
                let mut found = self.program(subject, &[&threads, "slices=10"])?;
                let wall = series(&mut found, "wall")?;
                Ok(vec![("wall", wall), ("cpu", series(&mut found, "cpu")?)])
            }
            Kind::Loss => {
                let computing = format!("computing={}", self.workers(workload, variant));
                let blockers = format!("blockers={}", variant.name);
                let mut without = self.program(subject, &[&computing, "blockers=0"])?;
                let mut with = self.program(subject, &[&computing, &blockers])?;
                if series(&mut with, "blocks")?[0] <= 0.0 {
                    return Err(Failure::Failed("no thread blocked even once".into()));
                }
                let without = series(&mut without, "work")?;
                Ok(vec![
                    ("without", without),
                    ("with", series(&mut with, "work")?),
                ])
            }
            Kind::Pair => {
                let [alone, pair] = pairs::times(self, subject)?;
                Ok(vec![("alone", vec![alone]), ("pair", vec![pair])])
            }
            Kind::Share => Ok(vec![(
                workload.unit,
                vec![share::of_copies(self, subject)?],
            )]),
            Kind::Warning => {
                let time = warning::time_at_level(self, subject)?;
                Ok(vec![(workload.unit, vec![time])])
            }
            Kind::Speedup(copies) => {
                let mut found = self.program(subject, &[])?;
                let sequential = series(&mut found, "sequential")?;
                let times = match copies {
                    1 => series(&mut found, "ns")?,
                    _ => vec![pairs::mean_of_two(self, subject)?],
                };
                Ok(vec![("sequential", sequential), ("ns", times)])
            }
            Kind::Server => others::server(self, subject),
            Kind::Job => others::job(self, subject),
            Kind::Traced => traced::without_and_with(self, subject),
        }
    }

    /// Runs the workload program once to its end.
    fn program(&self, subject: &Subject, more: &[&str]) -> Result<Figures, Failure> {
        let command = self.command(subject, None, more);
        let processors = self
            .allowed
            .last(self.workers(subject.workload, subject.variant));
        let Some(words) = helper(subject) else {
            let running = child::start(command, Stdio::null(), &processors, self.args.timeout)?;
            return running.finish();
        };
        let sockets = UnixStream::pair();
        let (ours, theirs) =
            sockets.map_err(|error| Failure::Failed(format!("socketpair: {error}")))?;
        let mut helper = Command::new(&self.runtimes.workload_program);
        helper.args(words);
        let elsewhere = self.allowed.besides(&processors);
        let [ours, theirs] = [ours, theirs].map(|socket| Stdio::from(OwnedFd::from(socket)));
        let timeout = 2 * self.args.timeout;
        let helper = child::start(helper, ours, &elsewhere, timeout)?;
        let figures = child::start(command, theirs, &processors, self.args.timeout)?.finish();
        // The socket has closed with the program, so the helper ends too.
        let figures = figures?;
        helper.finish().map(|_| figures)
    }

    /// The command of one program: the workload program, or `instead` of it.
    pub fn command(&self, subject: &Subject, instead: Option<&Path>, more: &[&str]) -> Command {
        let workers = self.workers(subject.workload, subject.variant);
        let mut command = subject.runtime.command(instead, workers);
        command.arg(subject.workload.program);
        let mut params: BTreeMap<String, String> = BTreeMap::new();
        let quick = if self.args.quick {
            quick(subject.workload.program)
        } else {
            &[]
        };
        for word in subject.variant.params.iter().chain(more).chain(quick) {
            if let Some((key, value)) = word.split_once('=') {
                params.insert(key.into(), value.into());
            }
        }
        if params.get("how").is_some_and(|how| how == "file") {
            params.insert("path".into(), self.cache.join("cold").display().to_string());
        }
        // The program is started by a user's command, and not by a program that is served.
        if params.get("how").is_some_and(|how| how == "alone") {
            params.remove("how");
            if let Some(launcher) = subject.runtime.launcher() {
                params.insert("launcher".into(), launcher.display().to_string());
            }
        }
        params.extend(self.of_runtime(subject, workers));
        command.args(params.iter().map(|(key, value)| format!("{key}={value}")));
        command
    }

    /// What a program is told because of its runtime.
    fn of_runtime(&self, subject: &Subject, workers: usize) -> Vec<(String, String)> {
        let Subject {
            workload, runtime, ..
        } = *subject;
        let mut params = Vec::new();
        if runtime.counts_workers_itself() {
            params.push(("workers".into(), workers.to_string()));
        }
        if workload.program == "idle_connections" && runtime.has_no_client() {
            let client = self.runtimes.workload_program.display();
            params.push(("client".into(), client.to_string()));
        }
        if self.args.quick && runtime.is_compiled_while_it_runs() {
            params.push(("warm_up_ms".into(), "0".into()));
        }
        params
    }
}

/// The native process at the other end of the program's standard input, if it needs one.
fn helper(subject: &Subject) -> Option<&'static [&'static str]> {
    match subject.workload.program {
        "reactivity" => Some(&["events"]),
        _ if subject.variant.params.contains(&"how=uffd") => Some(&["resolver", "delay_us=5000"]),
        _ => None,
    }
}

fn series(figures: &mut Figures, name: &str) -> Result<Vec<f64>, Failure> {
    let found = figures.remove(name).filter(|values| !values.is_empty());
    found.ok_or_else(|| Failure::Failed(format!("reported no figure {name:?}")))
}

/// Parameters that make a program short.
fn quick(program: &str) -> &'static [&'static str] {
    match program {
        "block_to_compute" => &["samples=4", "warm_up=1"],
        "reactivity" => &["samples=10", "warm_up=2", "limit_ms=50"],
        "unblock_to_run" => &["samples=10", "warm_up=2"],
        "blockers" => &["duration_ms=40", "warm_up_ms=10"],
        "never_blocks" => &["slices=2", "iterations=2000000"],
        "pair_barrier" | "pair_openmp" => &["operations=50"],
        "pair_spin" | "pair_ticket" => &["operations=2000"],
        "fork_batch" => &["samples=2", "batches=1"],
        "fib" | "fib_join" => &["n=10"],
        "nbody" => &["bodies=200", "steps=2"],
        "share" => &["duration_ms=20"],
        "spin_barrier" | "start" => &["samples=2"],
        "spin_ring" => &["samples=2", "operations=100"],
        "computation" | "sumtime" | "sumtime_join" => &["samples=2", "n=100"],
        "blocked" => &["threads=200"],
        "gauss" => &["samples=2", "n=20"],
        "interruption" => &["samples=10", "warm_up=2"],
        "parallel_sort" => &["samples=2", "n=1000"],
        "process_fork" => &["samples=2", "operations=5"],
        "http" => &["seconds=1", "connections=8"],
        "idle_connections" => &["connections=200"],
        _ => &["samples=2", "operations=200"],
    }
}
