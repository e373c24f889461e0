//! The programs that are disturbed, all unmodified. Their output and files do not depend on the order of events.

use crate::faults::Bears;
use program_tests::case::{Canonical, Case, sorted_lines, verbatim};
use program_tests::program::{Input, Program};
use program_tests::server::{Connection, memcached, redis};
use program_tests::{corpus, provision, source};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BEARS: Bears = Bears {
    refused_threads: true,
    lasting_errors: true,
    signals: false,
    killed_children: false,
};

/// A program with its input.
#[derive(Clone)]
pub struct Subject {
    pub name: String,
    pub program: Program,
    pub canonical: Canonical,
    pub bears: Bears,
    /// A file that lies in its directory at the start.
    pub file: Option<(&'static str, Arc<Vec<u8>>)>,
    /// If it is a server: what clients do with it.
    pub load: Option<Load>,
    /// It has a runtime of its own: nothing is before it on the command line, and no errors are given to its runtime.
    pub has_runtime: bool,
}

/// What clients do with a server.
#[derive(Clone, Debug)]
pub struct Load {
    pub socket: PathBuf,
    /// What one connection does. It gets its number and how many turns it has.
    pub talk: fn(Connection, usize, usize) -> io::Result<()>,
    /// What the last connection checks. It gets the number of turns of all connections.
    pub after: fn(Connection, usize) -> io::Result<()>,
}

impl Subject {
    fn new(name: &str, program: Program) -> Self {
        Subject {
            name: name.to_owned(),
            program,
            canonical: verbatim,
            bears: BEARS,
            file: None,
            load: None,
            has_runtime: false,
        }
    }

    pub fn prepare(&self, dir: &Path) {
        if let Some((name, bytes)) = &self.file {
            fs::write(dir.join(name), &**bytes).expect("the case's directory is writable");
        }
    }
}

/// Test programs of the suite whose verdicts do not depend on how long anything takes.
const PROGRAMS: &[&str] = &[
    "cxx_atomic_wait.cpp",
    "cxx_exceptions.cpp",
    "cxx_latch_barrier.cpp",
    "cxx_mutexes.cpp",
    "descriptor_limits.c",
    "epoll_threads.c",
    "file_blocking.c",
    "fork_from_thread.c",
    "malloc_threads.c",
    "many_threads.c",
    "mutex_robust.c",
    "omp_for.c",
    "omp_sync.c",
    "omp_tasks.c",
    "poll_many.c",
    "process_shared.c",
    "raw_futex.c",
    "rs_channels.rs",
    "rs_children.rs",
    "rs_tcp.rs",
    "rs_threads.rs",
    "rwlock_barrier.c",
    "semaphores.c",
    "signal_storm.c",
    "sigwait.c",
    "spawn.c",
    "start_again.c",
    "stdio_locks.c",
];

const SCRIPTS: &[&str] = &[
    "py_futures",
    "py_multiprocessing",
    "py_subprocess",
    "py_threads",
];

/// Every kind of wait in a short time.
pub const BRIEF: &str = "brief mix";

/// All programs that can run here, or those of them whose names contain a word of `only`.
pub fn all(case: &Case, only: &[String]) -> Vec<Subject> {
    let name = case.name();
    let mut subjects = Vec::new();
    let blob =
        Arc::new(fs::read(corpus::blob(case.scratch(), 6 << 20)).expect("the corpus is readable"));
    let tools: [(&str, &str, &[&str]); 3] = [
        (
            "xz",
            "xz-utils",
            &["-T4", "--block-size=512KiB", "-0", "-c"],
        ),
        ("zstd", "zstd", &["-T4", "-q", "-9", "-c"]),
        ("pigz", "pigz", &["-p", "4", "-n", "-c"]),
    ];
    for (tool, package, words) in tools {
        if let Some(path) = provision::program(name, tool, package) {
            let program = Program::new(path).args(words);
            let program = program.input(Input::Bytes(blob.to_vec()));
            // It would wait for ever for a lock of its own, natively too.
            let bears = Bears {
                refused_threads: tool != "pigz",
                ..BEARS
            };
            subjects.push(Subject {
                bears,
                ..Subject::new(tool, program)
            });
        }
    }
    if let Some(path) = provision::program(name, "rg", "ripgrep") {
        let words = ["-j4", "--no-config", "-n", "--no-heading", r"\breturn\b"];
        let program = Program::new(path)
            .args(words)
            .arg(corpus::tree(case.scratch(), 1500));
        subjects.push(Subject {
            canonical: sorted_lines,
            ..Subject::new("ripgrep", program)
        });
    }
    let text: Vec<u8> = blob
        .iter()
        .copied()
        .filter(|byte| *byte == b'\n' || *byte >= 32)
        .collect();
    let words = ["--parallel=4", "-S", "8M", "-o", "sorted", "data"];
    subjects.push(Subject {
        file: Some(("data", Arc::new(text))),
        ..Subject::new("sort", Program::new("sort").args(words).env("LC_ALL", "C"))
    });
    for script in SCRIPTS {
        if let Some(python) = provision::python(name) {
            let path = source::find(script);
            let program = Program::new(python)
                .args(["-B", "-X", "faulthandler"])
                .arg(path);
            // A program that waits for another process or thread, which ended for want of a thread, waits for
            // ever; natively too.
            let bears = Bears {
                refused_threads: !["py_multiprocessing", "py_threads"].contains(script),
                ..BEARS
            };
            subjects.push(Subject {
                bears,
                ..Subject::new(script, program)
            });
        }
    }
    subjects.extend(servers(name));
    for file in PROGRAMS {
        if let Some(path) = case.compile(file) {
            subjects.push(Subject::new(file, Program::new(path)));
        }
    }
    for (file, bears) in [
        (
            "soak_mixed.c",
            Bears {
                signals: true,
                ..BEARS
            },
        ),
        (
            "soak_children.c",
            Bears {
                killed_children: true,
                ..BEARS
            },
        ),
        (
            "soak_limits.c",
            Bears {
                lasting_errors: false,
                ..BEARS
            },
        ),
    ] {
        if let Some(path) = case.compile(file) {
            subjects.push(Subject {
                bears,
                ..Subject::new(file, Program::new(path))
            });
        }
    }
    if let Some(path) = case.compile("soak_mixed.c") {
        subjects.push(Subject::new(BRIEF, Program::new(path).arg("8")));
    }
    subjects.push(Subject {
        bears: Bears {
            lasting_errors: false,
            signals: true,
            ..BEARS
        },
        has_runtime: true,
        ..Subject::new("soak_forks", Program::new(env!("CARGO_BIN_EXE_soak_forks")))
    });
    subjects.retain(|subject| {
        only.is_empty() || only.iter().any(|part| subject.name.contains(part.as_str()))
    });
    subjects
}

/// Servers under load. A server that gets no thread ends before it listens, or ends all of its connections.
fn servers(case: &str) -> Vec<Subject> {
    let bears = Bears {
        refused_threads: false,
        ..BEARS
    };
    // A socket's path must be short, and the scratch directory's may not be.
    let socket = |name: &str| {
        std::env::temp_dir().join(format!("upcall-soak-{name}-{}", std::process::id()))
    };
    let mut subjects = Vec::new();
    if let Some(path) = provision::program(case, "memcached", "memcached") {
        let socket = socket("memcached");
        let program = memcached::program(path).arg("-s").arg(&socket);
        subjects.push(Subject {
            bears,
            load: Some(Load {
                socket,
                talk: memcached::talk,
                after: memcached::after,
            }),
            ..Subject::new("memcached", program)
        });
    }
    if let Some(path) = provision::program(case, "redis-server", "redis-server") {
        let socket = socket("redis");
        subjects.push(Subject {
            bears,
            load: Some(Load {
                socket: socket.clone(),
                talk: redis::talk,
                after: redis::after,
            }),
            ..Subject::new("redis", redis::program(path, &socket))
        });
    }
    subjects
}
