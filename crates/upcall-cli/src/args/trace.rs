//! What `upcall trace` is asked.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::seconds;

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

    /// Trace for so many seconds, then write the file; PROGRAM goes on, and is waited for
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
