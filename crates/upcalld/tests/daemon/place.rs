//! Where the daemon is: stale sockets, second daemons, directories of others.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::client::{Client, list};
use crate::daemon::{Place, is_there};

/// It ends with this status and an error of four lines, with this in it.
pub fn fails(place: &Place, status: i32, evidence: &str) {
    let Output {
        status: ended,
        stderr,
        ..
    } = place.command().output().expect("it starts");
    let talk = String::from_utf8_lossy(&stderr);
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
