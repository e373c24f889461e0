//! A filter that ends the process for a call that no program makes natively: membarrier(2).

use std::sync::atomic::{AtomicBool, Ordering};

use upcall::sync::Semaphore;
use upcall::thread;

use super::fib;

/// Pieces are forked and taken while the filter comes, and afterwards: takers forget lists without barriers then.
pub fn filtered() {
    upcall::Runtime::builder()
        .virtual_processors(2, 2)
        .start()
        .unwrap();
    let go_on = AtomicBool::new(true);
    let joins_and_waits = || {
        let go = Semaphore::new(0);
        let ((), sum) = upcall::join(
            || go.acquire(),
            || {
                go.release();
                fib(12)
            },
        );
        assert_eq!(sum, 144);
    };
    thread::scope(|scope| {
        let works = scope.spawn(|| {
            while go_on.load(Ordering::Relaxed) {
                joins_and_waits();
                thread::yield_now();
            }
        });
        (0..100).for_each(|_| joins_and_waits());
        forbid_barriers();
        (0..1000).for_each(|_| joins_and_waits());
        go_on.store(false, Ordering::Relaxed);
        works.join().unwrap();
    });
}

fn forbid_barriers() {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD, 0, 0, 0),
        step(IF_EQUAL, libc::SYS_membarrier as u32, 0, 1),
        step(ANSWER, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
        step(ANSWER, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: a filter of four steps, which are there until the kernel has copied them.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const program,
            ) == 0
    };
    assert!(installed, "{}", std::io::Error::last_os_error());
}
