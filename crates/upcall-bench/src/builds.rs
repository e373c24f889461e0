//! Programs that are built on the machine: the peers in Go, Rust, C++ and Java, and the OpenMP program.
//!
//! Their sources are part of this crate and need the compiler that is installed, those in C++ the libraries too, and
//! the Rust peers what their lock file names, from the registry; where one of these is missing, the runtime or
//! workload is left out, and the reason is returned. A build is kept in the cache directory under a name that contains
//! a hash of its sources and of the versions of the compiler and the library, so that neither can go stale.
//!
//! What is built is executed, so a place that others can write is not used ([`crate::guarded`]): a user without a home
//! directory names a cache or goes without. Each build is in a directory that only its user can enter.
//!
//! Rejected: the shared temporary directory, in which any user can put a program under a name that can be foreseen. A
//! fresh directory there is not safe either: compilers read settings from the directories above (Cargo's
//! `.cargo/config.toml`).

pub mod cpp;
pub mod java;

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::guarded;

const GO_SOURCES: &[(&str, &str)] = &[
    ("go.mod", include_str!("../peers/go/go.mod")),
    ("block.go", include_str!("../peers/go/block.go")),
    ("fork.go", include_str!("../peers/go/fork.go")),
    ("http.go", include_str!("../peers/go/http.go")),
    ("main.go", include_str!("../peers/go/main.go")),
    ("memory.go", include_str!("../peers/go/memory.go")),
    ("pair.go", include_str!("../peers/go/pair.go")),
    ("reactivity.go", include_str!("../peers/go/reactivity.go")),
    ("sync.go", include_str!("../peers/go/sync.go")),
    ("unblock.go", include_str!("../peers/go/unblock.go")),
];

macro_rules! sources {
    ($($path:literal)*) => { &[$(($path, include_str!(concat!("../", $path)))),*] };
}

/// The Rust peers, and the workloads that they have in common with upcall-workload.
const RUST_SOURCES: &[(&str, &str)] = sources![
    "peers/rust/Cargo.toml"
    "peers/rust/Cargo.lock"
    "peers/rust/src/lib.rs"
    "peers/rust/src/bin/may.rs"
    "peers/rust/src/bin/rayon.rs"
    "peers/rust/src/bin/tokio.rs"
    "src/workload/applications.rs"
    "src/workload/block.rs"
    "src/workload/blocked.rs"
    "src/workload/blockers.rs"
    "src/workload/cold.rs"
    "src/workload/counted.rs"
    "src/workload/create.rs"
    "src/workload/critical.rs"
    "src/workload/flagged.rs"
    "src/workload/fork.rs"
    "src/workload/interruption.rs"
    "src/workload/load.rs"
    "src/workload/machine.rs"
    "src/workload/mod.rs"
    "src/workload/mutex.rs"
    "src/workload/nbody/body.rs"
    "src/workload/nbody/cache.rs"
    "src/workload/nbody/format.rs"
    "src/workload/nbody/mod.rs"
    "src/workload/nbody/tree.rs"
    "src/workload/never.rs"
    "src/workload/pair.rs"
    "src/workload/params.rs"
    "src/workload/pipe.rs"
    "src/workload/posix.rs"
    "src/workload/process.rs"
    "src/workload/reactivity.rs"
    "src/workload/resolver.rs"
    "src/workload/semaphore.rs"
    "src/workload/share.rs"
    "src/workload/signal.rs"
    "src/workload/start.rs"
    "src/workload/threads.rs"
    "src/workload/uffd.rs"
    "src/workload/unblock.rs"
    "src/workload/yields.rs"
];

const OPENMP_SOURCES: &[(&str, &str)] = &[("pair.c", include_str!("../peers/openmp/pair.c"))];

/// A program that was built here.
#[derive(Clone, Debug)]
pub struct Built {
    /// Where it is.
    pub program: PathBuf,
    pub version: String,
}

/// The directory for what is built and kept: `given`, or the user's cache. It is made if it is missing.
///
/// # Errors
///
/// The user has none, it cannot be made, or others can write there.
pub fn cache_directory(
    given: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, String> {
    let path = |name: &str| variable(name).map(PathBuf::from);
    let user = || {
        let xdg = path("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        let home = path("HOME").filter(|path| path.is_absolute());
        xdg.or_else(|| Some(home?.join(".cache")))
    };
    let directory = match given {
        Some(directory) => directory.into(),
        None => user()
            .ok_or("neither XDG_CACHE_HOME nor HOME names a directory of this user")?
            .join("upcall/bench"),
    };
    guarded::directory(&directory)
}

/// Builds the Go peer, or says why it cannot be had.
pub fn go_peer(cache: &Path) -> Result<Built, String> {
    let version = output(Command::new("go").args(["env", "GOVERSION"]))?;
    build(cache, "go", GO_SOURCES, version, |directory, program| {
        let mut command = Command::new("go");
        command
            .args(["build", "-o"])
            .arg(program)
            .arg(".")
            .current_dir(directory);
        // Nothing to download: no modules, no other toolchain, no C.
        command.envs([
            ("GOFLAGS", "-mod=mod"),
            ("GOPROXY", "off"),
            ("GOTOOLCHAIN", "local"),
        ]);
        command.envs([("CGO_ENABLED", "0"), ("GOWORK", "off")]);
        command
    })
}

/// Builds the Rust peers and returns the one with the name of its package, or says why it cannot be
/// had.
pub fn rust_peer(cache: &Path, package: &str) -> Result<Built, String> {
    let compiler = output(Command::new("rustc").arg("--version"))?;
    let directory = prepare(cache, "rust", RUST_SOURCES, &compiler)?;
    let program = directory.join("target/release").join(package);
    if !program.exists() {
        eprintln!("upcall bench: building the Rust peers, once");
        let mut command = Command::new("cargo");
        command
            .args(["build", "--release", "--locked", "--quiet"])
            .args([
                "--target-dir".as_ref(),
                directory.join("target").as_os_str(),
            ])
            .current_dir(directory.join("peers/rust"));
        output(&mut command)?;
    }
    let version = locked_version(package).ok_or("the lock file does not name it")?;
    let version = format!("{version}, {compiler}");
    Ok(Built { program, version })
}

fn locked_version(package: &str) -> Option<&'static str> {
    let name = format!("name = \"{package}\"");
    let (_, lock) = RUST_SOURCES
        .iter()
        .find(|(path, _)| path.ends_with(".lock"))?;
    let mut lines = lock.lines().skip_while(|line| *line != name).skip(1);
    let version = lines.next()?.strip_prefix("version = ")?;
    Some(version.trim_matches('"'))
}

/// Builds the OpenMP program, or says why it cannot be had.
pub fn openmp_program(cache: &Path) -> Result<Built, String> {
    let version = output(Command::new("cc").arg("--version"))?;
    build(
        cache,
        "openmp",
        OPENMP_SOURCES,
        version,
        |directory, program| {
            let mut command = Command::new("cc");
            command
                .args(["-O2", "-fopenmp", "-o"])
                .arg(program)
                .arg("pair.c")
                .current_dir(directory);
            command
        },
    )
}

/// The directory for what is built of `sources`, with these in it.
fn prepare(
    cache: &Path,
    name: &str,
    sources: &[(&str, &str)],
    version: &str,
) -> Result<PathBuf, String> {
    let mut hasher = DefaultHasher::new();
    (sources, version).hash(&mut hasher);
    // "own": older versions made directories that others could enter.
    let directory = cache.join(format!("{name}-own-{:016x}", hasher.finish()));
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let directory = guarded::directory(&directory)?;
    if directory.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        let place = directory.display();
        return Err(format!("others can enter {place}; remove it"));
    }
    for (file, text) in sources {
        let file = directory.join(file);
        std::fs::create_dir_all(file.parent().unwrap_or(&directory)).map_err(failed)?;
        if std::fs::read(&file).ok().as_deref() != Some(text.as_bytes()) {
            std::fs::write(file, text).map_err(failed)?;
        }
    }
    Ok(directory)
}

fn build(
    cache: &Path,
    name: &str,
    sources: &[(&str, &str)],
    version: String,
    command: impl FnOnce(&Path, &OsStr) -> Command,
) -> Result<Built, String> {
    let directory = prepare(cache, name, sources, &version)?;
    let program = directory.join("program");
    if !program.exists() {
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        // Built beside and renamed, so that an interrupted build leaves no half program.
        let fresh = directory.join(format!("program.{}", std::process::id()));
        output(&mut command(&directory, fresh.as_os_str()))?;
        // Where it is a directory, the first of two that build it at once wins.
        if let Err(error) = std::fs::rename(&fresh, &program)
            && !program.exists()
        {
            return Err(failed(error));
        }
    }
    Ok(Built { program, version })
}

/// The first line that `command` prints, or why it failed.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    let said = finished(&name, &output)?;
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

/// What the program `name` printed, or why it failed.
fn finished(name: &str, output: &Output) -> Result<String, String> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name}: {}: {}", output.status, said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A directory for a test, if these tests are in a place that others cannot write.
    fn scratch(name: &str) -> Option<PathBuf> {
        let this = std::env::current_exe().unwrap();
        let place = this.parent().unwrap();
        let place = match guarded::Trust::own().guarded(place, guarded::Way::OfBuilds) {
            Ok(place) => place,
            Err(why) => {
                eprintln!("SKIPPED: {why}");
                return None;
            }
        };
        Some(place.join(format!("upcall-builds-{name}-{}", std::process::id())))
    }

    #[test]
    fn a_given_cache_directory_wins() {
        let Some(scratch) = scratch("given") else {
            return;
        };
        let none = |_: &str| None;
        assert_eq!(cache_directory(Some(&scratch), none), Ok(scratch.clone()));
        let home = |name: &str| (name == "HOME").then(|| scratch.clone().into_os_string());
        let found = cache_directory(None, home);
        assert_eq!(found, Ok(scratch.join(".cache/upcall/bench")));
        std::fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn without_a_home_nothing_is_taken_from_a_shared_directory() {
        for value in [None, Some(OsString::new()), Some("relative".into())] {
            let why = cache_directory(None, |_| value.clone()).unwrap_err();
            assert!(why.contains("HOME"), "{why}");
        }
    }

    #[test]
    fn a_cache_that_others_can_write_is_refused() {
        let Some(scratch) = scratch("open") else {
            return;
        };
        std::fs::create_dir(&scratch).unwrap();
        for mode in [0o777, 0o1777] {
            let open = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&scratch, open).unwrap();
            let why = cache_directory(Some(&scratch.join("cache")), |_| None).unwrap_err();
            assert!(why.contains(&format!("{mode:04o}")), "{why}");
        }
        std::fs::remove_dir_all(scratch).unwrap();
    }

    #[test]
    fn a_build_that_others_could_have_planted_is_not_executed() {
        let Some(cache) = scratch("planted") else {
            return;
        };
        let cache = cache_directory(Some(&cache), |_| None).unwrap();
        let builds = || {
            build(&cache, "copy", &[], "1".into(), |_, program| {
                let mut command = Command::new("cp");
                command.arg("/bin/true").arg(program);
                command
            })
        };
        let built = builds().unwrap().program;
        assert_eq!(builds().unwrap().program, built);
        let directory = built.parent().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory, open).unwrap();
        assert!(builds().unwrap_err().contains("remove it"));
        std::fs::remove_dir_all(cache).unwrap();
    }

    fn files(folder: &str) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        entries
            .filter(|entry| entry.file_type().unwrap().is_file())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn every_file_of_a_peer_is_a_source() {
        for (peer, sources) in [
            ("go", GO_SOURCES),
            ("openmp", OPENMP_SOURCES),
            ("cpp", cpp::SOURCES),
            ("java", java::SOURCES),
        ] {
            let listed = sources.iter().map(|&(name, _)| name.to_owned()).collect();
            assert_eq!(files(&format!("peers/{peer}")), listed, "{peer}");
        }
    }

    #[test]
    fn the_rust_peers_get_every_file_of_the_workloads() {
        for folder in [
            "src/workload",
            "src/workload/nbody",
            "peers/rust/src/bin",
            "peers/rust/src",
        ] {
            for name in files(folder) {
                let path = format!("{folder}/{name}");
                let listed = RUST_SOURCES.iter().any(|(listed, _)| *listed == path);
                assert!(listed || !name.ends_with(".rs"), "{path}");
            }
        }
        for package in ["may", "rayon", "tokio"] {
            assert!(locked_version(package).is_some(), "{package}");
        }
    }

    #[test]
    fn a_missing_compiler_is_named() {
        let error = output(&mut Command::new("no-such-compiler-here")).unwrap_err();
        assert!(error.starts_with("no-such-compiler-here: "), "{error}");
    }

    #[test]
    fn a_failed_command_says_what_it_said() {
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(error.contains("why") && error.contains('3'), "{error}");
    }
}
