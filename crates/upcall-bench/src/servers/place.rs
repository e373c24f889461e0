//! Where programs and servers are.

use std::ffi::CString;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use tempfile::TempDir;

use crate::child::Failure;
use crate::installed::found;

/// The path of an installed program, as text.
///
/// # Errors
///
/// It is not installed, or its path is no text.
pub fn program(name: &str) -> Result<String, Failure> {
    let path = found(name).ok_or_else(|| Failure::Skipped(format!("{name} is not installed")))?;
    text(&path)
}

/// A path as text, as the commands and settings of servers need it.
pub fn text(path: &Path) -> Result<String, Failure> {
    let none = || Failure::Skipped(format!("the path {} is not UTF-8", path.display()));
    path.to_str().map(str::to_owned).ok_or_else(none)
}

/// A user and its group, by number.
pub type User = (u32, u32);

/// As whom servers run: none if that is the caller. The superuser's servers run as `nobody`, because mariadbd and postgres
/// refuse to run as the superuser.
///
/// # Errors
///
/// There is no such user.
pub fn user() -> Result<Option<User>, Failure> {
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(None);
    }
    let name = CString::new("nobody").expect("no NUL");
    // SAFETY: a text that ends in NUL. Nothing else in this process asks for users.
    let found = unsafe { libc::getpwnam(name.as_ptr()).as_ref() };
    let why =
        "servers do not run as the superuser, and there is no user nobody; measure as another user";
    let found = found.ok_or_else(|| Failure::Skipped(why.into()))?;
    Ok(Some((found.pw_uid, found.pw_gid)))
}

/// A directory in the system's place for temporary files, with `data` in it, which is the server's, and `logs`, which is the
/// caller's.
///
/// # Errors
///
/// There can be no such directory.
pub fn directory(user: Option<User>) -> Result<TempDir, Failure> {
    let make = || -> std::io::Result<TempDir> {
        let directory = tempfile::Builder::new().prefix("upcall-bench-").tempdir()?;
        // Others pass to what is theirs and see nothing.
        let pass = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(directory.path(), pass(0o711))?;
        let [data, logs] = ["data", "logs"].map(|name| directory.path().join(name));
        for own in [&data, &logs] {
            std::fs::create_dir(own)?;
            std::fs::set_permissions(own, pass(0o700))?;
        }
        if let Some((user, group)) = user {
            chown(&data, Some(user), Some(group))?;
        }
        Ok(directory)
    };
    make().map_err(|error| {
        let place = std::env::temp_dir();
        Failure::Failed(format!(
            "a directory in {}: {error}; TMPDIR names another place",
            place.display()
        ))
    })
}

/// Writes a file that a server reads, whoever it runs as.
///
/// # Errors
///
/// It cannot be written.
pub fn write(path: &str, text: &str) -> Result<(), Failure> {
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::write(path, text)
        .and_then(|()| std::fs::set_permissions(path, mode))
        .map_err(|error| Failure::Failed(format!("{path}: {error}")))
}

/// A port of the loopback interface that is free now.
///
/// # Errors
///
/// There is none.
pub fn free_port() -> Result<u16, Failure> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    port.map(|address| address.port())
        .map_err(|error| Failure::Failed(format!("a free port: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let Err(Failure::Skipped(why)) = program("no-such-program") else {
            panic!("it is there");
        };
        assert!(why.contains("no-such-program"));
    }

    #[test]
    fn a_directory_is_closed_to_others() {
        let made = directory(None).unwrap();
        let mode = |name| {
            let found = made.path().join(name).metadata().unwrap();
            found.permissions().mode() & 0o777
        };
        assert_eq!(
            (mode("."), mode("data"), mode("logs")),
            (0o711, 0o700, 0o700)
        );
    }
}
