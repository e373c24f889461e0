//! One call of `upcall bench`: choose, measure, judge, print.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::affinity::Processors;
use crate::args::{BenchArgs, RuntimeName};
use crate::bounds::{Bound, Verdict};
use crate::builds;
use crate::catalogue::{Variant, Workload};
use crate::choice::{self, Choice};
use crate::counts;
use crate::measure::Bench;
use crate::noise::Watch;
use crate::outcome::{Outcome, outcomes};
use crate::problem::{Problem, print};
use crate::record::Record;
use crate::runtime::{self, Runtimes};
use crate::table::{self, Row};

/// Runs the benchmark; true if nothing failed and, under `--check`, every bound holds.
///
/// # Errors
///
/// A [`Problem`] before anything has been measured.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<bool, Problem> {
    if args.counts {
        return counts::run(args, out);
    }
    let choices = choice::choose(&args.workloads)?;
    if args.list {
        return print(out, &table::list(&choices)).map(|()| true);
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
    let choices = enough_processors(args, choices, allowed.count())?;
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
        progress: progress_bar(),
        watch: Watch::new(),
        failed: false,
    };
    bench
        .progress
        .set_length(choices.iter().map(|choice| bench.steps(choice)).sum());
    for (name, why) in &runtimes.left_out {
        bench.say(&format!("the runtime {} is left out: {why}", name.as_str()));
    }
    for runtime in &runtimes.all {
        let lacks = choice::without(runtime.name, &choices);
        if !lacks.is_empty() {
            let (name, lacks) = (runtime.name.as_str(), lacks.join(", "));
            bench.say(&format!("the runtime {name} has no program for {lacks}"));
        }
    }
    if !args.json {
        print(out, &table::title(&runtimes, bench.allowed.count()))?;
    }
    let names: Vec<_> = runtimes.all.iter().map(|runtime| runtime.name).collect();
    let mut all_hold = true;
    for choice in &choices {
        let samples = bench.measure(choice);
        for outcome in outcomes(choice, &samples, &names) {
            all_hold &= show(&bench, choice, &outcome, out)?;
        }
    }
    bench.progress.finish_and_clear();
    for complaint in bench.watch.complaints() {
        bench.say(&format!(
            "noisy machine: {complaint}; trust ratios and minima"
        ));
    }
    Ok(!bench.failed && (all_hold || !args.check))
}

fn progress_bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} {msg} ({eta} left)");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
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
    let enough = |workload: &Workload, variant: &Variant| {
        let own = args.workers.or(variant.workers);
        let needed = own.unwrap_or(workload.workers);
        if needed > count {
            let name = choice::full_name(workload, variant.name);
            eprintln!("upcall bench: {name} is left out: needs {needed} processors of {count}");
        }
        needed <= count
    };
    let mut choices = choices;
    for Choice { workload, variants } in &mut choices {
        variants.retain(|variant| enough(workload, variant));
    }
    choices.retain(|choice| !choice.variants.is_empty());
    Ok(choices)
}

/// Prints one outcome; true if all its bounds hold.
fn show(
    bench: &Bench<'_>,
    choice: &Choice,
    outcome: &Outcome,
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
            workload: choice.workload.name,
            variant: outcome.variant,
            runtime: runtime.name.as_str(),
            version: &runtime.version,
            workers,
            unit: outcome.unit,
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
    if !bench.args.json {
        let name = (choice.workload, outcome.variant, workers);
        lines = table::outcome(name, outcome.unit, &rows, &verdicts);
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
