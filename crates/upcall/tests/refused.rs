//! What a runtime is refused for, and that the program goes on then; what a process says that has one.

use std::sync::mpsc;
use std::time::Duration;

use upcall::policy::{Fifo, Lifo};
use upcall::{Error, Runtime};

fn main() {
    if std::env::var_os(PANICS).is_some() {
        return panics();
    }
    if std::env::var_os(STARTS).is_some() {
        return starts();
    }
    a_panic_says_the_name();
    for (min, max, says) in [
        (0, 4, "0 is not between 1 and 1024"),
        (1, 1025, "1025 is not between 1 and 1024"),
        (4, 2, "4 is more than 2"),
    ] {
        let error = Runtime::builder()
            .virtual_processors(min, max)
            .start()
            .expect_err(says);
        assert!(matches!(error, Error::VirtualProcessors(_)));
        assert!(error.to_string().contains(says), "{error}");
    }
    for slice in [Duration::from_micros(99), Duration::from_millis(1001)] {
        let error = Runtime::builder().time_slice(slice).start().unwrap_err();
        assert_eq!(error, Error::TimeSlice(slice));
    }
    for size in [0, (16 << 10) - 1, (16 << 20) + 1] {
        let error = Runtime::builder().stack_size(size).start().unwrap_err();
        assert_eq!(error, Error::StackSize(size));
    }
    if upcall_linux::arch::SERVES_PROGRAMS {
        variables_that_mean_nothing();
    }
    let (go, goes) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || goes.recv());
    let error = Runtime::start().unwrap_err();
    let expected = if upcall_linux::arch::SERVES_PROGRAMS {
        Error::HasThreads(2)
    } else {
        Error::Architecture
    };
    assert_eq!(error, expected);
    drop(go);
    assert!(other.join().unwrap().is_err());
    if upcall_linux::arch::SERVES_PROGRAMS {
        a_second_start();
    }
    println!("ok");
}

/// Set in the process that only starts the runtime.
const STARTS: &str = "UPCALL_TEST_STARTS";

fn starts() {
    match Runtime::start() {
        Ok(_) => println!("starts"),
        Err(error) => println!("{error}"),
    }
}

fn variables_that_mean_nothing() {
    for (name, value, is_read) in [
        ("UPCALL_VPS", "2..", false),
        ("UPCALL_VPS", "1..2", true),
        ("UPCALL_STATS", "perhaps", false),
        ("UPCALL_POLICY", "fastest", false),
        ("UPCALL_POLICY", "fifo", true),
        ("UPCALL_SLICE_US", "5ms", false),
        ("UPCALL_GANG", "", true),
    ] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .env(STARTS, "1")
            .env(name, value)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            said.starts_with("starts"),
            is_read,
            "{name}={value}: {said}"
        );
        assert!(
            is_read || said.contains(name) && said.contains(value),
            "{said}"
        );
    }
}

/// Set in the process in which a thread panics.
const PANICS: &str = "UPCALL_TEST_PANICS";

fn panics() {
    Runtime::start().expect("there is one thread");
    let named = upcall::thread::Builder::new().name("worker 7".into());
    assert!(named.spawn(|| panic!("ouch")).unwrap().join().is_err());
}

/// The message called the thread unnamed.
fn a_panic_says_the_name() {
    if !upcall_linux::arch::SERVES_PROGRAMS {
        return;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.env(PANICS, "1").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(
        errors.contains("worker 7") && errors.contains("ouch"),
        "{errors}"
    );
}

/// It was answered by Ok, whatever was asked for.
fn a_second_start() {
    let first = || {
        Runtime::builder()
            .virtual_processors(2, 2)
            .time_slice(Duration::from_millis(2))
            .stack_size(128 << 10)
            .policy(Fifo)
            .report_deadlocks(false)
    };
    first().start().expect("there is one thread");
    first().start().expect("with the same settings");
    Runtime::start().expect("with no settings");
    let builder = Runtime::builder;
    for (other, setting) in [
        (builder().virtual_processors(1, 1), "virtual processors"),
        (builder().time_slice(Duration::from_millis(3)), "time slice"),
        (builder().stack_size(64 << 10), "stacks"),
        (builder().policy(Lifo), "policy"),
        (builder().stats(true), "counters"),
        (builder().report_deadlocks(true), "deadlocks"),
    ] {
        let error = other.start().expect_err(setting);
        assert!(matches!(error, Error::RunsOtherwise(_)), "{error}");
        assert!(error.to_string().contains(setting), "{error}");
    }
}
