//! Servers are kept, loaded and ended.
//!
//! What is not installed is skipped aloud.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{PROGRAM, Scratch, quick, records};
use upcall_bench::RuntimeName;
use upcall_bench::keeper::Errand;

/// A keeper with its errand, which has a directory in `scratch`.
fn keeper(scratch: &Scratch, steps: &[&str], server: &str) -> (Child, BufReader<ChildStdout>) {
    let directory = scratch.0.join("kept");
    std::fs::create_dir_all(directory.join("data")).expect("a directory");
    let shell = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
    let errand = Errand {
        directory: directory.to_str().expect("text").to_owned(),
        steps: steps.iter().map(|script| shell(script)).collect(),
        server: shell(server),
        stop: libc::SIGTERM,
        ..Errand::default()
    };
    let mut keeper = Command::new(PROGRAM)
        .arg("keeper")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the workload program starts");
    let line = serde_json::to_string(&errand).expect("texts") + "\n";
    let input = keeper.stdin.as_mut().expect("a pipe");
    input.write_all(line.as_bytes()).expect("it listens");
    let output = BufReader::new(keeper.stdout.take().expect("a pipe"));
    (keeper, output)
}

fn line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    line
}

/// The keeper says that the server runs, and which process it is.
fn started(output: &mut BufReader<ChildStdout>) -> libc::pid_t {
    let said = line(output);
    let process = said
        .strip_prefix("started ")
        .and_then(|rest| rest.trim().parse().ok());
    process.unwrap_or_else(|| panic!("it is not started: {said}"))
}

/// The children of a process.
fn children(keeper: &Child) -> Vec<libc::pid_t> {
    let path = format!("/proc/{0}/task/{0}/children", keeper.id());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect()
}

fn is_there(process: libc::pid_t) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

#[test]
fn a_server_ends_with_its_harness_and_leaves_nothing() {
    let scratch = Scratch::new("keeper");
    let (mut keeper, mut output) = keeper(
        &scratch,
        // What a server leaves behind, in a session of its own, and a server that does not listen.
        &["setsid sleep 1000 & exit 0"],
        "trap '' TERM; while :; do sleep 1000; done",
    );
    let server = started(&mut output);
    let all = children(&keeper);
    if all.is_empty() {
        eprintln!("SKIPPED: this kernel has no list of children");
    } else {
        assert!(all.contains(&server), "{server} is not of {all:?}");
    }
    drop(keeper.stdin.take());
    assert!(keeper.wait().expect("it ends").success());
    assert!(!scratch.0.join("kept").exists());
    for one in all {
        assert!(!is_there(one), "{one} is left");
    }
}

#[test]
fn a_server_ends_with_its_keeper() {
    let scratch = Scratch::new("keeper-killed");
    let (mut keeper, mut output) = keeper(&scratch, &[], "exec sleep 1000");
    started(&mut output);
    let all = children(&keeper);
    let open = |process: &libc::pid_t| {
        // SAFETY: no pointers.
        unsafe { libc::syscall(libc::SYS_pidfd_open, *process, 0) as libc::c_int }
    };
    let watched: Vec<_> = all.iter().map(open).filter(|fd| *fd >= 0).collect();
    keeper.kill().expect("it runs");
    keeper.wait().expect("it has ended");
    for fd in watched {
        let mut polled = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure, for the duration of the call. The process ends, or the test hangs here.
        assert_eq!(unsafe { libc::poll(&mut polled, 1, -1) }, 1);
        // SAFETY: this descriptor is of this test.
        unsafe { libc::close(fd) };
    }
}

#[test]
fn a_step_that_fails_is_quoted() {
    let scratch = Scratch::new("keeper-step");
    let (mut keeper, mut output) = keeper(&scratch, &["echo broken >&2; exit 3"], "exit 0");
    let said = line(&mut output);
    assert!(
        said.starts_with("failed sh: exit status: 3") && said.contains("broken"),
        "{said}"
    );
    keeper.wait().expect("it ends");
    assert!(!scratch.0.join("kept").exists());
}

#[test]
fn a_server_that_ends_unasked_is_quoted() {
    let scratch = Scratch::new("keeper-server");
    let (mut keeper, mut output) = keeper(&scratch, &[], "echo no port >&2; exit 1");
    started(&mut output);
    let said = line(&mut output);
    assert!(
        said.starts_with("failed sh has ended: exit status: 1") && said.contains("no port"),
        "{said}"
    );
    keeper.wait().expect("it ends");
}

fn is_installed(program: &str) -> bool {
    let script = format!("PATH=$PATH:/usr/sbin:/usr/local/sbin command -v {program}");
    let found = Command::new("sh").args(["-c", &script]).output();
    found.expect("a shell").status.success()
}

/// Variants, and what they need.
const SERVERS: [(&str, &str, &[&str]); 6] = [
    ("memcached", "16x", &["memcached"]),
    ("redis", "1x", &["redis-server", "redis-benchmark"]),
    ("nginx", "4x", &["nginx", "wrk"]),
    ("apache", "1x", &["apache2", "wrk"]),
    (
        "mariadb",
        "4x",
        &["mariadbd", "mariadb-install-db", "sysbench"],
    ),
    ("postgres", "4x", &["pgbench"]),
];

#[test]
fn servers_that_are_installed_have_their_figures() {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() == 1) {
        eprintln!("SKIPPED: the workloads need two processors");
        return;
    }
    let scratch = Scratch::new("servers");
    let names: Vec<_> = SERVERS
        .iter()
        .map(|(name, load, _)| format!("{name}/{load}"))
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (fine, lines) = records(&quick(&scratch, &names, &[RuntimeName::Nptl]));
    assert!(fine, "a program failed; see above");
    for (name, load, needs) in SERVERS {
        let of = |line: &&serde_json::Value| line["workload"] == name;
        let found: Vec<_> = lines.iter().filter(of).collect();
        if !needs.iter().all(|program| is_installed(program)) && found.is_empty() {
            eprintln!("SKIPPED: {name}: not all of {needs:?} are installed");
            continue;
        }
        let series = ["throughput", "p95", "p99", "slowest"];
        let wanted: Vec<_> = series.map(|series| format!("{load}_{series}")).to_vec();
        let variants: Vec<_> = found
            .iter()
            .map(|line| line["variant"].as_str().unwrap_or_default())
            .collect();
        assert_eq!(variants, wanted, "{name}");
        assert!(
            found.iter().all(|line| line["min"].as_f64() > Some(0.0)),
            "{found:?}"
        );
    }
}

#[test]
fn programs_that_compute_have_their_processor_time() {
    if !["xz", "zstd"].iter().all(|program| is_installed(program)) {
        eprintln!("SKIPPED: xz or zstd is not installed");
        return;
    }
    if std::thread::available_parallelism().is_ok_and(|count| count.get() == 1) {
        eprintln!("SKIPPED: the workloads need two processors");
        return;
    }
    let scratch = Scratch::new("jobs");
    let names = ["processor_time/xz", "processor_time/zstd"];
    let (fine, lines) = records(&quick(&scratch, &names, &[RuntimeName::Nptl]));
    assert!(fine, "a program failed; see above");
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["min"].as_f64() > Some(0.0)));
    assert!(scratch.0.join("inputs/text-1").is_file());
}
