//! `upcall ps` where no daemon is. With one it is tested beside the daemon (`crates/upcalld/tests`).

use crate::common::{directory, upcall};

#[test]
fn without_a_daemon_it_says_so_in_four_lines() {
    let directory = directory("ps");
    let mut command = upcall();
    command.args(["ps"]).env("XDG_RUNTIME_DIR", &directory);
    let output = command.output().expect("the command runs");
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{talk}");
    assert!(output.stdout.is_empty());
    assert_eq!(talk.lines().count(), 4, "{talk}");
    assert!(talk.contains("upcalld.sock"), "{talk}");

    command.env("XDG_RUNTIME_DIR", directory.join("x".repeat(120)));
    let output = command.output().expect("the command runs");
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), talk.lines().count()),
        (Some(125), 4),
        "{talk}"
    );
}
