//! The header has the layout of the Rust types, as a C compiler sees it.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use upcall_abi::{LAYOUT, MAGIC, PROCESSORS, VERSION, WORDS};

const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../include");

/// Compiles a program that includes the header, and returns what it prints; `None`: there is no compiler.
fn printed(name: &str, standard: &str, body: &str) -> Option<String> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (directory.join(format!("{name}.c")), directory.join(name));
    let text = format!(
        "#include <upcall/abi.h>\n#include <stdio.h>\nint main(void) {{\n{body}return 0;\n}}\n"
    );
    fs::write(&source, text).expect("the source is written");
    let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(&compiler)
        .args([
            standard,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-I",
            INCLUDE,
            "-o",
        ])
        .args([&program, &source])
        .output();
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(error) => {
            println!("skipped: no C compiler ({}): {error}", compiler.display());
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{standard}: {errors}");
    let run = Command::new(&program).output().expect("the program runs");
    assert!(run.status.success());
    Some(String::from_utf8(run.stdout).expect("numbers"))
}

#[test]
fn each_size_and_offset_is_that_of_the_header() {
    let body: String = LAYOUT
        .iter()
        .map(|(expression, _)| format!("printf(\"%zu\\n\", (size_t){expression});\n"))
        .collect();
    for standard in ["-std=c11", "-std=c17"] {
        let Some(text) = printed("layout", standard, &body) else {
            return;
        };
        let found: Vec<usize> = text
            .lines()
            .map(|line| line.parse().expect("a number"))
            .collect();
        let expected = LAYOUT.map(|(_, number)| number);
        assert_eq!(found, expected, "{standard}");
    }
}

#[test]
fn each_constant_is_that_of_the_header() {
    let body = "printf(\"%llu %u %d %d %d %u %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\\n\", UPCALL_ABI_MAGIC, UPCALL_ABI_VERSION, UPCALL_WANTED, UPCALL_WANTED_LENDS,\n\
        UPCALL_ABI_WORDS, UPCALL_ABI_PROCESSORS, UPCALL_ASK_JOIN, UPCALL_ASK_LIST, UPCALL_STATUS_OK,\n\
        UPCALL_STATUS_VERSION, UPCALL_STATUS_FULL, UPCALL_STATUS_NONSENSE, UPCALL_STATE_RESTING, UPCALL_STATE_ON,\n\
        UPCALL_STATE_WAITING, UPCALL_STATE_AWAY, UPCALL_ASK_OBSERVE, UPCALL_STATUS_NOT_HERE, UPCALL_OBSERVED_SLOTS,\n\
        UPCALL_OBSERVED_RUNNING, UPCALL_OBSERVED_READY, UPCALL_OBSERVED_BLOCKED, UPCALL_OBSERVED_STOPPED,\n\
        UPCALL_REASON_CALL, UPCALL_REASON_FAULT, UPCALL_REASON_PREEMPTED, UPCALL_REASON_GAVE_WAY);\n";
    let Some(text) = printed("constants", "-std=c11", body) else {
        return;
    };
    let found: Vec<u64> = text
        .split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect();
    let small = [
        VERSION,
        upcall_abi::WANTED,
        upcall_abi::WANTED_LENDS,
        WORDS as u32,
        PROCESSORS,
        upcall_abi::ASK_JOIN,
        upcall_abi::ASK_LIST,
        upcall_abi::STATUS_OK,
        upcall_abi::STATUS_VERSION,
        upcall_abi::STATUS_FULL,
        upcall_abi::STATUS_NONSENSE,
        upcall_abi::STATE_RESTING,
        upcall_abi::STATE_ON,
        upcall_abi::STATE_WAITING,
        upcall_abi::STATE_AWAY,
        upcall_abi::ASK_OBSERVE,
        upcall_abi::STATUS_NOT_HERE,
        upcall_abi::OBSERVED_SLOTS as u32,
        upcall_abi::OBSERVED_RUNNING.into(),
        upcall_abi::OBSERVED_READY.into(),
        upcall_abi::OBSERVED_BLOCKED.into(),
        upcall_abi::OBSERVED_STOPPED.into(),
        upcall_abi::REASON_CALL.into(),
        upcall_abi::REASON_FAULT.into(),
        upcall_abi::REASON_PREEMPTED.into(),
        upcall_abi::REASON_GAVE_WAY.into(),
    ];
    let expected: Vec<u64> = std::iter::once(MAGIC).chain(small.map(u64::from)).collect();
    assert_eq!(found, expected);
}
