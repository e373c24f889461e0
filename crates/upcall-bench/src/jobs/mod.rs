//! The processor time of programs, natively and under `upcall run`: compressors, coders of video, a build, and processes
//! that begin and end.
//!
//! What is counted is the user and system time of a program and of all its children, as the kernel gives it when they have
//! been waited for. Inputs are made once, the same everywhere, and kept in the cache (`inputs`).
//!
//! Their own time is counted and not how long they take: two runs differ less in it where others use the machine.

mod inputs;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::affinity::Processors;
use crate::catalogue::{Kind, Variant, Workload};
use crate::child::{self, Failure};
use crate::installed;
use crate::runtime::Runtime;
use inputs::Input;

/// A program with what it works on.
struct Job {
    /// The name of its variant.
    name: &'static str,
    needs: &'static [&'static str],
    work: Work,
    /// Its arguments; the path of the input or the number of operations follows.
    words: &'static [&'static str],
    /// Arguments behind that.
    more: &'static [&'static str],
}

/// What a program works on.
#[derive(Clone, Copy)]
enum Work {
    Input(Input),
    /// So many operations.
    Operations(u32),
}

impl Work {
    /// The argument that says so.
    fn argument(self, order: &Order) -> Result<OsString, Failure> {
        match self {
            Work::Input(input) => input.made(order).map(PathBuf::into_os_string),
            Work::Operations(_) if order.short => Ok("20".into()),
            Work::Operations(count) => Ok(count.to_string().into()),
        }
    }
}

/// A stressor of stress-ng, whose option for the number of its operations is the last of `words`.
const fn stressor(name: &'static str, words: &'static [&'static str], operations: u32) -> Job {
    Job {
        name,
        needs: &["stress-ng"],
        work: Work::Operations(operations),
        words,
        more: &[],
    }
}

const JOBS: &[Job] = &[
    Job {
        name: "xz",
        needs: &["xz"],
        work: Work::Input(Input::Text(5)),
        words: &["-T2", "--block-size=512KiB", "-2", "-kc"],
        more: &[],
    },
    Job {
        name: "zstd",
        needs: &["zstd"],
        work: Work::Input(Input::Text(16)),
        words: &["-q", "-T2", "-12", "-kc"],
        more: &[],
    },
    Job {
        name: "pigz",
        needs: &["pigz"],
        work: Work::Input(Input::Text(32)),
        words: &["-p2", "-9", "-kc"],
        more: &[],
    },
    Job {
        name: "x264",
        needs: &["x264"],
        work: Work::Input(Input::Frames(120)),
        words: &["--quiet", "--no-progress", "--threads=4", "-o", "/dev/null"],
        more: &[],
    },
    Job {
        name: "dav1d",
        // The coder makes the input.
        needs: &["dav1d", "ffmpeg"],
        work: Work::Input(Input::Coded(240)),
        words: &["-q", "--threads=4", "--muxer=null", "-o", "/dev/null", "-i"],
        more: &[],
    },
    Job {
        name: "build",
        needs: &["make", "cc"],
        work: Work::Input(Input::Sources(6)),
        words: &["-s", "-j2", "-C"],
        // Each build is a whole one.
        more: &["-B"],
    },
    stressor("fork", &["-q", "--fork", "1", "--fork-ops"], 2000),
    stressor("abort", &["-q", "--sigabrt", "1", "--sigabrt-ops"], 1000),
    stressor(
        "alternate_stack",
        &["-q", "--bad-altstack", "1", "--bad-altstack-ops"],
        1000,
    ),
    stressor("zombie", &["-q", "--zombie", "1", "--zombie-ops"], 2000),
];

/// What is wanted of a program.
pub struct Order<'a> {
    /// The variant.
    pub name: &'a str,
    pub runtime: &'a Runtime,
    pub processors: &'a Processors,
    pub timeout: Duration,
    /// Where inputs are kept.
    pub inputs: &'a Path,
    /// With a small input.
    pub short: bool,
}

fn of(name: &str) -> Option<&'static Job> {
    JOBS.iter().find(|job| job.name == name)
}

/// Why a variant cannot be measured here: what is not installed.
pub fn lacking(workload: &Workload, variant: &Variant) -> Option<String> {
    let job = of(variant.name).filter(|_| workload.kind == Kind::Job)?;
    installed::why(job.needs)
}

/// The processor time that the program and its children take, in nanoseconds.
///
/// # Errors
///
/// Why there is none.
pub fn processor_time(order: &Order) -> Result<f64, Failure> {
    let none = || Failure::Failed(format!("there is no program {}", order.name));
    let job = of(order.name).ok_or_else(none)?;
    let missing = || Failure::Skipped(format!("{} is not installed", job.needs[0]));
    let program = installed::found(job.needs[0]).ok_or_else(missing)?;
    let work = job.work.argument(order)?;
    let mut command = order
        .runtime
        .command(Some(&program), order.processors.count());
    command.args(job.words).arg(work).args(job.more);
    let before = children()?;
    let silent = [Stdio::null(), Stdio::null()];
    child::start_with(silent, command, order.processors, order.timeout)?.output()?;
    Ok(children()?.saturating_sub(before).as_nanos() as f64)
}

/// Runs a program that makes an input.
fn make(command: Command, order: &Order) -> Result<(), Failure> {
    let silent = [Stdio::null(), Stdio::null()];
    let made = child::start_with(silent, command, order.processors, order.timeout);
    made?.output().map(drop)
}

/// The processor time of all children that have been waited for.
fn children() -> Result<Duration, Failure> {
    // SAFETY: all-zero bytes are a valid structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Failure::Failed(format!("getrusage: {error}")));
    }
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::served::{PROCESSOR_TIME, STRESSORS};

    #[test]
    fn every_variant_is_a_program() {
        let names: Vec<_> = JOBS.iter().map(|job| job.name).collect();
        let variants = [PROCESSOR_TIME, STRESSORS].map(|one| one.variants);
        let variants: Vec<_> = variants
            .iter()
            .copied()
            .flatten()
            .map(|one| one.name)
            .collect();
        assert_eq!(names, variants);
    }
}
