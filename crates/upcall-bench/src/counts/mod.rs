//! `upcall bench --counts`: how many instructions operations take, on one virtual processor: of the crate, and of an
//! unmodified program under `upcall run`.
//!
//! Times differ from run to run and from machine to machine; of instructions a second run has as many as the first, to one
//! in a hundred, and of locked ones and writes of the FS base exactly as many. So what a change costs is seen where
//! nothing can be timed, and can be held: [`table::RECORDED`] says what each operation took when it was last recorded,
//! and `--check` fails above that. What is printed is that file.
//!
//! - [`crate::workload::counted`] is the program: the operations, between marks.
//! - [`stepper`] runs it, instruction by instruction.
//! - [`instruction`] says what is counted of each.
//!
//! Counted are instructions of the program and of what it loads, not the kernel's.

#[cfg(target_arch = "x86_64")]
mod instruction;
#[cfg(target_arch = "x86_64")]
mod stepper;
mod table;

use std::io::Write;
#[cfg(target_arch = "x86_64")]
use std::process::Command;

use crate::args::{BenchArgs, RuntimeName};
use crate::child::Failure;
use crate::problem::{Problem, print};
use crate::record::Record;
use crate::runtime::Ours;
use crate::stats::Summary;
use crate::workload::counted::BATCH;
use table::{Row, Verdict};

/// What runs an operation.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Crate,
    /// The program of POSIX threads under `upcall run`.
    Upcall,
}

impl Of {
    fn runtime(self) -> RuntimeName {
        match self {
            Of::Crate => RuntimeName::Crate,
            Of::Upcall => RuntimeName::Upcall,
        }
    }
}

/// What is counted.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(
        dead_code,
        reason = "only its name is told where nothing can be counted"
    )
)]
struct Operation {
    /// Its name in the table.
    name: &'static str,
    of: Of,
    /// Its name in the program.
    operation: &'static str,
    /// How often it is done. A step may cost 20 µs, in a virtual machine inside of another.
    times: usize,
    /// How many of what the table means one is.
    each: usize,
}

/// What is done before anything is counted, in the table's operations: some time slices.
#[cfg(target_arch = "x86_64")]
const WARM_UP: usize = 200_000;

/// An unmodified program takes ten times as many instructions for a thread. These are more threads than may leave their
/// stack with its pages. See docs/adr/0044.
const SMALL_BATCH: usize = 32;

const OPERATIONS: &[Operation] = &[
    operation("null_fork", 10, 1),
    operation("fork_batch", 1, BATCH),
    operation("join_null", 10, 1),
    operation("yield", 10, 2),
    operation("semaphore", 10, 1),
    operation("signal_wait", 10, 1),
    operation("mutex", 10, 1),
    operation("critical", 10, 1),
    operation("flagged_fork", 10, 1),
    operation("flagged_wait", 10, 1),
    under_run("run_null_fork", "null_fork", 10, 1),
    under_run("run_fork_batch", "fork_batch", 1, SMALL_BATCH),
    under_run("run_semaphore", "semaphore", 10, 1),
    under_run("run_signal_wait", "signal_wait", 10, 1),
    under_run("run_socket", "socket", 10, 1),
    under_run("run_events", "events", 10, 1),
];

const fn operation(name: &'static str, times: usize, each: usize) -> Operation {
    Operation {
        name,
        of: Of::Crate,
        operation: name,
        times,
        each,
    }
}

const fn under_run(
    name: &'static str,
    operation: &'static str,
    times: usize,
    each: usize,
) -> Operation {
    Operation {
        of: Of::Upcall,
        operation,
        ..self::operation(name, times, each)
    }
}

/// Counts and prints; true if nothing failed and, under `--check`, nothing takes more than is recorded.
///
/// # Errors
///
/// A [`Problem`] if there is nothing to count, or no way to.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<bool, Problem> {
    let operations = choose(&args.workloads)?;
    let programs = crate::runtime::ours(args)?;
    let mut rows = Vec::new();
    let mut holds = true;
    for operation in operations {
        let name = operation.name;
        let row = match count(&programs, operation, args) {
            Ok(row) => row,
            Err(Failure::Skipped(why)) => {
                let remedy = "a container or a system where processes may trace their children";
                return Err(Problem::new("cannot count instructions here", why, remedy));
            }
            Err(Failure::Failed(why)) => {
                eprintln!("upcall bench: {name}: {why}");
                holds = false;
                continue;
            }
        };
        match table::judge(&row) {
            Verdict::Same => {}
            Verdict::Other(text) => eprintln!("upcall bench: {name}: {text}"),
            Verdict::More(text) => {
                eprintln!("upcall bench: {name}: {text}: DOES NOT HOLD");
                eprintln!("  if that is wanted: {}", table::RECORD);
                holds &= !args.check;
            }
        }
        if args.json {
            print(out, &json(operation, &row))?;
        }
        rows.push(row);
    }
    if !args.json {
        print(out, &table::text(&rows))?;
    }
    Ok(holds)
}

/// The operations with these names; all of them if there is none.
fn choose(names: &[String]) -> Result<Vec<&'static Operation>, Problem> {
    let is_known = |name: &&String| OPERATIONS.iter().any(|one| one.name == name.as_str());
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let all: Vec<_> = OPERATIONS.iter().map(|one| one.name).collect();
        let what = format!("instructions of {unknown:?} are not counted");
        let evidence = "it is not among the operations";
        return Err(Problem::new(what, evidence, all.join(", ")));
    }
    let wanted = |one: &&Operation| names.is_empty() || names.iter().any(|name| name == one.name);
    Ok(OPERATIONS.iter().filter(wanted).collect())
}

/// Of so many processes of an operation the least counts: in one of ten somebody else has just used a ready list, so that its
/// owner takes the lock.
#[cfg(target_arch = "x86_64")]
const PROCESSES: usize = 8;
/// In so many, one after the other, something is to be counted.
#[cfg(target_arch = "x86_64")]
const MOST_PROCESSES: usize = 20;

#[cfg(target_arch = "x86_64")]
fn count(programs: &Ours, operation: &Operation, args: &BenchArgs) -> Result<Row, Failure> {
    let mut rows = Vec::new();
    for _ in 0..MOST_PROCESSES {
        if rows.len() == PROCESSES {
            break;
        }
        let command = command(programs, operation)?;
        let Some(found) = stepper::count(command, operation.times, args.timeout)? else {
            continue;
        };
        let all = (operation.times * operation.each) as f64;
        let mean = |of: fn(&stepper::Counts) -> u64| found.iter().map(of).sum::<u64>() as f64 / all;
        rows.push(Row {
            name: operation.name.into(),
            instructions: mean(|counts| counts.instructions),
            locked: mean(|counts| counts.locked),
            fs_writes: mean(|counts| counts.fs_writes),
            calls: mean(|counts| counts.calls),
        });
    }
    let cost = |row: &Row| (row.locked, row.instructions);
    let least = rows
        .into_iter()
        .min_by(|one, other| cost(one).partial_cmp(&cost(other)).expect("numbers"));
    least.ok_or_else(|| Failure::Failed(format!(
        "in each of {MOST_PROCESSES} processes, the kernel had preempted the thread when it was stopped"
    )))
}

#[cfg(target_arch = "x86_64")]
fn command(programs: &Ours, operation: &Operation) -> Result<Command, Failure> {
    let mut command = match operation.of {
        Of::Crate => Command::new(&programs.of_crate),
        Of::Upcall => {
            let upcall = programs.upcall.as_ref();
            let mut command = Command::new(upcall.map_err(|why| Failure::Failed(why.clone()))?);
            command.args(["run", "-p", "1", "--"]).arg(&programs.posix);
            command
        }
    };
    // As it is without settings.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"UPCALL_") {
            command.env_remove(name);
        }
    }
    command.args(["counted", "workers=1", "stop=1"]);
    command.arg(format!("operation={}", operation.operation));
    command.arg(format!("times={}", operation.times));
    if operation.operation == "fork_batch" {
        command.arg(format!("batch={}", operation.each));
    }
    command.arg(format!("warm_up={}", WARM_UP / operation.each));
    Ok(command)
}

#[cfg(not(target_arch = "x86_64"))]
fn count(_: &Ours, _: &Operation, _: &BenchArgs) -> Result<Row, Failure> {
    Err(Failure::Skipped("this processor is not x86-64".into()))
}

fn json(operation: &Operation, row: &Row) -> String {
    let line = |unit: &'static str, value: f64| {
        let figures = Summary::of(&[value])?;
        let record = Record {
            workload: operation.operation.into(),
            runtime: operation.of.runtime().as_str().into(),
            version: env!("CARGO_PKG_VERSION").into(),
            workers: 1,
            unit: unit.into(),
            ..Record::of(&figures)
        };
        Some(record.line() + "\n")
    };
    let lines = [
        line("instructions", row.instructions),
        line("locked", row.locked),
        line("fs_writes", row.fs_writes),
        line("calls", row.calls),
    ];
    lines.into_iter().flatten().collect()
}
