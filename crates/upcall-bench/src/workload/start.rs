//! `start`: start another program and wait for its end.
//!
//! Under `upcall run` the program is a child of one that is served, and is served itself. `what=nothing` is true(1),
//! `what=thread` a program that makes one thread. With `launcher=PATH` it is instead what a user starts: `PATH run` and the
//! program, without the library that this process was given. One figure `ns` is one start; the first ones, which find
//! nothing in memory and nothing kept, do not count.

use std::process::{Command, Stdio};

use super::posix::now_ns;
use super::{Failure, Figures, Params};

/// Starts that do not count.
const WARM_UP: usize = 5;

pub fn run(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 100)?;
    let failed = |error: std::io::Error| Failure::Failed(format!("starting a program: {error}"));
    let (program, words): (_, &[&str]) = match params.text("what") {
        None | Some("nothing") => ("/bin/true".into(), &[]),
        Some("thread") => {
            let own = std::env::current_exe().map_err(failed)?;
            (own, &["create_join", "samples=0", "operations=1"])
        }
        Some(other) => {
            return Err(Failure::Usage(format!("what={other} is no program")));
        }
    };
    let mut command = match params.text("launcher") {
        None => Command::new(program),
        Some(launcher) => {
            let mut command = Command::new(launcher);
            command.arg("run").arg(program).env_remove("LD_PRELOAD");
            for (name, _) in std::env::vars_os() {
                // Settings that a user's command does not get. Where the library is it must find all the same.
                let ours = name.as_encoded_bytes().starts_with(b"UPCALL_");
                if ours && name != "UPCALL_GUEST_LIB" || name == "GLIBC_TUNABLES" {
                    command.env_remove(name);
                }
            }
            command
        }
    };
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut figures = Figures::default();
    for sample in 0..WARM_UP + samples {
        let begin = now_ns();
        let status = command.status().map_err(failed)?;
        let took = (now_ns() - begin) as f64;
        if !status.success() {
            return Err(Failure::Failed(format!("a started program: {status}")));
        }
        if sample >= WARM_UP {
            figures.push("ns", took);
        }
    }
    Ok(figures)
}
