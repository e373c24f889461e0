//! What `upcall run` is asked.

use std::ffi::OsString;

use clap::builder::{ArgAction, BoolishValueParser};
use clap::{Args, ValueEnum};

use upcall_linux::VpRange;
use upcall_linux::variables::{SIGNALS, signal_named};

/// Run a program with its threads on scheduler activations
///
/// PROGRAM is found as the shell finds it and takes the place of this command: its output,
/// signals and exit status are its own. Nothing is printed unless asked for.
#[derive(Args)]
#[command(after_long_help = RUN_NOTES)]
pub struct RunArgs {
    /// Virtual processors: a number, or a range within which the number of allowed
    /// processors is taken [default: as many as are allowed]
    ///
    /// Where upcalld divides the processors, a program with a range goes on with fewer, MIN at least, while others have
    /// the rest. It uses no more than the processor quota of its control groups comes to, rounded up. Any other has all
    /// that it computes on, or waits for its turn: choose a number for a program whose threads spin for each other.
    #[arg(
        short = 'p',
        long = "vps",
        value_name = "N|MIN..MAX",
        env = "UPCALL_VPS"
    )]
    pub vps: Option<VpRange>,

    /// The share of the processors' time, 1 to 10, while others under upcalld want the same processors
    ///
    /// A program has time in proportion to its share: with 3 thrice as much as one with 1, which is usual. The
    /// configuration of upcalld (upcalld.toml(5)) may bound it. One with another share than 1 has turns with all of its
    /// processors, also if it was given a range. Without upcalld --user this does nothing.
    #[arg(long, value_name = "N", env = "UPCALL_SHARE", hide_env_values = true,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(upcall_abi::MOST_SHARE)))]
    pub share: Option<u32>,

    /// How to learn what the kernel does with activations
    ///
    /// A backend that is named is used or the program is not run; auto takes the best that works here.
    #[arg(
        long,
        value_name = "NAME",
        env = "UPCALL_BACKEND",
        hide_env_values = true
    )]
    pub backend: Option<Backend>,

    /// Which ready thread runs first
    ///
    /// Without it threads take turns, a time slice each. By priority, no thread waits while a less urgent one of the
    /// program runs: those with a real-time policy come first, by their priority, then all others by their nice value
    /// (sched(7)). By deadline, those with SCHED_DEADLINE come first, the earliest before the others. Neither needs a
    /// privilege.
    #[arg(
        long,
        value_name = "NAME",
        env = "UPCALL_POLICY",
        hide_env_values = true
    )]
    pub policy: Option<Policy>,

    /// Print what the scheduler did to standard error when the program exits (upcall man run
    /// explains each row)
    #[arg(long, env = "UPCALL_STATS", hide_env_values = true, action = ArgAction::SetTrue,
          value_parser = BoolishValueParser::new())]
    pub stats: bool,

    /// If all threads of the program wait for one another, show them on standard error, as
    /// upcall stacks does. The program goes on waiting
    #[arg(long)]
    pub report_deadlocks: bool,

    /// Show all threads on standard error, as upcall stacks does, whenever the program gets this
    /// signal: HUP, INT, QUIT, USR1, USR2, TERM, URG or WINCH
    ///
    /// The program does not get it: an action that it sets for the signal is never taken. Where all of its threads block the
    /// signal, or one waits for it, nothing is shown.
    #[arg(long, value_name = "SIGNAL", env = "UPCALL_STACKS", hide_env_values = true, value_parser = signal)]
    pub stacks_on: Option<String>,

    /// Each kernel thread has the name of the thread that it runs, for perf record and top -H
    ///
    /// A switch to a thread of another name takes a system call more. ps shows the program by the name of the thread that its
    /// first kernel thread runs.
    #[arg(long, env = "UPCALL_COMM", hide_env_values = true, action = ArgAction::SetTrue,
          value_parser = BoolishValueParser::new())]
    pub comm: bool,

    /// Run the programs that PROGRAM starts natively [env: UPCALL_CHILDREN=0]
    #[arg(long)]
    pub no_children: bool,

    /// Where PROGRAM cannot be served, say why in one line and run it natively
    #[arg(long, env = "UPCALL_OR_NATIVE", hide_env_values = true, action = ArgAction::SetTrue,
          value_parser = BoolishValueParser::new())]
    pub or_native: bool,

    /// The program and its arguments
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    pub command: Vec<OsString>,
}

impl RunArgs {
    /// Returns what the words `upcall run PROGRAM ARGS` say, without a flag and without a variable that stands for one. To
    /// define the whole command line for that takes as long as all else that `run` does.
    pub fn plain(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let _command = words.next()?;
        if words.next()? != "run" {
            return None;
        }
        let mut command: Vec<OsString> = words.collect();
        if *command.first()? == "--" {
            command.remove(0);
        }
        let program = command.first()?.as_encoded_bytes();
        (!program.is_empty() && program[0] != b'-').then_some(Self {
            vps: None,
            backend: None,
            policy: None,
            share: None,
            stats: false,
            report_deadlocks: false,
            stacks_on: None,
            comm: false,
            no_children: false,
            or_native: false,
            command,
        })
    }
}

/// The name of a signal at which threads may be shown, as variables have it.
fn signal(name: &str) -> Result<String, String> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    match signal_named(short) {
        Some(_) => Ok(short.to_owned()),
        None => Err(format!("it is none of {}", SIGNALS.join(", "))),
    }
}

/// The word for a choice, on the command line and in the environment.
pub fn word(choice: &impl ValueEnum) -> OsString {
    let value = choice.to_possible_value();
    value.map_or_else(OsString::new, |value| value.get_name().into())
}

/// A backend that this version has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Backend {
    /// The best that works here
    Auto,
    /// A standby activation on each virtual processor; needs no privilege
    Standby,
    /// The same, told by the upcalld of root what the kernel does
    Observed,
    /// The same, while the scheduler of that upcalld has all kernel threads
    #[value(name = "sched_ext")]
    SchedExt,
}

/// A scheduling policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Policy {
    /// A new thread first, for a time slice: divide and conquer
    Lifo,
    /// All take turns
    RoundRobin,
    /// First come, first served: a thread runs until it waits or yields
    Fifo,
    /// The more urgent first; equals take turns
    Priority,
    /// The earliest deadline first; the others take turns
    Deadline,
}

const RUN_NOTES: &str = "\
What is refused (exit status 125), because the guest library could not serve it:
  static programs, set-user-ID and set-group-ID programs and programs with file
  capabilities, other processor architectures, C libraries other than glibc, builds with
  an address, thread or memory sanitizer, and valgrind. A script is judged by its
  interpreter. With --or-native such a program runs as it is.

Exit status:
  125  upcall itself failed, wrong usage included
  126  PROGRAM was found and cannot be executed
  127  PROGRAM was not found
  else the exit status of PROGRAM

Environment:
  UPCALL_GUEST_LIB  the guest library; otherwise libupcall_guest.so is looked for beside
                    this command and in ../lib/upcall
  UPCALL_GANG       0: do not take turns with the user's other programs under upcall
  UPCALL_SLICE_US   how long a thread runs while others are ready, in microseconds: 100 to
                    1000000 [default: 4000]
  UPCALL_PROBE      how a blocked thread is told from a preempted one: perf, proc or yields
  UPCALL_SENTINEL   1 or 0: which standby is used; otherwise as measured on this machine
  UPCALL_TRACE      a directory, as an absolute path: keep the last events there, for
                    upcall trace --from and upcall trace -p
  UPCALL_DEADLOCKS  1: as --report-deadlocks
  UPCALL_COMMAND    the command upcall, as an absolute path, which shows threads then
                    [default: this command]
  UPCALL_LOG        sites: print what was rewritten";
