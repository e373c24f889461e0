//! Every way to end and to start a program: its exit status and what it inherits must be as natively.

use crate::{case, real};
use program_tests::case::verbatim;
use program_tests::program::{Input, Outcome, Output, Program};
use std::os::unix::process::ExitStatusExt;

/// Many programs close standard error before they end, to see whether their last write succeeded.
#[test]
fn counters_are_printed_though_standard_error_is_closed() {
    let Some((case, path)) = real(
        "counters_are_printed_though_standard_error_is_closed",
        "stderr_closed.c",
    ) else {
        return;
    };
    let outcome = case.run_launched(&Program::new(path), &["--stats"]);
    assert!(outcome.status.success(), "{}", outcome.talk());
    assert_eq!(outcome.counted("threads created"), 1, "{}", outcome.talk());
}

/// Runs `exits.c`; the native run's ending must be `expected`.
fn ends(name: &str, how: &str, expected: &str) {
    parity(name, "exits.c", expected, |program| program.arg(how));
}

macro_rules! endings {
    ($($name:ident $how:literal $expected:literal;)+) => {
        $(#[test] fn $name() { ends(stringify!($name), $how, $expected); })+
    };
}

endings! {
    exit_by_return "return" "exit status 11";
    exit_by_exit "exit" "exit status 12";
    exit_by_underscore_exit "_exit" "exit status 3";
    exit_by_abort "abort" "killed by signal 6";
    exit_by_sigkill "sigkill" "killed by signal 9";
    exit_by_sigterm "sigterm" "killed by signal 15";
    exit_by_segfault "segv" "killed by signal 11";
    exit_by_illegal_instruction "illegal" "killed by signal 4";
    exit_in_thread "thread-exit" "exit status 4";
    exit_by_segfault_in_thread "thread-segv" "killed by signal 11";
    exit_by_abort_in_thread "thread-abort" "killed by signal 6";
    exit_by_exit_group_in_thread "thread-exit-group" "exit status 6";
    exit_by_overflow_in_thread "thread-overflow" "killed by signal 11";
    exit_by_overflow_without_stack "thread-overflow-in-vain" "killed by signal 11";
    exit_by_sigkill_in_thread "thread-sigkill" "killed by signal 9";
}

/// Runs a test program; the native run's ending must be `expected`.
fn parity(name: &str, file: &str, expected: &str, shape: impl Fn(Program) -> Program) {
    let case = case(name);
    let Some(path) = case.compile(file) else {
        return;
    };
    case.parity_of(
        &shape(Program::new(path)),
        verbatim,
        |_| (),
        |native: &Outcome| {
            assert_eq!(
                native.ending(),
                expected,
                "{name}: the native run\n{}",
                native.talk()
            );
        },
    );
}

#[test]
fn surroundings() {
    parity("surroundings", "inherits.c", "exit status 0", |program| {
        program.args(["one", "--two", "", "with space", "--", "-p"])
    });
}

#[test]
fn surroundings_with_ignored_signals() {
    parity(
        "surroundings_with_ignored_signals",
        "inherits.c",
        "exit status 0",
        |program| {
            program
                .ignoring(libc::SIGHUP)
                .ignoring(libc::SIGPIPE)
                .ignoring(libc::SIGUSR1)
        },
    );
}

#[test]
fn surroundings_without_stdin() {
    parity(
        "surroundings_without_stdin",
        "inherits.c",
        "exit status 0",
        |program| program.input(Input::Closed),
    );
}

#[test]
fn stdin_closed() {
    parity(
        "stdin_closed",
        "reads_stdin.c",
        "exit status 5",
        |program| program.input(Input::Closed),
    );
}

#[test]
fn stdin_empty() {
    parity("stdin_empty", "reads_stdin.c", "exit status 5", |program| {
        program
    });
}

#[test]
fn stdin_large() {
    let bytes = vec![b'x'; 3_000_000];
    parity("stdin_large", "reads_stdin.c", "exit status 5", |program| {
        program.input(Input::Bytes(bytes.clone()))
    });
}

#[test]
fn broken_pipe_kills() {
    parity(
        "broken_pipe_kills",
        "writes_for_ever.c",
        "killed by signal 13",
        |program| program.output(Output::Broken),
    );
}

#[test]
fn broken_pipe_ignored() {
    parity(
        "broken_pipe_ignored",
        "writes_for_ever.c",
        "exit status 42",
        |program| program.output(Output::Broken).ignoring(libc::SIGPIPE),
    );
}

/// A signal from outside ends a program whose threads all sleep.
#[test]
fn signals_from_outside() {
    let case = case("signals_from_outside");
    let Some(path) = case.compile("exits.c") else {
        return;
    };
    for signal in [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGKILL,
        libc::SIGHUP,
        libc::SIGQUIT,
    ] {
        let program = Program::new(&path).arg("wait");
        for launcher in [None, Some(case.launcher())] {
            let running = program.start(&case.fresh("run"), launcher);
            running.signal(signal);
            let outcome = running.finish();
            assert_eq!(outcome.status.signal(), Some(signal), "{}", outcome.talk());
        }
    }
}
