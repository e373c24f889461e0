//! `upcall run` as its users see it: what it passes on, and how it says no.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{compile, directory, file, run_with_empty_guest, stderr, stdout, upcall};

const STATUS_7: &str = "int main(void) { return 7; }\n";

fn output(mut command: Command) -> Output {
    command.output().expect("upcall starts")
}

/// Runs `words` with a guest library that does nothing.
fn run(directory: &Path, words: impl IntoIterator<Item: AsRef<OsStr>>) -> Output {
    let mut command = run_with_empty_guest(directory);
    command.args(words);
    output(command)
}

/// A refusal has status 125, nothing on standard output and four lines that name the way out.
fn assert_refused(output: &Output, evidence: &str) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(output.stdout.is_empty());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("upcall: "), "{text}");
    assert!(lines[1].contains(evidence), "{text}");
    assert!(lines[2].contains("--or-native"), "{text}");
    assert!(lines[3].contains("more:"), "{text}");
}

#[test]
fn the_exit_status_is_the_program_s_and_nothing_is_added() {
    let directory = directory("status");
    let done = run(&directory, ["sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(done.status.code(), Some(7));
    assert_eq!(stdout(&done), "out\n");
    assert_eq!(stderr(&done), "err\n");
}

#[test]
fn death_by_a_signal_is_passed_on() {
    let directory = directory("signal");
    assert_eq!(
        run(&directory, ["sh", "-c", "kill -KILL $$"])
            .status
            .signal(),
        Some(9)
    );
}

#[test]
fn no_process_stands_between() {
    let directory = directory("process");
    let mut command = run_with_empty_guest(&directory);
    command.args(["sh", "-c", "echo $$"]).stdout(Stdio::piped());
    let child = command.spawn().expect("upcall starts");
    let id = child.id();
    let done = child.wait_with_output().expect("it ends");
    assert_eq!(stdout(&done).trim(), id.to_string());
}

#[test]
fn signal_dispositions_are_passed_on_as_they_were() {
    let directory = directory("dispositions");
    let shown = ["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"];
    for disposition in [libc::SIG_DFL, libc::SIG_IGN] {
        let with = |mut command: Command| {
            // SAFETY: signal is async-signal-safe and changes this child alone.
            unsafe {
                command.pre_exec(move || {
                    libc::signal(libc::SIGPIPE, disposition);
                    Ok(())
                });
            }
            stdout(&output(command))
        };
        let mut native = Command::new(shown[0]);
        native.args(&shown[1..]);
        let mut under = run_with_empty_guest(&directory);
        under.args(shown);
        assert_eq!(with(under), with(native));
    }
}

#[test]
fn closed_descriptors_stay_closed() {
    let directory = directory("descriptors");
    let mut command = run_with_empty_guest(&directory);
    command.args(["sh", "-c", "test -e /proc/$$/fd/0; echo $?"]);
    // SAFETY: close is async-signal-safe; the child's standard input is closed there alone.
    unsafe {
        command.pre_exec(|| {
            libc::close(0);
            Ok(())
        });
    }
    assert_eq!(stdout(&output(command)), "1\n");
}

#[test]
fn flags_and_variables_reach_the_guest_alike() {
    let directory = directory("settings");
    let settings = |command: Command| {
        let text = stdout(&output(command));
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| line.starts_with("UPCALL_") && !line.starts_with("UPCALL_GUEST_LIB"))
            // Which standby is a measurement of this machine, not a flag.
            .filter(|line| !line.starts_with("UPCALL_SENTINEL"))
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    let mut flags = run_with_empty_guest(&directory);
    flags.args([
        "-p",
        "1",
        "--backend",
        "standby",
        "--stats",
        "--no-children",
        "--",
        "env",
    ]);
    let expected = [
        "UPCALL_BACKEND=standby",
        "UPCALL_CHILDREN=0",
        "UPCALL_STATS=1",
        "UPCALL_VPS=1",
    ];
    assert_eq!(settings(flags), expected);

    let mut variables = run_with_empty_guest(&directory);
    variables
        .arg("env")
        .env("UPCALL_VPS", "1..1")
        .env("UPCALL_BACKEND", "standby")
        .env("UPCALL_STATS", "yes")
        .env("UPCALL_CHILDREN", "no");
    assert_eq!(settings(variables), expected);

    let mut off = run_with_empty_guest(&directory);
    off.arg("env")
        .env("UPCALL_STATS", "0")
        .env("UPCALL_CHILDREN", "yes");
    assert_eq!(settings(off), ["UPCALL_CHILDREN=1"]);
}

#[test]
fn the_guest_library_comes_before_what_is_preloaded_already() {
    let directory = directory("preload");
    let other = directory.join("libother.so");
    let source = file(&directory, "other.c", "int other_nothing;\n", 0o644);
    compile(&["-shared", "-fPIC"], &source, &other).expect("cc makes a shared library");
    let mut command = run_with_empty_guest(&directory);
    command
        .args(["sh", "-c", "echo $LD_PRELOAD"])
        .env("LD_PRELOAD", &other);
    let expected = format!(
        "{}:{}\n",
        directory.join("libempty.so").display(),
        other.display()
    );
    assert_eq!(stdout(&output(command)), expected);
}

#[test]
fn libc_keeps_more_stacks_unless_somebody_says_otherwise() {
    let directory = directory("tunables");
    let shown = |script: &str, before: Option<&str>| {
        let mut command = run_with_empty_guest(&directory);
        command.args(["sh", "-c", "echo $GLIBC_TUNABLES"]);
        command.env_remove("GLIBC_TUNABLES");
        if let Some(before) = before {
            command.env("GLIBC_TUNABLES", before);
        }
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("{script} exec \"$0\" \"$@\"")]);
        limited.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        stdout(&output(limited)).trim_end().to_owned()
    };
    const SIZE: &str = "glibc.pthread.stack_cache_size=";
    let counted = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    if counted.is_ok_and(|mode| mode.trim() != "2") {
        assert!(shown("", None).starts_with(SIZE));
        let both = shown("", Some("glibc.malloc.arena_max=2"));
        assert!(
            both.starts_with(&format!("glibc.malloc.arena_max=2:{SIZE}")),
            "{both}"
        );
    }
    let own = format!("{SIZE}41943040");
    assert_eq!(shown("", Some(&own)), own);
    assert_eq!(shown("ulimit -v 8000000;", None), "");
}

#[test]
fn more_virtual_processors_than_are_allowed_is_warned_of() {
    let directory = directory("warned");
    let done = run(&directory, ["-p", "1024", "true"]);
    assert_eq!(done.status.code(), Some(0));
    assert!(stderr(&done).starts_with("upcall: warning: 1024 virtual processors"));
    assert_eq!(stderr(&done).lines().count(), 1);
}

#[test]
fn wrong_usage_is_125() {
    let directory = directory("usage");
    for words in [
        vec![],
        vec!["-p", "0", "true"],
        vec!["-p", "1025", "true"],
        vec!["-p", "3..2", "true"],
        vec!["--backend", "no-such-backend", "true"],
        vec!["--no-such-flag", "true"],
    ] {
        let done = run(&directory, &words);
        assert_eq!(done.status.code(), Some(125), "{words:?}");
        assert!(done.stdout.is_empty() && !done.stderr.is_empty());
    }
}

#[test]
fn what_does_not_exist_is_127_and_what_cannot_be_executed_126() {
    let directory = directory("missing");
    let plain = file(&directory, "plain", "#!/bin/sh\n", 0o644);
    let cut = file(&directory, "cut", b"\x7fELF\x02\x01\x01", 0o755);
    let mut object = vec![0u8; 64];
    object[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    object[16] = 1;
    object[18] = 62;
    let object = file(&directory, "object", object, 0o755);
    let orphan = file(&directory, "orphan", "#!/no/such/interpreter\n", 0o755);
    for (program, status) in [
        (Path::new("no-such-program-anywhere"), 127),
        (Path::new("/no/such/program"), 127),
        (&orphan, 127),
        (&plain, 126),
        (&directory, 126),
        (&cut, 126),
        (&object, 126),
    ] {
        let done = run(&directory, ["--or-native".as_ref(), program.as_os_str()]);
        let text = stderr(&done);
        assert_eq!(done.status.code(), Some(status), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("upcall: cannot run '"), "{text}");
    }
}

#[test]
fn a_static_program_is_refused_or_run_as_it_is() {
    let directory = directory("static");
    let source = file(&directory, "status.c", STATUS_7, 0o644);
    let program = directory.join("status");
    if let Err(error) = compile(&["-static"], &source, &program) {
        println!("skipped: no static C library here: {error}");
        return;
    }
    assert_refused(&run(&directory, [&program]), "PT_INTERP");

    for asked in ["flag", "variable"] {
        let mut command = run_with_empty_guest(&directory);
        if asked == "flag" {
            command.arg("--or-native");
        } else {
            command.env("UPCALL_OR_NATIVE", "1");
        }
        command.arg(&program);
        let done = output(command);
        assert_eq!(done.status.code(), Some(7), "{asked}");
        assert_eq!(stderr(&done).lines().count(), 1, "{asked}");
        assert!(stderr(&done).contains("natively"), "{asked}");
    }

    let script = file(
        &directory,
        "script",
        format!("#!{}\n", program.display()),
        0o755,
    );
    assert_refused(&run(&directory, [script]), "PT_INTERP");
}

#[test]
fn a_set_user_id_program_is_refused() {
    let directory = directory("setuid");
    let source = file(&directory, "status.c", STATUS_7, 0o644);
    let program = directory.join("status");
    compile(&[], &source, &program).expect("cc compiles");
    assert_eq!(run(&directory, [&program]).status.code(), Some(7));
    for (mode, evidence) in [(0o4755, "set-user-ID"), (0o2755, "set-group-ID")] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("its mode");
        let kept = fs::metadata(&program).expect("it is there").permissions();
        if kept.mode() & 0o7777 != mode {
            println!("skipped: this file system does not keep mode {mode:04o}");
            continue;
        }
        assert_refused(&run(&directory, [&program]), evidence);
    }
}

#[test]
fn other_processors_and_other_c_libraries_are_refused() {
    let directory = directory("other_machine");
    let source = file(&directory, "status.c", STATUS_7, 0o644);
    let program = directory.join("status");
    compile(&[], &source, &program).expect("cc compiles");
    let good = fs::read(&program).expect("readable");

    let mut arm = good.clone();
    arm[18..20].copy_from_slice(&183u16.to_le_bytes());
    let arm = file(&directory, "arm", arm, 0o755);
    assert_refused(&run(&directory, [arm]), "e_machine 183");

    let name = b"/lib64/ld-linux-x86-64.so.2";
    let at = good
        .windows(name.len())
        .position(|window| window == name)
        .expect("the program names glibc's linker");
    let mut musl = good;
    let other = b"/lib/ld-musl-x86_64.so.1\0\0\0";
    musl[at..at + name.len()].copy_from_slice(other);
    let musl = file(&directory, "musl", musl, 0o755);
    assert_refused(&run(&directory, [musl]), "ld-musl");
}

#[test]
fn sanitizers_and_valgrind_are_refused() {
    let directory = directory("sanitizer");
    let source = file(&directory, "status.c", STATUS_7, 0o644);
    let program = directory.join("status");
    match compile(&["-fsanitize=thread"], &source, &program) {
        Ok(()) => {
            assert_refused(&run(&directory, [&program]), "tsan");
        }
        Err(error) => println!("skipped: no thread sanitizer here: {error}"),
    }
    let valgrind = file(&directory, "valgrind", "#!/bin/sh\n", 0o755);
    assert_refused(&run(&directory, [valgrind]), "valgrind");
}

#[test]
fn scripts_are_run_by_their_interpreters() {
    let directory = directory("scripts");
    let with_line = file(&directory, "with", "#!/bin/sh\nexit 7\n", 0o755);
    let through_env = file(&directory, "env", "#!/usr/bin/env sh\nexit 7\n", 0o755);
    let without_line = file(&directory, "without", "exit 7\n", 0o755);
    for script in [with_line, through_env, without_line] {
        let done = run(&directory, [&script]);
        assert_eq!(done.status.code(), Some(7), "{script:?}: {}", stderr(&done));
        assert_eq!(stderr(&done), "");
    }
    let itself = directory.join("loop");
    let itself = file(
        &directory,
        "loop",
        format!("#!{}\n", itself.display()),
        0o755,
    );
    assert_eq!(run(&directory, [itself]).status.code(), Some(126));
}

#[test]
fn without_the_guest_library_nothing_runs_unless_natively() {
    let mut command = upcall();
    command
        .env("UPCALL_GUEST_LIB", "/no/such/library.so")
        .args(["run", "true"]);
    assert_refused(&output(command), "/no/such/library.so");
    let mut command = upcall();
    command
        .env("UPCALL_GUEST_LIB", "/no/such/library.so")
        .args(["run", "--or-native", "sh", "-c", "echo $LD_PRELOAD"]);
    let done = output(command);
    assert_eq!(done.status.code(), Some(0));
    assert_eq!(stdout(&done), "\n");
}

#[test]
fn a_guest_library_that_cannot_be_loaded_is_refused() {
    let directory = directory("guest_library");
    let text = file(&directory, "text.so", "no library", 0o644);
    let source = file(&directory, "empty.c", "int nothing;\n", 0o644);
    let object = directory.join("object.so");
    compile(&["-c"], &source, &object).expect("cc makes an object file");
    let library = directory.join("library.so");
    compile(&["-shared", "-fPIC"], &source, &library).expect("cc makes a shared library");
    let whole = std::fs::read(&library).expect("it can be read");
    let cut = file(&directory, "cut.so", &whole[..whole.len() / 8], 0o644);
    for (bad, evidence) in [
        (&text, "it is no ELF file"),
        (&object, "e_type 1"),
        (&cut, "cut.so"),
    ] {
        let mut command = upcall();
        command.env("UPCALL_GUEST_LIB", bad).args(["run", "true"]);
        assert_refused(&output(command), evidence);
    }
}

#[test]
fn a_variable_that_means_nothing_is_refused_also_with_or_native() {
    let directory = directory("variables");
    for (name, value) in [
        ("UPCALL_SLICE_US", "0"),
        ("UPCALL_SLICE_US", "5ms"),
        ("UPCALL_GANG", "perhaps"),
        ("UPCALL_CHILDREN", "2"),
        ("UPCALL_PROBE", "best"),
    ] {
        let mut command = run_with_empty_guest(&directory);
        command.env(name, value).args(["--or-native", "true"]);
        let done = output(command);
        assert_eq!(done.status.code(), Some(125), "{name}={value}");
        let said = stderr(&done);
        assert!(said.contains(name) && said.contains(value), "{said}");
    }
}
