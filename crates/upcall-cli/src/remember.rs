//! Remembers of a program that it can be served, for the next plain `upcall run` of it (`front::serve`).
//!
//! A verdict holds under conditions, all of which are written down with it:
//! - of the program: its file, by device, inode, size and last change of status, and the path by which it was found;
//! - of this command and the guest library: their files, and who can write on the way there;
//! - of the machine: since when the kernel runs, that no sched_ext scheduler is loaded, and how it counts mapped memory.
//!
//! Not remembered is what depends on more: a script, a run with flags, with variables of ours or with a limit of its
//! addresses (RLIMIT_AS), one under a filter (seccomp(2)), and a file that was changed in the last two seconds, which might
//! be changed again within one tick of the clock that stamps it.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use upcall_bench::guarded::{Trust, Way};
use upcall_linux::own_files;
use upcall_linux::probe::{BOOT, NO_SCHEDULER, SCHEDULER};

use crate::front::verdict::{self, ABSENT, CONTENTS, LINK, NODE, PLACE, SETTING};
use crate::front::{DIRECTORY, serve};
use crate::{guest_library, tunables};

/// How old a change must be.
const SETTLED: Duration = Duration::from_secs(2);

/// A program before it is examined.
pub struct Seen {
    path: PathBuf,
    node: [u64; 5],
    moment: SystemTime,
}

impl Seen {
    /// Looks at a file that was found for a program.
    pub fn at(path: &Path) -> Option<Self> {
        Some(Self {
            path: path.to_owned(),
            node: node(&path.metadata().ok()?),
            moment: SystemTime::now(),
        })
    }

    /// Writes down that it can be served with these settings. Failing to costs time and nothing else.
    pub fn remember(&self, command: &Path, library: &Path, settings: &[(&str, Option<OsString>)]) {
        let _ = self.try_to(command, library, settings);
    }

    fn try_to(
        &self,
        command: &Path,
        library: &Path,
        settings: &[(&str, Option<OsString>)],
    ) -> Option<()> {
        let base = own_files::base()?;
        if !is_settled(&self.node, self.moment) || !has_no_filter() {
            return None;
        }
        let mut conditions = Conditions::default();
        conditions.command(command, self.moment)?;
        conditions.library(command, library, self.moment)?;
        conditions.machine()?;
        for (name, value) in settings {
            if let Some(value) = value {
                let variable = [name.as_bytes(), b"=", value.as_bytes()].concat();
                conditions.push(SETTING, &variable, &[])?;
            }
        }
        let [device, inode, size, seconds, nanoseconds] = self.node;
        let path = verdict::sum(self.path.as_os_str().as_bytes(), 0);
        let program = [device, inode, size, seconds, nanoseconds, path];
        let bytes = verdict::encode(&program, &conditions.records)?;
        let slot = verdict::slot(device, inode, command.as_os_str().as_bytes());
        let name = serve::name_of(slot);
        let file = base
            .join(DIRECTORY)
            .join(OsStr::from_bytes(&name[..name.len() - 1]));
        own_files::write(&file, &bytes).ok()
    }
}

/// What has to hold, as records.
#[derive(Default)]
struct Conditions {
    records: Vec<u8>,
    places: Vec<PathBuf>,
}

impl Conditions {
    fn push(&mut self, kind: u32, name: &[u8], data: &[u8]) -> Option<()> {
        if name.contains(&0) {
            return None;
        }
        verdict::push(&mut self.records, kind, name, data)
    }

    fn numbers(&mut self, kind: u32, path: &Path, numbers: &[u64]) -> Option<()> {
        let data: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.push(kind, path.as_os_str().as_bytes(), &data)
    }

    /// Who can write here.
    fn place(&mut self, path: &Path, found: &Metadata) -> Option<()> {
        if self.places.iter().any(|known| known == path) {
            return Some(());
        }
        self.places.push(path.to_owned());
        let numbers = [found.mode(), found.uid(), found.gid()].map(u64::from);
        self.numbers(PLACE, path, &numbers)?;
        if found.is_symlink() {
            let target = path.read_link().ok()?;
            let name = path.as_os_str().as_bytes();
            self.push(LINK, name, target.as_os_str().as_bytes())?;
        }
        Some(())
    }

    /// Links were followed to get here. Who can write it changes with its status.
    fn node(&mut self, path: &Path, moment: SystemTime) -> Option<()> {
        let node = node(&path.symlink_metadata().ok()?);
        if !is_settled(&node, moment) {
            return None;
        }
        self.places.push(path.to_owned());
        self.numbers(NODE, path, &node)
    }

    fn command(&mut self, command: &Path, moment: SystemTime) -> Option<()> {
        self.push(LINK, serve::COMMAND, command.as_os_str().as_bytes())?;
        self.node(command, moment)?;
        for part in command.ancestors() {
            self.place(part, &part.symlink_metadata().ok()?)?;
        }
        Some(())
    }

    fn library(&mut self, command: &Path, library: &Path, moment: SystemTime) -> Option<()> {
        for place in guest_library::places(command) {
            if place == library {
                break;
            }
            self.push(ABSENT, place.as_os_str().as_bytes(), &[])?;
        }
        let mut seen = Vec::new();
        let found = Trust::of_command(command)
            .guarded_seeing(library, Way::OfFile, &mut |place, found| {
                seen.push((place.to_owned(), found.clone()));
            })
            .ok()?;
        self.node(&found, moment)?;
        for (place, found) in &seen {
            self.place(place, found)?;
        }
        Some(())
    }

    fn machine(&mut self) -> Option<()> {
        for file in [BOOT, tunables::OVERCOMMIT] {
            self.push(CONTENTS, file.as_bytes(), &std::fs::read(file).ok()?)?;
        }
        match std::fs::read(SCHEDULER) {
            Ok(state) if state.trim_ascii() == NO_SCHEDULER.as_bytes() => {
                self.push(CONTENTS, SCHEDULER.as_bytes(), &state)
            }
            Ok(_) => None,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.push(ABSENT, SCHEDULER.as_bytes(), &[])
            }
            Err(_) => None,
        }
    }
}

/// As statx(2) gives the device, in two parts.
fn node(found: &Metadata) -> [u64; 5] {
    let device = found.dev();
    [
        u64::from(libc::major(device)) << 32 | u64::from(libc::minor(device)),
        found.ino(),
        found.size(),
        found.ctime() as u64,
        found.ctime_nsec() as u64,
    ]
}

fn is_settled(node: &[u64; 5], moment: SystemTime) -> bool {
    let changed = SystemTime::UNIX_EPOCH + Duration::new(node[3], node[4] as u32);
    moment
        .duration_since(changed)
        .is_ok_and(|age| age >= SETTLED)
}

fn has_no_filter() -> bool {
    // SAFETY: asks only.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == 0 }
}
