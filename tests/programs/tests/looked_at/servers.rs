//! Real programs: every thread is there, and its call chain goes back to where it began.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use program_tests::guard::limit;
use program_tests::provision;

use crate::gdb;
use crate::stacks::{parts, says};
use crate::subject::{Subject, case};

/// The server has answered, so all of its threads are there.
fn answers(socket: &Path) {
    let deadline = Instant::now() + limit();
    let mut server = loop {
        match UnixStream::connect(socket) {
            Ok(server) => break server,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    server.write_all(b"version\r\n").expect("it listens");
    let mut answer = [0; 8];
    server.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"VERSION ");
}

/// The call chain of a thread goes back to where libc begins it. Its names depend on the installed debug information.
fn begins_in_libc(part: &str) -> bool {
    ["libc.so.6", "clone", "__libc_start"].iter().any(|name| {
        let mut last = part.trim_end().lines().rev().take(2);
        last.any(|line| line.contains(name))
    })
}

#[test]
fn every_thread_of_memcached_is_shown() {
    let name = "every_thread_of_memcached_is_shown";
    let (Some(path), Some(case)) = (
        provision::program(name, "memcached", "memcached"),
        case(name),
    ) else {
        return;
    };
    // A socket's path must be short.
    let socket = std::env::temp_dir().join(format!("upcall-looked-at-{}", std::process::id()));
    let arguments = ["-u", "nobody", "-t", "4", "-s"].map(AsRef::as_ref);
    let arguments = [arguments.as_slice(), &[socket.as_ref()]].concat();
    let subject = Subject::launched(case, &[], path, &arguments, "");
    answers(&socket);
    std::fs::remove_file(&socket).expect("it is there");
    let pid = subject.pid().to_string();
    let text = says(subject.case.launcher(), &["--stop".as_ref(), pid.as_ref()]);
    let all = parts(&text);
    let workers = all
        .iter()
        .filter(|part| part.contains("\"mc-worker\""))
        .count();
    assert_eq!(workers, 4, "{text}");
    for part in &all {
        // A function of the program's, and the first of all threads.
        let is_whole = part.contains("memcached") && begins_in_libc(part);
        assert!(is_whole, "{part}\n{text}");
    }
    let Some(debugger) = gdb::gdb(name) else {
        return;
    };
    let core = subject.directory.join("gcore");
    let core = core.to_str().expect("a path of ours");
    let save = format!("gcore {core}");
    let live = gdb::says(&debugger, &["-p", &pid], &["info upcall threads", &save]);
    let program = subject.path.to_str().expect("a path");
    let dead = gdb::says(&debugger, &[program, core], &["info upcall threads"]);
    for text in [live, dead] {
        let rows = text.lines().filter(|line| line.contains(" mc-worker "));
        let waiting = rows.filter(|line| line.contains("epoll")).count();
        assert_eq!(waiting, 4, "{text}");
    }
}

const JAVA: &str = "\
public class Known {
    static final Object never = new Object();
    public static void main(String[] words) throws Exception {
        Thread waiter = new Thread(() -> {
            synchronized (never) {
                try { never.wait(); } catch (InterruptedException e) { }
            }
        }, \"waiter\");
        Thread sleeper = new Thread(() -> {
            try { Thread.sleep(100_000_000); } catch (InterruptedException e) { }
        }, \"sleeper\");
        waiter.start();
        sleeper.start();
        while (waiter.getState() != Thread.State.WAITING
            || sleeper.getState() != Thread.State.TIMED_WAITING)
            Thread.sleep(1);
        System.out.println(\"ready\");
        waiter.join();
    }
}
";

#[test]
fn every_thread_of_a_java_program_is_shown() {
    let name = "every_thread_of_a_java_program_is_shown";
    let (Some(compiler), Some(java), Some(case)) = (
        provision::program(name, "javac", "default-jdk-headless"),
        provision::program(name, "java", "default-jdk-headless"),
        case(name),
    ) else {
        return;
    };
    let classes = case.fresh("classes");
    let source = classes.join("Known.java");
    std::fs::write(&source, JAVA).expect("the directory is ours");
    let status = Command::new(compiler).arg(&source).status();
    assert!(status.expect("javac starts").success());
    let arguments = ["-Xmx64m", "-cp"].map(AsRef::as_ref);
    let arguments = [arguments.as_slice(), &[classes.as_ref(), "Known".as_ref()]].concat();
    let subject = Subject::launched(case, &[], java, &arguments, "ready");
    let pid = subject.pid().to_string();
    let text = says(subject.case.launcher(), &["--stop".as_ref(), pid.as_ref()]);
    let all = parts(&text);
    // The collector's, the compiler's and others beside the program's own.
    assert!(all.len() > 8, "{text}");
    for (thread, function) in [
        ("\"waiter\"", "JVM_MonitorWait"),
        ("\"sleeper\"", "JVM_Sleep"),
    ] {
        let part = all.iter().find(|part| part.contains(thread)).expect(&text);
        assert!(part.contains(function), "{text}");
    }
    for part in &all[1..] {
        let is_whole = part.contains("libjvm.so") && begins_in_libc(part);
        assert!(is_whole, "{part}\n{text}");
    }
}
