//! libc rewritten while threads are inside it, and frames that continue elsewhere.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upcall_guest::entry::{self, Frame, raw_syscall};
use upcall_guest::object;
use upcall_guest::patch::{self, ObjectReport, Timing};
use upcall_guest::site::Reason;

const CAPTURE: i64 = 1_000_001;

static SEEN: AtomicU64 = AtomicU64::new(0);
static CAPTURED: OnceLock<Captured> = OnceLock::new();

struct Captured(Frame);
// SAFETY: a frame is plain data; its `wide` pointer is null.
unsafe impl Send for Captured {}
// SAFETY: as above.
unsafe impl Sync for Captured {}

unsafe extern "C" fn handler(frame: &mut Frame) {
    SEEN.fetch_add(1, Ordering::Relaxed);
    if frame.rax as i64 == CAPTURE {
        let _ = CAPTURED.set(Captured(frame.clone()));
        frame.rax = 5;
        return;
    }
    // SAFETY: the frame comes from an entry.
    unsafe { entry::native(frame) };
}

/// Rewrites libc, once, while threads make the calls that are rewritten.
fn rewritten() -> &'static ObjectReport {
    static REPORT: OnceLock<ObjectReport> = OnceLock::new();
    REPORT.get_or_init(|| {
        let stop = AtomicBool::new(false);
        let wrong = AtomicU64::new(0);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    // SAFETY: plain calls without arguments that could fail.
                    let parent = unsafe { libc::getppid() };
                    while !stop.load(Ordering::Relaxed) {
                        // SAFETY: as above.
                        let same = unsafe { libc::sched_yield() == 0 && libc::getppid() == parent };
                        wrong.fetch_add(u64::from(!same), Ordering::Relaxed);
                    }
                });
            }
            // SAFETY: the hooks live as long as the process.
            unsafe { entry::install(handler, entry::nothing) };
            let libc = object::at(libc::getppid as *const () as usize).expect("libc is loaded");
            // SAFETY: libc stays; other threads run, as the timing says.
            let report = unsafe { patch::patch_object(&libc, Timing::Running) };
            let before = SEEN.load(Ordering::Relaxed);
            while SEEN.load(Ordering::Relaxed) < before + 10_000 {
                std::hint::spin_loop();
            }
            // SAFETY: as above.
            let again = unsafe { patch::patch_object(&libc, Timing::Running) };
            assert_eq!(again.patched(), 0, "what is rewritten is left alone");
            stop.store(true, Ordering::Relaxed);
            assert_eq!(wrong.load(Ordering::Relaxed), 0);
            report
        })
    })
}

#[test]
fn libc_is_rewritten_under_running_threads() {
    let report = rewritten();
    let refused: Vec<_> = report.refused().map(|(_, why)| why.clone()).collect();
    println!(
        "{} of {} sites rewritten",
        report.patched(),
        report.sites.len()
    );
    assert!(report.patched() > report.sites.len() / 2);
    assert!(
        refused
            .iter()
            .all(|r| matches!(r, Reason::NotAtomic | Reason::Sigreturn))
    );
}

#[test]
fn a_stub_stands_for_its_original_code() {
    let report = rewritten();
    let (site, window) = report
        .sites
        .iter()
        .find_map(|s| Some((s, s.window.as_ref().ok()?)))
        .expect("some site was rewritten");
    // SAFETY: the window is readable code that starts with our jump.
    let displacement = unsafe { ((window.start + 1) as *const i32).read_unaligned() };
    let stub = (window.start + 5).wrapping_add(displacement as usize);
    let first = patch::original(stub).expect("the jump leads into a stub");
    assert_eq!((first.pc, first.skipped), (window.start, 0));
    let all: Vec<_> = (stub..stub + 40).filter_map(patch::original).collect();
    assert!(all.iter().any(|o| o.pc == site.address && o.skipped == 128));
    assert!(all.iter().any(|o| o.pc == site.address + 2));
    assert_eq!(patch::original(window.start), None);
}

extern "C" fn landed(_: u64) -> ! {
    let captured = &CAPTURED.get().expect("it was captured").0;
    let here = 0u8;
    let on_new_stack = (&raw const here as usize).abs_diff(captured.rsp as usize) > 65536;
    // SAFETY: ends this process.
    unsafe {
        raw_syscall(
            libc::SYS_exit_group,
            [if on_new_stack { 42 } else { 1 }, 0, 0, 0, 0, 0],
        )
    };
    unreachable!("exit_group does not return")
}

#[test]
fn a_copied_frame_continues_on_another_stack() {
    let report = rewritten();
    let site = libc::syscall as *const () as usize;
    let near = |s: &&patch::SiteReport| (site..site + 64).contains(&s.address);
    let patched = report
        .sites
        .iter()
        .find(near)
        .is_some_and(|s| s.window.is_ok());
    if !patched {
        println!("skipped: libc's syscall() cannot be rewritten while threads run");
        return;
    }
    // SAFETY: the handler answers it.
    assert_eq!(unsafe { libc::syscall(CAPTURE) }, 5);
    let mut stack = vec![0u64; 32768];
    // libc's syscall() returns to what lies on top of the new stack, as a C function expects it.
    let top = stack.len() - 17;
    let top = if (&raw const stack[top] as usize) % 16 == 8 {
        top
    } else {
        top - 1
    };
    stack[top - 1] = landed as *const () as u64;
    let mut frame = CAPTURED.get().expect("it was captured").0.clone();
    frame.rax = 0;
    frame.rsp = &raw const stack[top - 1] as u64;
    // SAFETY: the child continues in `landed`, which leaves with a system call of ours.
    unsafe {
        let child = raw_syscall(libc::SYS_fork, [0; 6]);
        if child == 0 {
            entry::resume(&frame);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child as i32, &mut status, 0), child as i32);
        assert!(libc::WIFEXITED(status), "status {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 42);
    }
}
