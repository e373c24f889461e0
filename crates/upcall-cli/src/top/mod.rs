//! `upcall top`: what the programs under Upcall do, now.
//!
//! The programs do nothing for it.
//! 1. `look`: one moment of all programs: their counters ([`crate::live`]), what procfs says, and the states of threads, which are read as `stacks` does;
//! 2. `report`: what happened between two moments;
//! 3. `view`: how that looks;
//! 4. `screen`: the terminal.

mod look;
mod report;
mod screen;
mod view;

use std::thread;
use std::time::Duration;

use crate::args::TopArgs;
use crate::refusal::Refusal;
use crate::stacks::anothers;
use crate::status::{EXIT_OURS, say, say_json};

pub use look::{comm, of_kernel as kernel_threads};

use look::{Looker, Moment};
use report::Report;
use screen::Screen;
use view::{Means, View};

const MORE: &str = "upcall help top";
/// Where there is nothing to show.
const NONE: &str = "no program of this user has threads under Upcall";

pub fn run(args: &TopArgs) -> i32 {
    if let Some(refusal) = args.pid.iter().find_map(|&pid| missing(pid)) {
        return refusal.report();
    }
    if args.once {
        once(args)
    } else {
        interactive(args)
    }
}

fn once(args: &TopArgs) -> i32 {
    let mut looker = Looker::default();
    let before = looker.look(&args.pid);
    thread::sleep(Duration::from_secs_f64(args.delay));
    let after = looker.look(&args.pid);
    let report = Report::new(&before, &after, !args.pid.is_empty());
    if args.json {
        return say_json(&report);
    }
    if let Some(trouble) = &report.trouble {
        eprintln!("upcall: no counters of any program: {trouble}");
    }
    for one in &report.programs {
        for (what, why) in [("counters", &one.no_counters), ("states", &one.no_states)] {
            if let Some(why) = why {
                eprintln!("upcall: process {}: no {what}: {why}", one.pid);
            }
        }
    }
    for pid in &args.pid {
        if !report.programs.iter().any(|one| one.pid == *pid) {
            eprintln!("upcall: process {pid} is not under Upcall, or has had one thread only");
        }
    }
    if report.programs.is_empty() && args.pid.is_empty() {
        eprintln!("upcall: {NONE}");
    }
    let table = view::table(&report, args.sort, means(), screen::width());
    say(table.as_bytes())
}

fn interactive(args: &TopArgs) -> i32 {
    if !screen::is_there() {
        return Refusal {
            what: "there is no terminal to show programs on".into(),
            checked: "standard input and output are a terminal, and TERM names one that can".into(),
            remedy: "upcall top --once prints one table, and with --json one JSON object".into(),
            more: MORE,
        }
        .report();
    }
    let mut looker = Looker::default();
    let mut before: Option<Moment> = None;
    let next = || {
        let now = looker.look(&args.pid);
        let report = Report::new(before.as_ref().unwrap_or(&now), &now, true);
        before = Some(now);
        report
    };
    let mut view = View::new(means(), args.sort);
    let delay = Duration::from_secs_f64(args.delay);
    let shown = Screen::take().and_then(|mut screen| screen.show(&mut view, delay, next));
    match shown {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("upcall: the terminal cannot be used: {error}");
            EXIT_OURS
        }
    }
}

/// What the terminal can show, by the environment.
fn means() -> Means {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Means {
        colour: !no_colour,
        utf8: upcall_bench::terminal::is_utf8(),
    }
}

/// Why a process cannot be looked at, if that is known before.
fn missing(pid: i32) -> Option<Refusal> {
    let is_there = std::fs::exists(format!("/proc/{pid}")).unwrap_or(true);
    let checked = match is_there {
        true => anothers(pid)?,
        false => "there is no such process".into(),
    };
    Some(Refusal {
        what: format!("process {pid} cannot be looked at"),
        checked,
        remedy: "upcall top --once lists all that can".into(),
        more: MORE,
    })
}
