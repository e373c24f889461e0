//! The daemon of root, which observes. Without root, or in a build without the BPF half, these tests are skipped aloud.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use program_tests::case::Case;
use program_tests::program::Program;
use program_tests::provision;
use upcall_abi::{
    ASK_OBSERVE, Answer, Message, Now, OBSERVED_RUNNING, OBSERVED_SLOTS, Observed, STATUS_NOT_HERE,
    STATUS_OK,
};

use crate::client::Client;
use crate::daemon::{Daemon, Place, until};

const NOBODY: u32 = 65534;

/// A daemon that observes, if there can be one.
fn observing(name: &str) -> Option<(Place, Daemon)> {
    if !cfg!(feature = "bpf") {
        provision::skip(name, "the daemon is built without its BPF half");
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        provision::skip(name, "this user may not load BPF programs");
        return None;
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        provision::skip(name, "this kernel has no BTF");
        return None;
    }
    let place = Place::new(name);
    let daemon = place.observe();
    Some((place, daemon))
}

/// Asks for a page. Returns the status, and the page.
fn page_of(client: &Client) -> (u32, Option<OwnedFd>) {
    client.send(&Message::new(ASK_OBSERVE).bytes()).unwrap();
    let (packet, mut descriptors) = client.receive();
    let answer = Answer::read(&packet).expect("an answer");
    (answer.status, descriptors.pop())
}

fn map(page: &OwnedFd) -> &'static Observed {
    // SAFETY: a new mapping, which stays; any bytes are a valid page.
    unsafe {
        let place = libc::mmap(
            std::ptr::null_mut(),
            size_of::<Observed>(),
            libc::PROT_READ,
            libc::MAP_SHARED,
            page.as_raw_fd(),
            0,
        );
        assert_ne!(place, libc::MAP_FAILED);
        &*place.cast()
    }
}

fn now_of(page: &Observed, tid: u32) -> Now {
    Now(page.slots[tid as usize % OBSERVED_SLOTS]
        .now
        .load(Ordering::Acquire))
}

#[test]
fn a_process_gets_a_page_of_its_own_threads_alone() {
    let Some((place, mut daemon)) = observing("own-page") else {
        return;
    };
    let client = Client::connect(&place.observer()).unwrap();
    let (status, page) = page_of(&client);
    assert_eq!(status, STATUS_OK);
    let page = map(&page.expect("a page"));
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    std::thread::sleep(std::time::Duration::from_millis(1));
    let now = now_of(page, own);
    assert_eq!((now.tid(), now.state()), (own, OBSERVED_RUNNING));
    // Another process runs and sleeps, and is nowhere in it.
    let other = Command::new("sleep").arg("0.01").status().unwrap();
    assert!(other.success());
    let tasks: Vec<u32> = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    for slot in &page.slots {
        let tid = Now(slot.now.load(Ordering::Relaxed)).tid();
        // Threads of this process's other tests come and go.
        let is_own = tid == 0 || tasks.contains(&tid) || !is_alive(tid);
        assert!(is_own, "{tid} is another process's");
    }
    // It ends with the daemon, at once if that is asked to end.
    daemon.signal(libc::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(0));
    assert_eq!(page.alive.load(Ordering::Acquire), 0);
}

fn is_alive(tid: u32) -> bool {
    Path::new(&format!("/proc/{tid}")).exists()
}

#[test]
fn the_users_daemon_does_not_observe() {
    let place = Place::new("kinds-user");
    let _dividing = place.start();
    let client = Client::connect(&place.socket()).unwrap();
    assert_eq!(page_of(&client).0, STATUS_NOT_HERE);
}

/// A process that connects from another user, and what it is told.
fn told_as(place: &Place, user: u32, is_open: bool) -> u32 {
    let socket = place.observer();
    // A child that only makes system calls: a socket, and a question.
    let mut command = Command::new("true");
    let (mut reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the closure makes system calls and opens nothing that stays.
    unsafe {
        command.pre_exec(move || {
            libc::setresuid(user, user, user);
            libc::prctl(libc::PR_SET_DUMPABLE, i32::from(is_open));
            let client = Client::connect(&socket)?;
            let (status, _) = page_of(&client);
            rustix::io::write(&writer, &status.to_ne_bytes())?;
            Ok(())
        });
    }
    assert!(command.status().unwrap().success());
    drop(command);
    let mut status = [0; 4];
    std::io::Read::read_exact(&mut reader, &mut status).unwrap();
    u32::from_ne_bytes(status)
}

#[test]
fn users_are_served_and_what_hides_its_memory_is_not() {
    let Some((place, _daemon)) = observing("users") else {
        return;
    };
    // The way to the socket is the test's directory, which is root's alone.
    std::fs::set_permissions(
        &place.0,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    assert_eq!(told_as(&place, NOBODY, true), STATUS_OK);
    assert_eq!(told_as(&place, NOBODY, false), STATUS_NOT_HERE);
}

#[test]
fn a_program_whose_daemon_is_killed_loses_nothing() {
    let Some((place, mut daemon)) = observing("killed") else {
        return;
    };
    let case = Case::new("killed", Path::new(env!("CARGO_TARGET_TMPDIR")));
    if !case.runs_upcall() {
        return;
    }
    let Some(path) = case.compile("faults_served.c") else {
        return;
    };
    let launcher = case.launcher().with("--stats").with("-p1");
    let dir = case.fresh("killed");
    let mut running = Program::new(&path)
        .args(["1001", "begun", "end"])
        .env("UPCALL_OBSERVER", place.observer().to_str().unwrap())
        .start(&dir, Some(&launcher));
    until("it comes to its rounds", || {
        assert!(running.ended().is_none(), "it has ended");
        dir.join("begun").exists().then_some(())
    });
    daemon.signal(libc::SIGKILL);
    daemon.wait();
    // It is found again, and the page of the next one takes the place of the first one's.
    for _ in 0..2 {
        let mut daemon = place.observe();
        daemon.says(&format!("observed pid={}", running.pid()));
        daemon.signal(libc::SIGKILL);
        daemon.wait();
    }
    std::fs::write(dir.join("end"), "").expect("it is written");
    let outcome = running.finish();
    assert!(
        outcome.status.success() && outcome.stdout == b"ok faults_served\n",
        "{}\n{}",
        outcome.ending(),
        outcome.talk()
    );
    assert_ne!(outcome.counted("upcalls: blocked"), 0);
}
