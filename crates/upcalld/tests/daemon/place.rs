//! Where the daemon is: stale sockets, second daemons, directories of others.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use program_tests::provision;

use crate::client::{Client, list};
use crate::daemon::{Place, is_there};

/// It ends with this status and an error of four lines, with this in it.
pub fn fails(place: &Place, status: i32, evidence: &str) {
    fails_of(
        &place.command().output().expect("it starts"),
        status,
        evidence,
    );
}

/// The same of one that has ended.
pub fn fails_of(output: &Output, status: i32, evidence: &str) {
    let Output {
        status: ended,
        stderr,
        ..
    } = output;
    let talk = String::from_utf8_lossy(stderr);
    assert_eq!(ended.code(), Some(status), "{talk}");
    assert!(talk.contains(evidence), "{talk}");
    assert_eq!(talk.lines().count(), 4, "{talk}");
    for (line, begin) in talk
        .lines()
        .zip(["upcalld: ", "  seen: ", "  try:  ", "  more: "])
    {
        assert!(line.starts_with(begin), "{talk}");
    }
}

#[test]
fn a_second_daemon_is_refused_and_the_first_one_serves() {
    let place = Place::new("second");
    let mut first = place.start();
    fails(&place, 3, "another upcalld runs here");
    assert!(first.lives());
    assert_eq!(list(&place.socket()), []);
}

#[test]
fn the_socket_of_a_daemon_that_was_killed_is_replaced() {
    let place = Place::new("stale");
    let mut first = place.start();
    first.signal(libc::SIGKILL);
    first.wait();
    assert!(is_there(&place.socket()));
    assert!(Client::connect(&place.socket()).is_err());
    let _second = place.start();
    assert_eq!(list(&place.socket()), []);
}

#[test]
fn a_signal_ends_it_with_status_0_and_its_socket_is_gone() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let place = Place::new("ends");
        let mut daemon = place.start();
        daemon.signal(signal);
        assert_eq!(daemon.wait().code(), Some(0));
        assert!(!is_there(&place.socket()));
        place.start();
    }
}

#[test]
fn a_directory_that_others_may_enter_is_refused() {
    let place = Place::new("open");
    let directory = place.0.join("upcall");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o750)).unwrap();
    fails(&place, 4, "its mode is 750");
    fs::remove_dir(&directory).unwrap();
    let elsewhere = Place::new("elsewhere");
    std::os::unix::fs::symlink(&elsewhere.0, &directory).unwrap();
    fails(&place, 4, "is not a directory of your own");
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_refused() {
    let place = Place::new("long");
    let long = Place(place.0.join("x".repeat(100)));
    fs::create_dir(&long.0).unwrap();
    fails(&long, 4, "cannot name");
}

#[test]
fn arguments_that_make_no_sense_are_an_error_of_their_own() {
    let place = Place::new("arguments");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_upcalld"));
    command
        .arg("--nonsense")
        .env("XDG_RUNTIME_DIR", &place.0)
        .env_remove("UPCALLD_USER");
    assert_eq!(command.output().unwrap().status.code(), Some(2));
}

#[test]
fn without_a_directory_for_the_socket_it_says_what_was_looked_at() {
    let place = Place::new("nowhere");
    let missing = place.0.join("missing");
    let mut command = place.command();
    let output = command.env("XDG_RUNTIME_DIR", &missing).output().unwrap();
    fails_of(&output, 4, "missing: no directory");
    let own = format!("/run/user/{}", rustix::process::geteuid().as_raw());
    if is_there(Path::new(&own)) {
        provision::skip(
            "without XDG_RUNTIME_DIR",
            "this user has a directory in /run/user",
        );
        return;
    }
    let output = command.env_remove("XDG_RUNTIME_DIR").output().unwrap();
    fails_of(&output, 4, "XDG_RUNTIME_DIR is not set");
}

#[test]
fn a_directory_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        provision::skip(
            "a_directory_of_another_user",
            "this user can give none away",
        );
        return;
    }
    let place = Place::new("theirs");
    let directory = place.0.join("upcall");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&directory, Some(65534), Some(65534)).unwrap();
    fails(&place, 4, "it belongs to user 65534");
}

/// Killed at all kinds of moments, it leaves a socket, a lock file or nothing: the next one serves.
#[test]
fn killed_at_any_moment_it_leaves_nothing_that_keeps_the_next_one_out() {
    let place = Place::new("killed");
    for moment in 0..40 {
        let mut killed = place
            .command()
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // From before its first instruction to when it serves.
        std::thread::sleep(std::time::Duration::from_micros(200 * moment));
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
    let left: Vec<_> = fs::read_dir(place.0.join("upcall"))
        .map(|entries| entries.map(|entry| entry.unwrap().file_name()).collect())
        .unwrap_or_default();
    let known = ["upcalld.lock", "upcalld.sock"];
    assert!(
        left.iter().all(|name| known.iter().any(|it| name == *it)),
        "{left:?}"
    );
    let _next = place.start();
    assert_eq!(list(&place.socket()), []);
}
