//! `upcall show`: one program, its virtual processors and its kernel threads, and what the daemon says of it.
//!
//! All of it is read from outside, by the readers of `stacks` (the program's memory), of `top` (procfs) and of `ps` (the daemon).

use std::collections::HashMap;
use std::fmt::Write;

use serde::Serialize;
use upcall_linux::turns::daemon;

use crate::args::ShowArgs;
use crate::ps;
use crate::refusal::Refusal;
use crate::stacks::{self, State, Thread};
use crate::status::{plain, say, say_json};
use crate::top;

#[derive(Serialize)]
struct Report {
    v: u32,
    pid: i32,
    program: String,
    /// What the user's daemon says of it.
    daemon: Option<ps::Space>,
    /// Why it says nothing.
    no_daemon: Option<String>,
    vps: Vec<Vp>,
    kernel_threads: Vec<KernelThread>,
}

#[derive(Serialize)]
struct Vp {
    vp: u32,
    /// Where it is to run.
    processor: u32,
    /// What its owner does.
    state: &'static str,
    /// Its owner's kernel thread.
    owner: Option<i32>,
    /// The number of the thread that runs there.
    thread: Option<u64>,
}

#[derive(Serialize)]
struct KernelThread {
    tid: i32,
    /// What the runtime knows of it.
    role: &'static str,
    vp: Option<u32>,
    /// The number and the name of the thread that it has.
    thread: Option<u64>,
    name: Option<String>,
    /// What the kernel says of it.
    state: &'static str,
    /// Why, if it does not run.
    reason: Option<String>,
    /// On which processor it ran last.
    processor: u32,
    cpu_ms: u64,
}

pub fn run(args: &ShowArgs) -> i32 {
    let report = match look(args.pid) {
        Ok(report) => report,
        Err(refusal) => return refusal.report(),
    };
    if args.json {
        return say_json(&report);
    }
    say(report.text().as_bytes())
}

fn look(pid: i32) -> Result<Report, Refusal> {
    let (vps, threads) = stacks::vps_and_threads_of(pid)?;
    let (daemon, no_daemon) = match daemon::spaces() {
        Ok(rows) => match rows.iter().find(|row| row.pid == pid as u32) {
            Some(row) => (Some(ps::space(row)), None),
            None => (None, Some("the daemon does not have it".into())),
        },
        Err(trouble) => (None, Some(trouble.evidence())),
    };
    let mut of_thread: HashMap<i32, &Thread> = HashMap::new();
    for thread in &threads {
        if let Some(tid) = thread.tid {
            of_thread.insert(tid, thread);
        }
    }
    let vps: Vec<Vp> = vps
        .iter()
        .map(|vp| Vp {
            vp: vp.number,
            processor: vp.processor,
            state: vp.doing.name(),
            owner: vp.owner,
            thread: vp
                .owner
                .and_then(|tid| of_thread.get(&tid))
                .map(|it| it.number),
        })
        .collect();
    let kernel_threads = top::kernel_threads(pid)
        .into_iter()
        .map(|seen| {
            let thread = of_thread.get(&seen.tid);
            let vp = vps.iter().find(|vp| vp.owner == Some(seen.tid));
            KernelThread {
                tid: seen.tid,
                role: role(vp.is_some(), thread.map(|thread| thread.state)),
                vp: vp.map(|vp| vp.vp),
                thread: thread.map(|thread| thread.number),
                name: thread.map(|thread| thread.name.clone()),
                state: seen.state(),
                reason: seen.reason(pid),
                processor: seen.processor,
                cpu_ms: seen.cpu_ms(),
            }
        })
        .collect();
    Ok(Report {
        v: 1,
        pid,
        program: top::comm(pid),
        daemon,
        no_daemon,
        vps,
        kernel_threads,
    })
}

/// What the runtime knows of a kernel thread.
fn role(owns: bool, thread: Option<State>) -> &'static str {
    match (owns, thread) {
        (true, _) => "owner",
        (false, Some(State::Bound)) => "bound",
        (false, Some(State::Preempted)) => "displaced",
        (false, Some(_)) => "replaced",
        // A standby, a spare, a helper of libc's, an agent.
        (false, None) => "other",
    }
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "process {}, {}: {} virtual processors, {} kernel threads\n",
            self.pid,
            plain(&self.program),
            self.vps.len(),
            self.kernel_threads.len()
        );
        // Writing to a string does not fail.
        let _ = match (&self.daemon, &self.no_daemon) {
            (Some(space), _) => writeln!(text, "daemon: {}", space.sentence()),
            (None, why) => writeln!(text, "daemon: none; {}", plain(&or_dash(why.as_ref()))),
        };
        let _ = writeln!(
            text,
            "\n{:>4}  {:>9}  {:<9}  {:>8}  THREAD",
            "VP", "PROCESSOR", "STATE", "OWNER"
        );
        for vp in &self.vps {
            let (owner, thread) = (or_dash(vp.owner), or_dash(vp.thread));
            let _ = writeln!(
                text,
                "{:>4}  {:>9}  {:<9}  {owner:>8}  {thread}",
                vp.vp, vp.processor, vp.state
            );
        }
        let _ = writeln!(
            text,
            "\n{:>8}  {:<9}  {:<8}  {:>9}  {:>8}  {:>6}  {:<16} REASON",
            "TID", "ROLE", "STATE", "PROCESSOR", "CPU", "THREAD", "NAME"
        );
        for one in &self.kernel_threads {
            let name = plain(&or_dash(one.name.as_ref().filter(|name| !name.is_empty())));
            let (thread, cpu) = (or_dash(one.thread), format!("{}ms", one.cpu_ms));
            let reason = plain(&or_dash(one.reason.as_ref()));
            let _ = writeln!(
                text,
                "{:>8}  {:<9}  {:<8}  {:>9}  {cpu:>8}  {thread:>6}  {name:<16} {reason}",
                one.tid, one.role, one.state, one.processor
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_thread_that_owns_is_an_owner_whatever_it_carries() {
        assert_eq!(role(true, None), "owner");
        assert_eq!(role(true, Some(State::Blocked)), "owner");
        assert_eq!(role(false, Some(State::Blocked)), "replaced");
        assert_eq!(role(false, None), "other");
    }

    #[test]
    fn nothing_of_the_program_commands_the_terminal() {
        let report = Report {
            v: 1,
            pid: 7,
            program: "a\u{1b}[2Jb".into(),
            daemon: None,
            no_daemon: Some("/run/x\u{7}: none".into()),
            vps: Vec::new(),
            kernel_threads: vec![KernelThread {
                tid: 8,
                role: "other",
                vp: None,
                thread: Some(1),
                name: Some("\u{1b}]0;x".into()),
                state: "blocked",
                reason: Some("futex".into()),
                processor: 0,
                cpu_ms: 3,
            }],
        };
        let text = report.text();
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
        let last: Vec<&str> = text
            .lines()
            .last()
            .expect("a row")
            .split_whitespace()
            .collect();
        assert_eq!(
            last,
            ["8", "other", "blocked", "0", "3ms", "1", "]0;x", "futex"]
        );
    }
}
