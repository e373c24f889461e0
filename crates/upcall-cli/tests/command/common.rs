//! What the tests of the command share: a place for files, programs to run, and the command
//! with a known environment.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory for the test");
    directory
}

/// The command, without whatever of ours the environment of the tests holds.
pub fn upcall() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_upcall"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UPCALL_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD");
    command
}

/// `upcall run` with a guest library that does nothing, so that the tests see what the
/// command itself does.
pub fn run_with_empty_guest(directory: &Path) -> Command {
    let library = directory.join("libempty.so");
    if !library.exists() {
        let source = file(directory, "empty.c", "int upcall_nothing;\n", 0o644);
        compile(&["-shared", "-fPIC"], &source, &library).expect("cc makes a shared library");
    }
    let mut command = upcall();
    command.env("UPCALL_GUEST_LIB", library).arg("run");
    command
}

/// Compiles one C file.
///
/// # Errors
/// What the compiler says.
pub fn compile(flags: &[&str], source: &Path, output: &Path) -> Result<(), String> {
    let done = Command::new("cc")
        .args(flags)
        .arg("-o")
        .arg(output)
        .arg(source)
        .output()
        .map_err(|error| format!("cc: {error}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}

/// Writes a file with this mode.
///
/// Another process writes it: a descriptor of ours that is open for writing could be
/// inherited by what another test starts at this moment, and nothing can be executed while
/// somebody has it open for writing.
pub fn file(directory: &Path, name: &str, text: impl AsRef<[u8]>, mode: u32) -> PathBuf {
    let path = directory.join(name);
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod \"$1\" \"$0\""])
        .arg(&path)
        .arg(format!("{mode:o}"))
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh starts");
    let mut input = writer.stdin.take().expect("a pipe");
    input.write_all(text.as_ref()).expect("the text is taken");
    drop(input);
    let status = writer.wait().expect("sh ends");
    assert!(status.success(), "writing {}", path.display());
    path
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard output as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
