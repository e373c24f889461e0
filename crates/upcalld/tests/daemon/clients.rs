//! Clients that do what they like.

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use upcall_abi::{
    ASK_JOIN, MAGIC, Message, STATE_AWAY, STATE_ON, STATE_RESTING, STATUS_NONSENSE, STATUS_VERSION,
    VERSION,
};

use crate::client::{Client, list, wants};
use crate::daemon::{Daemon, Place, ends, until};
use crate::programs::{ENDLESS, begin, spinning};

#[test]
fn another_version_is_told_the_daemons_own() {
    let place = Place::new("version");
    let _daemon = place.start();
    let client = Client::connect(&place.socket()).unwrap();
    let message = Message {
        magic: MAGIC,
        version: VERSION + 1,
        ask: ASK_JOIN,
    };
    client.send(&message.bytes()).unwrap();
    let (packet, descriptors) = client.receive();
    let answer = upcall_abi::Answer::read(&packet).unwrap();
    assert_eq!((answer.status, answer.version), (STATUS_VERSION, VERSION));
    assert!(descriptors.is_empty());
    assert_eq!(client.receive().0, [0u8; 0], "the connection is closed");
}

#[test]
fn packets_that_make_no_sense_close_their_connection_alone() {
    let place = Place::new("nonsense");
    let mut daemon = place.start();
    let long = [0xa5u8; 5000];
    let unknown = Message::new(77).bytes();
    let twice = Message::new(ASK_JOIN).bytes();
    for packet in [&long[..], &long[..1], &long[..16], &unknown, &twice[..15]] {
        let client = Client::connect(&place.socket()).unwrap();
        client.send(packet).unwrap();
        assert_eq!(
            client.answer().map(|answer| answer.status),
            Some(STATUS_NONSENSE)
        );
        assert_eq!(client.receive().0, [0u8; 0]);
    }
    let client = Client::connect(&place.socket()).unwrap();
    let _joined = client.join().unwrap();
    client.send(&twice).unwrap();
    assert_eq!(
        client.answer().map(|answer| answer.status),
        Some(STATUS_NONSENSE)
    );
    until("the space is gone", || {
        list(&place.socket()).is_empty().then_some(())
    });
    assert!(daemon.lives());
}

#[test]
fn a_space_is_one_process_and_the_newer_connection_counts() {
    let place = Place::new("twice");
    let _daemon = place.start();
    let first = Client::connect(&place.socket()).unwrap();
    let told = first.join().unwrap().told();
    assert_ne!(told.alive.load(Ordering::Relaxed), 0);
    let second = Client::connect(&place.socket()).unwrap();
    let joined = second.join().unwrap();
    assert_eq!(told.alive.load(Ordering::Relaxed), 0);
    assert_eq!(first.receive().0, [0u8; 0]);
    let rows = list(&place.socket());
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].pid, rows[0].state),
        (std::process::id(), STATE_RESTING)
    );
    drop((second, joined));
    until("the space is gone", || {
        list(&place.socket()).is_empty().then_some(())
    });
}

#[test]
fn connections_beyond_the_limit_are_turned_away_and_their_end_makes_room() {
    let place = Place::new("flood");
    let mut daemon = place.start();
    // None of them says anything.
    let flood: Vec<Client> = (0..160)
        .map(|_| Client::connect(&place.socket()).unwrap())
        .collect();
    let more = Client::connect(&place.socket()).unwrap();
    assert_eq!(more.receive().0, [0u8; 0], "turned away");
    drop(flood);
    until("there is room again", || {
        Client::connect(&place.socket()).ok()?.join()
    });
    assert!(daemon.lives());
}

/// A daemon with so many descriptors, those that it inherits among them.
fn with_descriptors(place: &Place, limit: u64) -> Daemon {
    let mut command = place.command();
    // SAFETY: makes a system call and nothing else.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit {
                rlim_cur: limit,
                rlim_max: limit,
            };
            match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    Place::serving(command)
}

#[test]
fn without_descriptors_it_sleeps_and_serves_again_when_there_are_some() {
    // A client needs two: the last one finds none, or one.
    for limit in [32, 33] {
        sleeps_without_descriptors(limit);
    }
}

fn sleeps_without_descriptors(limit: u64) {
    let place = Place::new(&format!("descriptors{limit}"));
    let mut daemon = with_descriptors(&place, limit);
    let held: Vec<Client> = (0..40)
        .map_while(|_| Client::connect(&place.socket()).ok())
        .collect();
    daemon.says("no further connection is accepted for now");
    // It looks again from time to time, and does not turn round without end.
    let before = daemon.sleeps();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let looks = daemon.sleeps() - before;
    assert!(looks <= 8, "it looked {looks} times in two seconds");
    drop(held);
    until("there is room again", || {
        Client::connect(&place.socket()).ok()?.join()
    });
    assert!(daemon.lives());
}

/// The answers to its questions fill its socket. They are dropped, and others are served.
#[test]
fn a_client_that_never_reads_is_turned_away() {
    let place = Place::new("unread");
    let mut daemon = place.start();
    let space = Client::connect(&place.socket()).unwrap();
    let _joined = space.join().unwrap();
    let deaf = Client::connect(&place.socket()).unwrap();
    let question = Message::new(upcall_abi::ASK_LIST).bytes();
    until("it is turned away", || deaf.send(&question).err());
    assert_eq!(list(&place.socket()).len(), 1);
    assert!(daemon.lives());
}

/// As many connections and registrations as it can make, one after another, beside one that is served.
#[test]
fn a_flood_of_registrations_leaves_nothing_and_keeps_nobody_out() {
    let place = Place::new("torrent");
    let mut daemon = place.start();
    let before = daemon.descriptors();
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            for round in 0..2000 {
                let Ok(client) = Client::connect(&place.socket()) else {
                    continue;
                };
                match round % 3 {
                    0 => drop(client.join()),
                    1 => drop(client.send(&Message::new(ASK_JOIN).bytes())),
                    _ => {}
                }
            }
        });
        while !flood.is_finished() {
            let client = Client::connect(&place.socket()).unwrap();
            client
                .send(&Message::new(upcall_abi::ASK_LIST).bytes())
                .unwrap();
            assert!(client.answer().is_some(), "it was turned away");
        }
    });
    until("nothing of them is left", || {
        (daemon.descriptors() == before).then_some(())
    });
    assert!(daemon.lives());
}

/// Every word that a program can write is written, with all kinds of values, by one that knocks without end.
#[test]
fn garbage_in_every_word_leaves_the_daemon_sane() {
    let place = Place::new("garbage");
    let mut daemon = place.start();
    let client = Client::connect(&place.socket()).unwrap();
    let joined = client.join().unwrap();
    let (told, said) = (joined.told(), joined.said());
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        match random % 4 {
            0 => 0,
            1 => u64::MAX,
            2 => 3,
            _ => random,
        }
    };
    // SAFETY: the whole page is mapped, and consists of atomic words for all that read it.
    let words = unsafe {
        std::slice::from_raw_parts(
            std::ptr::from_ref(said).cast::<std::sync::atomic::AtomicU64>(),
            512,
        )
    };
    for _ in 0..20_000 {
        words[draw() as usize % 512].store(draw(), Ordering::Relaxed);
        words[2 + draw() as usize % 16].store(draw(), Ordering::Relaxed);
        joined.knock();
    }
    assert_ne!(told.alive.load(Ordering::Relaxed), 0);
    assert_eq!(list(&place.socket()).len(), 1);
    // What it says in the end counts, bounded by the processors that there are.
    for word in &words[2..13] {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    joined.knock();
    let row = until("it is heard", || {
        let row = list(&place.socket())[0];
        (row.wants[0] & 1 == 1).then_some(row)
    });
    assert!([STATE_ON, STATE_AWAY].contains(&row.state), "{row:?}");
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    if possible.trim() == "0-1" {
        assert_eq!(row.wants, [3, 0, 0, 0]);
    }
    assert!(daemon.lives());
}

#[expect(
    clippy::zombie_processes,
    reason = "the child is to outlive this process"
)]
/// The other process of `a_space_ends_with_its_process`: joins, leaves everything to a child, and ends.
#[test]
fn leaves_everything_to_a_child() {
    let Some(socket) = std::env::var_os("UPCALLD_TEST_LEAVES") else {
        return;
    };
    let client = Client::connect(socket.as_ref()).unwrap();
    let joined = client.join().unwrap();
    for file in [&client.0, &joined.told, &joined.said, &joined.knocker] {
        rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap();
    }
    let child = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(list(socket.as_ref()).len(), 1);
    println!("socket {} child {}", client.0.as_raw_fd(), child.id());
}

#[test]
fn a_space_ends_with_its_process_whoever_has_its_descriptors() {
    let place = Place::new("holder");
    let _daemon = place.start();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "clients::leaves_everything_to_a_child",
        ])
        .env("UPCALLD_TEST_LEAVES", place.socket())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let status = ends(&mut holder);
    // Its child has the other end of this pipe not.
    let mut text = String::new();
    std::io::Read::read_to_string(&mut holder.stdout.take().unwrap(), &mut text).unwrap();
    assert!(status.success(), "{text}");
    let words: Vec<&str> = text
        .lines()
        .find(|line| line.contains("child "))
        .expect("its line")
        .split(' ')
        .collect();
    let child: i32 = words[words.len() - 1].parse().unwrap();
    let _child = Killed(child);
    let socket = words[words.len() - 3];
    let held = std::fs::read_link(format!("/proc/{child}/fd/{socket}")).expect("the child lives");
    assert!(held.to_string_lossy().starts_with("socket:"), "{held:?}");
    until("the space is gone", || {
        list(&place.socket()).is_empty().then_some(())
    });
}

/// A process that outlived its parent.
struct Killed(i32);

impl Drop for Killed {
    fn drop(&mut self) {
        // SAFETY: the process that was named by its parent, which ends by nothing else meanwhile.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

/// The other process of `nobody_registers_another_process`: asks at a socket that it was given.
#[test]
fn asks_at_a_socket_of_its_parent() {
    let Some(number) = std::env::var_os("UPCALLD_TEST_SOCKET") else {
        return;
    };
    let number: i32 = number.to_str().unwrap().parse().unwrap();
    // SAFETY: the parent has left it open for this process alone.
    let client = Client(unsafe { std::os::fd::FromRawFd::from_raw_fd(number) });
    client.send(&Message::new(ASK_JOIN).bytes()).unwrap();
}

#[test]
fn nobody_registers_another_process() {
    let place = Place::new("another");
    let mut daemon = place.start();
    let client = Client::connect(&place.socket()).unwrap();
    rustix::io::fcntl_setfd(&client.0, rustix::io::FdFlags::empty()).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "clients::asks_at_a_socket_of_its_parent"])
        .env("UPCALLD_TEST_SOCKET", client.0.as_raw_fd().to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(ends(&mut child).success());
    assert_eq!(
        client.answer().map(|answer| answer.status),
        Some(STATUS_NONSENSE)
    );
    assert_eq!(client.receive().0, [0u8; 0]);
    assert_eq!(list(&place.socket()), []);
    assert!(daemon.lives());
}

/// A space that rests costs no wake-ups.
#[test]
fn the_daemon_sleeps_while_nobody_waits() {
    let place = Place::new("idle");
    let daemon = place.start();
    let client = Client::connect(&place.socket()).unwrap();
    let joined = client.join().unwrap();
    joined.said().wants[0].store(1, Ordering::Relaxed);
    joined.said().uses[0].store(1, Ordering::Relaxed);
    joined.knock();
    until("it is on", || {
        (list(&place.socket())[0].state == STATE_ON).then_some(())
    });
    // The end of the last question is heard, and then nothing.
    let mut before = daemon.sleeps();
    until("it is quiet", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let now = daemon.sleeps();
        (std::mem::replace(&mut before, now) == now).then_some(())
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(daemon.sleeps(), before, "it woke up");
}

/// A client that computes on the processors on which a program does, and leaves them when it is warned.
#[test]
fn who_leaves_at_the_warning_loses_its_processors_at_once() {
    let name = "who_leaves_at_the_warning_loses_its_processors_at_once";
    let Some((case, path, _alone)) = spinning(name) else {
        return;
    };
    let place = Place::new("leaves");
    place.configure("warning = 10\n");
    let _daemon = place.start();
    let _other = begin(&case, &path, &place, "other", ENDLESS);
    let client = Client::connect(&place.socket()).unwrap();
    let joined = client.join().unwrap();
    let (told, said) = (joined.told(), joined.said());
    let has_all = || {
        told.has
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == u64::MAX)
    };
    // What the other one wants; it is two processors once it computes on both.
    let wanted = until("the other one computes on both", || {
        let rows = list(&place.socket());
        let other = rows.iter().find(|row| row.pid != std::process::id())?;
        (wants(other) == 2).then_some(other.wants)
    });
    let say = |uses: [u64; 4]| {
        for (word, value) in said.wants.iter().zip(wanted) {
            word.store(value, Ordering::Relaxed);
        }
        for (word, value) in said.uses.iter().zip(uses) {
            word.store(value, Ordering::Relaxed);
        }
        let changes = told.changes.load(Ordering::Acquire);
        said.changes.store(changes, Ordering::Release);
        joined.knock();
    };
    let now = || upcall_linux::clock(libc::CLOCK_MONOTONIC);
    // A test that is late at the warning tries the next one.
    until("it leaves in time", || {
        say([0; 4]);
        until("it has its turn", || has_all().then_some(()));
        say(wanted);
        let leaves_at = until("it is warned, or has lost its turn", || {
            let leaves_at = told.leaves_at.load(Ordering::Relaxed);
            (leaves_at != 0 || !has_all()).then_some(leaves_at)
        });
        if leaves_at <= now() {
            return None;
        }
        say([0; 4]);
        until("it has lost its turn", || (!has_all()).then_some(()));
        (now() < leaves_at).then_some(())
    });
    assert_eq!(told.leaves_at.load(Ordering::Relaxed), 0);
}
