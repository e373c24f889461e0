//! The runtimes: where their programs are, and how one is started.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::{BenchArgs, RuntimeName};
use crate::builds::java::Jdk;
use crate::builds::{self, Built, cpp};
use crate::guarded::{Trust, Way};
use crate::problem::Problem;

/// A runtime that can be measured here.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub name: RuntimeName,
    pub version: String,
    /// What starts the program, if it cannot be started directly.
    starter: Option<Starter>,
    program: PathBuf,
}

/// A command that runs programs.
#[derive(Clone, Debug)]
enum Starter {
    Upcall(PathBuf),
    /// Java's virtual machine; the program is the directory with the classes.
    Java(PathBuf),
}

/// Returns true if the user has said how many virtual processors programs under Upcall have: a range, for example, so that they
/// adapt to what `upcalld` gives them.
pub fn processors_are_chosen() -> bool {
    std::env::var_os("UPCALL_VPS").is_some()
}

impl Runtime {
    /// The command that runs the workload program, or `instead` of it, with `workers`.
    pub fn command(&self, instead: Option<&Path>, workers: usize) -> Command {
        let program = instead.unwrap_or(&self.program);
        match &self.starter {
            None => Command::new(program),
            Some(Starter::Upcall(upcall)) => {
                let mut command = Command::new(upcall);
                command.arg("run");
                if !processors_are_chosen() {
                    command.args(["-p", &workers.to_string()]);
                }
                command.arg("--").arg(program);
                command
            }
            Some(Starter::Java(java)) => {
                let mut command = Command::new(java);
                for property in ["parallelism", "maxPoolSize"] {
                    command.arg(format!("-Djdk.virtualThreadScheduler.{property}={workers}"));
                }
                // A thread that waits for one that has failed would wait for ever.
                command.args(["-XX:+ExitOnOutOfMemoryError", "-cp"]);
                command.arg(program).arg("Peer");
                command
            }
        }
    }

    /// Returns the command that serves programs, for a runtime of ours.
    pub fn launcher(&self) -> Option<&Path> {
        match &self.starter {
            Some(Starter::Upcall(upcall)) => Some(upcall),
            _ => None,
        }
    }

    /// Returns true if the program must be told the number of workers itself.
    pub fn counts_workers_itself(&self) -> bool {
        use RuntimeName::{Before, Nptl, Upcall};
        !matches!(self.name, Upcall | Before | Nptl)
    }

    /// Returns true if the other ends of idle connections are to be those of upcall-workload.
    pub fn has_no_client(&self) -> bool {
        matches!(self.name, RuntimeName::St | RuntimeName::Java)
    }

    /// Returns true if it takes some time until the program is as fast as it can be.
    pub fn is_compiled_while_it_runs(&self) -> bool {
        self.name == RuntimeName::Java
    }
}

/// What there is to measure with.
#[derive(Debug)]
pub struct Runtimes {
    /// The runtimes, in the order of [`RuntimeName::ALL`].
    pub all: Vec<Runtime>,
    /// Runtimes that were not asked for by name and cannot be had, with the reason.
    pub left_out: Vec<(RuntimeName, String)>,
    /// The program upcall-workload, which is the resolver of page faults too.
    pub workload_program: PathBuf,
    /// The command upcall.
    pub upcall: PathBuf,
}

/// Finds the runtimes that `args` ask for.
///
/// # Errors
///
/// A [`Problem`] if the workload program is missing, or a runtime that was asked for by name.
pub fn find(args: &BenchArgs, cache: &Path) -> Result<Runtimes, Problem> {
    let this = this_program()?;
    let workload_program = workload_program(args, &this);
    is_there(args, &this, &workload_program)?;
    let all = args.runtime.is_empty();
    let named = |name| match name {
        RuntimeName::Before => args.before.is_some(),
        name => args.runtime.contains(&name),
    };
    let wanted = |name: &RuntimeName| named(*name) || all && *name != RuntimeName::Before;
    let mut found = Runtimes {
        all: Vec::new(),
        left_out: Vec::new(),
        workload_program,
        upcall: upcall_command(args, &this),
    };
    for name in RuntimeName::ALL.into_iter().filter(wanted) {
        match one(name, args, &this, &found.workload_program, cache) {
            Ok(runtime) => found.all.push(runtime),
            Err(why) if !named(name) => found.left_out.push((name, why)),
            Err(why) => {
                let what = format!("the runtime {} cannot be had here", name.as_str());
                let remedy = match name {
                    RuntimeName::Before => "--before PATH",
                    _ => "leave it out of --runtime",
                };
                return Err(Problem::new(what, why, remedy));
            }
        }
    }
    Ok(found)
}

fn this_program() -> Result<PathBuf, Problem> {
    std::env::current_exe().map_err(|error| {
        Problem::new(
            "cannot find this program's own file",
            error.to_string(),
            "mount /proc",
        )
    })
}

/// The program with POSIX threads: beside this program, as it is built, or in ../lib/upcall, as it is installed.
fn workload_program(args: &BenchArgs, this: &Path) -> PathBuf {
    const NAME: &str = "upcall-workload";
    if let Some(path) = &args.workload_program {
        return path.clone();
    }
    let beside = this.with_file_name(NAME);
    let above = this.parent().and_then(Path::parent);
    let installed = above.map(|above| above.join("lib/upcall").join(NAME));
    match installed {
        Some(installed) if !beside.is_file() && installed.is_file() => installed,
        _ => beside,
    }
}

/// The command whose runtime is measured.
fn upcall_command(args: &BenchArgs, this: &Path) -> PathBuf {
    match &args.upcall {
        Some(path) => path.clone(),
        None if this.file_stem().is_some_and(|stem| stem == "upcall") => this.into(),
        None => this.with_file_name("upcall"),
    }
}

/// The same; if it was not named, only if no other user can have put it there.
fn trusted_upcall(args: &BenchArgs, this: &Path) -> Result<PathBuf, String> {
    let upcall = upcall_command(args, this);
    found(&upcall)?;
    if args.upcall.is_none() {
        found_beside(this, &upcall)?;
    }
    Ok(upcall)
}

fn found(program: &Path) -> Result<(), String> {
    match program.is_file() {
        true => Ok(()),
        false => Err(format!("{} is not a file", program.display())),
    }
}

/// That with the crate upcall.
fn beside(workload_program: &Path) -> PathBuf {
    workload_program.with_file_name("upcall-workload-crate")
}

/// A program that was not named but found beside `this` is executed only if no other user can have put it there.
fn is_there(args: &BenchArgs, this: &Path, program: &Path) -> Result<(), Problem> {
    let checked = match program.is_file() {
        false => Err(("is missing", format!("{} is not a file", program.display()))),
        true if args.workload_program.is_some() => Ok(()),
        true => found_beside(this, program).map_err(|why| ("cannot be trusted", why)),
    };
    checked.map_err(|(what, evidence)| {
        Problem::new(
            format!("the program with the workloads {what}"),
            evidence,
            "cargo build --release -p upcall-bench, ./install command, or --workload-program PATH",
        )
    })
}

/// # Errors
///
/// Others could have put `program` there, and could not replace `this`.
fn found_beside(this: &Path, program: &Path) -> Result<(), String> {
    let trust = Trust::of_command(this);
    trust.guarded(program, Way::OfFile).map(drop)
}

/// The programs of our two runtimes.
pub struct Ours {
    /// That with the crate upcall.
    pub of_crate: PathBuf,
    /// That with POSIX threads.
    pub posix: PathBuf,
    /// The command under which it runs, or why there is none.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "nothing can be counted there")
    )]
    pub upcall: Result<PathBuf, String>,
}

/// Finds the programs of our two runtimes.
///
/// # Errors
///
/// A [`Problem`] if one is missing.
pub fn ours(args: &BenchArgs) -> Result<Ours, Problem> {
    let this = this_program()?;
    let posix = workload_program(args, &this);
    let ours = Ours {
        of_crate: beside(&posix),
        posix,
        upcall: trusted_upcall(args, &this),
    };
    is_there(args, &this, &ours.of_crate)?;
    is_there(args, &this, &ours.posix)?;
    Ok(ours)
}

fn one(
    name: RuntimeName,
    args: &BenchArgs,
    this: &Path,
    workload_program: &Path,
    cache: &Path,
) -> Result<Runtime, String> {
    match name {
        RuntimeName::Upcall => {
            let upcall = trusted_upcall(args, this)?;
            let version = env!("CARGO_PKG_VERSION").into();
            Ok(under_upcall(name, version, upcall, workload_program))
        }
        RuntimeName::Before => {
            let upcall = args.before.clone().ok_or("there is no --before")?;
            let version = upcall.display().to_string();
            found(&upcall)?;
            Ok(under_upcall(name, version, upcall, workload_program))
        }
        RuntimeName::Crate => {
            let program = beside(workload_program);
            found(&program)?;
            if args.workload_program.is_none() {
                found_beside(this, &program)?;
            }
            Ok(Runtime {
                name,
                version: env!("CARGO_PKG_VERSION").into(),
                starter: None,
                program,
            })
        }
        RuntimeName::Nptl => {
            // SAFETY: returns a constant text.
            let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
            let version = format!("glibc {}", version.to_string_lossy());
            Ok(Runtime {
                name,
                version,
                starter: None,
                program: workload_program.into(),
            })
        }
        RuntimeName::Go => Ok(own(name, builds::go_peer(cache)?)),
        RuntimeName::May | RuntimeName::Rayon | RuntimeName::Tokio => {
            Ok(own(name, builds::rust_peer(cache, name.as_str())?))
        }
        RuntimeName::Tbb => Ok(own(name, cpp::peer(cache, &cpp::TBB)?)),
        RuntimeName::Boost => Ok(own(name, cpp::peer(cache, &cpp::BOOST)?)),
        RuntimeName::St => Ok(own(name, cpp::peer(cache, &cpp::ST)?)),
        RuntimeName::Java => {
            let jdk = Jdk::find()?;
            let starter = Some(Starter::Java(jdk.java()));
            Ok(Runtime {
                starter,
                ..own(name, jdk.peer(cache)?)
            })
        }
    }
}

/// The program with POSIX threads under the command `upcall`.
fn under_upcall(name: RuntimeName, version: String, upcall: PathBuf, program: &Path) -> Runtime {
    Runtime {
        name,
        version,
        starter: Some(Starter::Upcall(upcall)),
        program: program.into(),
    }
}

/// A runtime whose program can be started directly.
fn own(name: RuntimeName, built: Built) -> Runtime {
    Runtime {
        name,
        version: built.version,
        starter: None,
        program: built.program,
    }
}
