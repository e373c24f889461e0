//! Installed threaded programs on real files. A tool that packs must give the same bytes in both runs, and
//! unpack them to the original.

use crate::case;
use program_tests::case::{sorted_lines, verbatim};
use program_tests::program::{Input, Program};
use program_tests::{corpus, provision, source};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Bytes of real content that are packed.
const SIZE: usize = 16 << 20;

/// Packs a file with `pack`, which leaves `data.SUFFIX`; unpacks that with `unpack` to stdout;
/// and does both once more through pipes.
fn round_trip(name: &str, package: &str, suffix: &str, pack: &[&str], unpack: &[&str]) {
    let Some(tool) = provision::program(name, name, package) else {
        return;
    };
    let case = case(name);
    let original = fs::read(corpus::blob(case.scratch(), SIZE)).expect("the corpus is readable");
    let packed_name = format!("data.{suffix}");

    let packing = Program::new(&tool).args(pack).arg("data");
    case.succeeds(&packing, verbatim, |dir| write(dir, "data", &original));
    let packed = fs::read(case.native_dir().join(&packed_name)).expect("a packed file");
    assert!(packed.len() < original.len(), "{name} packed nothing");

    let unpacking = Program::new(&tool).args(unpack).arg(&packed_name);
    let native = case.succeeds(&unpacking, verbatim, |dir| {
        write(dir, &packed_name, &packed)
    });
    assert!(
        native.stdout == original,
        "{name}: the native round trip does not give the original"
    );

    let piped = Program::new(&tool)
        .args(pack)
        .arg("-c")
        .input(Input::Bytes(original.clone()));
    case.succeeds(&piped, verbatim, |_| ());
    let piped = Program::new(&tool).args(unpack).input(Input::Bytes(packed));
    case.succeeds(&piped, verbatim, |_| ());
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    fs::write(dir.join(name), bytes).expect("the case's directory is writable");
}

#[test]
fn xz() {
    let pack = ["-T4", "--block-size=1MiB", "-0", "-k"];
    round_trip("xz", "xz-utils", "xz", &pack, &["-T4", "-dc"]);
}

#[test]
fn zstd() {
    round_trip(
        "zstd",
        "zstd",
        "zst",
        &["-T4", "-q", "-6", "-k"],
        &["-T4", "-q", "-dc"],
    );
}

#[test]
fn pigz() {
    round_trip(
        "pigz",
        "pigz",
        "gz",
        &["-p", "4", "-n", "-k"],
        &["-p", "4", "-dc"],
    );
}

/// Both runs report a damaged file in the same way.
#[test]
fn xz_damaged() {
    let Some(tool) = provision::program("xz_damaged", "xz", "xz-utils") else {
        return;
    };
    let case = case("xz_damaged");
    let program = Program::new(tool)
        .args(["-T4", "-dc"])
        .input(Input::Bytes(vec![7; 100_000]));
    case.parity_of(
        &program,
        verbatim,
        |_| (),
        |native| {
            assert_eq!(native.status.code(), Some(1), "{}", native.talk());
        },
    );
}

/// ripgrep prints files as its threads finish them, so lines are compared in sorted order.
#[test]
fn ripgrep() {
    let Some(tool) = provision::program("ripgrep", "rg", "ripgrep") else {
        return;
    };
    let case = case("ripgrep");
    let tree = corpus::tree(case.scratch(), 1500);
    let searches: [&[&str]; 5] = [
        &["-n", "--no-heading", r"\bstruct\s+\w+"],
        &["-c", "-i", "copyright"],
        &["-l", "include"],
        &["--files"],
        &["--mmap", "-n", "--no-heading", "return"],
    ];
    for search in searches {
        let program = Program::new(&tool)
            .args(["-j", "4", "--no-config"])
            .args(search)
            .arg(&tree);
        let native = case.succeeds(&program, sorted_lines, |_| ());
        assert!(
            !native.stdout.is_empty(),
            "{search:?} finds nothing in the corpus"
        );
    }
    let nothing = Program::new(&tool)
        .args(["-j", "4", "no such words anywhere"])
        .arg(&tree);
    case.parity_of(
        &nothing,
        verbatim,
        |_| (),
        |native| {
            assert_eq!(native.status.code(), Some(1), "{}", native.talk());
        },
    );
}

/// GNU sort is threaded and everywhere; found in PATH by its name alone.
#[test]
fn sort() {
    let case = case("sort");
    let blob = fs::read(corpus::blob(case.scratch(), SIZE)).expect("the corpus is readable");
    let text: Vec<u8> = blob
        .into_iter()
        .filter(|byte| *byte == b'\n' || *byte >= 32)
        .collect();
    let program = Program::new("sort")
        .args(["--parallel=4", "-S", "64M", "-u", "-o", "sorted", "data"])
        .env("LC_ALL", "C");
    case.succeeds(&program, verbatim, |dir| write(dir, "data", &text));
}

/// Perl's interpreter threads, where this perl has them.
#[test]
fn perl() {
    let Some(tool) = provision::program("perl", "perl", "perl") else {
        return;
    };
    let has_threads = Command::new(&tool)
        .args(["-Mthreads", "-Mthreads::shared", "-e1"])
        .output();
    if !has_threads.is_ok_and(|output| output.status.success()) {
        provision::skip(
            "perl",
            "this perl is built without threads; as root: apt-get install perl",
        );
        return;
    }
    let script = "my $sum :shared = 0; my @t = map { my $n = $_; threads->create(sub { \
                  for (1..200) { lock($sum); $sum += $n } return $n * 2 }) } 1..10; \
                  print join(',', map { $_->join } @t), \" $sum\\n\";";
    let program = Program::new(tool).args(["-Mthreads", "-Mthreads::shared", "-e", script]);
    let native = case("perl").succeeds(&program, verbatim, |_| ());
    assert_eq!(native.stdout, b"2,4,6,8,10,12,14,16,18,20 11000\n");
}

/// The Rust compiler: threads that generate code, a linker as a child, a megabyte of output.
#[test]
fn rustc() {
    let Some(tool) = provision::program("rustc", "rustc", "rustc") else {
        return;
    };
    let case = case("rustc");
    // The name in PATH may be rustup's, which chooses a compiler: take the compiler itself.
    let answer = Command::new(&tool)
        .args(["--print", "sysroot"])
        .output()
        .expect("rustc starts");
    let sysroot = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    let program = Program::new(Path::new(&sysroot).join("bin/rustc"))
        .args([
            "--edition=2024",
            "-Copt-level=1",
            "-Ccodegen-units=8",
            "-Cdebuginfo=0",
        ])
        .args(["-o", "built"])
        .arg(source::find("rs_threads.rs"));
    case.succeeds(&program, verbatim, |_| ());
}

/// A child that an emulator runs is left to it: valgrind ended by a signal, and a line was said to that of QEMU.
#[test]
fn children_of_emulators() {
    for (emulator, package, options) in [
        ("valgrind", "valgrind", &["-q", "--error-exitcode=9"][..]),
        ("qemu-x86_64", "qemu-user", &[]),
    ] {
        let name = format!("children_of_{emulator}");
        let Some(emulator) = provision::program(&name, emulator, package) else {
            continue;
        };
        let case = case(&name);
        let Some(program) = case.compile("c11_threads.c") else {
            return;
        };
        let words = Program::new("/bin/sh")
            .args(["-c", "\"$@\" 2>&1", "sh"])
            .arg(emulator)
            .args(options)
            .arg(program);
        case.verdicts(&words);
    }
}
