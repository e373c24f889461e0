//! Programs that install a seccomp filter which traps or refuses a call of the runtime. The program must go on, and
//! its handler of SIGSYS must see the program's own calls only.

use crate::case;
use program_tests::program::Program;

/// Calls that the runtime makes, at start or later, and that the test program does not make natively. Calls without
/// which no program runs are left out: futex(2), mmap(2), rt_sigprocmask(2), exit(2).
const CALLS: &[(&str, i64)] = &[
    ("arch_prctl", libc::SYS_arch_prctl),
    ("clone", libc::SYS_clone),
    ("close", libc::SYS_close),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("eventfd2", libc::SYS_eventfd2),
    ("fcntl", libc::SYS_fcntl),
    ("fstat", libc::SYS_fstat),
    ("ftruncate", libc::SYS_ftruncate),
    ("geteuid", libc::SYS_geteuid),
    ("getrusage", libc::SYS_getrusage),
    ("kill", libc::SYS_kill),
    ("membarrier", libc::SYS_membarrier),
    ("memfd_create", libc::SYS_memfd_create),
    ("openat", libc::SYS_openat),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("poll", libc::SYS_poll),
    ("prctl", libc::SYS_prctl),
    ("pread64", libc::SYS_pread64),
    ("preadv2", 327),
    ("pwritev2", 328),
    ("readlinkat", libc::SYS_readlinkat),
    ("rt_sigpending", libc::SYS_rt_sigpending),
    ("rt_sigtimedwait", libc::SYS_rt_sigtimedwait),
    ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("sched_getscheduler", libc::SYS_sched_getscheduler),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("sched_setscheduler", libc::SYS_sched_setscheduler),
    ("sigaltstack", libc::SYS_sigaltstack),
    ("timer_create", libc::SYS_timer_create),
    ("timer_delete", libc::SYS_timer_delete),
    ("timer_settime", libc::SYS_timer_settime),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("timerfd_settime", libc::SYS_timerfd_settime),
];

fn filtered(name: &str, when: &str, answer: &str) {
    let case = case(name);
    let Some(path) = case.compile("filter_of_own_calls.c") else {
        return;
    };
    for (call, number) in CALLS {
        eprintln!("{name}: {call}");
        case.verdicts(&Program::new(&path).args([&number.to_string(), when, answer]));
    }
}

/// The runtime starts under the filter.
#[test]
fn traps_before_threads() {
    filtered("traps_before_threads", "before", "trap");
}

/// There are threads already.
#[test]
fn traps_after_threads() {
    filtered("traps_after_threads", "after", "trap");
}

/// As above, with an error.
#[test]
fn refuses_before_threads() {
    filtered("refuses_before_threads", "before", "1");
}

/// As above.
#[test]
fn refuses_after_threads() {
    filtered("refuses_after_threads", "after", "38");
}
