//! System calls that the runtime makes beside those of the program, counted by strace(1).

use crate::real;
use program_tests::program::Program;
use program_tests::provision;
use std::fs;
use std::process::Command;

/// How many connections each part of one program accepts, and how often one sends and receives in the other.
const TURNS: usize = 200;

/// Calls on the socket that accepts.
struct Asked {
    accepts: usize,
    polls: usize,
    flags: usize,
    listens: usize,
}

/// The system calls of these names that `part` of a program makes. None if the case must be skipped.
fn traced(name: &str, program: &str, part: &str, names: &str) -> Option<Vec<String>> {
    let (case, path) = real(name, program)?;
    let strace = provision::program(name, "strace", "strace")?;
    let traces = Command::new(&strace)
        .args(["-o", "/dev/null", "true"])
        .status();
    if !traces.is_ok_and(|status| status.success()) {
        provision::skip(name, "strace cannot trace here");
        return None;
    }
    let program = Program::new(strace)
        .args(["-f", "-o", "calls", "-e", &format!("trace={names}")])
        .args(case.launcher().words())
        .arg(path)
        .arg(part);
    let outcome = case.run_native(&program);
    assert!(outcome.status.success(), "{}", outcome.talk());
    let calls = fs::read_to_string(case.native_dir().join("calls")).expect("strace has written it");
    let without_id = |line: &str| Some(line.split_once(' ')?.1.trim_start().to_owned());
    Some(calls.lines().filter_map(without_id).collect())
}

/// What `part` of `accept_calls.c` asks the kernel. None if the case must be skipped.
fn asked(name: &str, part: &str) -> Option<Asked> {
    let names = "accept,accept4,poll,fcntl,getsockopt";
    let calls = traced(name, "accept_calls.c", part, names)?;
    let socket = calls.iter().find_map(|call| call.strip_prefix("accept"));
    let socket = socket.expect("it accepts").trim_start_matches('4');
    let socket: String = socket[1..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let count = |begin: &str| calls.iter().filter(|call| call.starts_with(begin)).count();
    Some(Asked {
        accepts: count(&format!("accept({socket},")) + count(&format!("accept4({socket},")),
        polls: count(&format!("poll([{{fd={socket},")),
        flags: count(&format!("fcntl({socket}, F_GETFL")),
        listens: count(&format!("getsockopt({socket}, SOL_SOCKET, SO_ACCEPTCONN")),
    })
}

/// It was asked for each connection that was waited for.
#[test]
fn a_socket_is_asked_once_if_it_listens() {
    let Some(asked) = asked("a_socket_is_asked_once_if_it_listens", "waits") else {
        return;
    };
    // Otherwise its threads have blocked, and nothing was tried.
    assert!(asked.polls >= TURNS, "{} polls", asked.polls);
    assert_eq!(asked.accepts, TURNS);
    let (flags, listens) = (asked.flags, asked.listens);
    assert!(flags <= 1 && listens <= 1, "{flags} and {listens} times");
}

/// poll(2) was asked for each accept(2), and for its flags where nobody had come.
#[test]
fn a_socket_that_never_waits_is_asked_nothing() {
    let Some(asked) = asked("a_socket_that_never_waits_is_asked_nothing", "never") else {
        return;
    };
    assert_eq!(asked.accepts, 2 * TURNS);
    let (polls, flags, listens) = (asked.polls, asked.flags, asked.listens);
    assert!(
        polls == 0 && flags <= 1 && listens == 0,
        "{polls} polls, flags {flags} times, listens {listens} times"
    );
}

/// A send took MSG_DONTWAIT or pwritev2(2) in the program's place, and a read preadv2(2).
#[test]
fn calls_on_a_socket_that_never_waits_are_made_as_they_stand() {
    let name = "calls_on_a_socket_that_never_waits_are_made_as_they_stand";
    let names = "read,preadv2,write,pwritev2,sendto,recvfrom,recvmsg";
    let Some(calls) = traced(name, "prompt_calls.c", "connections", names) else {
        return;
    };
    let count = |begins: &[&str]| {
        let such = |call: &&String| begins.iter().any(|begin| call.starts_with(begin));
        calls.iter().filter(such).count()
    };
    let own = count(&["read(", "write(", "sendto(", "recvfrom(", "recvmsg("]);
    assert!(own >= 6 * TURNS, "{own} calls of the program's");
    // The first ones of each of two sockets.
    let tries = count(&["preadv2(", "pwritev2("]);
    assert!(tries <= 8, "{tries} tries");
}
