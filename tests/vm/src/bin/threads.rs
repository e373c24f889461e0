//! An ordinary threaded program whose output does not depend on the order in which its
//! threads run: mutexes, condition variables, channels, barriers, thread-local values,
//! sleeping, pipes and files. Run natively and behind a
//! runtime, it must print the same bytes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::Command;
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Barrier, Condvar, Mutex, RwLock};
use std::thread;
use std::time::Duration;

const THREADS: usize = 16;

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}

fn mixed(seed: u64, rounds: u32) -> u64 {
    (0..rounds).fold(seed, |value, _| {
        value
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407)
            .rotate_left(17)
    })
}

/// Many threads add under one mutex, with work inside and outside.
fn counting() -> u64 {
    let sum = Mutex::new(0u64);
    thread::scope(|scope| {
        for index in 0..THREADS as u64 {
            let sum = &sum;
            scope.spawn(move || {
                for round in 0..200 {
                    let value = mixed(index * 1000 + round, 50);
                    let mut sum = sum.lock().expect("not poisoned");
                    *sum = sum.wrapping_add(value);
                }
            });
        }
    });
    sum.into_inner().expect("not poisoned")
}

/// A ring of threads hands a token on by condition variables.
fn token_ring() -> u64 {
    let shared = Arc::new((Mutex::new((0usize, 1u64)), Condvar::new()));
    let threads: Vec<_> = (0..THREADS)
        .map(|index| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (state, changed) = &*shared;
                for _ in 0..20 {
                    let mut state = state.lock().expect("not poisoned");
                    while state.0 != index {
                        state = changed.wait(state).expect("not poisoned");
                    }
                    *state = ((index + 1) % THREADS, mixed(state.1 + index as u64, 3));
                    changed.notify_all();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("does not panic");
    }
    shared.0.lock().map_or(0, |state| state.1)
}

/// A pipeline of bounded channels, whose stages sleep now and then.
fn pipeline() -> u64 {
    let (first, mut input) = sync_channel::<u64>(4);
    for stage in 0..6 {
        let (output, next) = sync_channel(4);
        let from = std::mem::replace(&mut input, next);
        thread::spawn(move || {
            for (count, value) in from.into_iter().enumerate() {
                if count % 64 == stage {
                    thread::sleep(Duration::from_millis(1));
                }
                output
                    .send(mixed(value, stage as u32 + 1))
                    .expect("the next stage lives");
            }
        });
    }
    thread::spawn(move || {
        (0..500).for_each(|value| first.send(value).expect("the first stage lives"))
    });
    input
        .into_iter()
        .fold(0, |sum, value| mixed(sum ^ value, 1))
}

/// Phases separated by a barrier, each reading what the one before wrote.
fn phases() -> u64 {
    let cells: Vec<RwLock<u64>> = (0..THREADS as u64).map(RwLock::new).collect();
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (cells, barrier) = (&cells, &barrier);
            scope.spawn(move || {
                for _ in 0..10 {
                    let left = *cells[(index + THREADS - 1) % THREADS]
                        .read()
                        .expect("not poisoned");
                    barrier.wait();
                    *cells[index].write().expect("not poisoned") = mixed(left, 5);
                    barrier.wait();
                }
            });
        }
    });
    cells
        .iter()
        .fold(0, |sum, cell| sum ^ *cell.read().expect("not poisoned"))
}

/// Thread-local values across blocking, and short-lived threads by the hundred.
fn short_lived() -> u64 {
    let (send, receive) = channel();
    for index in 0..500u64 {
        let send = send.clone();
        let thread = thread::spawn(move || {
            OWN.set(index);
            if index % 50 == 0 {
                thread::sleep(Duration::from_millis(2));
            } else {
                thread::yield_now();
            }
            send.send(mixed(OWN.get(), 2)).expect("the receiver lives");
        });
        if index % 3 == 0 {
            thread.join().expect("does not panic");
        }
    }
    drop(send);
    receive.into_iter().fold(0, u64::wrapping_add)
}

/// Threads that read and write pipes of a child process, and a file.
fn descriptors() -> std::io::Result<u64> {
    let mut child = Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let (mut to, mut from) = (
        child.stdin.take().expect("piped"),
        child.stdout.take().expect("piped"),
    );
    let writer = thread::spawn(move || -> std::io::Result<()> {
        for index in 0..2000u64 {
            to.write_all(&mixed(index, 1).to_le_bytes())?;
        }
        Ok(())
    });
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    writer.join().expect("does not panic")?;
    child.wait()?;
    let path = std::env::temp_dir().join(format!("vm-threads.{}", std::process::id()));
    std::fs::write(&path, &bytes)?;
    let back = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    Ok(back.chunks(8).fold(bytes.len() as u64, |sum, part| {
        part.iter()
            .fold(sum, |sum, byte| sum.rotate_left(7) ^ u64::from(*byte))
    }))
}

fn main() -> std::io::Result<()> {
    let mut results = BTreeMap::new();
    results.insert("counting", counting());
    results.insert("token_ring", token_ring());
    results.insert("pipeline", pipeline());
    results.insert("phases", phases());
    results.insert("short_lived", short_lived());
    results.insert("descriptors", descriptors()?);
    for (name, value) in results {
        println!("{name} {value:016x}");
    }
    std::process::exit(42)
}
