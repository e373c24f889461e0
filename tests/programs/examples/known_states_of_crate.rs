//! As `programs/threads/known_states.c`, with threads of the crate: `tests/looked_at` looks at it from outside.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use upcall::sync::{Condvar, Mutex};
use upcall::thread::{Builder, JoinHandle, yield_now};

static HELD: Mutex<u64> = Mutex::new(0);
static FREE: Mutex<u64> = Mutex::new(0);
static NEVER: Condvar = Condvar::new();
static TURNS: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn waits_in_mutex() -> u64 {
    *HELD.lock().expect("nobody panics")
}

#[inline(never)]
fn waits_in_condition() -> u64 {
    let free = FREE.lock().expect("nobody panics");
    *NEVER.wait(free).expect("nobody panics")
}

#[inline(never)]
fn waits_in_read() -> u64 {
    let (mut reader, _writer) = upcall::io::pipe().expect("a pipe");
    let mut byte = [0];
    reader.read_exact(&mut byte).expect("nobody writes");
    u64::from(byte[0])
}

#[inline(never)]
fn waits_in_sleep() -> u64 {
    std::thread::sleep(Duration::from_secs(100_000));
    1
}

#[inline(never)]
fn waits_in_join(other: JoinHandle<u64>) -> u64 {
    other.join().expect("it does not end")
}

#[inline(never)]
fn computes() -> u64 {
    loop {
        TURNS.fetch_add(1, Ordering::Relaxed);
    }
}

fn start(name: &str, body: impl FnOnce() -> u64 + Send + 'static) -> JoinHandle<u64> {
    Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .expect("a thread")
}

fn main() {
    // SAFETY: lets others look at this process.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    upcall::Runtime::builder()
        .virtual_processors(1, 1)
        .start()
        .expect("starts");
    let _held = HELD.lock().expect("nobody panics");
    // Something that has ended leaves a shell behind, which is no thread.
    start("ended", || 1).join().expect("it ends");
    let in_mutex = start("in mutex", waits_in_mutex);
    start("in condition", waits_in_condition);
    start("in read", waits_in_read);
    start("in sleep", waits_in_sleep);
    start("in join", || waits_in_join(in_mutex));
    for _ in 0..100 {
        yield_now();
    }
    start("computing", computes);
    yield_now();
    println!("ready");
    std::io::stdout().flush().expect("a pipe");
    if std::env::args().nth(1).as_deref() == Some("abort") {
        std::process::abort();
    }
    computes();
}
