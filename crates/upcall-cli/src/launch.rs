//! `upcall run`: become the program, with the guest library before it.
//!
//! 1. Find the file (`execvp`'s search); 127 and 126 as every such command.
//! 2. Examine it; refuse with 125 what could not be served, or run it as it is when
//!    `--or-native` asks for that.
//! 3. Put the settings into the environment and execute: no process in between, so signals,
//!    limits, descriptors and the exit status are the program's own.
//!
//! What a plain run has found out is remembered: the next one may not come here (`front`).

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use upcall_linux::variables::Meaningless;
use upcall_linux::{probe, variables};

use crate::args::{Backend, RunArgs, word};
use crate::guest_library;
use crate::locate::{NotRunnable, locate};
use crate::program::{self, Verdict};
use crate::refusal::Refusal;
use crate::status::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND};
use crate::tunables;

/// How a run was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Without flags and variables of ours.
    Plainly,
    /// With some.
    WithMore,
}

/// Does it. Returns only with an exit status of our own.
pub fn run(args: &RunArgs, said: Said) -> i32 {
    // A mistake of the user's, not a program that cannot be served: --or-native does not cover it.
    let checked = match variables::checked(|name| std::env::var_os(name)) {
        Ok(checked) => checked,
        Err(meaningless) => return meaningless_variable(meaningless).report(),
    };
    #[cfg(target_arch = "x86_64")]
    crate::trace::warn_of_variable();
    let name = &args.command[0];
    let file = match locate(name, std::env::var_os("PATH")) {
        Ok(file) => file,
        Err(error) => return not_runnable(name, &error),
    };
    match prepare(args, said, checked, name, &file) {
        Ok(()) => {}
        Err(Stop::NotExecutable(evidence)) => {
            eprintln!("upcall: cannot run '{}': {evidence}", name.display());
            return EXIT_NOT_EXECUTABLE;
        }
        Err(Stop::Refused { reason, .. }) if args.or_native => {
            eprintln!("upcall: running '{}' natively: {reason}", name.display());
        }
        Err(Stop::Refused { refusal, .. }) => return refusal.report(),
    }
    not_runnable(name, &execute(&file, &args.command))
}

/// Variables, and what to set them to; `None`: to take them away.
type Settings = Vec<(&'static str, Option<OsString>)>;

/// Why the program is not executed on activations.
enum Stop {
    NotExecutable(String),
    Refused { reason: String, refusal: Refusal },
}

/// Examines the program and puts the settings into the environment.
fn prepare(
    args: &RunArgs,
    said: Said,
    checked: Settings,
    name: &OsStr,
    file: &Path,
) -> Result<(), Stop> {
    #[cfg(front)]
    let seen = crate::remember::Seen::at(file);
    let processor = probe::processor();
    if let Some(remedy) = &processor.remedy {
        return Err(refused(
            name,
            "would run on a processor that is not supported",
            processor.evidence.clone(),
            remedy,
        ));
    }
    let calls = probe::calls();
    if let Some(remedy) = &calls.remedy {
        return Err(refused(
            name,
            "would run where a system call is forbidden that its threads need",
            calls.evidence.clone(),
            remedy,
        ));
    }
    let kind = program::examine(file).map_err(|verdict| stop(name, verdict))?;
    let asked = match args.backend {
        Some(Backend::Observed) => Some("observed"),
        Some(Backend::SchedExt) => Some("sched_ext"),
        Some(Backend::Auto | Backend::Standby) | None => None,
    };
    if let Some(backend) = asked
        && let Some(found) = probe::find(backend).map(probe::Feature::probe)
        && let Some(remedy) = &found.remedy
    {
        let what = format!("would run without the backend {backend}, which was asked for by name");
        return Err(refused(name, &what, found.evidence.clone(), remedy));
    }
    let existing = std::env::var_os("LD_PRELOAD");
    if let Some(other) = guest_library::conflicting(existing.as_deref()) {
        return Err(refused(
            name,
            "runs under another tool that owns its threads",
            format!("LD_PRELOAD has {other}"),
            "leave that tool out",
        ));
    }
    let named = std::env::var_os("UPCALL_GUEST_LIB");
    let command = guest_library::command();
    let library = guest_library::find(named, &command).map_err(|mut refusal| {
        refusal
            .remedy
            .push_str("; --or-native runs the program as it is");
        Stop::Refused {
            reason: refusal.what.clone(),
            refusal,
        }
    })?;
    let preload = guest_library::preload(&library, existing.as_deref());
    let (settings, is_known) = settings(args, preload, &command);
    let holds_again = said == Said::Plainly
        && is_known
        && existing.is_none()
        && kind == program::Kind::Executable;
    #[cfg(not(front))]
    let _ = holds_again;
    #[cfg(front)]
    if holds_again && let Some(seen) = seen {
        seen.remember(&command, &library, &settings);
    }
    for (variable, value) in checked.into_iter().chain(settings) {
        // SAFETY: this process has one thread.
        unsafe {
            match value {
                Some(value) => std::env::set_var(variable, value),
                None => std::env::remove_var(variable),
            }
        }
    }
    Ok(())
}

/// A variable that means nothing.
fn meaningless_variable(variable: Meaningless) -> Refusal {
    let Meaningless {
        name,
        value,
        expected,
    } = variable;
    Refusal {
        what: format!("{name} is not {expected}"),
        checked: format!("its value is '{value}'"),
        remedy: format!("set {name} to {expected}, or unset it"),
        more: "upcall help run, under Environment",
    }
}

/// The environment of the guest library and of libc: what to set, and what to take away; and if that is so until the
/// machine changes, for whoever has no limit of addresses and no word of their own for libc.
fn settings(args: &RunArgs, preload: OsString, command: &Path) -> (Settings, bool) {
    let mut is_known = true;
    let mut settings = vec![("LD_PRELOAD", Some(preload))];
    if let Some(range) = args.vps {
        let allowed = probe::limits().processors.len();
        let number = range.resolve(allowed);
        if usize::try_from(number).is_ok_and(|number| number > allowed) {
            eprintln!(
                "upcall: warning: {number} virtual processors share {allowed} allowed \
                 processor{}",
                if allowed == 1 { "" } else { "s" }
            );
        }
        settings.push(("UPCALL_VPS", Some(range.to_string().into())));
    }
    if let Some(backend) = args.backend {
        settings.push(("UPCALL_BACKEND", Some(word(&backend))));
    }
    if let Some(share) = args.share {
        settings.push(("UPCALL_SHARE", Some(share.to_string().into())));
    }
    if let Some(policy) = args.policy {
        settings.push(("UPCALL_POLICY", Some(word(&policy))));
    }
    if std::env::var_os("UPCALL_SENTINEL").is_none_or(|value| value.is_empty()) {
        let choice = probe::choose();
        is_known = choice.source != probe::Source::Version;
        let sentinel = choice.mode == probe::StandbyMode::Sentinel;
        settings.push((
            "UPCALL_SENTINEL",
            Some(u8::from(sentinel).to_string().into()),
        ));
    }
    settings.push(("UPCALL_STATS", args.stats.then(|| "1".into())));
    settings.push(("UPCALL_COMM", args.comm.then(|| "1".into())));
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if args.report_deadlocks {
        settings.push(("UPCALL_DEADLOCKS", Some("1".into())));
    }
    if let Some(signal) = &args.stacks_on {
        settings.push(("UPCALL_STACKS", Some(signal.into())));
    }
    let shows_threads =
        args.report_deadlocks || args.stacks_on.is_some() || is_set("UPCALL_DEADLOCKS");
    if shows_threads && !is_set("UPCALL_COMMAND") {
        settings.push(("UPCALL_COMMAND", Some(command.into())));
    }
    if args.no_children {
        settings.push(("UPCALL_CHILDREN", Some("0".into())));
    }
    let own = std::env::var_os(tunables::VARIABLE);
    let with_stacks = tunables::with_stacks(own.as_deref());
    is_known &= own.is_none() && with_stacks.is_some();
    if with_stacks.is_some() {
        settings.push((tunables::VARIABLE, with_stacks));
    }
    (settings, is_known)
}

fn stop(name: &OsStr, verdict: Verdict) -> Stop {
    match verdict {
        Verdict::NotExecutable(evidence) => Stop::NotExecutable(evidence),
        Verdict::Refused {
            reason,
            evidence,
            remedy,
        } => refused(name, reason, evidence, remedy),
    }
}

fn refused(name: &OsStr, reason: &str, evidence: String, remedy: &str) -> Stop {
    Stop::Refused {
        reason: format!("it {reason}"),
        refusal: Refusal {
            what: format!(
                "cannot run '{}' on activations: it {reason}",
                name.display()
            ),
            checked: evidence,
            remedy: format!("{remedy}; or run it as it is: upcall run --or-native"),
            more: "upcall help run",
        },
    }
}

/// One line and the exit status, as `env` and `nice` do it.
fn not_runnable(name: &OsStr, error: &NotRunnable) -> i32 {
    let text = error.error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    eprintln!("upcall: cannot run '{}': {text}", name.display());
    if error.exists {
        EXIT_NOT_EXECUTABLE
    } else {
        EXIT_NOT_FOUND
    }
}

/// Executes the file; returns only when that fails.
fn execute(file: &Path, words: &[OsString]) -> NotRunnable {
    let mut arguments: Vec<CString> = Vec::with_capacity(words.len() + 1);
    for word in words {
        arguments.push(c_string(word));
    }
    let path = c_string(file.as_os_str());
    let errno = execv(&path, &arguments);
    if errno != libc::ENOEXEC {
        return NotRunnable::from_errno(errno);
    }
    // As execvp: what the kernel does not know is a script for the shell.
    arguments[0] = path;
    arguments.insert(0, c"/bin/sh".to_owned());
    NotRunnable::from_errno(execv(c"/bin/sh", &arguments))
}

/// Words of a command line and paths that were opened have no zero byte in them.
fn c_string(word: &OsStr) -> CString {
    CString::new(word.as_bytes()).unwrap_or_default()
}

fn execv(file: &std::ffi::CStr, arguments: &[CString]) -> i32 {
    let mut pointers: Vec<*const libc::c_char> =
        arguments.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: a valid C string and a null-terminated array of valid C strings, all of which
    // outlive the call.
    unsafe { libc::execv(file.as_ptr(), pointers.as_ptr()) };
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::ENOEXEC)
}
