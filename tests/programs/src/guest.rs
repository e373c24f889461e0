//! The small programs under `guests/`: one idea each, compiled here.
//!
//! A guest prints `ok NAME` for what holds and `FAIL NAME: evidence` for what does not, and ends
//! with 1 after a failure. Its native run must be all `ok`.

use crate::provision;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// The directory of the sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("guests")
}

/// A compiler for one kind of source.
struct Toolchain {
    command: &'static str,
    package: &'static str,
    flags: &'static [&'static str],
    /// After the source: before glibc 2.34 these were libraries of their own.
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

/// Compiles `guests/FILE` and returns the executable's path, or skips `case` aloud when there is
/// no compiler.
///
/// # Panics
///
/// When the source does not compile.
pub fn compile(case: &str, scratch: &Path, file: &str) -> Option<PathBuf> {
    compile_with(case, scratch, file, &[])
}

/// As [`compile`], with further arguments for the compiler.
///
/// # Panics
///
/// When the source does not compile.
pub fn compile_with(case: &str, scratch: &Path, file: &str, more: &[&str]) -> Option<PathBuf> {
    let tools = toolchain(file);
    let compiler = provision::program(case, tools.command, tools.package)?;
    let source = sources().join(file);

    // The name holds a hash of all that goes in, so an executable is never stale and needs no
    // lock: whoever comes first links it into place.
    let mut hash = DefaultHasher::new();
    let mut parts: Vec<PathBuf> = fs::read_dir(sources())
        .expect("the sources are there")
        .map(|entry| entry.expect("the sources are readable").path())
        .filter(|path| path.extension().is_some_and(|end| end == "h"))
        .collect();
    parts.sort();
    parts.extend([
        source.clone(),
        sources().join("case.rs.inc"),
        sources().join("plugin_sites.c"),
    ]);
    for path in parts {
        fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            .hash(&mut hash);
    }
    (tools.flags, more).hash(&mut hash);
    let dir = scratch.join("guests");
    fs::create_dir_all(&dir).expect("the scratch directory is writable");
    let built = dir.join(format!("{}-{:016x}", file.replace('.', "_"), hash.finish()));
    if built.exists() {
        return Some(built);
    }

    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let fresh = built.with_extension(format!("new{}-{number}", std::process::id()));
    let output = Command::new(compiler)
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
