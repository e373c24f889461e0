//! The command line of `upcall bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// A thread runtime that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum RuntimeName {
    /// The program with POSIX threads under `upcall run`.
    Upcall,
    /// The same under another build's `upcall run`, which `--before` names.
    #[value(skip)]
    Before,
    /// A program that does the same with the threads of the crate upcall.
    Crate,
    /// The program with POSIX threads as it is: libc's kernel threads.
    Nptl,
    /// A Go program that does the same.
    Go,
    /// A program with coroutines of the Rust package may.
    May,
    /// A program with fork-join of the Rust package rayon.
    Rayon,
    /// A program with tasks of the Rust package tokio.
    Tokio,
    /// A program with fork-join of the C++ library oneTBB.
    Tbb,
    /// A program with fibers of the C++ library Boost.Fiber.
    Boost,
    /// A program with State Threads, a C library; they have one worker.
    St,
    /// A program with virtual threads of Java, version 21 or later.
    Java,
}

impl RuntimeName {
    /// All runtimes, in the order in which they are run and shown.
    pub const ALL: [Self; 12] = [
        Self::Upcall,
        Self::Before,
        Self::Crate,
        Self::Nptl,
        Self::Go,
        Self::May,
        Self::Rayon,
        Self::Tokio,
        Self::Tbb,
        Self::Boost,
        Self::St,
        Self::Java,
    ];

    /// The name on the command line and in every record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upcall => "upcall",
            Self::Before => "before",
            Self::Crate => "crate",
            Self::Nptl => "nptl",
            Self::Go => "go",
            Self::May => "may",
            Self::Rayon => "rayon",
            Self::Tokio => "tokio",
            Self::Tbb => "tbb",
            Self::Boost => "boost",
            Self::St => "st",
            Self::Java => "java",
        }
    }
}

const ROUNDS: &str = "7";
const QUICK_ROUNDS: &str = "2";
const SLICE: &str = "4ms";

/// Measure thread runtimes side by side, in interleaved and warmed-up rounds.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Workloads, or variants as WORKLOAD/VARIANT; all of them if none is named
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,

    /// Runtimes to compare [default: all that work here]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        env = "UPCALL_BENCH_RUNTIME"
    )]
    pub runtime: Vec<RuntimeName>,

    /// Processors that a program may use [default: what each workload asks for]
    ///
    /// If UPCALL_VPS is set, programs under Upcall have that many virtual processors in place of as many as these. With a
    /// range they adapt to what upcalld gives them.
    #[arg(long, value_name = "N", env = "UPCALL_BENCH_WORKERS")]
    pub workers: Option<usize>,

    /// Rounds that count, after one that does not; with --quick 2 if it is not said, and none that does not
    #[arg(
        long,
        value_name = "N",
        default_value = ROUNDS,
        default_value_if("quick", "true", QUICK_ROUNDS),
        env = "UPCALL_BENCH_ROUNDS"
    )]
    pub rounds: usize,

    /// One JSON object a line on standard output instead of tables
    #[arg(long)]
    pub json: bool,

    /// Add the figures to a file, too, for upcall report: JSON lines with what is to be known of the machine
    ///
    /// Each line is written at once, so what was measured before an interruption is kept.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["counts", "list"])]
    pub output: Option<PathBuf>,

    /// Exit with status 1 if a bound does not hold
    #[arg(long)]
    pub check: bool,

    /// Count instructions of operations of the crate, and of an unmodified program, instead of measuring
    /// time, on one processor: what is recorded in the source, printed as there. With --check: exit with
    /// status 1 if one takes more
    #[arg(long, conflicts_with = "list")]
    pub counts: bool,

    /// List workloads, variants and bounds, and measure nothing
    #[arg(long)]
    pub list: bool,

    /// Few and short samples: shows that everything runs, not how fast
    #[arg(long)]
    pub quick: bool,

    /// All workloads, as where none is named
    #[arg(long, conflicts_with_all = ["workloads", "brief"])]
    pub all: bool,

    /// Leave out what takes minutes, or a million threads
    #[arg(long, conflicts_with_all = ["counts", "workloads"])]
    pub brief: bool,

    /// When to give up on one program, for example 30s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time,
          env = "UPCALL_BENCH_TIMEOUT")]
    pub timeout: Duration,

    /// The time slice of our runtime, which one bound refers to
    #[arg(long, value_name = "TIME", default_value = SLICE, value_parser = parse_time,
          env = "UPCALL_BENCH_SLICE")]
    pub slice: Duration,

    /// The upcall command to measure [default: this one]
    #[arg(long, value_name = "PATH", env = "UPCALL_BENCH_UPCALL")]
    pub upcall: Option<PathBuf>,

    /// Another build's upcall command, measured in the same rounds, for example that of an earlier commit
    #[arg(long, value_name = "PATH", env = "UPCALL_BENCH_BEFORE")]
    pub before: Option<PathBuf>,

    /// The program upcall-workload, with upcall-workload-crate beside it [default: beside this command, or in
    /// ../lib/upcall]
    #[arg(long, value_name = "PATH", env = "UPCALL_BENCH_WORKLOAD_PROGRAM")]
    pub workload_program: Option<PathBuf>,

    /// Where built peers and the cold file are kept [default: upcall/bench in the user's cache]
    #[arg(long, value_name = "DIR", env = "UPCALL_BENCH_CACHE")]
    pub cache: Option<PathBuf>,
}

impl BenchArgs {
    /// The options that change the figures, but for what names a place of this machine: as they are given to reproduce them.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            options.push(name.to_owned());
            options.extend(value);
        };
        if !self.runtime.is_empty() {
            let names: Vec<_> = self.runtime.iter().map(|name| name.as_str()).collect();
            option("--runtime", Some(names.join(",")));
        }
        if let Some(workers) = self.workers {
            option("--workers", Some(workers.to_string()));
        }
        let rounds = self.rounds.to_string();
        let usual = if self.quick { QUICK_ROUNDS } else { ROUNDS };
        if rounds != usual {
            option("--rounds", Some(rounds));
        }
        if self.quick {
            option("--quick", None);
        }
        if parse_time(SLICE) != Ok(self.slice) {
            option("--slice", Some(format!("{}us", self.slice.as_micros())));
        }
        options
    }
}

/// Parses a time with an explicit unit: `500us`, `5ms`, `30s`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let nanoseconds: u64 = match &text[digits.len()..] {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err("expected a number and a unit (us, ms, s), as in 5ms".into()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{digits:?} is not a whole number"))?;
    let total = number.checked_mul(nanoseconds).filter(|total| *total > 0);
    total
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("{text} is out of range"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(words: &[&str]) -> Result<BenchArgs, clap::Error> {
        let words = std::iter::once("bench").chain(words.iter().copied());
        Command::try_parse_from(words).map(|command| command.bench)
    }

    #[test]
    fn runtimes_are_a_list() {
        let args = parse(&["--runtime", "upcall,go", "yield", "--workers=2", "--json"]).unwrap();
        assert_eq!(args.runtime, [RuntimeName::Upcall, RuntimeName::Go]);
        assert_eq!(args.workloads, ["yield"]);
        assert_eq!((args.workers, args.rounds, args.json), (Some(2), 7, true));
    }

    #[test]
    fn options_that_change_figures_are_given_again() {
        let given = "--runtime upcall,go --workers 2 --rounds 3 --quick --slice 500us";
        let words: Vec<_> = given.split(' ').collect();
        let more = [&words[..], &["--json", "-o", "file", "yield"]].concat();
        assert_eq!(parse(&more).unwrap().options(), words);
        assert!(parse(&["yield"]).unwrap().options().is_empty());
        let quick = parse(&["--quick"]).unwrap();
        assert_eq!(
            (quick.rounds, quick.options()),
            (2, vec!["--quick".to_owned()])
        );
        assert_eq!(parse(&["--quick", "--rounds", "7"]).unwrap().rounds, 7);
    }

    #[test]
    fn an_unknown_runtime_is_refused_with_the_known_ones() {
        let error = parse(&["--runtime", "erlang"]).unwrap_err().to_string();
        assert!(
            error.contains("erlang") && error.contains("nptl"),
            "{error}"
        );
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(parse_time("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(parse_time("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_time("250us"), Ok(Duration::from_micros(250)));
        for bad in ["5", "ms", "", "5h", "-1s", "0s", "1.5s", "99999999999999s"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
