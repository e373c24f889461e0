//! The installed command, `bin/upcall`, must find its library, `lib/upcall/libupcall_guest.so`, in every way
//! in which it can be called, with and without /proc.

use crate::real;
use program_tests::provision;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// In a child: a mount namespace in which nothing is in /proc.
fn without_proc() -> io::Result<()> {
    let tmpfs = CString::new("tmpfs")?;
    let (root, proc) = (CString::new("/")?, CString::new("/proc")?);
    // SAFETY: system calls with valid strings.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) != 0
            && libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) != 0
        {
            return Err(io::Error::last_os_error());
        }
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let nothing = std::ptr::null();
        let none = std::ptr::null();
        if libc::mount(nothing, root.as_ptr(), nothing, private, none) != 0
            || libc::mount(tmpfs.as_ptr(), proc.as_ptr(), tmpfs.as_ptr(), 0, none) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Runs a test program by the installed command, which is called in every way there is.
fn finds_its_library(name: &str, prepare: Option<fn() -> io::Result<()>>) {
    let Some((case, program)) = real(name, "semaphores.c") else {
        return;
    };
    let dir = case.fresh("installed");
    let built = case.launcher().upcall().expect("`real` has asked");
    for part in ["bin", "lib/upcall", "elsewhere"] {
        fs::create_dir_all(dir.join(part)).expect("the case's own directory is writable");
    }
    fs::copy(built, dir.join("bin/upcall")).expect("a copy of the command");
    let library = "libupcall_guest.so";
    fs::copy(
        built.with_file_name(library),
        dir.join("lib/upcall").join(library),
    )
    .expect("a copy of the library");
    symlink("../bin/upcall", dir.join("elsewhere/upcall")).expect("a link");
    let ways: [(&Path, &str); 4] = [
        (Path::new("/"), "upcall"),
        (
            Path::new("/"),
            dir.to_str().expect("the scratch directory's name is text"),
        ),
        (&dir, "bin/upcall"),
        (&dir, "elsewhere/upcall"),
    ];
    for (here, way) in ways {
        let file = match way {
            way if way.starts_with('/') => dir.join("bin/upcall"),
            way => way.into(),
        };
        let mut command = Command::new(file);
        command
            .args(["run", "--stats", "--"])
            .arg(&program)
            .current_dir(here)
            .env("PATH", dir.join("bin"))
            .env_remove("UPCALL_GUEST_LIB");
        if let Some(prepare) = prepare {
            // SAFETY: system calls only, and strings that are small.
            unsafe { command.pre_exec(prepare) };
        }
        let outcome = match command.output() {
            Ok(outcome) => outcome,
            Err(error) if prepare.is_some() => {
                provision::skip(name, &format!("no namespace without /proc: {error}"));
                return;
            }
            Err(error) => panic!("{way}: {error}"),
        };
        let talk = String::from_utf8_lossy(&outcome.stderr);
        let served = talk.contains("upcall: virtual processors");
        assert!(outcome.status.success() && served, "{way}: {talk}");
    }
}

#[test]
fn the_installed_command_finds_its_library() {
    finds_its_library("the_installed_command_finds_its_library", None);
}

#[test]
fn the_installed_command_finds_its_library_without_proc() {
    finds_its_library(
        "the_installed_command_finds_its_library_without_proc",
        Some(without_proc),
    );
}
