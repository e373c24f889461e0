//! A thread that overflows its stack, and the first one: Rust's handler runs on the alternate stack that
//! each has, says so, and aborts.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};
use std::{env, thread};

include!("case.rs.inc");

const SIGABRT: i32 = 6;

fn deeper(depth: usize) -> usize {
    let frame = black_box([depth; 64]);
    if depth == usize::MAX {
        0
    } else {
        deeper(depth + 1) + frame[depth % 64]
    }
}

/// Others have such stacks too, and take turns with it.
fn overflow(in_thread: bool) {
    let others: Vec<_> = (0..3)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..1000 {
                    thread::yield_now();
                }
            })
        })
        .collect();
    if in_thread {
        let thread = thread::Builder::new().name("deep".into());
        let thread = thread.spawn(|| {
            thread::yield_now();
            deeper(0)
        });
        println!("{:?}", thread.unwrap().join());
    } else {
        thread::yield_now();
        println!("{}", deeper(0));
    }
    drop(others);
}

fn main() -> ExitCode {
    if let Some(where_) = env::args().nth(1) {
        overflow(where_ == "deep");
        return ExitCode::SUCCESS;
    }
    for name in ["deep", "main"] {
        let program = env::current_exe().unwrap();
        let output = Command::new(program).arg(name).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let right = said.contains(&format!("thread '{name}'"))
            && said.contains("has overflowed its stack")
            && output.status.signal() == Some(SIGABRT);
        check(
            &format!("overflow_{name}"),
            right,
            format_args!("{}: {said}", output.status),
        );
    }
    verdict()
}
