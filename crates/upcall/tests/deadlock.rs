//! A deadlock of all threads is said, with where each one waits; a process that may go on is left alone.

use std::env;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use upcall::sync::{Barrier, Mutex, Semaphore};
use upcall::thread::Builder;

const ALL: &[&str] = &[
    "two_mutexes",
    "std_too",
    "a_channel_without_sender",
    "after_many_threads",
    "a_piece_that_waits_for_its_creator",
];
const NONE: &[&str] = &["quiet", "with_a_handler", "with_a_timer", "with_a_socket"];

#[inline(never)]
fn takes_two(first: &Mutex<u32>, second: &Mutex<u32>, both: &Barrier) {
    let mut first = first.lock().unwrap();
    both.wait();
    *first += *second.lock().unwrap();
}

fn two_mutexes() {
    let mutexes = Arc::new((Mutex::new(1), Mutex::new(2), Barrier::new(2)));
    let threads = [false, true].map(|swapped| {
        let mutexes = mutexes.clone();
        Builder::new()
            .name(format!("philosopher {}", u8::from(swapped)))
            .spawn(move || {
                let (first, second, both) = &*mutexes;
                match swapped {
                    false => takes_two(first, second, both),
                    true => takes_two(second, first, both),
                }
            })
            .unwrap()
    });
    for thread in threads {
        thread.join().unwrap();
    }
}

#[inline(never)]
fn locks_twice(mutex: &std::sync::Mutex<u32>) -> u32 {
    let first = mutex.lock().unwrap();
    *first + *mutex.lock().unwrap()
}

fn std_too() {
    let mutex = std::sync::Mutex::new(1);
    std::thread::scope(|scope| {
        scope.spawn(|| locks_twice(&mutex));
        // Something that ends before, by itself.
        scope.spawn(|| std::thread::sleep(Duration::from_millis(5)));
    });
}

#[inline(never)]
fn receives(from: &std::sync::mpsc::Receiver<u32>) -> u32 {
    from.recv().unwrap()
}

fn a_channel_without_sender() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let kept = sender.clone();
    receives(&receiver);
    drop((sender, kept));
}

#[inline(never)]
fn waits_for_its_creator(joined: &Semaphore) {
    joined.acquire();
    // Not its last call: it would not be there.
    std::hint::black_box(joined);
}

#[inline(never)]
fn joins_first(joined: &Semaphore) {
    let begun = Semaphore::new(0);
    upcall::join(
        || begun.acquire(),
        || {
            begun.release();
            waits_for_its_creator(joined);
        },
    );
    joined.release();
}

fn start(vps: u32, report: bool) {
    upcall::Runtime::builder()
        .virtual_processors(vps, vps)
        .report_deadlocks(report)
        .start()
        .expect("starts");
}

fn case(name: &str, vps: u32) {
    start(vps, name != "quiet");
    match name {
        "two_mutexes" | "quiet" => two_mutexes(),
        "std_too" => std_too(),
        "a_channel_without_sender" => a_channel_without_sender(),
        "a_piece_that_waits_for_its_creator" => joins_first(&Semaphore::new(0)),
        // The runtime looks after what they leave behind.
        "after_many_threads" => {
            let all = Barrier::new(300);
            upcall::thread::scope(|scope| {
                for _ in 0..300 {
                    scope.spawn(|| all.wait());
                }
            });
            two_mutexes();
        }
        "with_a_handler" => {
            extern "C" fn nothing(_: i32) {}
            let nothing = nothing as extern "C" fn(i32) as usize;
            // SAFETY: a handler that does nothing.
            unsafe { libc::signal(libc::SIGUSR1, nothing) };
            two_mutexes();
        }
        "with_a_timer" => {
            // SAFETY: asks for a signal, long after this is over.
            unsafe { libc::alarm(3600) };
            two_mutexes();
        }
        "with_a_socket" => {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            std::thread::spawn(move || listener.accept());
            two_mutexes();
        }
        _ => panic!("no such case"),
    }
    unreachable!("a deadlock");
}

/// A process with this case.
fn child(name: &str, vps: u32) -> Child {
    Command::new(env::current_exe().unwrap())
        .args([name, &vps.to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Ends with the test, however that ends.
struct Silent(Child);

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// Reads until the report is complete; no time limit but the test runner's.
fn report_of(child: &mut Child) -> String {
    let mut errors = child.stderr.take().unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"quiet.)\n") {
        let mut byte = [0];
        assert_eq!(errors.read(&mut byte).unwrap(), 1, "it has ended");
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

fn main() {
    if !upcall_linux::arch::SERVES_PROGRAMS {
        println!("skipped: not on this architecture");
        return;
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [name, vps] = &*arguments
        && ALL.iter().chain(NONE).any(|known| known == name)
    {
        return case(name, vps.parse().unwrap());
    }
    // SAFETY: what hangs ends by this.
    unsafe { libc::alarm(100) };
    for vps in [1, 2, 4] {
        let mut silent: Vec<_> = NONE.iter().map(|name| Silent(child(name, vps))).collect();
        for name in ALL {
            let mut child = child(name, vps);
            let report = report_of(&mut child);
            child.kill().unwrap();
            child.wait().unwrap();
            let (count, places): (usize, &[&str]) = match *name {
                "two_mutexes" | "after_many_threads" => {
                    (3, &["takes_two", "philosopher 0", "philosopher 1"])
                }
                "std_too" => (2, &["locks_twice"]),
                "a_piece_that_waits_for_its_creator" => {
                    (2, &["joins_first", "waits_for_its_creator"])
                }
                _ => (1, &["receives"]),
            };
            assert!(report.contains(&format!("all {count} threads")), "{report}");
            for place in places {
                assert!(report.contains(place), "{place} is missing:\n{report}");
            }
            assert_eq!(report.matches("waits at:").count(), count, "{report}");
        }
        for (name, Silent(child)) in NONE.iter().zip(&mut silent) {
            assert!(child.try_wait().unwrap().is_none(), "{name}: it has ended");
            child.kill().unwrap();
            child.wait().unwrap();
            let mut text = String::new();
            let mut errors = child.stderr.take().unwrap();
            errors.read_to_string(&mut text).unwrap();
            assert_eq!(text, "", "{name}");
        }
        println!("ok with {vps} virtual processors");
    }
}
