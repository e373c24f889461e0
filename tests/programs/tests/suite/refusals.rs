//! Programs that `upcall run` does not start. The exit status is that of `nice` and `env`, or 125 for a program
//! that `upcall run` cannot serve; the message names the program, the evidence and a remedy.
//!
//! Only the real command can refuse. With another launcher these cases are skipped aloud.

use crate::case;
use program_tests::case::Case;
use program_tests::program::Program;
use program_tests::provision;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A case for the real command. None if the case must be skipped.
fn real(name: &str) -> Option<Case> {
    let case = case(name);
    case.runs_upcall().then_some(case)
}

/// The message names the program, gives its evidence and a remedy, and nothing is on stdout.
fn refused(case: &Case, program: &Path, evidence: &[&str]) {
    let outcome = case.run_launched(&Program::new(program), &[]);
    assert_eq!(outcome.status.code(), Some(125), "{}", outcome.talk());
    assert!(
        outcome.stdout.is_empty(),
        "a refusal is talk\n{}",
        outcome.talk()
    );
    let text = String::from_utf8_lossy(&outcome.stderr);
    assert!(text.starts_with("upcall: "), "who speaks?\n{text}");
    assert!(
        text.contains(&program.display().to_string()),
        "what is refused?\n{text}"
    );
    assert!(
        text.contains("--or-native"),
        "the remedy is missing\n{text}"
    );
    let lower = text.to_lowercase();
    let given = evidence.iter().any(|word| lower.contains(word));
    assert!(
        given,
        "the evidence is missing, one of {evidence:?}\n{text}"
    );
}

/// With `--or-native` the program runs as if started directly.
fn runs_natively(case: &Case, program: &Program) {
    let native = case.run_native(program);
    let launched = case.run_launched(program, &["--or-native"]);
    case.compare(1, &native, &launched, program_tests::case::verbatim);
}

fn file(dir: &Path, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).expect("the case's directory is writable");
    fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its mode can be set");
    path
}

/// As `env` would end: 127 for what is not there, 126 for what cannot be executed.
fn as_env(name: &str, expected: i32, make: impl Fn(&Path) -> PathBuf) {
    let Some(case) = real(name) else { return };
    let path = make(&case.fresh("file"));
    let env = Command::new("env")
        .arg(&path)
        .output()
        .expect("env can be started");
    assert_eq!(env.status.code(), Some(expected), "env itself");
    let outcome = case.run_launched(&Program::new(&path), &[]);
    assert_eq!(outcome.status.code(), Some(expected), "{}", outcome.talk());
    let text = String::from_utf8_lossy(&outcome.stderr);
    assert!(
        text.contains(&path.display().to_string()),
        "what is refused?\n{text}"
    );
    assert!(
        outcome.stdout.is_empty(),
        "a refusal is talk\n{}",
        outcome.talk()
    );
}

#[test]
fn no_such_program() {
    as_env("no_such_program", 127, |_| {
        "no-such-program-anywhere".into()
    });
}

#[test]
fn no_such_path() {
    as_env("no_such_path", 127, |dir| dir.join("nothing"));
}

#[test]
fn no_such_interpreter() {
    as_env("no_such_interpreter", 127, |dir| {
        file(dir, "script", b"#!/no/such/interpreter\n", 0o755)
    });
}

#[test]
fn not_executable() {
    as_env("not_executable", 126, |dir| {
        file(dir, "plain", b"#!/bin/sh\nexit 0\n", 0o644)
    });
}

#[test]
fn directory() {
    as_env("directory", 126, Path::to_owned);
}

#[test]
fn wrong_option() {
    let Some(case) = real("wrong_option") else {
        return;
    };
    let upcall = case.launcher().upcall().expect("the real command");
    for words in [
        &["run", "--no-such-option", "true"][..],
        &["run"],
        &["run", "-p", "0", "true"],
    ] {
        let outcome = case.run_native(&Program::new(upcall).args(words));
        assert_eq!(
            outcome.status.code(),
            Some(125),
            "{words:?}\n{}",
            outcome.talk()
        );
        assert!(
            outcome.stdout.is_empty() && !outcome.stderr.is_empty(),
            "{}",
            outcome.talk()
        );
    }
}

#[test]
fn static_program() {
    let Some(case) = real("static_program") else {
        return;
    };
    let made = case.compile_with("reads_stdin.c", &["-static"]);
    let Some(path) = made else { return };
    refused(&case, &path, &["static"]);
    runs_natively(&case, &Program::new(path));
}

#[test]
fn set_user_id_program() {
    let Some(case) = real("set_user_id_program") else {
        return;
    };
    let Some(plain) = case.compile("reads_stdin.c") else {
        return;
    };
    if !provision::is_root() {
        // Only root can make one that changes the user, but every machine has some.
        match provision::find("su") {
            Some(su) => refused(&case, &su, &["set-user", "setuid", "set-uid"]),
            None => provision::skip(case.name(), "not root, and there is no su in PATH"),
        }
        return;
    }
    let path = case.fresh("file").join("set-user-id");
    fs::copy(plain, &path).expect("the case's directory is writable");
    chown(&path, Some(65534), None).expect("root may give files away");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).expect("its mode can be set");
    refused(&case, &path, &["set-user", "setuid", "set-uid"]);
    runs_natively(&case, &Program::new(path));
}

/// An ELF header and an interpreter, nothing more: enough to see that it is for another machine.
fn foreign_elf(class: u8, machine: u16, interpreter: &str) -> Vec<u8> {
    let name = [interpreter.as_bytes(), b"\0"].concat();
    let mut elf = vec![0x7f, b'E', b'L', b'F', class, 1, 1];
    elf.resize(16, 0);
    let word = |elf: &mut Vec<u8>, value: u64| {
        let wide = value.to_le_bytes();
        elf.extend(&wide[..if class == 2 { 8 } else { 4 }]);
    };
    let (header, entry) = if class == 2 { (64u16, 56u16) } else { (52, 32) };
    let offset = u64::from(header + entry);
    elf.extend([3, 0]);
    elf.extend(machine.to_le_bytes());
    elf.extend([1, 0, 0, 0]);
    word(&mut elf, 0x1000);
    word(&mut elf, u64::from(header));
    word(&mut elf, 0);
    elf.extend([0; 4]);
    for half in [header, entry, 1, 0, 0, 0] {
        elf.extend(half.to_le_bytes());
    }
    // PT_INTERP, readable.
    elf.extend(3u32.to_le_bytes());
    if class == 2 {
        elf.extend(4u32.to_le_bytes());
    }
    for value in [offset, offset, offset, name.len() as u64, name.len() as u64] {
        word(&mut elf, value);
    }
    if class == 1 {
        elf.extend(4u32.to_le_bytes());
    }
    word(&mut elf, 1);
    elf.extend(name);
    elf
}

#[test]
fn other_architecture() {
    let Some(case) = real("other_architecture") else {
        return;
    };
    let dir = case.fresh("file");
    let arm = foreign_elf(2, 183, "/lib/ld-linux-aarch64.so.1");
    refused(
        &case,
        &file(&dir, "aarch64", &arm, 0o755),
        &["aarch64", "arm64", "183"],
    );
    let old = foreign_elf(1, 3, "/lib/ld-linux.so.2");
    refused(
        &case,
        &file(&dir, "i386", &old, 0o755),
        &["386", "32-bit", "x86"],
    );
}

/// A program whose loader and C library are musl's. Only its headers matter, so no musl is needed.
#[test]
fn musl_program() {
    let Some(case) = real("musl_program") else {
        return;
    };
    if provision::program(case.name(), "cc", "gcc libc6-dev").is_none() {
        return;
    }
    let dir = case.fresh("file");
    fs::write(
        dir.join("library.c"),
        "int puts(const char *s) { return *s; }\n",
    )
    .expect("written");
    fs::write(
        dir.join("main.c"),
        "int puts(const char *);\nvoid _start(void) { puts(\"\"); }\n",
    )
    .expect("written");
    let cc = |words: &[&str]| {
        let output = Command::new("cc")
            .current_dir(&dir)
            .args(words)
            .output()
            .expect("cc starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let soname = "-Wl,-soname,libc.musl-x86_64.so.1";
    cc(&[
        "-shared",
        "-fPIC",
        "-nostdlib",
        soname,
        "library.c",
        "-o",
        "libc.so",
    ]);
    let loader = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    cc(&["-nostdlib", loader, "main.c", "./libc.so", "-o", "program"]);
    refused(&case, &dir.join("program"), &["musl"]);
}

/// A script is refused if its interpreter is, and the message gives the interpreter's reason.
#[test]
fn script_for_static_interpreter() {
    let name = "script_for_static_interpreter";
    let Some(case) = real(name) else { return };
    let made = case.compile_with("reads_stdin.c", &["-static"]);
    let Some(interpreter) = made else { return };
    let text = format!("#!{}\n", interpreter.display());
    let script = file(&case.fresh("file"), "script", text.as_bytes(), 0o755);
    let outcome = case.run_launched(&Program::new(script), &[]);
    assert_eq!(outcome.status.code(), Some(125), "{}", outcome.talk());
    let text = String::from_utf8_lossy(&outcome.stderr).to_lowercase();
    assert!(
        text.contains("static") && text.contains("--or-native"),
        "{text}"
    );
}
