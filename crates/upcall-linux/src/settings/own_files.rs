//! Small files in which something is remembered for the user, under `XDG_RUNTIME_DIR`, `XDG_CACHE_HOME` or `~/.cache`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::sys::limits;

/// Returns the directory under which such files lie, if the environment names one.
#[must_use]
pub fn base() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_RUNTIME_DIR")
        .or_else(|| absolute("XDG_CACHE_HOME"))
        .or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// Writes a file for the user alone, so that a reader finds the old one or the new one, whole. It lies somewhere in `upcall`
/// under [`base`]. Makes its directory, and `~/.cache`, but no home directory.
///
/// # Errors
///
/// It cannot be written or would be longer than files may be, there is no home directory, or the place is another user's: a superuser who was given somebody's
/// HOME must leave nothing of its own there.
pub fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if !limits::may_be_so_long(bytes.len()) {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    let directory = file.parent().unwrap_or(Path::new("/"));
    // SAFETY: asks only.
    let own = unsafe { libc::geteuid() };
    let base = file.ancestors().find(|path| path.ends_with("upcall"));
    let home = base.and_then(|own| own.parent()?.parent());
    if home.is_some_and(|home| !home.exists()) {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    let existing = directory.ancestors().find(|path| path.exists());
    if existing.is_some_and(|path| path.metadata().is_ok_and(|data| data.uid() != own)) {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut draft = file.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut open| open.write_all(bytes))
        .and_then(|()| fs::rename(&draft, file));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}
