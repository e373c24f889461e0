//! libc is rewritten in a child process, which has one thread; and frames continue elsewhere.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use upcall_guest::entry::{self, Frame, raw_syscall};
use upcall_guest::rewrite::object;
use upcall_guest::rewrite::patch::{self, Extent, ObjectReport};

const CAPTURE: i64 = 1_000_001;
/// The status of a child in which a check failed.
const PANICKED: u64 = 101;

static CAPTURED: OnceLock<Captured> = OnceLock::new();

struct Captured(Frame);
// SAFETY: a frame is plain data; its `wide` pointer is null.
unsafe impl Send for Captured {}
// SAFETY: as above.
unsafe impl Sync for Captured {}

unsafe extern "C" fn handler(frame: &mut Frame) {
    if frame.rax as i64 == CAPTURE {
        let _ = CAPTURED.set(Captured(frame.clone()));
        frame.rax = 5;
        return;
    }
    // SAFETY: the frame comes from an entry.
    unsafe { entry::native(frame) };
}

/// Ends the calling process.
fn exit(status: u64) -> ! {
    // SAFETY: touches no memory.
    unsafe { raw_syscall(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    unreachable!("exit_group does not return")
}

/// Runs `child` in a child process, which ends with what it returns.
fn status_of(child: impl FnOnce() -> u64) -> i32 {
    let mut status = 0;
    // SAFETY: the child has one thread and ends without running anything of its parent's.
    unsafe {
        let id = libc::fork();
        if id == 0 {
            exit(catch_unwind(AssertUnwindSafe(child)).unwrap_or(PANICKED));
        }
        assert_eq!(libc::waitpid(id, &raw mut status, 0), id);
    }
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    libc::WEXITSTATUS(status)
}

/// Runs `check` with what became of libc, rewritten, in a child.
fn with_libc_rewritten(check: fn(ObjectReport)) {
    let status = status_of(|| {
        // SAFETY: the hooks live as long as the process.
        unsafe { entry::install(handler, entry::nothing) };
        let libc = object::at(libc::getppid as *const () as usize).expect("libc is loaded");
        // SAFETY: libc stays, and there is one thread.
        check(unsafe { patch::patch_object(&libc, Extent::All) });
        0
    });
    assert_eq!(status, 0);
}

#[test]
fn what_is_rewritten_is_left_alone() {
    with_libc_rewritten(|report| {
        assert!(report.patched() > report.sites.len() / 2);
        let libc = object::at(libc::getppid as *const () as usize).expect("libc is loaded");
        // SAFETY: as above.
        let again = unsafe { patch::patch_object(&libc, Extent::All) };
        assert_eq!(again.patched(), 0);
    });
}

#[test]
fn a_stub_stands_for_its_original_code() {
    with_libc_rewritten(|report| {
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
    });
}

extern "C" fn landed(_: u64) -> ! {
    let captured = &CAPTURED.get().expect("it was captured").0;
    let here = 0u8;
    let on_new_stack = (&raw const here as usize).abs_diff(captured.rsp as usize) > 65536;
    exit(if on_new_stack { 42 } else { 1 })
}

#[test]
fn a_copied_frame_continues_on_another_stack() {
    with_libc_rewritten(|_| {
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
        // SAFETY: continues in `landed`, which ends the process.
        assert_eq!(status_of(|| unsafe { entry::resume(&frame) }), 42);
    });
}
