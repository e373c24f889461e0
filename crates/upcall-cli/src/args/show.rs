//! What the commands are asked that show something: `doctor`, `ps`, `show`, `stacks`, `top`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::seconds;

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

const DOCTOR_NOTES: &str = "\
Exit status:
  0    FEATURE works; without FEATURE: some backend works
  1    it does not
  125  upcall itself failed, an unknown FEATURE included";
