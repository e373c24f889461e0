//! Programs under a seccomp filter that forbids a system call which the runtime makes. If the runtime cannot do without
//! the call, `upcall run` and `upcall doctor` refuse with the reason, and `--or-native` runs the program natively. If it
//! can, the program does what it does natively.

use crate::real;
use program_tests::program::Program;

/// Without one of these nothing is served.
const REQUIRED: [(&str, i64); 7] = [
    ("rt_sigaction", libc::SYS_rt_sigaction),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("eventfd2", libc::SYS_eventfd2),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("timerfd_settime", libc::SYS_timerfd_settime),
    ("fcntl", libc::SYS_fcntl),
];

/// Without one of these something else is used.
const OPTIONAL: [i64; 21] = [
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_membarrier,
    libc::SYS_madvise,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_epoll_pwait2,
    libc::SYS_perf_event_open,
    libc::SYS_rseq,
    libc::SYS_prctl,
    libc::SYS_statx,
    libc::SYS_readlink,
    libc::SYS_sigaltstack,
    libc::SYS_prlimit64,
    libc::SYS_faccessat2,
    libc::SYS_getxattr,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
];

const ERRORS: [i32; 2] = [libc::EPERM, libc::ENOSYS];

#[test]
fn a_required_call_that_is_forbidden_is_refused_or_runs_natively() {
    let name = "a_required_call_that_is_forbidden_is_refused_or_runs_natively";
    let Some((case, ordinary)) = real(name, "ordinary.c") else {
        return;
    };
    let Some(deny) = case.compile("deny_call.c") else {
        return;
    };
    let upcall = case.launcher().upcall().expect("the real command");
    for (call, number) in REQUIRED {
        for error in ERRORS {
            let denied = || Program::new(&deny).args([number.to_string(), error.to_string()]);
            let refused = denied()
                .arg(upcall)
                .args(["run", "--"])
                .arg(&ordinary)
                .run(&case.fresh("refused"), None);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(
                refused.status.code(),
                Some(125),
                "{call}: {}",
                refused.talk()
            );
            assert!(said.contains(&format!("{call}: ")), "{}", refused.talk());
            let native = denied().arg(&ordinary).run(&case.fresh("native"), None);
            let launched = denied()
                .arg(upcall)
                .args(["run", "--or-native", "--"])
                .arg(&ordinary)
                .run(&case.fresh("launched"), None);
            case.compare(1, &native, &launched, program_tests::case::verbatim);
            for feature in ["calls", "standby"] {
                let doctor = denied()
                    .arg(upcall)
                    .args(["doctor", feature, "-q"])
                    .run(&case.fresh("doctor"), None);
                assert_eq!(doctor.status.code(), Some(1), "{call}: {}", doctor.talk());
            }
        }
    }
}

#[test]
fn without_an_optional_call_the_program_does_the_same() {
    let name = "without_an_optional_call_the_program_does_the_same";
    let Some((case, ordinary)) = real(name, "ordinary.c") else {
        return;
    };
    let Some(deny) = case.compile("deny_call.c") else {
        return;
    };
    for number in OPTIONAL {
        for error in ERRORS {
            let denied = || Program::new(&deny).args([number.to_string(), error.to_string()]);
            let native = denied().arg(&ordinary).run(&case.fresh("native"), None);
            let launched = denied()
                .args(case.launcher().words())
                .arg(&ordinary)
                .run(&case.fresh("launched"), None);
            case.compare(1, &native, &launched, program_tests::case::verbatim);
        }
    }
}
