//! `upcall trace`: what a program's threads did with the processors, as a timeline that Perfetto shows.
//!
//! 1. The program is started by `upcall run`, with the variable `UPCALL_TRACE`: a directory in memory that is this user's alone.
//!    Each process of it that has threads makes a file there, and notes in it what happens ([`upcall_abi::trace`]).
//! 2. `rings`, `pace`: until it has ended, what is new there is read, before it is replaced.
//! 3. `spool`: it waits beside the output, which is found out to be impossible before the program is started.
//! 4. `timeline`, `tracks`, `output`, `packets`: all is put into order and written under another name, which is changed at the end.
//!
//! A program that is killed leaves its files, and they are read as those of any other.

mod output;
mod pace;
mod packets;
mod reasons;
mod rings;
mod session;
mod space;
mod spool;
mod timeline;
#[cfg(test)]
mod timeline_tests;
mod tracks;

use std::io;
use std::path::{Path, PathBuf};

use crate::args::TraceArgs;
use crate::refusal::Refusal;
use crate::status::EXIT_OURS;

use output::Draft;
use session::Session;
use spool::Spool;
use timeline::Summary;

const MORE: &str = "upcall help trace";

pub fn run(args: &TraceArgs) -> i32 {
    match record(args) {
        Ok(status) => status,
        Err(refusal) => refusal.report(),
    }
}

fn record(args: &TraceArgs) -> Result<i32, Refusal> {
    let target = &args.output;
    let draft = Draft::new(target).map_err(|error| no_file(target, &error))?;
    let spool = Spool::new(&draft.folder()).map_err(|error| no_file(target, &error))?;
    let mut session = Session::new(spool);
    if let Some(pid) = args.pid {
        session.attach(pid, args.duration)?;
    } else if let Some(directory) = &args.from {
        session.read(directory)?;
    } else {
        session.start(&args.command, args.duration)?;
    }
    let written = write(&mut session, target, draft);
    if session.is_waited_for() {
        eprintln!("upcall: the program goes on, and is waited for");
    }
    match (session.wait(), written) {
        (0, Err(())) => Ok(EXIT_OURS),
        (status, _) => Ok(status),
    }
}

/// Writes the timeline, and says what became of it.
fn write(session: &mut Session, target: &Path, mut draft: Draft) -> Result<(), ()> {
    let trouble = session.trouble.take();
    let lost: u64 = session.processes.iter().map(|one| one.lost).sum();
    let without: u32 = session.processes.iter().map(|one| one.without_ring()).sum();
    let activations: usize = session.processes.iter().map(|one| one.nr_rings()).sum();
    let about = session.about(trouble.as_ref());
    if about.is_empty() && session.is_of_no_start() {
        return Ok(());
    }
    if about.is_empty() {
        eprintln!(
            "upcall: {} is not written: nothing was traced; a program is from its second thread on, one that is asked when a \
             thread of it goes on",
            target.display()
        );
        // SAFETY: asks only.
        if unsafe { libc::geteuid() } == 0 && session.is_of_a_start() {
            eprintln!(
                "upcall: a program that gives up the superuser's rights before that cannot note anything for this command, which is \
                 the superuser's: start it by upcall run, and name its process by -p"
            );
        }
        return Ok(());
    }
    let written = session.events().and_then(|(events, count)| {
        let file = draft.file().ok_or(io::ErrorKind::NotFound)?;
        let summary = timeline::write(&about, &events, file)?;
        draft.publish()?;
        Ok((summary, count))
    });
    match written {
        Ok((summary, count)) => say(target, count, &summary, activations),
        Err(error) => {
            no_file(target, &error).report();
            return Err(());
        }
    }
    if lost > 0 {
        eprintln!(
            "upcall: {lost} events were dropped, the oldest, before they could be read; the timeline says where"
        );
    }
    if without > 0 {
        eprintln!(
            "upcall: {without} activations had no memory for events of their own; theirs are among the first to be dropped"
        );
    }
    if let Some(error) = trouble {
        eprintln!("upcall: the timeline ends early: {error}");
        return Err(());
    }
    Ok(())
}

fn say(target: &Path, events: usize, summary: &Summary, activations: usize) {
    let Summary { threads, vps, .. } = summary;
    let processors = if *vps == 1 { "processor" } else { "processors" };
    eprintln!(
        "upcall: {}: {events} events of {threads} threads on {activations} activations; {vps} virtual {processors}, busy \
         {:.1} % of the time; see it at ui.perfetto.dev",
        target.display(),
        summary.utilisation(),
    );
}

fn no_file(target: &Path, error: &io::Error) -> Refusal {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => "make room, or name a file on another file system",
        Some(libc::EROFS | libc::EACCES | libc::EPERM) => {
            "name a file in a directory that you may write to"
        }
        _ => "name another file",
    };
    Refusal {
        what: format!("cannot write {}", target.display()),
        checked: error.to_string(),
        remedy: format!("{remedy}: upcall trace -o FILE"),
        more: MORE,
    }
}

/// Says so if the variable that asks for a timeline names no directory.
pub fn warn_of_variable() {
    let asked = std::env::var_os("UPCALL_TRACE").filter(|value| !value.is_empty());
    if let Some(directory) = asked.as_ref().map(Path::new)
        && !directory.is_dir()
        && !is_of_a_command(directory)
    {
        // The program is silent: whoever wanted to read there may have gone.
        eprintln!(
            "upcall: warning: nothing is noted for a timeline: {}, which UPCALL_TRACE names, is no directory",
            directory.display()
        );
    }
}

/// Returns true if a directory has the name of one that this command makes, which goes with it.
fn is_of_a_command(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(session::SCRATCH))
}

/// Where there may be a directory in memory for files that programs of this user make.
fn places(user: u32) -> Vec<PathBuf> {
    // SAFETY: asks only.
    let is_own = unsafe { libc::geteuid() } == user;
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| is_own && path.is_absolute());
    let shm = PathBuf::from("/dev/shm");
    runtime
        .into_iter()
        .chain([shm, std::env::temp_dir()])
        .collect()
}
