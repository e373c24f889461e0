//! What is counted, and who asks for it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::client::{Client, list};
use crate::daemon::{Place, is_there, until};
use crate::place::fails;

/// The answer to a request.
fn asked(path: &Path, request: &[u8]) -> String {
    let mut socket = UnixStream::connect(path).expect("it is served");
    socket.write_all(request).expect("written");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("text");
    text
}

/// What is counted under this name.
fn counted(path: &Path, name: &str) -> Option<u64> {
    let text = asked(path, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn configured(name: &str) -> (Place, std::path::PathBuf) {
    let place = Place::new(name);
    let path = place.0.join("metrics");
    place.configure(&format!("metrics = '{}'\n", path.display()));
    (place, path)
}

#[test]
fn what_the_daemon_has_done_is_counted() {
    let (place, path) = configured("counts");
    let _daemon = place.start();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(counted(&path, "upcalld_programs "), Some(0));
    assert_eq!(
        counted(&path, "upcalld_refused_total{reason=\"nonsense\"} "),
        None
    );
    let client = Client::connect(&place.socket()).unwrap();
    let _joined = client.join().unwrap();
    let nonsense = Client::connect(&place.socket()).unwrap();
    nonsense.send(b"nonsense").unwrap();
    assert!(nonsense.answer().is_some());
    assert_eq!(counted(&path, "upcalld_programs "), Some(1));
    assert_eq!(counted(&path, "upcalld_joined_total "), Some(1));
    assert_eq!(
        counted(&path, "upcalld_refused_total{reason=\"nonsense\"} "),
        Some(1)
    );
    assert!(counted(&path, "upcalld_divisions_total ") > Some(0));
}

#[test]
fn whoever_asks_nonsense_or_nothing_is_in_nobodys_way() {
    let (place, path) = configured("askers");
    let mut daemon = place.start();
    let silent: Vec<UnixStream> = (0..40)
        .map(|_| UnixStream::connect(&path).expect("it is served"))
        .collect();
    assert!(asked(&path, b"DELETE / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(asked(&path, &[b'G'; 5000]).starts_with("HTTP/1.1 405"));
    // One that has asked and does not read.
    let mut deaf = UnixStream::connect(&path).unwrap();
    deaf.write_all(b"GET / HTTP/1.0\n\n").unwrap();
    assert_eq!(counted(&path, "upcalld_programs "), Some(0));
    assert_eq!(list(&place.socket()), []);
    drop((silent, deaf));
    until("they are forgotten", || {
        (counted(&path, "upcalld_connections ") == Some(0)).then_some(())
    });
    // Nothing of it wakes the daemon afterwards.
    let mut before = daemon.sleeps();
    until("it is quiet", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let now = daemon.sleeps();
        (std::mem::replace(&mut before, now) == now).then_some(())
    });
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(daemon.sleeps(), before, "it woke up");
    assert!(daemon.lives());
}

#[test]
fn the_configuration_says_where_and_changes_it() {
    let (place, path) = configured("where");
    let mut daemon = place.start();
    assert_eq!(counted(&path, "upcalld_programs "), Some(0));
    let other = place.0.join("elsewhere");
    place.configure(&format!("metrics = '{}'\n", other.display()));
    daemon.signal(libc::SIGHUP);
    daemon.says("read again");
    assert_eq!(counted(&other, "upcalld_programs "), Some(0));
    assert!(!is_there(&path));
    // What cannot be is refused, and the old one goes on.
    place.configure(&format!("metrics = '{}/none/x'\n", place.0.display()));
    daemon.signal(libc::SIGHUP);
    daemon.says("until then the old one holds");
    assert_eq!(counted(&other, "upcalld_programs "), Some(0));
    // One that was killed leaves its socket, and the next one replaces it.
    place.configure(&format!("metrics = '{}'\n", other.display()));
    daemon.signal(libc::SIGKILL);
    daemon.wait();
    assert!(is_there(&other));
    let mut next = place.start();
    assert_eq!(counted(&other, "upcalld_programs "), Some(0));
    next.signal(libc::SIGTERM);
    assert_eq!(next.wait().code(), Some(0));
    assert!(!is_there(&other));
}

#[test]
fn what_is_no_socket_of_a_dead_daemon_is_left_alone() {
    let (place, path) = configured("left");
    fs::write(&path, "theirs").unwrap();
    fails(&place, 4, "there is a file that is no socket");
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    fs::remove_file(&path).unwrap();
    let _theirs = std::os::unix::net::UnixListener::bind(&path).unwrap();
    fails(&place, 4, "somebody else serves there");
    assert!(UnixStream::connect(&path).is_ok());
}
