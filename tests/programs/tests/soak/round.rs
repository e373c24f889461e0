//! One round: a program is started, disturbed, and compared with its native run.

use crate::errors::{Errors, Table};
use crate::faults::{Bears, Groups, Plan};
use crate::subjects::{Load, Subject};
use program_tests::case::{Case, files_of};
use program_tests::launcher::Launcher;
use program_tests::program::{Outcome, Program};
use program_tests::server::{self, Address, Service};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For how long a program is disturbed. After that it may end in peace.
const DISTURBED: Duration = Duration::from_secs(10);

/// How many clients a server has, and how many turns each.
const CONNECTIONS: usize = 8;
const TURNS: usize = 200;

/// What a native run gives.
pub struct Native {
    outcome: Outcome,
    files: BTreeMap<String, Vec<u8>>,
}

/// What is done to a program.
pub struct Disturbance<'a> {
    pub seed: u64,
    pub outside: bool,
    pub unplugs: bool,
    pub errors: Option<Errors>,
    pub settings: Vec<(&'static str, &'static str)>,
    pub groups: &'a Groups,
}

/// How a round ended well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// As natively.
    Same,
    /// The runtime refused a new thread with EAGAIN. The program ended for that reason and said so.
    Refused,
}

/// Runs the program natively. It gets only the signals and kills without which it would not end.
pub fn native(case: &Case, subject: &Subject, groups: &Groups) -> Native {
    let dir = case.fresh("native");
    subject.prepare(&dir);
    let outcome = match &subject.load {
        Some(load) => serve(load, &subject.program, &dir, None, |_, _| ()),
        None => {
            let running = subject.program.start(&dir, None);
            let bears = Bears {
                signals: false,
                ..subject.bears
            };
            Plan::new(0, bears, groups, false).kill_children(running.pid());
            running.finish()
        }
    };
    assert!(
        outcome.status.success(),
        "{}: the native run fails: {}\n{}",
        subject.name,
        outcome.ending(),
        outcome.talk()
    );
    Native {
        outcome,
        files: files(subject, &dir),
    }
}

/// Runs a round. Returns how the program ended and how many faults came from outside; the error is the full report of
/// what went wrong.
pub fn round(
    case: &Case,
    subject: &Subject,
    native: &Native,
    disturbance: &Disturbance<'_>,
    table: &mut Table,
) -> Result<(End, usize), String> {
    let dir = case.fresh("launched");
    subject.prepare(&dir);
    let mut program = subject.program.clone();
    for (name, value) in &disturbance.settings {
        program = program.env(name, value);
    }
    // For those that disturb themselves.
    program = program.env("SOAK_SEED", disturbance.seed.to_string());
    if let Some(errors) = &disturbance.errors {
        std::fs::remove_file(&errors.log).ok();
        program = program
            .env("UPCALL_GUEST_LIB", &errors.library)
            .env("UPCALL_INJECT", &errors.settings)
            .env("UPCALL_INJECT_LOG", &errors.log);
    }
    let bears = subject.bears;
    let plan = Plan::new(
        disturbance.seed,
        bears,
        disturbance.groups,
        disturbance.unplugs,
    );
    let plan = RefCell::new(plan);
    let launcher = case.launcher().with("--stats");
    // A hang panics, with what it looks like.
    let run = catch_unwind(AssertUnwindSafe(|| {
        start(subject, &program, &dir, &launcher, disturbance, &plan)
    }));
    let refused = disturbance
        .errors
        .as_ref()
        .is_some_and(|errors| table.add(&errors.log));
    let log = plan.into_inner().log;
    let verdict = match run {
        Ok(outcome) => judge(subject, native, &outcome, &files(subject, &dir), refused),
        Err(panic) => Err(panic
            .downcast_ref::<String>()
            .cloned()
            .unwrap_or_else(|| "the harness itself panicked".into())),
    };
    verdict.map(|end| (end, log.len())).map_err(|what| {
        let errors = disturbance.errors.as_ref();
        let given = errors.and_then(|errors| std::fs::read_to_string(&errors.log).ok());
        let given = given.unwrap_or_default();
        let given: Vec<&str> = given.lines().filter(|line| line.starts_with("gave")).collect();
        format!(
            "{}: {what}\n--- settings {:?}, errors {:?}\n--- faults of seed {}\n{}\n--- errors given, \
             the last of {}\n{}",
            subject.name,
            disturbance.settings,
            errors.map(|errors| &errors.settings),
            disturbance.seed,
            log.join("\n"),
            given.len(),
            given[given.len().saturating_sub(60)..].join("\n"),
        )
    })
}

fn start(
    subject: &Subject,
    program: &Program,
    dir: &Path,
    launcher: &Launcher,
    disturbance: &Disturbance<'_>,
    plan: &RefCell<Plan<'_>>,
) -> Outcome {
    let mut plan = plan.borrow_mut();
    let plan = &mut *plan;
    if let Some(load) = &subject.load {
        return serve(load, program, dir, Some(launcher), |pid, over| {
            if disturbance.outside {
                plan.disturb(pid, || over.load(Ordering::Relaxed));
            }
        });
    }
    let launcher = (!subject.has_runtime).then_some(launcher);
    let running = program.start(dir, launcher);
    if disturbance.outside {
        let start = Instant::now();
        plan.disturb(running.pid(), || start.elapsed() >= DISTURBED);
    }
    plan.kill_children(running.pid());
    running.finish()
}

/// A server under load; something happens beside it.
fn serve(
    load: &Load,
    program: &Program,
    dir: &Path,
    launcher: Option<&Launcher>,
    beside: impl FnOnce(libc::pid_t, &AtomicBool) + Send,
) -> Outcome {
    let service = Service {
        program: program.clone(),
        address: &|_| Some(Address::Unix(load.socket.clone())),
        talk: &|connection, number| (load.talk)(connection, number, TURNS),
        connections: CONNECTIONS,
        after: &|connection| (load.after)(connection, CONNECTIONS * TURNS),
    };
    server::drive(&service, dir, |dir| program.start(dir, launcher), beside)
}

/// What it has written, as far as that is always the same: a server's log says when what happened.
fn files(subject: &Subject, dir: &Path) -> BTreeMap<String, Vec<u8>> {
    match subject.load {
        Some(_) => BTreeMap::new(),
        None => files_of(dir),
    }
}

fn judge(
    subject: &Subject,
    native: &Native,
    launched: &Outcome,
    files: &BTreeMap<String, Vec<u8>>,
    refused: bool,
) -> Result<End, String> {
    let said = String::from_utf8_lossy(&launched.stderr);
    for never in [
        "broken invariant",
        "panicked at crates/",
        "memory allocation of",
    ] {
        if said.contains(never) {
            return Err(format!("\"{never}\"\n{}", launched.talk()));
        }
    }
    let canonical = subject.canonical;
    let same_end = launched.status == native.outcome.status;
    let same_bytes = canonical(&launched.stdout) == canonical(&native.outcome.stdout);
    if same_end && same_bytes && *files == native.files {
        return Ok(End::Same);
    }
    // std::thread's constructor throws, and a program that does not catch ends by SIGABRT.
    let threw =
        launched.status.signal() == Some(libc::SIGABRT) && said.contains("terminate called");
    let told = launched.status.code().is_some_and(|code| code != 0) || threw;
    // Our own C programs say which call it was, and OpenMP's library what it could not do.
    let names_it = String::from_utf8_lossy(&launched.stdout).contains("pthread_create(")
        || said.contains("libgomp: Thread creation failed");
    let told = told && (names_it || !subject.program.path().to_string_lossy().contains("_c-"));
    if refused && told {
        return Ok(End::Refused);
    }
    Err(format!(
        "native {}, launched {}; the same output: {same_bytes}, the same files: {}\n{}",
        native.outcome.ending(),
        launched.ending(),
        *files == native.files,
        launched.talk()
    ))
}
