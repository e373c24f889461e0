//! What a hung process tree is doing: every kernel thread's name, state, system call and kernel
//! stack, and gdb's backtrace where gdb is installed.

use crate::provision;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Kernel threads shown per process; a program with thousands repeats itself.
const THREADS_SHOWN: usize = 48;
/// Lines of gdb's answer kept per process.
const GDB_LINES: usize = 400;
/// Lines of `/proc/PID/task/TID/status` that tell something about a hang.
const STATUS_LINES: [&str; 7] = [
    "State",
    "SigPnd",
    "ShdPnd",
    "SigBlk",
    "Cpus_allowed_list",
    "voluntary",
    "nonvoluntary",
];

/// Describes the process and all that descend from it.
pub fn describe(pid: libc::pid_t) -> String {
    let mut report = String::new();
    for pid in tree(pid) {
        describe_process(&mut report, pid);
    }
    report
}

/// Processor time of a process, in the kernel's ticks.
///
/// # Panics
///
/// When it has ended.
pub fn used(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    [11, 12]
        .map(|at| fields[at].parse::<u64>().expect("a number"))
        .iter()
        .sum()
}

/// Kills the process and all that descend from it, each by its id.
pub fn kill_tree(pid: libc::pid_t) {
    for pid in tree(pid) {
        // SAFETY: a system call on plain values; the tree holds only ids of our own children's
        // tree, read just now.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// The process, its descendants, and the members of its process group (which the harness made
/// for it), so that orphans are found too.
fn tree(root: libc::pid_t) -> Vec<libc::pid_t> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name may hold anything, so count fields from its closing parenthesis.
        let Some((_, fields)) = stat.rsplit_once(") ") else {
            continue;
        };
        let fields: Vec<&str> = fields.split(' ').collect();
        let number = |at: usize| -> libc::pid_t {
            fields
                .get(at)
                .and_then(|field| field.parse().ok())
                .unwrap_or(0)
        };
        all.push((pid, number(1), number(2)));
    }
    let mut found = vec![root];
    loop {
        let more: Vec<libc::pid_t> = all
            .iter()
            .filter(|(pid, parent, group)| {
                !found.contains(pid) && (found.contains(parent) || *group == root)
            })
            .map(|(pid, ..)| *pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn describe_process(report: &mut String, pid: libc::pid_t) {
    let root = format!("/proc/{pid}");
    let root = Path::new(&root);
    let line = fs::read(root.join("cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    let mut tasks: Vec<_> = fs::read_dir(root.join("task"))
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    tasks.sort_by_key(std::fs::DirEntry::file_name);
    writeln!(
        report,
        "=== process {pid}: {line}({} kernel threads)",
        tasks.len()
    )
    .unwrap();
    for task in tasks.iter().take(THREADS_SHOWN) {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        let status: Vec<&str> = status
            .lines()
            .filter(|line| STATUS_LINES.iter().any(|wanted| line.starts_with(wanted)))
            .collect();
        writeln!(
            report,
            "--- {} {} syscall {} wchan {} | {}",
            task.file_name().display(),
            read("comm").trim(),
            read("syscall").trim(),
            read("wchan").trim(),
            status.join(" ").replace('\t', " "),
        )
        .unwrap();
        report.push_str(&read("stack"));
    }
    if tasks.len() > THREADS_SHOWN {
        writeln!(
            report,
            "[{} more kernel threads]",
            tasks.len() - THREADS_SHOWN
        )
        .unwrap();
    }
    report.push_str(&backtrace(pid));
}

fn backtrace(pid: libc::pid_t) -> String {
    let Some(gdb) = provision::find("gdb") else {
        return "(no gdb here: no user-level backtrace)\n".into();
    };
    let output = Command::new("timeout")
        .args(["-s", "KILL", "30"])
        .arg(gdb)
        .args([
            "-nx",
            "-batch",
            "-ex",
            "set pagination off",
            "-ex",
            "thread apply all bt 24",
        ])
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let lines: Vec<&str> = text
                .lines()
                .filter(|line| line.starts_with('#') || line.starts_with("Thread"))
                .take(GDB_LINES)
                .collect();
            format!("--- gdb\n{}\n", lines.join("\n"))
        }
        Err(error) => format!("(gdb did not start: {error})\n"),
    }
}
