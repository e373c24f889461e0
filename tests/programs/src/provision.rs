//! Installed programs: found, installed where that is allowed, or skipped aloud.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Reports that a case, or a part of one, did not run.
///
/// The line goes past the test harness's capture, since a skipped case passes.
pub fn skip(case: &str, reason: &str) {
    // One write, so that parallel cases do not mix; without a stderr there is nobody to tell.
    std::io::stderr()
        .write_all(format!("SKIPPED {case}: {reason}\n").as_bytes())
        .ok();
}

/// The program's path in `PATH`, or `None`.
pub fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns true if the suite runs as root.
pub fn is_root() -> bool {
    // SAFETY: a system call without arguments.
    unsafe { libc::geteuid() == 0 }
}

/// The program's path; where it is missing it is installed from Debian's `package`s if
/// `UPCALL_TEST_INSTALL=1` and root allow it, and otherwise the case is skipped aloud.
pub fn program(case: &str, name: &str, package: &str) -> Option<PathBuf> {
    if let Some(path) = find(name) {
        return Some(path);
    }
    let line = format!("apt-get install -y --no-install-recommends {package}");
    if std::env::var_os("UPCALL_TEST_INSTALL").is_some_and(|value| value == "1") && is_root() {
        install(package);
        if let Some(path) = find(name) {
            return Some(path);
        }
        skip(case, &format!("{name} is missing after `{line}`"));
    } else {
        skip(case, &format!("{name} is not installed; as root: {line}"));
    }
    None
}

/// As [`program`], the Python interpreter itself: `python3` in `PATH` may be a script that chooses
/// one.
pub fn python(case: &str) -> Option<PathBuf> {
    let named = program(case, "python3", "python3")?;
    let answer = Command::new(named)
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .expect("python3 can be started");
    Some(PathBuf::from(
        String::from_utf8_lossy(&answer.stdout).trim(),
    ))
}

/// Asks apt once per package; the answer is whether the program is there afterwards.
fn install(package: &str) {
    static ASKED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut asked = ASKED.lock().unwrap_or_else(|poison| poison.into_inner());
    if asked.iter().any(|other| other == package) {
        return;
    }
    asked.push(package.to_owned());
    let apt = |args: &[&str]| {
        Command::new("apt-get")
            .args(["-o", "DPkg::Lock::Timeout=300", "-qq"])
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let mut wanted = vec!["install", "-y", "--no-install-recommends"];
    wanted.extend(package.split(' '));
    if !apt(&wanted) {
        // A fresh machine may have no package lists yet.
        apt(&["update"]);
        apt(&wanted);
    }
}
