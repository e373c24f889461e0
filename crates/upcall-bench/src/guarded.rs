//! Files that only trusted users can replace.
//!
//! What `upcall` executes or loads must not come from a place that others can write: another user could have put it
//! there. [`Trust::guarded`] walks from the root to the file, as the kernel would, and looks at every directory and
//! symbolic link on the way:
//!
//! 1. Everything on the way belongs to the superuser, to the calling user, or to a user who could replace the running
//!    command itself ([`Trust::of_command`]).
//! 2. Nobody else may write it. A sticky directory that others can write is passed, since they cannot replace what is
//!    in it and belongs to somebody else; but not on the way to where compilers run ([`Way::OfBuilds`]), which look
//!    for settings in the directories above.
//! 3. The answer is the path without symbolic links, every part of which has been looked at.
//!
//! Access control lists need no look of their own: whom they let write shows in the group's bits of the mode.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// Symbolic links that the kernel follows in one path.
const MOST_LINKS: usize = 40;

/// What is done at the end of the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// A file is executed or loaded.
    OfFile,
    /// Compilers run in the directory.
    OfBuilds,
}

/// Whose files may be executed.
#[derive(Clone, Debug)]
pub struct Trust {
    owners: Vec<u32>,
    groups: Vec<u32>,
}

impl Trust {
    /// The superuser and the calling user.
    pub fn own() -> Self {
        // SAFETY: asks only.
        let user = unsafe { libc::geteuid() };
        Self {
            owners: vec![0, user],
            groups: Vec::new(),
        }
    }

    /// The same, and the users that could replace the running command: the owners of `command` and of the directories
    /// above it, and the groups that may write them.
    pub fn of_command(command: &Path) -> Self {
        let mut trust = Self::own();
        let command = command.canonicalize();
        for part in command.iter().flat_map(|command| command.ancestors()) {
            let Ok(found) = part.symlink_metadata() else {
                continue;
            };
            trust.owners.push(found.uid());
            if found.mode() & GROUP_WRITES != 0 && found.mode() & STICKY == 0 {
                trust.groups.push(found.gid());
            }
        }
        trust
    }

    /// The path of `file` without symbolic links, if nobody else can replace it.
    ///
    /// # Errors
    ///
    /// What is there instead, and who can write it.
    pub fn guarded(&self, file: &Path, way: Way) -> Result<PathBuf, String> {
        self.guarded_seeing(file, way, &mut |_, _| {})
    }

    /// The same. `seen` gets each directory and symbolic link that was looked at, and the file.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn guarded_seeing(
        &self,
        file: &Path,
        way: Way,
        seen: &mut dyn FnMut(&Path, &Metadata),
    ) -> Result<PathBuf, String> {
        let failed = |place: &Path, error: std::io::Error| format!("{}: {error}", place.display());
        let absolute = std::path::absolute(file).map_err(|error| failed(file, error))?;
        let mut ahead = parts(&absolute);
        let mut place = PathBuf::from("/");
        let mut links = 0;
        loop {
            let found = place
                .symlink_metadata()
                .map_err(|error| failed(&place, error))?;
            seen(&place, &found);
            self.is_ours(&place, &found)?;
            if found.is_symlink() {
                links += 1;
                if links > MOST_LINKS {
                    let error = std::io::Error::from_raw_os_error(libc::ELOOP);
                    return Err(failed(file, error));
                }
                let target = fs::read_link(&place).map_err(|error| failed(&place, error))?;
                place.pop();
                if target.is_absolute() {
                    place = PathBuf::from("/");
                }
                let mut first = parts(&target);
                first.append(&mut ahead);
                ahead = first;
            } else {
                let is_passed =
                    way == Way::OfFile && found.mode() & STICKY != 0 && !ahead.is_empty();
                if !is_passed {
                    self.is_closed(&place, &found)?;
                }
            }
            match ahead.pop_front() {
                None => return Ok(place),
                Some(part) if part == ".." => drop(place.pop()),
                Some(part) => place.push(part),
            }
        }
    }

    fn is_ours(&self, place: &Path, found: &Metadata) -> Result<(), String> {
        if self.owners.contains(&found.uid()) {
            return Ok(());
        }
        let (place, owner) = (place.display(), found.uid());
        Err(format!("{place} belongs to another user ({owner})"))
    }

    fn is_closed(&self, place: &Path, found: &Metadata) -> Result<(), String> {
        let mode = found.mode();
        let group = mode & GROUP_WRITES != 0 && !self.groups.contains(&found.gid());
        if !group && mode & OTHERS_WRITE == 0 {
            return Ok(());
        }
        let (place, mode) = (place.display(), mode & 0o7777);
        Err(format!("others can write {place} (its mode is {mode:04o})"))
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let kept = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    let parts = path.components().filter(kept);
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

/// Makes `directory` and what is missing above it for the calling user alone, and returns its guarded path.
///
/// # Errors
///
/// Why it cannot be made, or who else can write there.
pub fn directory(directory: &Path) -> Result<PathBuf, String> {
    let mut builder = fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    Trust::own().guarded(directory, Way::OfBuilds)
}

#[cfg(test)]
#[path = "guarded_tests.rs"]
mod tests;
