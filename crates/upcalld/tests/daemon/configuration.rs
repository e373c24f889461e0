//! The configuration: what it decides, and what becomes of one that makes no sense.

use std::sync::atomic::Ordering;

use upcall_abi::STATUS_FULL;
use upcall_abi::{ASK_JOIN, Message};

use crate::client::{Client, Joined, list};
use crate::daemon::{Daemon, Place, until};
use crate::place::fails;

/// The share of the one space that there is.
fn share(place: &Place) -> u32 {
    let rows = list(&place.socket());
    assert_eq!(rows.len(), 1);
    rows[0].share
}

/// A space, and its connection.
fn joined(place: &Place) -> (Client, Joined) {
    let client = Client::connect(&place.socket()).unwrap();
    let joined = client.join().unwrap();
    (client, joined)
}

/// The name of this program's file.
fn own_name() -> String {
    let own = std::env::current_exe().unwrap();
    own.file_name().unwrap().to_str().unwrap().into()
}

fn hang_up(daemon: &Daemon, says: &str) -> String {
    daemon.signal(libc::SIGHUP);
    daemon.says(says)
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_with_its_line() {
    let place = Place::new("senseless");
    place.configure("log = 'info'\n\n[limits]\nprogram = 3\n");
    fails(&place, 6, "upcalld.toml, line 4: unknown field `program`");
    let status = |place: &Place| place.command().arg("--check").status().unwrap().code();
    assert_eq!(status(&place), Some(6));
    place.configure("log = 'info'\n\n[limits]\nprograms = 3\n");
    assert_eq!(status(&place), Some(0));
}

#[test]
fn a_configuration_that_is_named_must_be_there() {
    let place = Place::new("named");
    let missing = place.0.join("none.toml");
    let named = |path: &std::path::Path| {
        let output = place
            .command()
            .args(["--check", "--config"])
            .arg(path)
            .output()
            .unwrap();
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), talk)
    };
    let (status, talk) = named(&missing);
    assert_eq!(status, Some(6), "{talk}");
    assert_eq!(talk.lines().count(), 4, "{talk}");
    assert!(talk.contains("none.toml"), "{talk}");
    // A directory is none either, and neither are bytes that are no text.
    assert_eq!(named(&place.0).0, Some(6));
    std::fs::write(&missing, [0xff; 9]).unwrap();
    assert_eq!(named(&missing).0, Some(6));
}

#[test]
fn a_signal_has_it_read_again_and_what_makes_no_sense_changes_nothing() {
    let place = Place::new("again");
    let own = own_name();
    place.configure(&format!("[programs.'{own}']\nshare = 2\n"));
    let mut daemon = place.start();
    let (_client, space) = joined(&place);
    assert_eq!(share(&place), 2);
    // Programs that are there have what is configured now.
    place.configure(&format!(
        "[programs.'{own}']\nshare = 5\n[limits]\nprograms = 1\nshare = 3\n"
    ));
    hang_up(&daemon, "read again");
    until("the new share is in force", || {
        (share(&place) == 5).then_some(())
    });
    // One that asks is bounded, whatever it asks for.
    for (asks, has) in [(1, 1), (2, 2), (9, 3), (u32::MAX, 3), (0, 5)] {
        space.said().share.store(asks, Ordering::Relaxed);
        space.knock();
        until("its share is heard", || {
            (share(&place) == has).then_some(())
        });
    }
    place.configure("share = 3\n");
    let talk = hang_up(&daemon, "more: man 5 upcalld.toml");
    assert!(
        talk.contains("upcalld.toml, line 1: unknown field"),
        "{talk}"
    );
    assert!(talk.contains("until then the old one holds"), "{talk}");
    assert_eq!(share(&place), 5);
    assert!(daemon.lives());
}

/// The same process would be one space. So the other one is a child.
#[test]
fn a_user_has_as_many_programs_as_are_configured() {
    let place = Place::new("programs");
    place.configure("[limits]\nprograms = 1\n");
    let daemon = place.start();
    let (client, space) = joined(&place);
    let other = || {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "configuration::joins_as_a_child"])
            .env("UPCALLD_TEST_JOINS", place.socket())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let full = format!("status {STATUS_FULL}.");
    assert!(other().contains(&full));
    daemon.says("as many programs as allowed");
    drop((client, space));
    until("there is room", || {
        other().contains("status 0.").then_some(())
    });
}

/// The other process of `a_user_has_as_many_programs_as_are_configured`.
#[test]
fn joins_as_a_child() {
    let Some(socket) = std::env::var_os("UPCALLD_TEST_JOINS") else {
        return;
    };
    let client = Client::connect(socket.as_ref()).unwrap();
    client.send(&Message::new(ASK_JOIN).bytes()).unwrap();
    println!("status {}.", client.answer().expect("an answer").status);
}
