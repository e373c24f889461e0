//! `upcall show` where there is nothing to show, and why. With a program it is tested beside the daemon
//! (`crates/upcalld/tests`).

use std::process::Command;

use crate::common::upcall;

#[test]
fn what_cannot_be_shown_is_refused_in_four_lines() {
    let mut sleeping = Command::new("sleep").arg("1000").spawn().expect("starts");
    let pid = sleeping.id().to_string();
    // Ids end at 2^22.
    for (pid, saying) in [
        (pid.as_str(), "upcall run"),
        ("2147483647", "no such process"),
    ] {
        for option in [&[][..], &["--json"]] {
            let mut command = upcall();
            let output = command.arg("show").arg(pid).args(option).output();
            let output = output.expect("the command runs");
            let talk = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(125), "{talk}");
            assert!(output.stdout.is_empty());
            assert_eq!(talk.lines().count(), 4, "{talk}");
            assert!(talk.contains(saying), "{talk}");
        }
    }
    sleeping.kill().expect("it is a child");
    sleeping.wait().expect("it is a child");
}
