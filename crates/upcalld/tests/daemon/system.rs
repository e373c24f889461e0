//! The system's daemon: programs of all users. Without root these tests are skipped aloud.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use program_tests::case::Case;
use program_tests::diagnosis::used;
use program_tests::guard::Running;
use program_tests::program::Program;
use program_tests::provision;
use upcall_abi::{ASK_OBSERVE, Answer, Message, STATE_WAITING, STATUS_NOT_HERE, STATUS_OK};

use crate::client::{Client, list, wants};
use crate::daemon::{Daemon, Place, ends, is_there, until};
use crate::programs::{ENDLESS, LONG, check, spinning};

const NOBODY: u32 = 65534;

/// A daemon of root, if there can be one.
fn dividing(name: &str) -> Option<(Place, Daemon)> {
    if !provision::is_root() {
        provision::skip(name, "it takes root");
        return None;
    }
    let place = Place::new(name);
    // The way to the socket is the test's directory, which is root's alone.
    std::fs::set_permissions(&place.0, PermissionsExt::from_mode(0o755)).expect("its own");
    let daemon = place.observe();
    Some((place, daemon))
}

/// The nice value of this kernel thread, and so of its children, is that of an ordinary program, whatever these tests have.
fn is_ordinary(name: &str) -> bool {
    // SAFETY: sets a value of this kernel thread.
    let answer = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
    if answer != 0 {
        provision::skip(name, "this process may not have the nice value 0");
    }
    answer == 0
}

/// A copy of the program that spins, under `upcall run` with these options, once it has come to its rounds.
fn spin(
    (case, path): (&Case, &Path),
    place: &Place,
    (label, user): (&str, u32),
    ms: &str,
    options: &[&str],
) -> Running {
    let dir = case.fresh(label);
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).expect("its own");
    let mut launcher = case.launcher().clone();
    for option in options {
        launcher = launcher.with(option);
    }
    let id = format!("--reuid={user}");
    let mut words: Vec<&OsStr> = vec![OsStr::new(&id), OsStr::new("--clear-groups")];
    words.extend(launcher.words().iter().map(|word| word.as_os_str()));
    words.extend([path.as_os_str(), OsStr::new(ms), OsStr::new("spins")]);
    let mut running = Program::new("/usr/bin/setpriv")
        .args(words)
        .env("UPCALL_OBSERVER", place.observer())
        .env("XDG_RUNTIME_DIR", place.0.join("none"))
        .start(&dir, None);
    until("it comes to its rounds", || {
        if running.ended().is_some() {
            return Some(());
        }
        dir.join("spins").exists().then_some(())
    });
    running
}

fn all_want_two(place: &Place, count: usize) {
    until("all of them compute, and some wait", || {
        let rows = list(&place.observer());
        let is_whole = rows.len() == count && rows.iter().all(|row| wants(row) == 2);
        let waits = rows.iter().any(|row| row.state == STATE_WAITING);
        (is_whole && waits).then_some(())
    });
}

/// What each has of the next ticks of processor time that all of them use together.
fn parts<const N: usize>(pids: [i32; N], ticks: u64) -> [u64; N] {
    let before = pids.map(used);
    until("they have used their time", || {
        let mut had = pids.map(used);
        for (had, before) in had.iter_mut().zip(before) {
            *had -= before;
        }
        (had.iter().sum::<u64>() > ticks).then_some(had)
    })
}

fn percent(part: u64, all: &[u64]) -> u64 {
    part * 100 / all.iter().sum::<u64>()
}

/// Of each kernel thread of a process: its nice value, and its policy of sched(7).
fn scheduling(pid: i32) -> Vec<(i32, i32)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let tids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<i32>().ok());
    tids.filter_map(|tid| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
        let nice = text.rsplit(')').next()?.split_whitespace().nth(16)?;
        // SAFETY: asks only.
        let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) };
        Some((nice.parse().ok()?, policy as i32))
    })
    .collect()
}

fn has_borrowed(pid: i32) -> bool {
    scheduling(pid).iter().any(|&(nice, _)| nice < 0)
}

fn has_its_own(pid: i32) -> bool {
    scheduling(pid)
        .iter()
        .all(|&it| it == (0, libc::SCHED_OTHER))
}

fn asks_to_be_observed(socket: &Path) -> u32 {
    let client = Client::connect(socket).unwrap();
    client.send(&Message::new(ASK_OBSERVE).bytes()).unwrap();
    Answer::read(&client.receive().0).expect("an answer").status
}

#[test]
fn one_daemon_divides_and_observes_where_it_can() {
    let Some((place, _daemon)) = dividing("both") else {
        return;
    };
    let client = Client::connect(&place.observer()).unwrap();
    let joined = client.join().expect("pages");
    assert_ne!(joined.told().alive.load(Ordering::Relaxed), 0);
    let can = cfg!(feature = "bpf") && Path::new("/sys/kernel/btf/vmlinux").exists();
    let expected = if can { STATUS_OK } else { STATUS_NOT_HERE };
    assert_eq!(asks_to_be_observed(&place.observer()), expected);
    // By the same connection, no.
    client.send(&Message::new(ASK_OBSERVE).bytes()).unwrap();
    assert_ne!(client.answer().map(|answer| answer.status), Some(STATUS_OK));
}

/// Without the rights, it says so twice, and divides.
#[test]
fn what_it_may_not_do_it_says_and_divides() {
    let name = "rights";
    if !provision::is_root() {
        return provision::skip(name, "it takes root");
    }
    let place = Place::new(name);
    let mut command = place.of_system();
    // SAFETY: makes system calls and nothing else.
    unsafe {
        command.pre_exec(|| {
            // All capabilities.
            for capability in 0..64 {
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            Ok(())
        });
    }
    let daemon = Place::serving(command);
    let before = daemon.before.clone();
    assert!(before.contains("programs are not observed"), "{before}");
    assert!(before.contains("no weight is lent"), "{before}");
    let client = Client::connect(&place.observer()).unwrap();
    assert!(client.join().is_some());
    assert_eq!(asks_to_be_observed(&place.observer()), STATUS_NOT_HERE);
}

/// Two programs of one user and one of another, which has more processor time than each of those, and is not shown them.
#[test]
fn users_are_served_evenly_and_see_their_own() {
    let name = "users_are_served_evenly_and_see_their_own";
    let Some((case, path, _alone)) = spinning(name) else {
        return;
    };
    let Some((place, mut daemon)) = dividing("users-half") else {
        return;
    };
    if !is_ordinary(name) {
        return;
    }
    let users = [("one", 0), ("two", 0), ("three", NOBODY)];
    let all = users.map(|whose| spin((&case, &path), &place, whose, ENDLESS, &["--stats"]));
    let pids = all.each_ref().map(Running::pid);
    all_want_two(&place, 3);
    let had = parts(pids, 500);
    println!("{had:?}");
    // Half and two quarters.
    assert!(had[..2].iter().all(|one| had[2] * 10 > one * 13), "{had:?}");
    let ratio = percent(had[0], &had[..2]);
    assert!((35..=65).contains(&ratio), "{had:?}");
    // What another user is shown.
    let ps = Command::new(case.launcher().upcall().expect("the command"))
        .args(["ps", "--json"])
        .env("UPCALL_OBSERVER", place.observer())
        .env("XDG_RUNTIME_DIR", place.0.join("none"))
        .uid(NOBODY)
        .output()
        .expect("it runs");
    let report: serde_json::Value = serde_json::from_slice(&ps.stdout).expect("JSON");
    let spaces = report["spaces"].as_array().expect("a list");
    assert_eq!(spaces.len(), 1, "{report}");
    assert_eq!(
        (&spaces[0]["pid"], &spaces[0]["user"]),
        (&pids[2].into(), &NOBODY.into())
    );
    // Everything is put back at the end.
    daemon.signal(libc::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(0));
    let left = pids.map(scheduling);
    assert!(pids.into_iter().all(has_its_own), "{left:?}");
    assert!(!is_there(&place.observer().with_file_name("upcalld.lent")));
}

/// Shares of 1 and 3 beside a native program of as many threads: the native one has its third, and turns and shares do not rest.
#[test]
fn shares_hold_beside_a_native_program_that_has_its_own() {
    let name = "shares_hold_beside_a_native_program";
    let Some((case, path, _alone)) = spinning(name) else {
        return;
    };
    let Some((place, daemon)) = dividing("shares-native") else {
        return;
    };
    if !is_ordinary(name) {
        return;
    }
    let native = Program::new(&path)
        .args([ENDLESS, "spins"])
        .start(&case.fresh("native"), None);
    let shares = [("one", "--share=1"), ("three", "--share=3")];
    let pair = shares.map(|(label, share)| {
        let options = ["--stats", share];
        spin((&case, &path), &place, (label, 0), ENDLESS, &options)
    });
    all_want_two(&place, 2);
    let pids = [pair[0].pid(), pair[1].pid(), native.pid()];
    let had = parts(pids, 1000);
    println!("{had:?}");
    // One to three.
    assert!(had[1] * 10 > had[0] * 15, "{had:?}");
    assert!((24..=43).contains(&percent(had[2], &had)), "{had:?}");
    // One that ends by itself says how often turns have rested.
    drop(pair);
    let other = spin((&case, &path), &place, ("other", 0), ENDLESS, &[]);
    let copy = spin((&case, &path), &place, ("copy", 0), LONG, &["--stats"]);
    let outcome = copy.finish();
    drop((other, native));
    check(&outcome);
    assert_ne!(outcome.counted("turns given by upcalld"), 0);
    assert_eq!(outcome.counted("truces"), 0);
    drop(daemon);
}

/// What a killed daemon has lent is put back by the next one, and by `--clean`; a daemon that lives is left alone.
#[test]
fn what_a_killed_daemon_has_lent_is_put_back() {
    let name = "what_a_killed_daemon_has_lent_is_put_back";
    let Some((case, path, _alone)) = spinning(name) else {
        return;
    };
    let Some((place, mut daemon)) = dividing("lent") else {
        return;
    };
    if !is_ordinary(name) {
        return;
    }
    let clean = || {
        let output = place.of_system().arg("--clean").output();
        let output = output.expect("it runs");
        (
            output.status.code(),
            String::from_utf8(output.stdout).expect("text"),
        )
    };
    for is_next in [false, true] {
        let pair = ["one", "other"]
            .map(|label| spin((&case, &path), &place, (label, 0), ENDLESS, &["--stats"]));
        let pids = pair.each_ref().map(Running::pid);
        until("one has the weight of both", || {
            pids.into_iter().any(has_borrowed).then_some(())
        });
        assert_eq!(clean(), (Some(3), String::new()));
        daemon.signal(libc::SIGKILL);
        daemon.wait();
        assert!(is_there(&place.observer()));
        if is_next {
            daemon = place.observe();
        } else {
            let (status, text) = clean();
            assert_eq!(status, Some(0));
            assert!(text.ends_with("socket: removed\n"), "{text}");
            let nothing = "weights put back: 0 programs; socket: not there\n";
            assert_eq!(clean(), (Some(0), nothing.into()));
            daemon = place.observe();
        }
        for pid in pids {
            assert!(has_its_own(pid), "{:?}", scheduling(pid));
        }
    }
}

/// The other process of the next test: says all kinds of things, and never gives way.
#[test]
fn says_all_kinds_of_things() {
    let Some(socket) = std::env::var_os("UPCALLD_TEST_SAYS") else {
        return;
    };
    let client = Client::connect(socket.as_ref()).unwrap();
    let joined = client.join().unwrap();
    let (told, said) = (joined.told(), joined.said());
    println!("it has joined");
    for round in 0u64.. {
        for word in said.wants.iter().chain(&said.uses).chain(&said.may) {
            let value = if round.is_multiple_of(3) { 0 } else { u64::MAX };
            word.store(value, Ordering::Relaxed);
        }
        let number = round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        said.truce_until.store(number, Ordering::Relaxed);
        said.share.store(number as u32, Ordering::Relaxed);
        let changes = told.changes.load(Ordering::Relaxed);
        said.changes.store(changes, Ordering::Relaxed);
        joined.knock();
        // Not all of a processor: that is no part of this.
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

#[test]
fn a_hostile_user_keeps_nobody_from_the_end() {
    let name = "a_hostile_user_keeps_nobody_from_the_end";
    let Some((case, path, _alone)) = spinning(name) else {
        return;
    };
    let Some((place, mut daemon)) = dividing("hostile-user") else {
        return;
    };
    if !is_ordinary(name) {
        return;
    }
    let mut hostile = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "system::says_all_kinds_of_things"])
        .env("UPCALLD_TEST_SAYS", place.observer())
        .stdout(Stdio::null())
        .uid(NOBODY)
        .spawn()
        .unwrap();
    until("it has joined", || {
        let rows = list(&place.observer());
        rows.iter().any(|row| row.user == NOBODY).then_some(())
    });
    let other = spin((&case, &path), &place, ("other", 0), ENDLESS, &[]);
    let copy = spin((&case, &path), &place, ("copy", 0), LONG, &["--stats"]);
    let outcome = copy.finish();
    assert!(hostile.try_wait().unwrap().is_none(), "it has ended");
    hostile.kill().unwrap();
    ends(&mut hostile);
    check(&outcome);
    assert!(daemon.lives());
    until("it is alone, and has its own weight", || {
        let rows = list(&place.observer());
        (rows.len() == 1 && has_its_own(other.pid())).then_some(())
    });
}

/// The system's daemon goes before the user's, which serves those that it refuses.
#[test]
fn who_is_refused_by_the_system_asks_the_users_daemon() {
    let name = "who_is_refused_by_the_system_asks_the_users_daemon";
    let Some((case, path, _alone)) = spinning(name) else {
        return;
    };
    if !provision::is_root() {
        return provision::skip(name, "it takes root");
    }
    let place = Place::new("refused");
    place.configure("[limits]\nprograms = 1\n");
    let mut system = place.of_system();
    system
        .arg("--config")
        .arg(place.0.join("config/upcall/upcalld.toml"));
    let _system = Place::serving(system);
    let _user = place.start();
    let begin = |label| {
        let dir = case.fresh(label);
        let mut running = Program::new(&path)
            .args([ENDLESS, "spins"])
            .env("UPCALL_OBSERVER", place.observer())
            .env("XDG_RUNTIME_DIR", &place.0)
            .start(&dir, Some(case.launcher()));
        until("it comes to its rounds", || {
            assert!(running.ended().is_none(), "{label} has ended");
            dir.join("spins").exists().then_some(())
        });
        running
    };
    let first = begin("first");
    let second = begin("second");
    until("each has one", || {
        let pids = |socket: &Path| {
            list(socket)
                .iter()
                .map(|row| row.pid as i32)
                .collect::<Vec<_>>()
        };
        let both = [pids(&place.observer()), pids(&place.socket())];
        (both == [vec![first.pid()], vec![second.pid()]]).then_some(())
    });
}
