//! One scenario, as an ordinary program with threads.
//!
//! `upcall-conformance NAME PROCESSORS ROUNDS` runs a scenario and prints `ok NAME` or `skipped: REASON`. The
//! scenarios start the other forms as child processes: `open SET` opens the gates that its input names, `rival
//! PROCESSORS` computes for a while, and `affinity PID one|all` changes where the threads of a process may run. Tests
//! start `crowd THREADS`, which computes until its input ends.

use std::{fs, io, mem, process, thread};

use upcall_conformance::scenarios;
use upcall_conformance::threads::{Threads, processor_time, step};

/// The processor time, in nanoseconds, that each thread of a rival uses: five turns between programs
/// (`upcall_linux::turns`), so that it waits for one and has others wait.
const VISIT_NS: u64 = 100_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match words[..] {
        ["rival", processors] => rival(number(processors)),
        ["crowd", threads] => crowd(number(threads)),
        ["open", set] => Threads::open_gates(number(set) as libc::c_int),
        ["affinity", whose, how] => change_affinity(whose, how == "one"),
        [name, processors, rounds] => scenario(name, number(processors), number(rounds) as u32),
        _ => Err(io::Error::other("want: NAME PROCESSORS ROUNDS")),
    };
    if let Err(error) = answer {
        eprintln!("upcall-conformance: {error}");
        process::exit(2);
    }
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or(1)
}

fn scenario(name: &str, processors: usize, rounds: u32) -> io::Result<()> {
    let scenario = scenarios::find::<Threads>(name)
        .ok_or_else(|| io::Error::other(format!("no scenario {name}")))?;
    pin(processors)?;
    let world = Threads::new(processors, rounds)?;
    let answer = (scenario.body)(world);
    world.end();
    match answer {
        Ok(()) => println!("ok {name}"),
        Err(why) => println!("skipped: {why}"),
    }
    Ok(())
}

/// Binds this program, and what it starts, to as many of the allowed processors. Called before there are threads.
fn pin(processors: usize) -> io::Result<()> {
    let mut allowed = allowed()?;
    let mut left = processors;
    for cpu in 0..libc::CPU_SETSIZE as usize {
        // SAFETY: a processor below the size of the set.
        unsafe {
            if libc::CPU_ISSET(cpu, &allowed) {
                if left == 0 {
                    libc::CPU_CLR(cpu, &mut allowed);
                } else {
                    left -= 1;
                }
            }
        }
    }
    // SAFETY: a valid set, of the size that is given.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&allowed), &raw const allowed) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The processors on which this program may run.
fn allowed() -> io::Result<libc::cpu_set_t> {
    // SAFETY: an empty set is valid.
    let mut allowed: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: room for the answer, of the size that is given.
    match unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed) } {
        0 => Ok(allowed),
        _ => Err(io::Error::last_os_error()),
    }
}

fn rival(processors: usize) -> io::Result<()> {
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while processor_time(libc::CLOCK_THREAD_CPUTIME_ID) < VISIT_NS {
                    (0..100).for_each(|_| step());
                }
            });
        }
    });
    Ok(())
}

fn crowd(threads: usize) -> io::Result<()> {
    for _ in 0..threads {
        thread::spawn(|| {
            loop {
                step();
            }
        });
    }
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

/// Changes the affinity of each thread of a process. It goes through them twice, because the process may have
/// created threads meanwhile.
fn change_affinity(whose: &str, to_one: bool) -> io::Result<()> {
    let mut allowed = allowed()?;
    if to_one {
        // SAFETY: processors below the size of the set.
        let first = (0..libc::CPU_SETSIZE as usize)
            .find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &allowed) })
            .unwrap_or(0);
        // SAFETY: as above.
        unsafe {
            libc::CPU_ZERO(&mut allowed);
            libc::CPU_SET(first, &mut allowed);
        }
    }
    for _ in 0..2 {
        for task in fs::read_dir(format!("/proc/{whose}/task"))? {
            let name = task?.file_name();
            let Some(tid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // SAFETY: a valid set; a thread that has ended is refused.
            unsafe { libc::sched_setaffinity(tid, size_of_val(&allowed), &raw const allowed) };
        }
    }
    Ok(())
}
