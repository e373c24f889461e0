//! The time of a program at a multiprogramming level: so many copies at once on the same two processors, under a daemon that warns before
//! a turn ends, or does not (Marsh et al. 1991).
//!
//! The daemon (`upcalld --user`) is this measurement's own: it has its socket, and the configuration with the lead, in a directory of its
//! own, and ends with the round. The native program does not ask for one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::args::RuntimeName;
use crate::child::Failure;
use crate::installed;
use crate::measure::{Bench, Subject, pairs};

/// How long before the end of a turn the daemon warns, where it does, in milliseconds.
const LEAD_MS: u32 = 5;

/// The mean time of the copies, in nanoseconds. The variant's name says how many there are, and if they are warned: `2_on`.
pub fn time_at_level(bench: &Bench<'_>, subject: &Subject<'_>) -> Result<f64, Failure> {
    let (level, warns) = level(subject.variant.name)
        .ok_or_else(|| Failure::Failed("the variant has no such name".into()))?;
    let daemon = match subject.runtime.name {
        RuntimeName::Nptl => None,
        _ => Some(Daemon::start(warns)?),
    };
    let adapt = |command: &mut Command| {
        if let Some(daemon) = &daemon {
            daemon.is_asked_by(command);
        }
    };
    pairs::mean(&pairs::copies(bench, subject, level, &["gate=1"], adapt)?)
}

fn level(variant: &str) -> Option<(usize, bool)> {
    let (level, warning) = variant.split_once('_')?;
    let warns = ["off", "on"].iter().position(|one| *one == warning)? == 1;
    Some((level.parse().ok()?, warns))
}

/// A daemon; it ends when it is dropped, or when this process does.
struct Daemon {
    child: Child,
    /// In place of XDG_RUNTIME_DIR.
    place: TempDir,
}

impl Daemon {
    /// Starts one, and waits until it serves.
    fn start(warns: bool) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::Failed(format!("upcalld: {error}"));
        // Only its user may enter.
        let place = tempfile::Builder::new()
            .prefix("upcall-bench-")
            .tempdir()
            .map_err(failed)?;
        let config = place.path().join("upcalld.toml");
        let lead = if warns { LEAD_MS } else { 0 };
        fs::write(&config, format!("warning = {lead}\n")).map_err(failed)?;
        let mut command = Command::new(program()?);
        command
            .args(["--user", "--log", "info", "--config"])
            .arg(&config)
            .env("XDG_RUNTIME_DIR", place.path())
            .env_remove("UPCALLD_SOCKET")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        // SAFETY: between fork and exec this makes one system call and allocates nothing.
        unsafe {
            command.pre_exec(
                || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                },
            );
        }
        let child = command.spawn().map_err(failed)?;
        let mut daemon = Daemon { child, place };
        let talk = daemon.child.stderr.take().map(BufReader::new);
        let mut lines = talk
            .into_iter()
            .flat_map(BufRead::lines)
            .map_while(Result::ok);
        let mut before = Vec::new();
        for line in &mut lines {
            if line.contains("serving") {
                // So that it never waits for a reader.
                std::thread::spawn(move || lines.count());
                return Ok(daemon);
            }
            before.push(line);
        }
        let said = before.join("; ");
        Err(Failure::Failed(format!("upcalld did not serve: {said}")))
    }

    /// A program of this command finds this daemon, and no other.
    fn is_asked_by(&self, command: &mut Command) {
        command
            .env("XDG_RUNTIME_DIR", self.place.path())
            .env("UPCALL_OBSERVER", self.place.path().join("none"));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The daemon's program: beside this one, as it is built, or as it is installed.
fn program() -> Result<PathBuf, Failure> {
    const NAME: &str = "upcalld";
    let this = std::env::current_exe().ok();
    let beside = this.as_deref().map(|this: &Path| this.with_file_name(NAME));
    beside
        .filter(|path| path.is_file())
        .or_else(|| installed::found(NAME))
        .ok_or_else(|| {
            let why = "upcalld is neither beside this program nor installed; cargo build --release -p upcalld";
            Failure::Skipped(why.into())
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Kind, WORKLOADS};

    #[test]
    fn every_variant_has_a_level_with_and_without_a_warning() {
        let workload = WORKLOADS.iter().find(|one| one.kind == Kind::Warning);
        let variants = workload.expect("it is there").variants.iter();
        let found: Vec<_> = variants.map(|variant| level(variant.name)).collect();
        let wanted = [1, 2, 3].map(|level| [false, true].map(|warns| Some((level, warns))));
        assert_eq!(found, wanted.concat());
        assert_eq!(level("2_perhaps"), None);
        assert_eq!(level("2"), None);
    }
}
