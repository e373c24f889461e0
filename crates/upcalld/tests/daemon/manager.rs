//! The daemon under a service manager: what that is told, and sockets that it has made.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use upcall_abi::{ASK_JOIN, ASK_LIST, Message, STATUS_OK};

use crate::client::{Client, list};
use crate::daemon::{Place, is_there};
use crate::place::fails_of;

/// The next thing that the daemon tells.
fn told(manager: &UnixDatagram) -> String {
    let mut room = [0u8; 4096];
    let length = manager.recv(&mut room).expect("a datagram");
    String::from_utf8_lossy(&room[..length]).into_owned()
}

#[test]
fn the_service_manager_is_told_how_it_is() {
    let place = Place::new("notify");
    let path = place.0.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let mut command = place.command();
    command.env("NOTIFY_SOCKET", &path);
    let mut daemon = Place::serving(command);
    assert!(told(&manager).contains("READY=1\nSTATUS=Divides"));
    daemon.signal(libc::SIGHUP);
    let again = told(&manager);
    assert!(again.contains("RELOADING=1\nMONOTONIC_USEC="), "{again}");
    assert!(told(&manager).contains("READY=1"));
    place.configure("nonsense = 1\n");
    daemon.signal(libc::SIGHUP);
    assert!(told(&manager).contains("RELOADING=1"));
    let refused = told(&manager);
    assert!(refused.contains("READY=1"), "{refused}");
    assert!(
        refused.contains("refused") && refused.contains("line 1"),
        "{refused}"
    );
    daemon.signal(libc::SIGTERM);
    assert!(told(&manager).contains("STOPPING=1"));
    assert_eq!(daemon.wait().code(), Some(0));
}

/// A daemon that is given these descriptors.
fn given(place: &Place, sockets: &[&OwnedFd], count: usize) -> Command {
    let plain = place.command();
    let mut command = Command::new("sh");
    command
        .args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""])
        .arg(plain.get_program())
        .args(plain.get_args())
        .env("LISTEN_FDS", count.to_string());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let numbers: Vec<i32> = sockets.iter().map(|socket| socket.as_raw_fd()).collect();
    // SAFETY: calls fcntl and dup2 alone, after fork. The first copies are beyond all that are given.
    unsafe {
        command.pre_exec(move || {
            // What this process was given itself.
            libc::fcntl(3, libc::F_SETFD, libc::FD_CLOEXEC);
            let mut copies = [-1; 4];
            for (copy, &number) in copies.iter_mut().zip(&numbers) {
                *copy = libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 100);
            }
            for (at, &copy) in copies.iter().take(numbers.len()).enumerate() {
                if libc::dup2(copy, 3 + at as i32) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command
}

fn listening(place: &Place, kind: SocketType) -> OwnedFd {
    std::fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(place.0.join("upcall"))
        .unwrap();
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    rustix::net::sockopt::set_socket_passcred(&socket, true).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(place.socket()).unwrap()).unwrap();
    socket
}

#[test]
fn what_has_come_before_the_daemon_is_answered() {
    let place = Place::new("activated");
    let socket = listening(&place, SocketType::SEQPACKET);
    rustix::net::listen(&socket, 8).unwrap();
    let early = Client::connect(&place.socket()).unwrap();
    early.send(&Message::new(ASK_JOIN).bytes()).unwrap();
    let mut daemon = Place::serving(given(&place, &[&socket], 1));
    assert_eq!(early.answer().map(|answer| answer.status), Some(STATUS_OK));
    assert_eq!(list(&place.socket()).len(), 1);
    // A second one is refused, and the socket is the manager's still.
    let talk = given(&place, &[&socket], 1).output().unwrap();
    fails_of(&talk, 3, "another upcalld runs here");
    daemon.signal(libc::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(is_there(&place.socket()));
    // The next one goes on with it, after one that was killed, too.
    for _ in 0..2 {
        let waits = Client::connect(&place.socket()).unwrap();
        waits.send(&Message::new(ASK_LIST).bytes()).unwrap();
        let daemon = Place::serving(given(&place, &[&socket], 1));
        assert_eq!(waits.answer().map(|answer| answer.count), Some(0));
        drop(daemon);
    }
}

#[test]
fn a_socket_of_another_kind_is_refused() {
    let place = Place::new("kinds");
    let fails = |sockets: &[&OwnedFd], count, evidence| {
        let output = given(&place, sockets, count).output().unwrap();
        fails_of(&output, 4, evidence);
    };
    let socket = listening(&place, SocketType::SEQPACKET);
    fails(&[&socket], 1, "it does not listen");
    rustix::net::listen(&socket, 8).unwrap();
    rustix::net::sockopt::set_socket_passcred(&socket, false).unwrap();
    fails(&[&socket], 1, "PassCredentials=yes is missing");
    fails(&[&socket, &socket], 2, "one socket was expected");
    fails(&[], 1, "cannot be taken");
    std::fs::remove_file(place.socket()).unwrap();
    let stream = listening(&place, SocketType::STREAM);
    rustix::net::listen(&stream, 8).unwrap();
    fails(&[&stream], 1, "ListenSequentialPacket=");
    let file = std::fs::File::open("/dev/null").unwrap().into();
    fails(&[&file], 1, "is of no use");
}
