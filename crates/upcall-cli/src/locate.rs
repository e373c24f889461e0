//! Finds a program as `execvp` does.
//!
//! The file must be known before it is executed, since it is examined first. The search is
//! therefore done here, by the rules of POSIX `execvp` as glibc has them, and the file found
//! is the one that is executed.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where glibc looks when there is no PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Why a program cannot be executed.
#[derive(Debug)]
pub struct NotRunnable {
    /// Whether it exists at all: the difference between exit statuses 126 and 127.
    pub exists: bool,
    /// The system's reason.
    pub error: io::Error,
}

/// The file that `execvp(name)` would execute.
///
/// # Errors
/// The errno that `execvp` would give, and whether something of that name exists.
pub fn locate(name: &OsStr, path: Option<OsString>) -> Result<PathBuf, NotRunnable> {
    if name.is_empty() {
        return Err(NotRunnable::from_errno(libc::ENOENT));
    }
    if name.as_bytes().contains(&b'/') {
        return match executable(Path::new(name)) {
            Ok(()) => Ok(PathBuf::from(name)),
            Err(errno) => Err(NotRunnable::from_errno(errno)),
        };
    }
    let path = path.unwrap_or_else(|| DEFAULT_PATH.into());
    // As execvp: a directory without the file, or that cannot be one, is passed over; a file
    // that may not be executed is remembered in case nothing better comes.
    let mut remembered = libc::ENOENT;
    for directory in path.as_bytes().split(|&byte| byte == b':') {
        let candidate = if directory.is_empty() {
            // An empty element is the current directory, and a bare name is looked up there.
            PathBuf::from(OsString::from_vec([b"./", name.as_bytes()].concat()))
        } else {
            Path::new(OsStr::from_bytes(directory)).join(name)
        };
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(libc::EACCES) => remembered = libc::EACCES,
            Err(_) => {}
        }
    }
    Err(NotRunnable::from_errno(remembered))
}

impl NotRunnable {
    /// From the errno of a look-up or of `execve`.
    pub fn from_errno(errno: i32) -> Self {
        Self {
            exists: errno != libc::ENOENT,
            error: io::Error::from_raw_os_error(errno),
        }
    }
}

/// Whether `execve` would get as far as reading this file.
fn executable(file: &Path) -> Result<(), i32> {
    let c_path = CString::new(file.as_os_str().as_bytes()).map_err(|_| libc::ENOENT)?;
    // SAFETY: a valid C string; AT_EACCESS asks for the identity that execve uses.
    let answer = unsafe {
        libc::faccessat(
            libc::AT_FDCWD,
            c_path.as_ptr(),
            libc::X_OK,
            libc::AT_EACCESS,
        )
    };
    if answer != 0 {
        let error = io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EACCES);
        // EPERM is no answer about a file: a container's filter forbids to ask. execve will tell.
        if error != libc::EPERM {
            return Err(error);
        }
    }
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(libc::EACCES),
        Err(error) => Err(error.raw_os_error().unwrap_or(libc::EACCES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn directory(name: &str) -> PathBuf {
        let unique = format!("upcall-locate-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(unique);
        fs::create_dir_all(&directory).expect("a directory for the test");
        directory
    }

    fn file(path: &Path, mode: u32) {
        fs::write(path, "x").expect("a file for the test");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
    }

    #[test]
    fn the_first_executable_in_the_path_is_taken() {
        let base = directory("first");
        for part in ["a", "b", "c"] {
            fs::create_dir_all(base.join(part)).expect("a directory");
        }
        file(&base.join("a/tool"), 0o644);
        file(&base.join("b/tool"), 0o755);
        file(&base.join("c/tool"), 0o755);
        let path = ["missing", "a", "b", "c"]
            .map(|part| base.join(part).into_os_string())
            .join(OsStr::new(":"));
        let found = locate(OsStr::new("tool"), Some(path)).expect("found");
        assert_eq!(found, base.join("b/tool"));

        let only = base.join("a").into_os_string();
        let error = locate(OsStr::new("tool"), Some(only)).expect_err("not executable");
        assert!(error.exists);
        fs::remove_dir_all(base).expect("cleaned up");
    }

    #[test]
    fn nothing_is_not_found() {
        let error = locate(OsStr::new(""), None).expect_err("empty");
        assert!(!error.exists);
        let error = locate(OsStr::new("no-such-program-here"), None).expect_err("missing");
        assert!(!error.exists);
        let error = locate(OsStr::new("/no/such/program"), None).expect_err("missing");
        assert!(!error.exists);
    }

    #[test]
    fn a_directory_is_not_a_program() {
        let error = locate(OsStr::new("/usr/"), None).expect_err("a directory");
        assert!(error.exists);
        assert_eq!(error.error.raw_os_error(), Some(libc::EACCES));
    }

    #[test]
    fn without_a_path_the_system_s_own_is_searched() {
        assert!(locate(OsStr::new("sh"), None).is_ok());
    }
}
