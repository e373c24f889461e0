//! One call of `upcall bench`: choose, measure, judge, print.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::affinity::Processors;
use crate::args::{BenchArgs, RuntimeName};
use crate::bounds::{Bound, Verdict};
use crate::builds;
use crate::choice::{self, Choice};
use crate::counts;
use crate::jobs;
use crate::machine::Machine;
use crate::measure::Bench;
use crate::noise::Watch;
use crate::outcome::{Outcome, outcomes};
use crate::problem::{Problem, print};
use crate::record::Record;
use crate::results::{End, Head, LeftOut, Note, Sink};
use crate::runtime::{self, Runtime, Runtimes};
use crate::servers;
use crate::table::{self, Row};
use crate::terminal::{for_people, is_utf8};

/// Runs the benchmark; true if nothing failed and, under `--check`, every bound holds.
///
/// # Errors
///
/// A [`Problem`] before anything has been measured.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<bool, Problem> {
    if args.counts {
        return counts::run(args, out);
    }
    let mut choices = choice::choose(&args.workloads)?;
    let long = match args.brief {
        true => choice::without_long(&mut choices),
        false => Vec::new(),
    };
    if args.list {
        return print(out, &for_people(&table::list(&choices))).map(|()| true);
    }
    if args.rounds == 0 {
        let what = "no rounds would be no figures";
        return Err(Problem::new(what, "--rounds 0", "--rounds 1 or more"));
    }
    let cache = builds::cache_directory(args.cache.as_deref(), |name| std::env::var_os(name))
        .map_err(|why| {
            Problem::new(
                "no place for what is built and executed",
                why,
                "--cache DIR",
            )
        })?;
    let allowed = Processors::allowed()?;
    let runtimes = runtime::find(args, &cache)?;
    if args.check {
        both_to_compare(&runtimes)?;
    }
    let brief = |workload| LeftOut {
        workload,
        why: "it takes minutes, and the run was brief".into(),
        ..LeftOut::default()
    };
    let mut left_out: Vec<_> = long.into_iter().map(brief).collect();
    let mut choices = enough_processors(args, choices, allowed.count(), &mut left_out)?;
    choice::leave_out(&mut choices, &mut left_out, |workload, variant| {
        servers::lacking(workload).or_else(|| jobs::lacking(workload, variant))
    });
    let mut sink = open(args)?;
    let mut bench = Bench {
        args,
        runtimes: &runtimes,
        openmp: match choices
            .iter()
            .any(|choice| choice.workload.name == "pair_openmp")
        {
            true => builds::openmp_program(&cache),
            false => Err("it was not asked for".into()),
        },
        allowed,
        cache,
        house: Default::default(),
        progress: progress_bar(),
        watch: Watch::new(),
        left_out,
    };
    let began = Instant::now();
    bench
        .progress
        .set_length(choices.iter().map(|choice| bench.steps(choice)).sum());
    for (name, why) in &runtimes.left_out {
        bench.say(&format!("the runtime {} is left out: {why}", name.as_str()));
        bench.left_out.push(LeftOut {
            runtime: name.as_str().into(),
            why: why.clone(),
            ..LeftOut::default()
        });
    }
    for runtime in &runtimes.all {
        let lacks = choice::without(runtime.name, &choices);
        if !lacks.is_empty() {
            let (name, lacks) = (runtime.name.as_str(), lacks.join(", "));
            bench.say(&format!("the runtime {name} has no program for {lacks}"));
        }
    }
    if !args.json {
        print(
            out,
            &for_people(&table::title(&runtimes, bench.allowed.count())),
        )?;
    }
    let names: Vec<_> = runtimes.all.iter().map(|runtime| runtime.name).collect();
    let head = Note::Head(head(args, &runtimes, bench.allowed.count()));
    keep(args, &mut sink, &(head.line() + "\n"))?;
    let mut kept = 0;
    let mut all_hold = true;
    for choice in &choices {
        let samples = bench.measure(choice);
        let lines = left_out_lines(&bench.left_out[kept..]);
        kept = bench.left_out.len();
        keep(args, &mut sink, &lines)?;
        for outcome in outcomes(choice, &samples, &names) {
            all_hold &= show(&bench, choice, &outcome, &mut sink, out)?;
        }
    }
    bench.progress.finish_and_clear();
    let noise = bench.watch.complaints();
    for complaint in &noise {
        bench.say(&format!(
            "noisy machine: {complaint}; trust ratios and minima"
        ));
    }
    let failed: Vec<_> = bench.left_out.iter().filter(|one| one.failed).collect();
    if !failed.is_empty() {
        bench.say("these failed, and all others have their figures:");
        for one in &failed {
            bench.say(&format!(
                "  {} on {}: {}",
                one.workload, one.runtime, one.why
            ));
        }
    }
    let end = Note::End(End {
        seconds: began.elapsed().as_secs(),
        load: Machine::now().load,
        noise,
    });
    keep(args, &mut sink, &(end.line() + "\n"))?;
    Ok(failed.is_empty() && (all_hold || !args.check))
}

/// Opens the file that the results are added to, if there is to be one.
fn open(args: &BenchArgs) -> Result<Option<Sink>, Problem> {
    let open = |path: &PathBuf| Sink::open(path).map_err(|error| not_kept(path, &error));
    args.output.as_ref().map(open).transpose()
}

/// Adds lines to the file, if there is one.
fn keep(args: &BenchArgs, sink: &mut Option<Sink>, lines: &str) -> Result<(), Problem> {
    match (sink, &args.output) {
        (Some(sink), Some(path)) => sink.add(lines).map_err(|error| not_kept(path, &error)),
        _ => Ok(()),
    }
}

fn not_kept(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(
        "cannot keep the results",
        format!("{}: {error}", path.display()),
        "--output FILE in a directory that can be written and has room",
    )
}

fn left_out_lines(all: &[LeftOut]) -> String {
    let line = |one: &LeftOut| Note::LeftOut(one.clone()).line() + "\n";
    all.iter().map(line).collect()
}

/// What is said of the run before its figures.
fn head(args: &BenchArgs, runtimes: &Runtimes, allowed: usize) -> Head {
    let version = |one: &Runtime| (one.name.as_str().to_owned(), one.version.clone());
    Head {
        upcall: env!("CARGO_PKG_VERSION").into(),
        machine: Machine::now(),
        allowed,
        options: args.options(),
        quick: args.quick,
        slice: args.slice.as_nanos().try_into().unwrap_or(u64::MAX),
        runtimes: runtimes.all.iter().map(version).collect(),
    }
}

fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} {msg} ({eta} left)");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(match is_utf8() {
        true => style,
        false => style.progress_chars("#>-"),
    })
}

/// A check compares ours with the native run: that must be there, and of ours all that were asked for.
fn both_to_compare(runtimes: &Runtimes) -> Result<(), Problem> {
    let problem = |name: &str, evidence: &str| {
        let what = format!("nothing to check without the runtime {name}");
        let remedy = "--runtime upcall,crate,nptl and --upcall PATH";
        Err(Problem::new(what, evidence, remedy))
    };
    let ours = [RuntimeName::Upcall, RuntimeName::Crate];
    let needed = |name: &RuntimeName| ours.contains(name) || *name == RuntimeName::Nptl;
    if let Some((name, why)) = runtimes.left_out.iter().find(|(name, _)| needed(name)) {
        return problem(name.as_str(), why);
    }
    let not_named = "--runtime does not name it";
    let is_there = |name: &RuntimeName| runtimes.all.iter().any(|runtime| runtime.name == *name);
    if !is_there(&RuntimeName::Nptl) {
        return problem("nptl", not_named);
    }
    if !ours.iter().any(is_there) {
        return problem("upcall or crate", not_named);
    }
    Ok(())
}

/// Leaves out, aloud, what needs more processors than there are.
fn enough_processors(
    args: &BenchArgs,
    choices: Vec<Choice>,
    count: usize,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Choice>, Problem> {
    if let Some(workers) = args
        .workers
        .filter(|workers| !(1..=count).contains(workers))
    {
        let what = format!("cannot run on {workers} processors");
        let evidence = format!("this process may use {count}");
        return Err(Problem::new(
            what,
            evidence,
            format!("--workers 1 to {count}"),
        ));
    }
    let mut choices = choices;
    choice::leave_out(&mut choices, left_out, |workload, variant| {
        let own = args.workers.or(variant.workers);
        let needed = own.unwrap_or(workload.workers);
        (needed > count).then(|| format!("it needs {needed} processors of {count}"))
    });
    Ok(choices)
}

/// Prints one outcome; true if all its bounds hold.
fn show(
    bench: &Bench<'_>,
    choice: &Choice,
    outcome: &Outcome,
    sink: &mut Option<Sink>,
    out: &mut dyn Write,
) -> Result<bool, Problem> {
    let find = |name| {
        bench
            .runtimes
            .all
            .iter()
            .position(|runtime| runtime.name == name)
    };
    let of = |name: RuntimeName| find(name).and_then(|index| outcome.figures[index]);
    let slice = bench.args.slice.as_nanos() as f64;
    // What no runtime could do here has been left out aloud, or has failed.
    let nowhere = outcome.figures.iter().all(Option::is_none);
    let judge = |bound: &'static Bound| {
        let figures = outcome.figures[find(bound.runtime)?];
        let verdict = figures.map(|ours| bound.judge(&ours, of, slice));
        Some((bound, verdict.unwrap_or(Verdict::Unknown)))
    };
    let verdicts: Vec<_> = outcome.bounds.iter().filter_map(judge).collect();
    let holds = |runtime: RuntimeName| {
        let own = verdicts
            .iter()
            .filter(|(bound, _)| bound.runtime == runtime);
        let all: Vec<_> = own.map(|(_, verdict)| *verdict == Verdict::Holds).collect();
        (!all.is_empty()).then(|| all.iter().all(|holds| *holds))
    };
    let workers = bench.workers(choice.workload, outcome.run);
    let mut rows = Vec::new();
    let mut lines = String::new();
    for (runtime, figures) in bench.runtimes.all.iter().zip(&outcome.figures) {
        let Some(figures) = figures else {
            continue;
        };
        let record = Record {
            workload: choice.workload.name.into(),
            variant: outcome.variant.into(),
            runtime: runtime.name.as_str().into(),
            version: runtime.version.as_str().into(),
            workers,
            unit: outcome.unit.into(),
            holds: holds(runtime.name),
            ..Record::of(figures)
        };
        lines.push_str(&record.line());
        lines.push('\n');
        rows.push(Row {
            runtime: runtime.name.as_str(),
            figures: *figures,
        });
    }
    keep(bench.args, sink, &lines)?;
    if !bench.args.json {
        let name = (choice.workload, outcome.variant, workers);
        lines = for_people(&table::outcome(name, outcome.unit, &rows, &verdicts)).into_owned();
    }
    bench.progress.suspend(|| print(out, &lines))?;
    let broken = || verdicts.iter().filter(|(_, v)| *v != Verdict::Holds);
    let hold = nowhere || broken().next().is_none();
    if !hold && bench.args.json && bench.args.check {
        for (bound, verdict) in broken() {
            let name = choice::full_name(choice.workload, outcome.variant);
            let (runtime, word) = (bound.runtime.as_str(), table::word(*verdict));
            let bound = bound.describe(outcome.unit);
            bench.say(&format!("{name} on {runtime}: {bound}: {word}"));
        }
    }
    Ok(hold)
}
