//! Programs that start programs: scripts by their first line, shells, pipelines, make.

use crate::case;
use program_tests::case::verbatim;
use program_tests::program::{Input, Program};
use program_tests::{corpus, provision};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn script(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("script");
    fs::write(&path, text).expect("the case's directory is writable");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("its mode can be set");
    path
}

/// Runs a script file in place; its native run must end with `expected`.
fn run(name: &str, text: &str, expected: i32, stdout: &str) {
    let case = case(name);
    let dir = case.fresh("script");
    let program = Program::new(script(&dir, text)).args(["one", "two words"]);
    case.parity_of(
        &program,
        verbatim,
        |_| (),
        |native| {
            assert_eq!(native.status.code(), Some(expected), "{}", native.talk());
            assert_eq!(String::from_utf8_lossy(&native.stdout), stdout);
        },
    );
}

#[test]
fn script_by_first_line() {
    run(
        "script_by_first_line",
        "#!/bin/sh\necho \"$# $2\"\nexit 7\n",
        7,
        "2 two words\n",
    );
}

#[test]
fn script_with_interpreter_argument() {
    run(
        "script_with_interpreter_argument",
        "#!/bin/sh -e\nfalse\necho unreached\n",
        1,
        "",
    );
}

#[test]
fn script_by_env() {
    run("script_by_env", "#!/usr/bin/env sh\necho $1\n", 0, "one\n");
}

/// The exec functions of libc give such a file to the shell.
#[test]
fn script_without_first_line() {
    run("script_without_first_line", "echo $1; exit 3\n", 3, "one\n");
}

/// Threaded programs in a pipeline, each started by a shell.
#[test]
fn shell_pipeline() {
    let name = "shell_pipeline";
    let wanted = [("pigz", "pigz"), ("zstd", "zstd"), ("xz", "xz-utils")];
    if wanted
        .iter()
        .any(|(tool, package)| provision::program(name, tool, package).is_none())
    {
        return;
    }
    let case = case(name);
    let blob = corpus::blob(case.scratch(), 4 << 20);
    let line = "pigz -p3 -n | pigz -dc | zstd -q -T3 | zstd -dc | xz -T3 -0 | xz -dc -T3 | tee copy \
                | md5sum; cmp copy \"$1\"";
    let program = Program::new("/bin/sh")
        .args(["-c", line, "sh"])
        .arg(&blob)
        .input(Input::Bytes(
            fs::read(&blob).expect("the corpus is readable"),
        ));
    case.succeeds(&program, verbatim, |_| ());
}

/// Many short-lived threaded programs, several at once.
#[test]
fn xargs() {
    let Some(_) = provision::program("xargs", "xz", "xz-utils") else {
        return;
    };
    let case = case("xargs");
    let line = "seq 1 40 | xargs -P 4 -I{} sh -c 'echo line {} | xz -T2 -c > {}.xz'; \
                for i in $(seq 1 40); do xz -dc $i.xz; done";
    let program = Program::new("/bin/sh").args(["-c", line]);
    let native = case.succeeds(&program, verbatim, |_| ());
    assert_eq!(native.stdout.split(|byte| *byte == b'\n').count(), 41);
}
