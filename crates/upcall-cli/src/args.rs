//! The command line. Every flag of `run` has a variable of the same meaning in the
//! environment; a flag wins over its variable.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{ArgAction, BoolishValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use upcall_linux::VpRange;
use upcall_linux::variables::{SIGNALS, signal_named};

/// Scheduler activations for unmodified programs.
#[derive(Parser)]
#[command(name = "upcall", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Run(RunArgs),
    Doctor(DoctorArgs),
    Bench(upcall_bench::BenchArgs),
    Report(upcall_bench::ReportArgs),
    Ps(PsArgs),
    Show(ShowArgs),
    Stacks(StacksArgs),
    Top(TopArgs),
    Trace(TraceArgs),
    /// Print a completion script for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page: upcall's own, or that of one of its commands
    #[command(hide = true)]
    Man {
        /// The command, such as run
        page: Option<String>,
    },
}

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

/// Say what works on this machine and, for what does not, why and what would change it
///
/// Every feature is tried, not looked up. Nothing on the machine is changed.
#[derive(Args)]
#[command(after_long_help = DOCTOR_NOTES)]
pub struct DoctorArgs {
    /// One backend or feature; all of them without it
    pub feature: Option<String>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,

    /// Print nothing; the exit status answers
    #[arg(short, long, requires = "feature", conflicts_with = "json")]
    pub quiet: bool,
}

/// Show which programs the daemon (upcalld) gives their turns
///
/// A program is resting (it computes on no processor all the time), on, waiting for its turn, or away: it did not do in
/// time what the daemon told it, and is left to the kernel. The system's daemon and the user's are asked. The former shows
/// other users' programs to root alone.
#[derive(Args)]
pub struct PsArgs {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Show one program: its virtual processors, its kernel threads, and what upcalld says of it
///
/// All is read from outside, while the program goes on: what is shown is of no one moment. A kernel thread is the owner of a
/// virtual processor; or displaced or replaced, if it has a thread and another one has its virtual processor; or bound, if it is
/// one thread's own; or another one: a standby, a spare, or none of Upcall's.
#[derive(Args)]
pub struct ShowArgs {
    /// The process
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Show the threads of a program, their states, and where each waits
///
/// The memory of the program is read from outside, while the program goes on. Threads that wait do not move, so what is
/// shown of them is exact. Those that went on meanwhile are marked; of those that run there are no frames, unless the
/// program is stopped.
#[derive(Args)]
pub struct StacksArgs {
    /// The process
    #[arg(value_parser = clap::value_parser!(i32).range(1..), required_unless_present = "core")]
    pub pid: Option<i32>,

    /// A core file, instead of a process
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pid", "stop"])]
    pub core: Option<PathBuf>,

    /// Stop the program while it is looked at: then threads that run have frames, and all is of one moment
    ///
    /// Some system calls of the program, epoll_wait(2) among them, end with EINTR then, as at every stop (signal(7)).
    #[arg(long)]
    pub stop: bool,

    /// Show the runtime's own frames, too
    #[arg(long)]
    pub full: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Show what the programs under Upcall do: processors, threads and upcalls
///
/// Each program with threads is a row, and each processor a part of the strip above. Enter shows the threads of one program
/// with what each waits for. The programs do nothing for it: their counters are in shared memory that only their user can
/// read. States of threads are read in a program's memory, as by upcall stacks. Where the kernel does not allow that, the
/// reason is said, and the rest is shown.
#[derive(Args)]
#[command(after_long_help = TOP_NOTES)]
pub struct TopArgs {
    /// Print one table and end, in place of showing it on the terminal
    #[arg(long)]
    pub once: bool,

    /// Print one JSON object instead of a table
    #[arg(long, requires = "once")]
    pub json: bool,

    /// Seconds from one look to the next; --once looks twice
    #[arg(short, long, value_name = "SECS", default_value = "1", value_parser = delay)]
    pub delay: f64,

    /// Only this process; may be given more than once. --once prints its threads, too
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: Vec<i32>,

    /// What comes first
    #[arg(long, value_name = "KEY", default_value = "cpu")]
    pub sort: SortKey,
}

/// By what programs are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SortKey {
    /// Most processor time
    Cpu,
    /// Most upcalls
    Upcalls,
    /// Most threads
    Threads,
    /// Most threads that are blocked in the kernel
    Blocked,
    /// The lowest process id
    Pid,
    /// By name
    Name,
}

fn delay(text: &str) -> Result<f64, String> {
    let seconds = seconds(text)?.as_secs_f64();
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("it is 0.1 at least, and 3600 at most".into())
    }
}

const TOP_NOTES: &str = "\
Columns:
  VPS     virtual processors
  THR     threads; of these:
  RUN RDY PRK BLK
          running, ready, parked (waiting in the runtime) and blocked (waiting in the kernel)
  CPU%    processor time; 100 is one processor
  UPC/s   upcalls a second, of these:
  BLK/s UNB/s ADD/s PRE/s TKN/s
          blocked, unblocked, processor added, preempted by one that came back, processor
          taken for another program
  SLC/s   time slices that ended with a preemption
  TURN    what upcalld lets the program do
A narrow terminal has fewer of them.

The strip has one field for each processor: a letter for each program's part of the time, # or a
shade for what is not under Upcall, a dot for none.

Environment:
  NO_COLOR  anything: no colours
  LC_ALL, LC_CTYPE, LANG
            ASCII alone is used where they name no UTF-8 locale";
/// Record what the threads of a program do with the processors, as a timeline
///
/// The file is one of Perfetto's: open it at ui.perfetto.dev, which shows it without sending it anywhere. It has a track for
/// each virtual processor, thread and activation, with upcalls and wake-ups as arrows to where the thread runs again.
///
/// PROGRAM is run by `upcall run`, whose settings are taken from the environment, and its own programs are traced with it. It is
/// written when PROGRAM has ended, however it did, or when the time is over. On Ctrl-C PROGRAM decides if it ends; a second one
/// has the timeline written at once.
#[derive(Args)]
#[command(after_long_help = TRACE_NOTES)]
pub struct TraceArgs {
    /// Where to write it
    #[arg(short, long, value_name = "FILE", default_value = "upcall.pftrace")]
    pub output: PathBuf,

    /// Trace for so many seconds, then write the file; PROGRAM goes on
    #[arg(short, long, value_name = "SECS", value_parser = seconds)]
    pub duration: Option<Duration>,

    /// Trace a process that runs already
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["command", "from"])]
    pub pid: Option<u32>,

    /// Read what programs have left in a directory that was in UPCALL_TRACE
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["command", "duration"])]
    pub from: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required_unless_present_any = ["pid", "from"], num_args = 1.., trailing_var_arg = true,
          value_name = "PROGRAM ARGS")]
    pub command: Vec<OsString>,
}

/// Seconds, with a fraction or without.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if duration.is_zero() {
        return Err("no time at all".into());
    }
    Ok(duration)
}

const TRACE_NOTES: &str = "\
Events are kept in rings, one for each activation, of the last 16384 each. They are read
every 5 ms; what is replaced before is lost, and the timeline says where. A program that
is started by `upcall run` with UPCALL_TRACE=DIRECTORY, or by the crate with such a
setting, keeps its last events there for --from, and for -p while it runs. Any other
is asked by -p to begin, which it does when one of its threads goes on; when the
timeline ends it stops. That needs the right to write to the program's counters, which
the user as whom it began has.

Exit status:
  125  upcall itself failed, wrong usage included
  else the exit status of PROGRAM, or 128 and the number of the signal that ended it";

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

const DOCTOR_NOTES: &str = "\
Exit status:
  0    FEATURE works; without FEATURE: some backend works
  1    it does not
  125  upcall itself failed, an unknown FEATURE included";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run_args(words: &[&str]) -> RunArgs {
        match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Command::Run(args)) => args,
            Ok(_) => panic!("another command"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_program_belongs_to_it() {
        let args = run_args(&[
            "upcall", "run", "-p", "2", "xz", "-p", "--stats", "--", "-k",
        ]);
        assert_eq!(args.command, ["xz", "-p", "--stats", "--", "-k"]);
        assert!(!args.stats);
        let args = run_args(&["upcall", "run", "--stats", "--", "-odd", "--or-native"]);
        assert_eq!(args.command, ["-odd", "--or-native"]);
        assert!(args.stats && !args.or_native);
    }

    #[test]
    fn a_flag_that_does_not_exist_is_not_a_program() {
        assert!(Cli::try_parse_from(["upcall", "run", "--bogus", "xz"]).is_err());
        assert!(Cli::try_parse_from(["upcall", "run"]).is_err());
        assert!(Cli::try_parse_from(["upcall", "run", "--backend", "bogus", "xz"]).is_err());
    }

    #[test]
    fn quiet_needs_a_feature() {
        assert!(Cli::try_parse_from(["upcall", "doctor", "-q"]).is_err());
        assert!(Cli::try_parse_from(["upcall", "doctor", "glibc", "-q"]).is_ok());
    }

    use std::os::unix::ffi::OsStringExt;

    use proptest::prelude::*;

    /// Words that mean something, words that nearly do, and any bytes that an argument can hold.
    fn word() -> impl Strategy<Value = OsString> {
        let known = prop::sample::select(vec![
            "run",
            "doctor",
            "bench",
            "man",
            "completions",
            "-p",
            "--vps",
            "--vps=",
            "--backend",
            "--backend=auto",
            "--stats",
            "--stats=1",
            "--no-children",
            "--or-native",
            "--",
            "-",
            "",
            "-h",
            "--help",
            "-V",
            "--json",
            "-q",
            "1..",
            "..",
            "..1",
            "0",
            "1..1024",
            "2..1",
            "4294967296",
            "99999999999999999999999999",
            "-1",
            "+1",
            " 1",
            "1 ",
            "\u{661}",
            "xz",
            "--vps=18446744073709551615",
            "-p2",
            "-pp",
            "--runtime",
            "upcall,,nptl",
            "--seconds",
        ]);
        prop_oneof![
            4 => known.prop_map(OsString::from),
            1 => prop::collection::vec(1u8..=255, 0..12).prop_map(OsString::from_vec),
            1 => "-{0,2}[a-z=.0-9]{0,9}".prop_map(OsString::from),
        ]
    }

    proptest! {
        #[test]
        fn what_is_plain_means_the_same_to_the_definition(
            words in prop::collection::vec(word(), 0..6), runs in any::<bool>(),
        ) {
            let first = ["upcall", "run"].into_iter().take(1 + usize::from(runs));
            let line: Vec<OsString> = first.map(OsString::from).chain(words).collect();
            if let Some(plain) = RunArgs::plain(line.iter().cloned()) {
                let Ok(Cli { command: Command::Run(args) }) = Cli::try_parse_from(&line) else {
                    panic!("{line:?} is not a run");
                };
                prop_assert_eq!(args.command, plain.command);
                prop_assert!(args.vps.is_none() && args.backend.is_none() && args.policy.is_none());
                prop_assert!(!args.stats && !args.no_children && !args.or_native);
            }
            #[cfg(target_arch = "x86_64")]
            {
                let word = |at: usize| line.get(at).map(|word| word.as_encoded_bytes());
                let command = crate::front::serve::plain(word).map(|at| line[at..].to_vec());
                let plain = RunArgs::plain(line.iter().cloned()).map(|plain| plain.command);
                prop_assert_eq!(command, plain);
            }
        }

        /// Whatever is said, there is an answer, and what goes to the program is the end of it,
        /// byte for byte.
        #[test]
        fn any_command_line_is_taken_or_refused(words in prop::collection::vec(word(), 0..9)) {
            let line: Vec<OsString> = [OsString::from("upcall")].into_iter().chain(words).collect();
            match Cli::try_parse_from(&line) {
                Ok(Cli { command: Command::Run(args) }) => {
                    prop_assert!(!args.command.is_empty());
                    prop_assert!(line.ends_with(&args.command));
                }
                Ok(_) => {}
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn any_number_of_virtual_processors_is_between_one_and_the_most(
            text in prop_oneof!["[0-9]{0,30}(\\.\\.)?[0-9]{0,30}", any::<String>()],
            allowed in any::<usize>(),
        ) {
            if let Ok(range) = text.parse::<VpRange>() {
                prop_assert!((1..=1024).contains(&range.resolve(allowed)));
            }
        }
    }
}
