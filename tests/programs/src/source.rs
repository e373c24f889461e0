//! The sources of the test programs, in the folders of `programs/`, and how each is compiled.
//!
//! A test program has one idea. It prints `ok NAME` for what holds and `FAIL NAME: evidence` for what does not, and
//! it ends with status 1 after a failure. Its native run must be all `ok`. Tests name a program without its folder, so
//! that a program can move to another one.

use crate::provision;
use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// The directory of the sources. Each source lies in a folder below it.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// The sources of all programs in all folders, without the files that they include or import.
///
/// # Panics
///
/// When a folder cannot be read.
pub fn all() -> Vec<PathBuf> {
    let mut programs = files_below(&sources());
    programs.retain(|path| {
        let ending = path.extension().and_then(OsStr::to_str);
        matches!(ending, Some("c" | "cpp" | "rs" | "py")) && !path.ends_with("case.py")
    });
    programs
}

/// The source of one program. The name may come with its ending or without: `sigwait.c` or `sigwait`.
///
/// # Panics
///
/// When there is none of that name, or more than one.
pub fn find(name: &str) -> PathBuf {
    let named = |path: &PathBuf| {
        path.file_name() == Some(name.as_ref()) || path.file_stem() == Some(name.as_ref())
    };
    let mut found: Vec<PathBuf> = all().into_iter().filter(named).collect();
    assert!(
        found.len() == 1,
        "{name}: {} programs have that name: {found:?}",
        found.len()
    );
    found.remove(0)
}

/// The files in a directory and its subdirectories, in the order of their paths.
///
/// # Panics
///
/// When a directory cannot be read.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("the sources are readable").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// A compiler for one kind of source.
struct Toolchain {
    command: &'static str,
    package: &'static str,
    flags: &'static [&'static str],
    /// Linked after the source. Before glibc 2.34 these were libraries of their own.
    libraries: &'static [&'static str],
}

fn toolchain(file: &str) -> Toolchain {
    if file.ends_with(".rs") {
        return Toolchain {
            command: "rustc",
            package: "rustc",
            flags: &[
                "--edition=2024",
                "-Copt-level=2",
                "-Cdebuginfo=1",
                "-Cpanic=unwind",
            ],
            libraries: &[],
        };
    }
    if file.ends_with(".cpp") {
        return Toolchain {
            command: "c++",
            package: "g++",
            flags: &["-std=c++20", "-O2", "-g1", "-pthread"],
            libraries: &[],
        };
    }
    let flags: &[&str] = if file.starts_with("omp_") {
        &["-std=gnu17", "-O2", "-g1", "-pthread", "-fopenmp"]
    } else if file.starts_with("plugin_") {
        &["-std=gnu17", "-O2", "-g1", "-fPIC", "-shared"]
    } else {
        &["-std=gnu17", "-O2", "-g1", "-pthread", "-rdynamic"]
    };
    Toolchain {
        command: "cc",
        package: "gcc libc6-dev",
        flags,
        libraries: &["-lm", "-ldl", "-lrt"],
    }
}

/// Compiles the program FILE, with `more` arguments for the compiler, and returns the executable's path. Where
/// there is no compiler, it says aloud that `case` is skipped.
///
/// # Panics
///
/// When no source has that name, or it does not compile.
pub fn compile(case: &str, scratch: &Path, file: &str, more: &[&str]) -> Option<PathBuf> {
    let tools = toolchain(file);
    let compiler = provision::program(case, tools.command, tools.package)?;
    let source = find(file);
    let folder = source.parent().expect("a file lies in a folder");
    let shared = sources().join("shared");

    // A source may include files of its own folder and of `shared`. The executable's name holds a hash of all of
    // them, so an executable is never stale and needs no lock: the first case that has one links it into place.
    let mut hash = DefaultHasher::new();
    for path in files_below(folder).iter().chain(&files_below(&shared)) {
        fs::read(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            .hash(&mut hash);
    }
    (file, tools.flags, more).hash(&mut hash);
    let dir = scratch.join("programs");
    fs::create_dir_all(&dir).expect("the scratch directory is writable");
    let built = dir.join(format!("{}-{:016x}", file.replace('.', "_"), hash.finish()));
    if built.exists() {
        return Some(built);
    }

    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let fresh = built.with_extension(format!("new{}-{number}", std::process::id()));
    let mut command = Command::new(compiler);
    if tools.command != "rustc" {
        command.arg("-I").arg(&shared);
    }
    let output = command
        .args(tools.flags)
        .arg(&source)
        .arg("-o")
        .arg(&fresh)
        .args(more)
        .args(tools.libraries)
        .output()
        .expect("the compiler can be started");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{file} does not compile:\n{told}");
    // Not renamed over one that another case runs already: it would be a deleted file.
    if let Err(error) = fs::hard_link(&fresh, &built) {
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    }
    fs::remove_file(&fresh).expect("a file can be removed in its directory");
    Some(built)
}
