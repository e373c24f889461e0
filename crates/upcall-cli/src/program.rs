//! Can this program be served? The file itself, and what it leads to.
//!
//! A script is judged by its interpreter, to the depth that the kernel follows. A file that
//! is neither ELF nor a script is left to the kernel and to `execvp`'s rule that the shell
//! gets it.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use memmap2::Mmap;

use crate::image::{self, Unfit};
use crate::locate::locate;
use crate::script;

/// How many interpreters the kernel follows before it gives up (ELOOP).
const DEPTH: u32 = 5;

/// A verdict against a program.
#[derive(Debug)]
pub enum Verdict {
    /// The kernel could not execute it: exit status 126.
    NotExecutable(String),
    /// It could run, but not on activations: exit status 125.
    Refused {
        /// What is wrong with it, to follow "it".
        reason: &'static str,
        evidence: String,
        /// What to do about it, apart from running it natively.
        remedy: &'static str,
    },
}

/// What a program that can be served is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An executable: the verdict depends on its file alone.
    Executable,
    /// A script, or what the shell is to make something of.
    Other,
}

/// Examines the file that was found for a program.
///
/// # Errors
/// Why it cannot be served.
pub fn examine(file: &Path) -> Result<Kind, Verdict> {
    follow(file, DEPTH)
}

fn follow(path: &Path, depth: u32) -> Result<Kind, Verdict> {
    if matches!(
        path.file_name().map(OsStr::as_bytes),
        Some(b"valgrind" | b"valgrind.bin")
    ) {
        return Err(Verdict::Refused {
            reason: "is valgrind, which runs a program's threads itself",
            evidence: path.display().to_string(),
            remedy: "run valgrind on the program without upcall",
        });
    }
    let file = File::open(path).map_err(|error| Verdict::Refused {
        reason: "cannot be read, so it cannot be examined",
        evidence: format!("opening {}: {error}", path.display()),
        remedy: "make it readable to this user",
    })?;
    let metadata = file
        .metadata()
        .map_err(|error| Verdict::NotExecutable(format!("{}: {error}", path.display())))?;
    if metadata.len() == 0 {
        return Ok(Kind::Other);
    }
    // SAFETY: the mapping is private and read-only, and the bytes are only looked at; a file
    // that someone cuts short meanwhile ends this command by SIGBUS, as it would end the
    // program that is being started from it.
    let bytes = unsafe { Mmap::map(&file) }
        .map_err(|error| Verdict::NotExecutable(format!("{}: {error}", path.display())))?;
    if image::is_elf(&bytes) {
        privileges(path, metadata.mode())?;
        return match image::examine(&bytes) {
            Ok(()) => Ok(Kind::Executable),
            Err(unfit) => Err(refuse(path, unfit)),
        };
    }
    let Some(line) = script::shebang(&bytes) else {
        return Ok(Kind::Other);
    };
    if depth == 0 {
        return Err(Verdict::NotExecutable(format!(
            "{}: too many interpreters lead to each other",
            path.display()
        )));
    }
    let interpreter = Path::new(OsStr::from_bytes(line.interpreter));
    if !interpreter.exists() {
        // The kernel says so better, and with the right exit status.
        return Ok(Kind::Other);
    }
    follow(interpreter, depth - 1)?;
    if let Some(name) = script::behind_env(&line)
        && let Ok(found) = locate(OsStr::from_bytes(name), std::env::var_os("PATH"))
    {
        follow(&found, depth - 1)?;
    }
    Ok(Kind::Other)
}

/// Refuses what the dynamic linker would run in secure mode, where it ignores LD_PRELOAD.
fn privileges(path: &Path, mode: u32) -> Result<(), Verdict> {
    const RUNS_AS_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
    let evidence = if mode & libc::S_ISUID != 0 {
        "set-user-ID"
    } else if mode & RUNS_AS_GROUP == RUNS_AS_GROUP {
        "set-group-ID"
    } else if has_capabilities(path) {
        return Err(privileged(format!(
            "{} has file capabilities (security.capability)",
            path.display()
        )));
    } else {
        return Ok(());
    };
    Err(privileged(format!(
        "{} is {evidence} (mode {:04o})",
        path.display(),
        mode & 0o7777
    )))
}

fn privileged(evidence: String) -> Verdict {
    Verdict::Refused {
        reason: "gains privileges when it starts, and then loads no library from outside",
        evidence,
        remedy: "run a copy without the privilege",
    }
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: two valid C strings; size 0 asks for the length alone and writes nothing.
    let length = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    length > 0
}

fn refuse(path: &Path, unfit: Unfit) -> Verdict {
    let (reason, evidence, remedy) = match unfit {
        Unfit::Broken(evidence) => {
            return Verdict::NotExecutable(format!("{}: {evidence}", path.display()));
        }
        Unfit::OtherMachine(evidence) => (
            "is built for another processor architecture",
            evidence,
            "build it for x86-64",
        ),
        Unfit::Static(evidence) => (
            "is linked statically, so no library can serve it",
            evidence,
            "link it dynamically (without -static)",
        ),
        Unfit::OtherLibc(evidence) => (
            "does not use glibc",
            evidence,
            "use a build of it for glibc",
        ),
        Unfit::Sanitizer(evidence) => (
            "is built with a sanitizer, which owns its threads",
            evidence,
            "build it without the sanitizer",
        ),
    };
    Verdict::Refused {
        reason,
        evidence: format!("{}: {evidence}", path.display()),
        remedy,
    }
}
