//! `./install`: what it says it installs is what it installs, all of that works from there, and nothing of it is left
//! after `./install uninstall`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory for the test");
    directory
}

/// Where everything was built.
fn built() -> &'static Path {
    program_tests::release::built(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

fn install(words: &[&str], variables: &[(&str, &Path)]) -> Output {
    Command::new(Path::new(ROOT).join("install"))
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(variables.iter().copied())
        .output()
        .expect("install can be started")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// A run that is interrupted keeps what it has, and says where.
#[test]
fn a_benchmark_that_is_interrupted_says_what_is_kept() {
    let place = directory("install_interrupted");
    let results = place.join("figures/results.jsonl");
    let mut child = Command::new(built().join("upcall"))
        .args([
            "bench",
            "--quick",
            "--rounds",
            "1000000",
            "--runtime",
            "nptl",
            "yield",
            "-o",
        ])
        .arg(&results)
        .env("HOME", &place)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    while !fs::read_to_string(&results).is_ok_and(|text| text.ends_with('\n')) {
        let ended = child.try_wait().expect("a child");
        assert!(ended.is_none(), "{ended:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: a child that was not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let done = child.wait_with_output().expect("it ends");
    assert_eq!(done.status.signal(), Some(libc::SIGINT));
    let said = String::from_utf8(done.stderr).expect("text");
    let report = format!("upcall report {}\n", place.join("figures").display());
    assert!(
        said.ends_with(&report) && said.contains("ended by a signal"),
        "{said}"
    );
    assert!(said.contains(results.to_str().expect("text")), "{said}");
}

#[test]
fn who_would_not_find_the_command_is_told_where_it_is() {
    let place = directory("install_path");
    let bin = place.join("bin");
    let usual = std::env::var("PATH").unwrap_or_default();
    let more = PathBuf::from(format!("{}:{usual}", bin.display()));
    let prefix = ("PREFIX", place.as_path());
    let build = ("UPCALL_BUILD", built());
    let nothing = PathBuf::from("/");
    let said = |variables: &[(&str, &Path)]| {
        let done = install(&["command"], variables);
        text(&done);
        String::from_utf8(done.stderr).expect("text")
    };
    let told = said(&[prefix, build]);
    let export = format!("export PATH=\"{}:$PATH\"", bin.display());
    assert!(
        told.lines().count() == 1 && told.contains(&export),
        "{told}"
    );
    assert_eq!(said(&[prefix, build, ("PATH", &more)]), "");
    // Where it is put is not where it is to be used.
    assert_eq!(said(&[prefix, build, ("DESTDIR", &nothing)]), "");
}

/// All files and links below a directory.
fn files(directory: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).expect("a directory") {
            let entry = entry.expect("an entry");
            match entry.file_type().expect("a type").is_dir() {
                true => left.push(entry.path()),
                false => {
                    found.insert(entry.path());
                }
            }
        }
    }
    found
}

/// The files that `./install list` names, below a directory.
fn listed(words: &[&str], variables: &[(&str, &Path)], below: &Path) -> BTreeSet<PathBuf> {
    let words: Vec<&str> = ["list"].iter().chain(words).copied().collect();
    let list = text(&install(&words, variables));
    list.lines()
        .map(|line| below.join(line.trim_start_matches('/')))
        .collect()
}

#[test]
fn everything_works_from_where_it_is_installed() {
    let prefix = directory("install_prefix");
    let variables = [("PREFIX", prefix.as_path()), ("UPCALL_BUILD", built())];
    text(&install(&[], &variables));
    assert_eq!(files(&prefix), listed(&[], &variables, Path::new("/")));

    let home = directory("install_home");
    let upcall = || {
        let mut command = Command::new(prefix.join("bin/upcall"));
        command
            .env_clear()
            .env("HOME", &home)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    };
    if cfg!(target_arch = "x86_64") {
        let mut ran = upcall();
        ran.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
        let library = prefix.join("lib/upcall/libupcall_guest.so");
        let library = library.canonicalize().expect("it is installed");
        let said = text(&ran.output().expect("runs"));
        assert_eq!(Path::new(said.trim_end()), library);
        let measured = upcall()
            .args(["bench", "--quick", "--runtime", "nptl", "yield"])
            .output()
            .expect("runs");
        text(&measured);
        let daemon = Command::new(prefix.join("bin/upcalld"))
            .arg("--version")
            .output();
        assert!(text(&daemon.expect("runs")).starts_with("upcalld "));
    }
    // The pages and completions of this build: its own commands.
    let help = text(&upcall().arg("--help").output().expect("runs"));
    let commands = help.split("Commands:").nth(1).expect("a list of commands");
    let commands: Vec<&str> = commands
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 2, "{help}");
    for name in commands {
        let page = prefix.join(format!("share/man/man1/upcall-{name}.1"));
        let page = fs::read_to_string(&page).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(page.contains(&format!(".TH upcall-{name} 1")), "{page}");
        for completion in [
            "share/bash-completion/completions/upcall",
            "share/fish/vendor_completions.d/upcall.fish",
            "share/zsh/site-functions/_upcall",
        ] {
            let script = fs::read_to_string(prefix.join(completion)).expect("installed");
            assert!(script.contains(name), "{completion}: {name}");
        }
    }

    gdb_loads_its_script(&prefix);
    units_are_valid(&prefix);

    text(&install(&["uninstall"], &variables[..1]));
    assert_eq!(files(&prefix), BTreeSet::new());
    assert!(!prefix.join("lib/upcall").exists());
    // Once more: there is nothing to remove, and that is no error.
    text(&install(&["uninstall"], &variables[..1]));
}

/// What systemd says of the units where they are installed, about the programs that they start, too.
fn units_are_valid(prefix: &Path) {
    for (kind, scope) in [("system", "--system"), ("user", "--user")] {
        let unit = |name: &str| prefix.join("lib/systemd").join(kind).join(name);
        let service = fs::read_to_string(unit("upcalld.service")).expect("installed");
        let daemon = prefix.join("bin/upcalld");
        let starts = format!("ExecStart={}", daemon.display());
        assert!(service.contains(&starts), "{service}");
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no", scope])
            .args([unit("upcalld.service"), unit("upcalld.socket")])
            .env("XDG_RUNTIME_DIR", directory("install_runtime"))
            .output();
        let Ok(output) = output else {
            eprintln!("skipped: units are valid: there is no systemd-analyze");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind}: {said}");
        assert!(!said.contains("upcalld"), "{kind}: {said}");
    }
}

/// By itself, with each library that has one, if the directory is gdb's own.
fn gdb_loads_its_script(prefix: &Path) {
    let scripts = prefix.join("share/gdb/auto-load");
    let set = |what: &str| format!("set auto-load {what} {}", scripts.display());
    let version = concat!("lib/libupcall.so.", env!("CARGO_PKG_VERSION"));
    for library in ["lib/upcall/libupcall_guest.so", version] {
        let output = Command::new("gdb")
            .args(["-nx", "-batch", "-iex", "set debuginfod enabled off"])
            .args(["-iex", &set("scripts-directory"), "-iex", &set("safe-path")])
            .arg(prefix.join(library))
            .args(["-ex", "help info upcall threads"])
            .output();
        let Ok(output) = output else {
            eprintln!("skipped: gdb loads its script: there is no gdb");
            return;
        };
        let said = text(&output);
        assert!(
            said.contains("List all threads of a program under Upcall"),
            "{library}: {said} {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn what_others_have_put_beside_is_left() {
    let prefix = directory("install_beside");
    let variables = [("PREFIX", prefix.as_path()), ("UPCALL_BUILD", built())];
    text(&install(&["library"], &variables));
    let theirs = prefix.join("share/man/man3/theirs.3");
    fs::write(&theirs, "").expect("writes");
    text(&install(&["uninstall"], &variables[..1]));
    assert_eq!(files(&prefix), BTreeSet::from([theirs]));
}

#[test]
fn each_part_is_half_of_everything() {
    let prefix = [("PREFIX", Path::new("/p"))];
    let part = |words: &[&str]| listed(words, &prefix, Path::new("/"));
    let (command, library) = (part(&["command"]), part(&["library"]));
    assert!(command.is_disjoint(&library));
    assert_eq!(&command | &library, part(&[]));
    assert!(command.contains(Path::new("/p/bin/upcall")));
    assert!(library.contains(Path::new("/p/include/upcall.h")));
}

#[test]
fn the_staging_directory_is_written_nowhere() {
    let staging = directory("install_staging");
    let prefix = ("PREFIX", Path::new("/opt/upcall"));
    let variables = [prefix, ("DESTDIR", &staging), ("UPCALL_BUILD", built())];
    text(&install(&[], &variables));
    assert_eq!(files(&staging), listed(&[], &[prefix], &staging));
    let pkg_config = staging.join("opt/upcall/lib/pkgconfig/upcall.pc");
    let pkg_config = fs::read_to_string(pkg_config).expect("installed");
    assert!(pkg_config.contains("libdir=/opt/upcall/lib\n"));
    for file in files(&staging) {
        let link = fs::read_link(&file).unwrap_or_default();
        assert!(link.is_relative(), "{}", file.display());
        let bytes = fs::read(&file).expect("reads");
        let name = b"install_staging";
        // Programs name where their sources were, but not this.
        let named = bytes.windows(name.len()).any(|window| window == name);
        assert!(!named, "{}", file.display());
    }
}

#[test]
fn nothing_is_installed_if_something_was_not_built() {
    let (prefix, build) = (directory("install_nothing"), directory("install_no_build"));
    for name in ["upcall", "libupcall_c.so"] {
        fs::copy(built().join(name), build.join(name)).expect("copies");
    }
    let output = install(&[], &[("PREFIX", &prefix), ("UPCALL_BUILD", &build)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("libupcall_guest.so") && !said.contains("libupcall_c.so"));
    assert_eq!(files(&prefix), BTreeSet::new());
}

#[test]
fn a_word_or_a_path_that_means_nothing_is_refused() {
    let unknown = install(&["everything"], &[("PREFIX", Path::new("/nowhere"))]);
    let relative = install(&["list"], &[("PREFIX", Path::new("somewhere"))]);
    for (output, saying) in [(unknown, "UPCALL_BUILD"), (relative, "absolute")] {
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(saying));
    }
}
