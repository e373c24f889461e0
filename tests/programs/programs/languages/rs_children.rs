//! Child processes from threads: output, exit codes, input through a pipe, kill, environment.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::thread;

include!("case.rs.inc");

fn main() -> ExitCode {
    let right: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..10)
            .map(|number| {
                scope.spawn(move || {
                    let script = format!("echo $NAME; exit {number}");
                    let output = Command::new("sh")
                        .args(["-c", &script])
                        .env("NAME", format!("n{number}"))
                        .output()
                        .unwrap();
                    let text = format!("n{number}\n");
                    usize::from(
                        output.status.code() == Some(number) && output.stdout == text.as_bytes(),
                    )
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    check("children", right == 10, right);

    let mut sorter = Command::new("sort")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = sorter.stdin.take().unwrap();
    let feeder = thread::spawn(move || {
        (0..5000)
            .rev()
            .for_each(|i| writeln!(input, "{i:05}").unwrap());
    });
    let output = sorter.wait_with_output().unwrap();
    feeder.join().unwrap();
    let expected: String = (0..5000).map(|i| format!("{i:05}\n")).collect();
    check(
        "child_pipes",
        output.stdout == expected.as_bytes(),
        output.stdout.len(),
    );

    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    child.kill().unwrap();
    let status = child.wait().unwrap();
    check("child_killed", status.signal() == Some(9), status);
    let missing = Command::new("/nonexistent/program").spawn();
    check("child_missing", missing.is_err(), "it was started");
    verdict()
}
