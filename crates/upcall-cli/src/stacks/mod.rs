//! `upcall stacks`: the threads of a program, what each waits for and where it is, from outside.
//!
//! The program does nothing for it. Its memory is read, by process_vm_readv(2) or from a core file:
//! 1. `memory`, `core_file`: bytes and mappings;
//! 2. `threads`: the threads, as the library in the program describes them ([`upcall_abi::description`]);
//! 3. `stop`: if asked for, the program is stopped meanwhile;
//! 4. `objects`, `unwind`: frames and names;
//! 5. once more `threads`: which of them have gone on meanwhile;
//! 6. `report`.

#[cfg(test)]
mod any_memory;
pub(crate) mod calls;
mod core_file;
mod memory;
mod objects;
mod report;
mod stop;
mod threads;
mod unwind;
mod vps;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::args::StacksArgs;
use crate::refusal::Refusal;
use crate::status::{say, say_json};

use memory::{Memory, Source};
use objects::{Files, Objects};
use report::{Frame, Report, Whose};
use stop::Stopped;
use threads::{Nothing, Threads};

pub use threads::{State, Thread};
use unwind::{Registers, Unwinder};
pub use vps::Vp;

const MORE: &str = "upcall help stacks";

pub fn run(args: &StacksArgs) -> i32 {
    let report = match look(args) {
        Ok(report) => report,
        Err(refusal) => return refusal.report(),
    };
    if args.json {
        return say_json(&report);
    }
    say(report.text().as_bytes())
}

/// The threads of a process, without their frames.
///
/// # Errors
/// It cannot be looked at, or has none.
pub fn threads_of(pid: i32) -> Result<Vec<Thread>, Refusal> {
    let memory = of_process(pid)?;
    let found = Threads::find(&memory).map_err(|nothing| no_threads(&nothing))?;
    memory.forget();
    found.all().map_err(|nothing| no_threads(&nothing))
}

/// The virtual processors of a process, and its threads without their frames.
///
/// # Errors
/// It cannot be looked at, or has none.
pub fn vps_and_threads_of(pid: i32) -> Result<(Vec<Vp>, Vec<Thread>), Refusal> {
    let memory = of_process(pid)?;
    let found = Threads::find(&memory).map_err(|nothing| no_threads(&nothing))?;
    memory.forget();
    let vps = found.vps().map_err(|nothing| no_threads(&nothing))?;
    let threads = found.all().map_err(|nothing| no_threads(&nothing))?;
    Ok((vps, threads))
}

/// Says at once if the memory may not be read, and why.
fn of_process(pid: i32) -> Result<Memory, Refusal> {
    let memory = Memory::of_process(pid).map_err(|error| not_allowed(pid, &error))?;
    let first = memory.mappings.first().map_or(0, |first| first.start);
    memory::read_process(pid, first, &mut [0]).map_err(|error| not_allowed(pid, &error))?;
    Ok(memory)
}

fn look(args: &StacksArgs) -> Result<Report, Refusal> {
    let memory = match (args.pid, &args.core) {
        (Some(pid), _) => of_process(pid)?,
        (None, Some(core)) => Memory::of_core(core).map_err(|error| no_core(core, &error))?,
        (None, None) => unreachable!("one of them is required"),
    };
    let found = Threads::find(&memory).map_err(|nothing| no_threads(&nothing))?;
    let files = Files::open(&memory);
    let objects = Objects::new(&files);
    let stopped = match args.pid.filter(|_| args.stop) {
        Some(pid) => Some(Stopped::all_of(pid).map_err(|error| not_allowed(pid, &error))?),
        None => None,
    };
    memory.forget();
    let all = found.all().map_err(|nothing| no_threads(&nothing))?;
    let none = HashMap::new();
    let kernel_threads = match (&memory.source, &stopped) {
        (Source::Core(core), _) => &core.threads,
        (_, Some(stopped)) => &stopped.registers,
        _ => &none,
    };
    let mut unwinder = Unwinder::new(&memory, &objects);
    let call_chains: Vec<Option<Vec<unwind::Frame>>> = all
        .iter()
        .map(|thread| Some(unwinder.frames(start_of(thread, kernel_threads)?)))
        .collect();
    memory.forget();
    let still: Vec<bool> = all.iter().map(|one| found.stands_still(one)).collect();
    // Names take the longest, and need nothing of the program.
    drop(stopped);
    let is_process = args.pid.is_some();
    let now = upcall_linux::clock(libc::CLOCK_MONOTONIC);
    let mut threads = Vec::new();
    for ((thread, frames), still) in all.into_iter().zip(call_chains).zip(&still) {
        let deadline = thread.deadline.filter(|_| is_process);
        let waits_for_a_thread = thread.waits_for_a_thread();
        let mut shown = report::Thread {
            number: thread.number,
            id: thread.id,
            name: thread.name,
            state: thread.state.name(),
            vp: thread.vp,
            tid: thread.tid,
            waits_for: thread.waits_for,
            waits_for_a_thread,
            at_most_ms: deadline.map(|at| (at.wrapping_sub(now) as i64) / 1_000_000),
            went_on: !still,
            frames: frames.map(|frames| frames.iter().flat_map(|at| named(&objects, at)).collect()),
        };
        if !args.full {
            shown.leave_out_own();
        }
        threads.push(shown);
    }
    Ok(Report {
        v: 1,
        pid: args.pid,
        program: program(&memory),
        stopped: args.stop || !is_process,
        consistent: still.iter().all(|&still| still),
        all_wait_for: report::all_wait_for(&threads),
        threads,
    })
}

/// The registers from which a thread's frames are found. Those at its system call are the program's own.
fn start_of(thread: &Thread, kernel: &HashMap<i32, Registers>) -> Option<Registers> {
    let of_kernel = thread.tid.and_then(|tid| kernel.get(&tid));
    match thread.state {
        State::Blocked => thread.registers.clone().or(of_kernel.cloned()),
        _ => of_kernel.cloned().or(thread.registers.clone()),
    }
}

/// A frame with names: the functions that are inlined there, and the one that is called.
fn named(objects: &Objects<'_>, frame: &unwind::Frame) -> Vec<Frame> {
    let image = objects.at(frame.at);
    let places = image.map_or_else(
        || vec![objects::Place::default()],
        |image| image.places(frame.at),
    );
    let object = image.and_then(|image| {
        let name = image.path().file_name().unwrap_or(image.path().as_os_str());
        Some(name.to_str()?.to_owned())
    });
    let last = places.len() - 1;
    let whose = |at: usize, place: &objects::Place| whose(object.as_deref(), place, at == last);
    let kinds: Vec<Whose> = places
        .iter()
        .enumerate()
        .map(|(at, place)| whose(at, place))
        .collect();
    places
        .into_iter()
        .zip(kinds)
        .enumerate()
        .map(|(at, (place, whose))| Frame {
            address: format!("{:#x}", frame.ip),
            function: place.function,
            line: place.line,
            object: object.clone(),
            offset: image.map(|image| format!("{:#x}", image.offset(frame.ip))),
            inlined: at != last,
            guessed: frame.is_guess,
            whose,
        })
        .collect()
}

/// To what a function belongs: the runtime is in the guest library, or in a program that links the crate. `gdb/upcall.py`
/// has the same rule. The name of an inlined function does not say in which crate it is.
fn whose(object: Option<&str>, place: &objects::Place, has_symbol: bool) -> Whose {
    const CRATES: [&str; 4] = [
        "upcall_core::",
        "upcall_linux::",
        "upcall_guest::",
        "upcall::",
    ];
    const ASSEMBLY: [&str; 6] = [
        "upcall_enter",
        "upcall_after",
        "upcall_load",
        "upcall_signal_",
        "upcall_program_call",
        "upcall_raw_syscall",
    ];
    const LIBRARY: [&str; 3] = ["core::", "std::", "alloc::"];
    let function = place.function.as_deref().filter(|_| has_symbol);
    let function = function.unwrap_or_default().trim_start_matches(['<', '&']);
    let begins = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
    let line = place.line.as_deref().unwrap_or_default();
    if object == Some("libupcall_guest.so")
        || begins(&CRATES)
        || begins(&ASSEMBLY)
        || is_source(line)
    {
        Whose::Own
    } else if begins(&LIBRARY) || line.starts_with("/rustc/") {
        Whose::Library
    } else {
        Whose::Programs
    }
}

/// True of a file of the runtime's, wherever its crates are: in the folder `src` of a folder with the crate's name, perhaps
/// with a version behind it.
fn is_source(line: &str) -> bool {
    const CRATES: [&str; 4] = ["upcall-core", "upcall-linux", "upcall-guest", "upcall"];
    let is_crate = |folder: &str| {
        CRATES.iter().any(|name| {
            let rest = folder.strip_prefix(name);
            rest.is_some_and(|rest| {
                rest.is_empty()
                    || rest.strip_prefix('-').is_some_and(|version| {
                        version.starts_with(|first: char| first.is_ascii_digit())
                    })
            })
        })
    };
    let folders: Vec<&str> = line.split('/').collect();
    folders
        .windows(2)
        .any(|pair| pair[1] == "src" && is_crate(pair[0]))
}

fn program(memory: &Memory) -> String {
    match &memory.source {
        Source::Process(pid) => {
            let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            String::from_utf8_lossy(&comm).trim_end().to_owned()
        }
        Source::Core(core) => {
            let first = core.entry.and_then(|entry| memory.mapping(entry));
            first.map_or(String::new(), |first| first.path.display().to_string())
        }
    }
}

fn no_threads(nothing: &Nothing) -> Refusal {
    let what = "there are no threads to show".to_owned();
    match nothing {
        Nothing::NotUnderUpcall => Refusal {
            what,
            checked: "no object that is loaded there is Upcall's".into(),
            remedy:
                "start the program by upcall run; of a core file, core(5) says which pages it has"
                    .into(),
            more: MORE,
        },
        Nothing::NoRuntime => Refusal {
            what,
            checked: "the program has made no thread yet: its one thread is the kernel's".into(),
            remedy: "a debugger shows that one".into(),
            more: MORE,
        },
        Nothing::Version(version) => Refusal {
            what: "the library in the program is of another version".into(),
            checked: format!(
                "its description has version {version}, this command reads {}",
                upcall_abi::description::VERSION
            ),
            remedy: "use the command of the installation that the program was started by".into(),
            more: MORE,
        },
        Nothing::Unreadable(address) => Refusal {
            what,
            checked: format!("the memory at {address:#x} cannot be read"),
            remedy: "look again if the program has just begun or ended".into(),
            more: MORE,
        },
    }
}

fn no_core(path: &Path, error: &io::Error) -> Refusal {
    Refusal {
        what: "the core file cannot be read".into(),
        checked: format!("{}: {error}", path.display()),
        remedy: "name a core file of a program of this machine's architecture".into(),
        more: MORE,
    }
}

fn not_allowed(pid: i32, error: &io::Error) -> Refusal {
    let what = format!("process {pid} cannot be looked at");
    let code = error.raw_os_error();
    if matches!(code, Some(libc::ESRCH | libc::ENOENT)) {
        return Refusal {
            what,
            checked: "there is no such process".into(),
            remedy: "pgrep -a finds processes by their names".into(),
            more: MORE,
        };
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let tracer = status_of(pid, "TracerPid:", 0).filter(|&tracer| tracer != 0);
    let (checked, remedy) = if let Some(whose) = anothers(pid) {
        (
            format!("{error}: {whose}"),
            "run this as that user, or as the superuser".to_owned(),
        )
    } else if let Some(tracer) = tracer {
        (
            format!("{error}: process {tracer} traces it"),
            "end that debugger; without --stop it does not stand in the way".to_owned(),
        )
    } else if matches!(scope.trim(), "1" | "2" | "3") {
        (
            format!("{error}: kernel.yama.ptrace_scope is {}", scope.trim()),
            "run this as the superuser, or set ptrace_scope to 0 (it is for the whole machine)"
                .to_owned(),
        )
    } else {
        (
            error.to_string(),
            "run this as the superuser: the process may have privileges, or be in another container".to_owned(),
        )
    };
    Refusal {
        what,
        checked,
        remedy,
        more: MORE,
    }
}

/// Whose a process is, where that is why this user may not look at it.
pub fn anothers(pid: i32) -> Option<String> {
    // SAFETY: asks only.
    let own = unsafe { libc::geteuid() };
    let owner = status_of(pid, "Uid:", 0).filter(|&owner| owner != own && own != 0)?;
    Some(format!("it is user {owner}'s, and this is user {own}"))
}

/// The user as whom a process runs.
pub fn user_of(pid: i32) -> Option<u32> {
    status_of(pid, "Uid:", 1)
}

/// A number of a line of `/proc/PID/status`, counted from 0.
fn status_of(pid: i32, name: &str, at: usize) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_a_refusal_is_the_one_that_holds() {
        let gone = not_allowed(i32::MAX, &io::Error::from_raw_os_error(libc::ESRCH));
        assert_eq!(gone.checked, "there is no such process");
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let own = not_allowed(std::process::id() as i32, &denied);
        assert!(!own.checked.contains("user"), "{own}");
    }

    #[test]
    fn frames_of_the_runtime_are_known_by_their_names_and_files() {
        let of = |object, function: &str, line: Option<&str>, has_symbol| {
            let place = objects::Place {
                function: Some(function.into()),
                line: line.map(Into::into),
            };
            whose(object, &place, has_symbol)
        };
        for own in [
            "<upcall_core::Inside<K>>::park",
            "upcall::sync::lock",
            "upcall_signal_return",
        ] {
            assert_eq!(of(None, own, None, true), Whose::Own, "{own}");
        }
        assert_eq!(of(Some("libupcall_guest.so"), "f", None, true), Whose::Own);
        assert_eq!(of(None, "upcall_demo::main", None, true), Whose::Programs);
        assert_eq!(of(Some("libc.so.6"), "read", None, true), Whose::Programs);
        assert_eq!(of(None, "core::ops::call_once", None, true), Whose::Library);
        assert_eq!(
            of(None, "call_once", Some("/rustc/5/core/ops.rs:1"), false),
            Whose::Library
        );
        for own in [
            "/a/upcall-core-0.1.0/src/list.rs:7",
            "/b/crates/upcall/src/sync/mutex.rs:89",
        ] {
            assert_eq!(of(None, "lock", Some(own), false), Whose::Own, "{own}");
        }
        for other in [
            "/upcall/examples/src.rs",
            "/upcall-demo/src/main.rs:3",
            "upcall/tests/x.rs",
        ] {
            assert_eq!(of(None, "f", Some(other), true), Whose::Programs, "{other}");
        }
    }
}
