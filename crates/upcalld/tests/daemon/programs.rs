//! Programs under `upcall run` that share two processors by the daemon.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use program_tests::case::Case;
use program_tests::diagnosis::used;
use program_tests::guard::Running;
use program_tests::program::{Outcome, Program};
use program_tests::provision;
use upcall_abi::{Row, STATE_ON, STATE_WAITING};

use crate::client::{Client, list, wants};
use crate::daemon::{Place, until};

/// One test at a time has the processors: programs of two daemons take no turns with each other.
static ALONE: Mutex<()> = Mutex::new(());

/// For how many milliseconds a copy spins: it has turns after some tens, and a truce after some hundred.
pub const LONG: &str = "2000";
pub const ENDLESS: &str = "0";

/// Two threads that meet at a spinning barrier.
pub fn spinning(name: &str) -> Option<(Case, PathBuf, MutexGuard<'static, ()>)> {
    if available_parallelism().map_or(1, usize::from) < 2 {
        provision::skip(name, "it takes two processors, and one is allowed");
        return None;
    }
    let case = Case::new(name, Path::new(env!("CARGO_TARGET_TMPDIR")));
    if !case.runs_upcall() {
        return None;
    }
    let path = case.compile("spin_copies.c")?;
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Some((case, path, alone))
}

/// Starts a copy, which spins for so many milliseconds, and waits until it has come to its rounds.
pub fn begin(case: &Case, path: &Path, place: &Place, label: &str, ms: &str) -> Running {
    begin_with(case, path, place, label, &[ms, "spins"], "--stats")
}

fn begin_with(
    case: &Case,
    path: &Path,
    place: &Place,
    label: &str,
    arguments: &[&str],
    option: &str,
) -> Running {
    let dir = case.fresh(label);
    let launcher = case.launcher().with(option);
    let mut running = Program::new(path)
        .args(arguments)
        .env("XDG_RUNTIME_DIR", &place.0)
        // Not the system's.
        .env("UPCALL_OBSERVER", place.observer())
        .start(&dir, Some(&launcher));
    until("it comes to its rounds", || {
        assert!(running.ended().is_none(), "{label} has ended");
        dir.join("spins").exists().then_some(())
    });
    running
}

pub fn check(outcome: &Outcome) {
    let fine = outcome.status.success() && outcome.stdout == b"ok spin_copies\n";
    assert!(fine, "{}\n{}", outcome.ending(), outcome.talk());
}

/// In the next three seconds of processor time none of them gets less than three tenths.
fn each_has_its_part(pids: [i32; 2]) {
    let before = pids.map(used);
    let had = until("they have used three seconds", || {
        let had = [0, 1].map(|at| used(pids[at]) - before[at]);
        (had[0] + had[1] > 300).then_some(had)
    });
    assert!(
        had.iter().all(|&part| part * 10 > (had[0] + had[1]) * 3),
        "{had:?}"
    );
}

/// Waits until a space waits for its turn.
fn one_waits(place: &Place) {
    until("one waits for the other", || {
        list(&place.socket())
            .iter()
            .any(|row| row.state == STATE_WAITING)
            .then_some(())
    });
}

#[test]
fn two_programs_that_spin_have_half_of_the_machine_each() {
    let Some((case, path, _alone)) =
        spinning("two_programs_that_spin_have_half_of_the_machine_each")
    else {
        return;
    };
    let place = Place::new("halves");
    let _daemon = place.start();
    let pair = ["one", "other"].map(|label| begin(&case, &path, &place, label, ENDLESS));
    let pids = pair.each_ref().map(Running::pid);
    until("one waits for the other", || {
        let mut states: Vec<u32> = list(&place.socket()).iter().map(|row| row.state).collect();
        states.sort_unstable();
        (states == [STATE_ON, STATE_WAITING]).then_some(())
    });
    each_has_its_part(pids);
}

/// Two programs with as many virtual processors as there are, and more threads than that: each goes on with half of the processors,
/// and with all when the other one is gone.
#[test]
fn two_programs_that_adapt_share_the_processors() {
    let name = "two_programs_that_adapt_share_the_processors";
    let Some((case, _, _alone)) = spinning(name) else {
        return;
    };
    let Some(path) = case.compile("compute_copies.c") else {
        return;
    };
    let place = Place::new("shares");
    let _daemon = place.start();
    let processors = available_parallelism().map_or(1, usize::from);
    let threads = (2 * processors).to_string();
    let arguments = [&threads, "spins"];
    let adapting = |label| begin_with(&case, &path, &place, label, &arguments, "--vps=1..1024");
    let pair = ["one", "other"].map(adapting);
    let pids = pair.each_ref().map(Running::pid);
    let words = |row: &Row| row.has.map(|word| word.count_ones()).iter().sum::<u32>() as usize;
    let apart = || {
        let rows = list(&place.socket());
        let [one, other] = rows.as_slice() else {
            return None;
        };
        let is_apart = (0..rows[0].has.len()).all(|at| one.has[at] & other.has[at] == 0);
        let counts = [one, other].map(words);
        (is_apart && counts[0] + counts[1] == processors).then_some(counts)
    };
    let counts = until("each has its part of the processors", apart);
    assert!(counts[0].abs_diff(counts[1]) <= 1, "{counts:?}");
    each_has_its_part(pids);
    let [one, other] = pair;
    drop(other);
    until("the one that is left has all processors", || {
        let rows = list(&place.socket());
        (rows.len() == 1 && words(&rows[0]) >= processors).then_some(())
    });
    drop(one);
}

/// It takes a while until the handler of time slices is there, since all descriptors are looked at. A timer that fires before that must
/// not be lost.
#[test]
fn a_program_with_many_descriptors_is_seen_to_compute_on_all_its_processors() {
    let name = "a_program_with_many_descriptors_is_seen_to_compute_on_all_its_processors";
    let Some((case, path, _alone)) = spinning(name) else {
        return;
    };
    let place = Place::new("many");
    let _daemon = place.start();
    let arguments = [ENDLESS, "spins", "3000"];
    let _running = begin_with(&case, &path, &place, "many", &arguments, "--stats");
    until("it computes on two processors", || {
        list(&place.socket())
            .iter()
            .any(|row| wants(row) == 2)
            .then_some(())
    });
}

#[test]
fn the_daemon_gives_turns() {
    let Some((case, path, _alone)) = spinning("the_daemon_gives_turns") else {
        return;
    };
    let place = Place::new("gives");
    let _daemon = place.start();
    let other = begin(&case, &path, &place, "other", ENDLESS);
    let outcome = begin(&case, &path, &place, "copy", LONG).finish();
    drop(other);
    check(&outcome);
    assert_ne!(outcome.counted("turns given by upcalld"), 0);
    until("both are gone", || {
        list(&place.socket()).is_empty().then_some(())
    });
}

#[test]
fn ps_shows_who_is_on_and_who_waits() {
    let Some((case, path, _alone)) = spinning("ps_shows_who_is_on_and_who_waits") else {
        return;
    };
    let place = Place::new("ps");
    let mut daemon = place.start();
    let pair = ["one", "other"].map(|label| begin(&case, &path, &place, label, ENDLESS));
    let upcall = case.launcher().upcall().expect("the command");
    let ps = |arguments: &[&str]| {
        let mut command = std::process::Command::new(upcall);
        command
            .arg("ps")
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &place.0)
            .env("UPCALL_OBSERVER", place.observer());
        command.output().expect("it runs")
    };
    let report: serde_json::Value = until("one waits for the other", || {
        let output = ps(&["--json"]);
        assert!(output.status.success());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let spaces = report["spaces"].as_array()?;
        let waits = spaces.iter().any(|space| space["state"] == "waiting");
        // In its first slices a program computes on one processor.
        let both = spaces
            .iter()
            .all(|space| space["wants"].as_array().map(Vec::len) == Some(2));
        (waits && both).then_some(report)
    });
    assert_eq!(report["v"], 1);
    let spaces = report["spaces"].as_array().expect("a list");
    let mut pids: Vec<i64> = spaces
        .iter()
        .filter_map(|space| space["pid"].as_i64())
        .collect();
    let mut expected = pair.each_ref().map(|one| i64::from(one.pid()));
    pids.sort_unstable();
    expected.sort_unstable();
    assert_eq!(pids, expected);
    for space in spaces {
        assert_eq!(
            space["program"],
            path.file_name().unwrap().to_str().unwrap()[..]
                .chars()
                .take(15)
                .collect::<String>()
        );
    }
    show_tells_the_same(upcall, &place, pair[0].pid());
    let table = ps(&[]).stdout;
    assert_eq!(String::from_utf8_lossy(&table).lines().count(), 3);
    drop(pair);
    daemon.signal(libc::SIGTERM);
    daemon.wait();
    let without = ps(&["--json"]);
    let talk = String::from_utf8_lossy(&without.stderr);
    assert_eq!(
        (without.status.code(), talk.lines().count()),
        (Some(125), 4),
        "{talk}"
    );
}

/// `upcall show` of a program of two spinning threads that the daemon has.
fn show_tells_the_same(upcall: &Path, place: &Place, pid: i32) {
    let show = |option: &[&str]| {
        let mut command = std::process::Command::new(upcall);
        command.arg("show").arg(pid.to_string()).args(option);
        command.env("UPCALL_OBSERVER", place.observer());
        let output = command.env("XDG_RUNTIME_DIR", &place.0).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let report: serde_json::Value = serde_json::from_str(&show(&["--json"])).expect("JSON");
    assert_eq!((&report["v"], &report["pid"]), (&1.into(), &pid.into()));
    assert_eq!(report["daemon"]["pid"], pid);
    assert_eq!(report["daemon"]["share"], 1);
    assert_eq!(report["no_daemon"], serde_json::Value::Null);
    let tasks = format!("/proc/{pid}/task");
    let list = |name: &str| report[name].as_array().expect("a list").clone();
    assert_eq!(
        list("vps").len(),
        available_parallelism().map_or(1, usize::from)
    );
    for (at, vp) in list("vps").iter().enumerate() {
        assert_eq!(vp["vp"], at);
        // Its owner is a kernel thread of the program, which knows its virtual processor; none, while it changes hands.
        let threads = list("kernel_threads");
        let owner = threads.iter().find(|one| one["tid"] == vp["owner"]);
        let Some(owner) = owner else {
            assert_eq!(vp["owner"], serde_json::Value::Null);
            continue;
        };
        assert_eq!((&owner["role"], &owner["vp"]), (&"owner".into(), &vp["vp"]));
    }
    let threads = list("kernel_threads");
    for one in &threads {
        assert!(
            Path::new(&tasks).join(one["tid"].to_string()).exists(),
            "{one}"
        );
    }
    let text = show(&[]);
    let both = list("vps").len() + threads.len();
    assert!(text.lines().count() >= both, "{text}");
    assert!(
        text.contains("daemon: ") && text.contains("share 1"),
        "{text}"
    );
}

/// In the middle the daemon gets this signal.
fn daemon_ends(name: &str, signal: libc::c_int) {
    let Some((case, path, _alone)) = spinning(name) else {
        return;
    };
    let place = Place::new(if signal == libc::SIGKILL {
        "kill"
    } else {
        "term"
    });
    let mut daemon = place.start();
    let other = begin(&case, &path, &place, "other", ENDLESS);
    let copy = begin(&case, &path, &place, "copy", "6000");
    one_waits(&place);
    daemon.signal(signal);
    daemon.wait();
    let outcome = copy.finish();
    drop(other);
    check(&outcome);
    let (all, given) = (
        outcome.counted("turns taken after waiting"),
        outcome.counted("turns given by upcalld"),
    );
    assert!(all > given, "{given} of {all}: they take turns without it");
}

#[test]
fn programs_go_on_when_the_daemon_is_killed() {
    daemon_ends("programs_go_on_when_the_daemon_is_killed", libc::SIGKILL);
}

#[test]
fn programs_go_on_when_the_daemon_ends() {
    daemon_ends("programs_go_on_when_the_daemon_ends", libc::SIGTERM);
}

#[test]
fn programs_find_a_daemon_that_comes_later_and_comes_back() {
    let name = "programs_find_a_daemon_that_comes_later_and_comes_back";
    let Some((case, path, _alone)) = spinning(name) else {
        return;
    };
    let place = Place::new("back");
    let _pair = ["one", "other"].map(|label| begin(&case, &path, &place, label, ENDLESS));
    for _ in 0..3 {
        let mut daemon = place.start();
        one_waits(&place);
        daemon.signal(libc::SIGKILL);
        daemon.wait();
    }
}

#[test]
fn programs_go_on_when_the_daemon_is_stopped() {
    let Some((case, path, _alone)) = spinning("programs_go_on_when_the_daemon_is_stopped") else {
        return;
    };
    let place = Place::new("stop");
    let daemon = place.start();
    let other = begin(&case, &path, &place, "other", ENDLESS);
    let copy = begin(&case, &path, &place, "copy", LONG);
    one_waits(&place);
    daemon.signal(libc::SIGSTOP);
    check(&copy.finish());
    drop(other);
}

/// A third process says all kinds of things, as fast as it can, and never gives way.
#[test]
fn a_hostile_client_keeps_nobody_from_the_end() {
    let Some((case, path, _alone)) = spinning("a_hostile_client_keeps_nobody_from_the_end") else {
        return;
    };
    let place = Place::new("hostile");
    let mut daemon = place.start();
    let over = AtomicBool::new(false);
    let client = Client::connect(&place.socket()).unwrap();
    let joined = client.join().unwrap();
    let said = joined.said();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0u64;
            while !over.load(Ordering::Relaxed) {
                round += 1;
                for word in said.wants.iter().chain(&said.uses) {
                    word.store(
                        if round.is_multiple_of(3) { 0 } else { u64::MAX },
                        Ordering::Relaxed,
                    );
                }
                said.truce_until
                    .store(round.wrapping_mul(0x9e37_79b9_7f4a_7c15), Ordering::Relaxed);
                said.changes.store(
                    joined.told().changes.load(Ordering::Relaxed),
                    Ordering::Relaxed,
                );
                joined.knock();
                // Not all of a processor: that is no part of this.
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        let other = begin(&case, &path, &place, "other", ENDLESS);
        let outcome = begin(&case, &path, &place, "copy", LONG).finish();
        over.store(true, Ordering::Relaxed);
        drop(other);
        check(&outcome);
    });
    assert!(daemon.lives());
    assert_eq!(
        list(&place.socket())
            .iter()
            .filter(|row| row.pid == std::process::id())
            .count(),
        1
    );
}

#[test]
fn a_program_whose_other_is_stopped_goes_on() {
    let Some((case, path, _alone)) = spinning("a_program_whose_other_is_stopped_goes_on") else {
        return;
    };
    let place = Place::new("stopped");
    let _daemon = place.start();
    let other = begin(&case, &path, &place, "other", ENDLESS);
    let copy = begin(&case, &path, &place, "copy", LONG);
    other.signal(libc::SIGSTOP);
    let outcome = copy.finish();
    drop(other);
    check(&outcome);
}

/// The native program computes on both processors.
#[test]
fn turns_rest_beside_a_native_program() {
    let Some((case, path, _alone)) = spinning("turns_rest_beside_a_native_program") else {
        return;
    };
    let place = Place::new("truce");
    let _daemon = place.start();
    let native = Program::new(&path)
        .args([ENDLESS, "spins"])
        .start(&case.fresh("native"), None);
    let other = begin(&case, &path, &place, "other", ENDLESS);
    let outcome = begin(&case, &path, &place, "copy", LONG).finish();
    drop((other, native));
    check(&outcome);
    assert_ne!(outcome.counted("turns given by upcalld"), 0);
    assert_ne!(outcome.counted("truces"), 0);
}

/// A program that spins leaves at the warnings; without a lead there are none.
#[test]
fn a_warned_program_leaves_before_the_end_of_its_turn() {
    let name = "a_warned_program_leaves_before_the_end_of_its_turn";
    let Some((case, path, _alone)) = spinning(name) else {
        return;
    };
    for lead in [0, 10] {
        let place = Place::new("warns");
        place.configure(&format!("warning = {lead}\n"));
        let _daemon = place.start();
        let other = begin(&case, &path, &place, "other", ENDLESS);
        let outcome = begin(&case, &path, &place, "copy", LONG).finish();
        drop(other);
        check(&outcome);
        let (turns, left) = (
            outcome.counted("turns given by upcalld"),
            outcome.counted("turns left at a warning"),
        );
        assert_ne!(turns, 0);
        assert_eq!(left != 0, lead != 0, "{left} of {turns} turns");
    }
}
