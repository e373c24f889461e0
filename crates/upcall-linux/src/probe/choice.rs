//! Decides which standby a program starts with. It must be cheap: most programs end before the full measurement would.
//!
//! What the scheduler does is measured once and remembered for the user:
//! 1. `upcall run` reads a file of the user's own, `upcall/standby` under `XDG_RUNTIME_DIR`, `XDG_CACHE_HOME` or
//!    `~/.cache`. The file holds the verdict, and the boot id, the kernel's release and the loaded sched_ext scheduler
//!    under which it was measured.
//! 2. If one of these differs, or there is no file, a shorter form of [`super::measure_mode`] runs, and its verdict is
//!    remembered.
//! 3. If nothing can be remembered or measured (no home, a sandbox), the kernel's version is the first guess.
//!
//! The running program corrects a wrong choice when its standby takes processor time that its threads wanted (`pace`):
//! somebody may load a scheduler while the program runs.

use std::fs;
use std::path::{Path, PathBuf};

use super::StandbyMode;
use super::standby::measure_quickly;
use crate::settings::own_files;

/// How a choice was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Measured under this kernel since it was booted, and remembered.
    Remembered,
    /// Measured just now.
    Measured,
    /// By the kernel's version.
    Version,
}

/// Which standby to start with, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The kind of standby.
    pub mode: StandbyMode,
    /// How it is known.
    pub source: Source,
}

/// The choice for `upcall run`: remembered, or else measured within 20 ms of processor time, or
/// else by the version.
#[must_use]
pub fn choose() -> Choice {
    let key = Key::read();
    let file = key.as_ref().and_then(|_| memory());
    if let (Some(key), Some(file)) = (&key, &file) {
        if let Some(mode) = recall(file, key) {
            return Choice {
                mode,
                source: Source::Remembered,
            };
        }
        if let Some(mode) = measure_quickly() {
            remember(file, key, mode);
            return Choice {
                mode,
                source: Source::Measured,
            };
        }
    }
    Choice {
        mode: by_version(key.as_ref().map_or("", |key| &key.release)),
        source: Source::Version,
    }
}

/// The choice for a program that is loaded without `upcall run`: remembered or by the version.
#[must_use]
pub fn choose_unmeasured() -> Choice {
    let key = Key::read();
    let mode = key.as_ref().and_then(|key| recall(&memory()?, key));
    match mode {
        Some(mode) => Choice {
            mode,
            source: Source::Remembered,
        },
        None => Choice {
            mode: by_version(key.as_ref().map_or("", |key| &key.release)),
            source: Source::Version,
        },
    }
}

/// The file that tells one start of the kernel from the next.
pub const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The file that tells if a sched_ext scheduler is loaded; absent where the kernel knows none.
pub const SCHEDULER: &str = "/sys/kernel/sched_ext/state";
/// What it says if none is.
pub const NO_SCHEDULER: &str = "disabled";

/// What a verdict holds for.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    boot: String,
    release: String,
    /// The loaded scheduler, by the number of times that one was loaded; "none" without.
    scheduler: String,
}

impl Key {
    fn read() -> Option<Self> {
        let line = |path: &str| Some(fs::read_to_string(path).ok()?.trim().to_owned());
        let loaded = line(SCHEDULER).is_some_and(|state| state != NO_SCHEDULER);
        Some(Key {
            boot: line(BOOT)?,
            release: line("/proc/sys/kernel/osrelease")?,
            scheduler: if loaded {
                line("/sys/kernel/sched_ext/enable_seq").unwrap_or_else(|| "some".into())
            } else {
                "none".into()
            },
        })
    }

    fn line(&self, mode: StandbyMode) -> String {
        format!(
            "1 {} {} {} {}\n",
            self.boot,
            self.release,
            self.scheduler,
            mode.word()
        )
    }
}

/// The file, if there is a directory of the user's own to have it in.
fn memory() -> Option<PathBuf> {
    Some(own_files::base()?.join("upcall/standby"))
}

fn recall(file: &Path, key: &Key) -> Option<StandbyMode> {
    let text = fs::read_to_string(file).ok()?;
    [StandbyMode::Nice0, StandbyMode::Sentinel]
        .into_iter()
        .find(|&mode| text == key.line(mode))
}

/// Failing to remember costs the next program a measurement and nothing else.
fn remember(file: &Path, key: &Key, mode: StandbyMode) {
    let _ = own_files::write(file, key.line(mode).as_bytes());
}

/// EEVDF, under which a yield gives way, came with Linux 6.6.
fn by_version(release: &str) -> StandbyMode {
    let mut numbers = release
        .split(|character: char| !character.is_ascii_digit())
        .map(|digits| digits.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 6) {
        StandbyMode::Nice0
    } else {
        StandbyMode::Sentinel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(release: &str) -> Key {
        Key {
            boot: "8f1c".into(),
            release: release.into(),
            scheduler: "none".into(),
        }
    }

    fn scratch(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("upcall-choice-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).expect("a scratch directory");
        directory
    }

    #[test]
    fn the_version_is_the_first_guess() {
        for (release, mode) in [
            ("5.15.0-91-generic", StandbyMode::Sentinel),
            ("6.1.0-47-cloud-amd64", StandbyMode::Sentinel),
            ("6.5.13", StandbyMode::Sentinel),
            ("6.6", StandbyMode::Nice0),
            ("6.12.57+deb13-amd64", StandbyMode::Nice0),
            ("7.2.0-rc1", StandbyMode::Nice0),
            ("", StandbyMode::Sentinel),
        ] {
            assert_eq!(by_version(release), mode, "{release}");
        }
    }

    #[test]
    fn a_verdict_is_remembered_for_its_kernel_only() {
        let directory = scratch("remember");
        let file = directory.join("upcall/standby");
        let before = key("6.1.0");
        assert_eq!(recall(&file, &before), None);
        remember(&file, &before, StandbyMode::Sentinel);
        assert_eq!(recall(&file, &before), Some(StandbyMode::Sentinel));
        let after = key("6.12.0");
        assert_eq!(recall(&file, &after), None);
        remember(&file, &after, StandbyMode::Nice0);
        assert_eq!(recall(&file, &after), Some(StandbyMode::Nice0));
        assert_eq!(recall(&file, &before), None);
        fs::remove_dir_all(directory).expect("removable");
    }

    #[test]
    fn nonsense_in_the_file_is_no_verdict() {
        let directory = scratch("nonsense");
        let file = directory.join("standby");
        for text in ["", "nice0", "1 8f1c 6.1.0 none", "1 8f1c 6.1.0 none nice0 "] {
            fs::write(&file, text).expect("writable");
            assert_eq!(recall(&file, &key("6.1.0")), None, "{text:?}");
        }
        fs::remove_dir_all(directory).expect("removable");
    }

    #[test]
    fn the_quick_measurement_agrees_with_the_long_one() {
        let quick = measure_quickly().expect("measurable");
        assert_eq!(Some(quick), super::super::measure_mode());
    }
}
