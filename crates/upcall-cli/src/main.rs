//! The `upcall` command: `run` starts an unmodified program on scheduler activations,
//! `doctor` says what works on this machine, `bench` measures it.
//!
//! The command has the C entry point and not Rust's: Rust's start-up ignores SIGPIPE, opens
//! `/dev/null` for closed descriptors and installs a signal stack, and the program that
//! `run` becomes would inherit the first two. `nice` passes on what it was given; so does
//! this.

#![cfg_attr(not(test), no_main)]

mod args;
mod doctor;
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(front), allow(dead_code, reason = "only its tests use it"))]
mod front;
mod guest_library;
mod image;
mod launch;
#[cfg(target_arch = "x86_64")]
mod live;
mod locate;
mod manual;
mod program;
mod ps;
mod refusal;
#[cfg(front)]
mod remember;
mod script;
#[cfg(target_arch = "x86_64")]
mod show;
#[cfg(target_arch = "x86_64")]
mod stacks;
mod status;
#[cfg(target_arch = "x86_64")]
mod top;
#[cfg(target_arch = "x86_64")]
mod trace;
mod tunables;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use status::{EXIT_OURS, say};

#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    run()
}

/// Parses the command line, does it, and returns the exit status.
#[cfg_attr(
    test,
    expect(dead_code, reason = "the test harness has the entry point")
)]
fn run() -> i32 {
    if !has_variables()
        && let Some(args) = args::RunArgs::plain(std::env::args_os())
    {
        return launch::run(&args, launch::Said::Plainly);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let asked_for = !error.use_stderr();
            return match error.print() {
                Ok(()) if asked_for => 0,
                _ => EXIT_OURS,
            };
        }
    };
    match cli.command {
        Command::Run(args) => launch::run(&args, launch::Said::WithMore),
        Command::Doctor(args) => doctor::run(&args),
        Command::Ps(args) => ps::run(&args),
        Command::Show(args) => show_program(&args),
        Command::Stacks(args) => show_stacks(&args),
        Command::Top(args) => show_top(&args),
        Command::Trace(args) => trace_program(&args),
        Command::Bench(args) => {
            // A measured program may die while the harness writes to it.
            // SAFETY: sets a disposition; the benchmark runs no other program in this process.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
            status_of(upcall_bench::main(args))
        }
        Command::Report(args) => status_of(upcall_bench::report(&args)),
        Command::Completions { shell } => say(&manual::completions(shell)),
        Command::Man { page } => match manual::page(page.as_deref()) {
            Ok(text) => manual::show(&text),
            Err(refusal) => refusal.report(),
        },
    }
}

#[cfg(target_arch = "x86_64")]
fn show_stacks(args: &args::StacksArgs) -> i32 {
    stacks::run(args)
}

#[cfg(target_arch = "x86_64")]
fn show_program(args: &args::ShowArgs) -> i32 {
    show::run(args)
}

#[cfg(target_arch = "x86_64")]
fn show_top(args: &args::TopArgs) -> i32 {
    top::run(args)
}

#[cfg(not(target_arch = "x86_64"))]
fn show_stacks(_: &args::StacksArgs) -> i32 {
    nothing_to_show()
}

#[cfg(not(target_arch = "x86_64"))]
fn show_program(_: &args::ShowArgs) -> i32 {
    nothing_to_show()
}

#[cfg(not(target_arch = "x86_64"))]
fn show_top(_: &args::TopArgs) -> i32 {
    nothing_to_show()
}

/// No program has threads of ours there.
#[cfg(not(target_arch = "x86_64"))]
fn nothing_to_show() -> i32 {
    refusal::Refusal {
        what: "there are no threads to show".into(),
        checked: "on this processor architecture no program runs under Upcall".into(),
        remedy: "use it on x86-64".into(),
        more: "upcall help",
    }
    .report()
}

#[cfg(target_arch = "x86_64")]
fn trace_program(args: &args::TraceArgs) -> i32 {
    trace::run(args)
}

/// The same.
#[cfg(not(target_arch = "x86_64"))]
fn trace_program(_: &args::TraceArgs) -> i32 {
    refusal::Refusal {
        what: "there are no threads to trace".into(),
        checked: "on this processor architecture no program runs under Upcall".into(),
        remedy: "use it on x86-64".into(),
        more: "upcall help trace",
    }
    .report()
}

/// Returns true if a variable may stand for a flag.
fn has_variables() -> bool {
    let ours = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"UPCALL_");
    std::env::vars_os().any(|(name, _)| ours(&name))
}

/// The number in an exit code, which cannot be asked for.
fn status_of(code: ExitCode) -> i32 {
    (0..=u8::MAX)
        .find(|&status| ExitCode::from(status) == code)
        .map_or(EXIT_OURS, i32::from)
}
