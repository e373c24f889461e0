//! A program that starts the runtime by itself: what it makes are user-level threads, and what blocks takes no
//! processor along. One process, since there is one runtime.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Kernel threads of the process, as another one sees them: to itself, its entries are its threads.
fn activations() -> usize {
    let tasks = format!("/proc/{}/task", std::process::id());
    let listed = Command::new("ls").arg(tasks).output().expect("lists");
    assert!(listed.status.success(), "{listed:?}");
    listed.stdout.split(|byte| *byte == b'\n').count() - 1
}

fn many_parked_threads_need_few_activations() {
    const THREADS: usize = 2000;
    let gate = Arc::new((Mutex::new((0, false)), Condvar::new()));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let gate = gate.clone();
            thread::spawn(move || {
                let (state, changed) = &*gate;
                let mut state = state.lock().unwrap();
                state.0 += 1;
                changed.notify_all();
                drop(changed.wait_while(state, |state| !state.1).unwrap());
            })
        })
        .collect();
    let (state, changed) = &*gate;
    drop(
        changed
            .wait_while(state.lock().unwrap(), |state| state.0 < THREADS)
            .unwrap(),
    );
    let beside = activations();
    assert!(beside < 32, "{THREADS} threads on {beside} kernel threads");
    state.lock().unwrap().1 = true;
    changed.notify_all();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Opens a file and locks it, once the thread that has it unlocks it.
fn lock(path: &str) -> File {
    let file = File::open(path).expect("opens");
    // SAFETY: a file of ours.
    let answer = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(answer, 0);
    file
}

/// On one virtual processor: a thread in a system call that the runtime does not serve by itself.
fn a_blocked_call_leaves_the_virtual_processor() {
    // SAFETY: makes a file of ours.
    let file = unsafe { libc::memfd_create(c"lock".as_ptr(), 0) };
    assert!(file >= 0);
    let path = format!("/proc/self/fd/{file}");
    let held = lock(&path);
    let blocked = thread::spawn(move || lock(&path));
    // While it waits in the kernel, others run.
    for number in 0..100 {
        assert_eq!(thread::spawn(move || number).join().unwrap(), number);
    }
    assert!(!blocked.is_finished());
    drop(held);
    blocked.join().unwrap();
}

fn sockets_and_sleeps_and_panics_are_as_ever() {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let echo = thread::Builder::new()
        .name("echo".into())
        .spawn(move || {
            let mut byte = [0];
            while there.read(&mut byte).unwrap() == 1 {
                there.write_all(&byte).unwrap();
            }
            thread::current().name().map(str::to_owned)
        })
        .unwrap();
    for byte in 0..=255u8 {
        let mut back = [0];
        here.write_all(&[byte]).unwrap();
        here.read_exact(&mut back).unwrap();
        assert_eq!(back[0], byte);
    }
    drop(here);
    assert_eq!(echo.join().unwrap().as_deref(), Some("echo"));
    let before = std::time::Instant::now();
    thread::sleep(Duration::from_millis(20));
    assert!(before.elapsed() >= Duration::from_millis(20));
    let panicked = thread::spawn(|| std::panic::resume_unwind(Box::new(7))).join();
    assert_eq!(*panicked.unwrap_err().downcast::<i32>().unwrap(), 7);
}

fn a_thread_that_computes_does_not_keep_others_waiting() {
    let over = Arc::new(AtomicBool::new(false));
    let computes = {
        let over = over.clone();
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    let both = Arc::new(Barrier::new(2));
    let meets = {
        let both = both.clone();
        thread::spawn(move || both.wait().is_leader())
    };
    let own = both.wait().is_leader();
    assert_ne!(meets.join().unwrap(), own);
    over.store(true, Ordering::Relaxed);
    computes.join().unwrap();
}

/// A system-call instruction in the program's own text, beside the runtime's.
fn calls_in_the_programs_own_text_are_served() {
    #[inline(never)]
    fn gettid() -> i32 {
        #[cfg(target_arch = "x86_64")]
        let answer: i64;
        // SAFETY: the call changes nothing but these registers.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") libc::SYS_gettid => answer,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("nothing is served");
        #[cfg(target_arch = "x86_64")]
        return answer as i32;
    }
    // SAFETY: asks only.
    let known = unsafe { libc::gettid() };
    assert_eq!(gettid(), known);
    let other = thread::spawn(|| {
        // SAFETY: asks only.
        (gettid(), unsafe { libc::gettid() })
    });
    let (own, libcs) = other.join().unwrap();
    assert_eq!(own, libcs);
    assert_ne!(own, known);
    assert!(
        !std::path::Path::new(&format!("/proc/self/task/{own}")).exists(),
        "thread {own} is a kernel thread"
    );
}

fn children_are_programs_of_their_own() {
    let output = Command::new("sh")
        .args(["-c", "echo child; exit 3"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, b"child\n");
}

macro_rules! cases {
    ($($case:ident)*) => {
        $(
            $case();
            println!("ok {}", stringify!($case));
        )*
    };
}

fn main() {
    if !upcall_linux::arch::SERVES_PROGRAMS {
        println!("skipped: not on this architecture");
        return;
    }
    // What hangs ends by this.
    // SAFETY: asks for a signal.
    unsafe { libc::alarm(120) };
    let runtime = upcall::Runtime::builder()
        .virtual_processors(1, 1)
        .backend(upcall::Backend::Standby)
        .start()
        .expect("starts");
    // `upcall run` on this test tries the other way.
    let preloaded = std::env::var("LD_PRELOAD").is_ok_and(|list| list.contains("upcall_guest"));
    assert_eq!(runtime.is_preloaded(), preloaded);
    assert!(upcall::Runtime::start().is_ok(), "the same once more");
    cases! {
        many_parked_threads_need_few_activations
        a_blocked_call_leaves_the_virtual_processor
        sockets_and_sleeps_and_panics_are_as_ever
        a_thread_that_computes_does_not_keep_others_waiting
        calls_in_the_programs_own_text_are_served
        children_are_programs_of_their_own
    }
}
