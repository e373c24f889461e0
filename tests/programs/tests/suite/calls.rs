//! The system-call table as a checklist: each call that the guest library serves or changes, and the test programs that
//! make it. A test program makes a call natively and launched, and both must agree.
//!
//! The programs `answers_*` print what calls answer to right and wrong requests: before there are threads, from the first
//! thread and from another one. `restarts` prints for each call that waits what happens to it when a handler runs.

use crate::case;
use program_tests::case::verbatim;
use program_tests::program::Program;
use program_tests::source;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Calls, and test programs that make them.
const CALLS: &[(&str, &str)] = &[
    ("accept", "answers_descriptors restarts cancel_waits"),
    ("accept4", "answers_descriptors restarts"),
    ("access", "thread_name_of_other"),
    ("add_key", "answers_process thread_kernel_state"),
    (
        "arch_prctl",
        "answers_process own_gs_base thread_kernel_state",
    ),
    ("brk", "answers_process"),
    ("capget", "capabilities_by_id thread_privileges"),
    (
        "capset",
        "answers_process capabilities_by_id thread_privileges",
    ),
    ("chroot", "first_thread_late"),
    ("clock_getres", "answers_time"),
    ("clock_gettime", "answers_time thread_cpu_clock"),
    (
        "clock_nanosleep",
        "answers_time restarts cancel_sleep sleep_many sleep_on_thread",
    ),
    ("clone", "answers_process thread_odd_calls"),
    (
        "clone3",
        "answers_process thread_odd_calls clone_clears_handlers",
    ),
    (
        "close",
        "answers_descriptors descriptor_numbers poll_closed",
    ),
    (
        "close_range",
        "answers_descriptors stderr_closed descriptor_numbers own_descriptors",
    ),
    ("dup2", "answers_descriptors descriptor_numbers"),
    ("dup3", "answers_descriptors descriptor_numbers"),
    (
        "epoll_ctl",
        "answers_descriptors restarts cancel_poll epoll_nest_at_once",
    ),
    (
        "epoll_pwait",
        "answers_descriptors restarts poll_many poll_signals",
    ),
    (
        "epoll_pwait2",
        "answers_descriptors restarts poll_many poll_signals",
    ),
    (
        "epoll_wait",
        "answers_descriptors restarts cancel_poll epoll_nest_at_once",
    ),
    ("execve", "answers_process hidden_library"),
    ("execveat", "answers_process"),
    ("exit", "thread_exit main_pthread_exit"),
    ("exit_group", "exits mutex_shared_owner_ends"),
    ("faccessat", "thread_name_of_other"),
    ("faccessat2", "thread_name_of_other"),
    ("fallocate", "answers_descriptors waits_disturbed"),
    (
        "fcntl",
        "answers_descriptors owner_of_signals restarts nonblocking",
    ),
    ("fork", "fork_return fork_from_thread fork_in_handler"),
    ("fstat", "threads_listed"),
    ("futex", "answers_futex restarts raw_futex vfork_waits"),
    ("get_robust_list", "answers_process"),
    ("getcpu", "answers_process"),
    ("getdents", "threads_listed"),
    ("getdents64", "threads_listed"),
    ("getegid", "answers_process"),
    ("geteuid", "answers_process thread_limits setuid_threads"),
    ("getgid", "answers_process setuid_threads"),
    ("getpgid", "answers_process ids_of_threads"),
    ("getpid", "answers_process"),
    ("getppid", "answers_process"),
    ("getpriority", "answers_scheduling priorities"),
    ("getrandom", "answers_process transfers_complete"),
    ("getrusage", "answers_time thread_cpu_clock"),
    ("getsid", "answers_process ids_of_threads"),
    ("gettid", "thread_odd_calls ids_of_threads"),
    ("gettimeofday", "answers_time"),
    ("getuid", "answers_process identity_changes setuid_threads"),
    ("io_uring_enter", "answers_process waits_disturbed uring"),
    ("io_uring_register", "answers_process"),
    ("io_uring_setup", "answers_process waits_disturbed uring"),
    ("ioctl", "answers_descriptors nonblocking"),
    ("ioperm", "answers_process thread_kernel_state"),
    ("iopl", "answers_process thread_kernel_state"),
    ("ioprio_get", "answers_process thread_by_id"),
    ("ioprio_set", "answers_process thread_by_id"),
    ("kcmp", "answers_process"),
    ("keyctl", "answers_process thread_kernel_state"),
    ("kill", "answers_signals signal_to_oneself"),
    ("landlock_restrict_self", "answers_process"),
    ("lseek", "answers_descriptors"),
    ("lstat", "threads_listed"),
    ("madvise", "answers_process page_faults"),
    ("migrate_pages", "answers_process"),
    ("mmap", "answers_process jit_calls"),
    ("move_pages", "answers_process"),
    ("mprotect", "answers_process jit_later"),
    ("mremap", "answers_process"),
    ("munmap", "answers_process dlopen_sites"),
    ("nanosleep", "answers_time restarts sleep_many"),
    ("newfstatat", "threads_listed"),
    ("open", "answers_descriptors restarts thread_name_of_other"),
    ("openat", "answers_descriptors thread_name_of_other"),
    ("perf_event_open", "answers_process own_events thread_by_id"),
    ("personality", "answers_process"),
    ("pidfd_send_signal", "answers_process signal_to_oneself"),
    ("pivot_root", "answers_process"),
    ("pkey_alloc", "answers_process"),
    ("pkey_mprotect", "answers_process"),
    (
        "poll",
        "answers_descriptors restarts cancel_poll epoll_nest_at_once",
    ),
    (
        "ppoll",
        "answers_descriptors restarts cancel_poll signals_kept",
    ),
    ("pread64", "threads_listed"),
    (
        "prctl",
        "answers_process thread_attributes thread_privileges thread_kernel_state",
    ),
    ("preadv2", "answers_descriptors nowait_forbidden"),
    ("prlimit64", "answers_process ids_of_threads"),
    ("process_vm_readv", "answers_process ids_of_threads"),
    ("process_vm_writev", "answers_process ids_of_threads"),
    (
        "pselect6",
        "answers_descriptors restarts signal_masks_of_waits",
    ),
    ("ptrace", "answers_process ptrace_threads"),
    (
        "pwritev2",
        "answers_descriptors nowait_forbidden transfers_complete",
    ),
    ("read", "answers_descriptors restarts reads_that_count"),
    ("readv", "answers_descriptors restarts"),
    ("recvfrom", "answers_descriptors restarts"),
    ("recvmmsg", "answers_descriptors restarts"),
    ("recvmsg", "answers_descriptors restarts"),
    ("request_key", "answers_process"),
    ("rseq", "own_rseq"),
    ("rt_sigaction", "answers_signals signal_before_threads"),
    (
        "rt_sigpending",
        "answers_signals signal_before_threads signal_mask_delivery",
    ),
    ("rt_sigprocmask", "answers_signals sigsys_blocked jit_calls"),
    (
        "rt_sigqueueinfo",
        "answers_signals signals_to_process sigwait",
    ),
    (
        "rt_sigreturn",
        "registers_in_signals signal_in_handler_entry",
    ),
    (
        "rt_sigsuspend",
        "answers_signals restarts fork_in_handler sigsys_blocked",
    ),
    (
        "rt_sigtimedwait",
        "answers_signals restarts sigwait signals_kept",
    ),
    (
        "rt_tgsigqueueinfo",
        "answers_signals signal_to_ending signal_to_oneself",
    ),
    (
        "sched_getaffinity",
        "answers_scheduling affinity_threads affinity_outside",
    ),
    ("sched_getattr", "answers_scheduling deadlines"),
    ("sched_getparam", "answers_scheduling priorities real_time"),
    (
        "sched_getscheduler",
        "answers_scheduling priorities deadlines",
    ),
    (
        "sched_rr_get_interval",
        "answers_scheduling ids_of_threads real_time",
    ),
    (
        "sched_setaffinity",
        "answers_scheduling affinity_threads affinity_wider affinity_beside",
    ),
    ("sched_setattr", "answers_scheduling priorities deadlines"),
    ("sched_setparam", "answers_scheduling"),
    (
        "sched_setscheduler",
        "answers_scheduling priorities priorities_inherited",
    ),
    ("sched_yield", "answers_scheduling"),
    ("seccomp", "answers_process seccomp_traps"),
    (
        "select",
        "answers_descriptors restarts py_select cancel_poll",
    ),
    ("sendfile", "answers_descriptors transfers_complete"),
    (
        "sendmmsg",
        "answers_descriptors restarts transfers_complete",
    ),
    ("sendmsg", "answers_descriptors restarts transfers_complete"),
    ("sendto", "answers_descriptors restarts transfers_complete"),
    ("set_mempolicy", "answers_process"),
    ("set_robust_list", "answers_process thread_odd_calls"),
    ("set_tid_address", "answers_process thread_odd_calls"),
    ("setfsgid", "answers_process"),
    ("setfsuid", "answers_process bound_identity"),
    ("setgid", "answers_process setuid_threads"),
    ("setgroups", "answers_process setuid_threads"),
    ("setns", "answers_process"),
    ("setpgid", "answers_process ids_of_threads"),
    ("setpriority", "answers_scheduling priorities real_time"),
    ("setregid", "answers_process"),
    ("setresgid", "answers_process thread_limits soak_limits"),
    (
        "setresuid",
        "answers_process thread_limits identity_changes",
    ),
    ("setreuid", "answers_process identity_changes"),
    ("setrlimit", "first_thread_late soak_limits"),
    ("setsockopt", "answers_descriptors socket_timeouts"),
    ("setuid", "answers_process setuid_threads identity_changes"),
    ("shmat", "answers_process"),
    ("sigaltstack", "answers_signals altstack_calls"),
    (
        "signalfd",
        "answers_signals signal_masks_of_waits signalfd_of_one",
    ),
    (
        "signalfd4",
        "answers_signals signal_masks_of_waits signalfd_before_threads",
    ),
    ("stat", "threads_listed"),
    ("statx", "threads_listed"),
    ("tgkill", "answers_signals jit_calls signal_to_oneself"),
    ("time", "answers_time"),
    (
        "timer_create",
        "answers_time timer_thread timer_signal timer_thread_clock",
    ),
    ("timer_delete", "answers_time timer_thread timer_signal"),
    ("timer_getoverrun", "timer_overruns"),
    (
        "timer_settime",
        "answers_time timer_signal timer_overruns timer_thread_point",
    ),
    ("tkill", "answers_signals signal_to_oneself"),
    ("uname", "answers_process"),
    ("unshare", "answers_process own_descriptors"),
    ("vfork", "vfork_waits spawn_handlers"),
    ("wait4", "waits_for_own_children"),
    ("waitid", "waits_for_own_children"),
    ("write", "answers_descriptors restarts transfers_complete"),
    ("writev", "answers_descriptors restarts transfers_complete"),
];

/// Calls that are refused on purpose: README says so.
const REFUSED: &[&str] = &["futex_waitv"];

fn agrees(file: &str) {
    let case = case(file.trim_end_matches(".c"));
    if let Some(path) = case.compile(file) {
        case.succeeds(&Program::new(path), verbatim, |_| ());
    }
}

#[test]
fn answers_of_calls_on_descriptors() {
    agrees("answers_descriptors.c");
}

#[test]
fn answers_of_futex() {
    agrees("answers_futex.c");
}

#[test]
fn answers_of_calls_about_processes_and_memory() {
    agrees("answers_process.c");
}

#[test]
fn answers_of_calls_about_scheduling() {
    agrees("answers_scheduling.c");
}

#[test]
fn answers_of_calls_about_signals() {
    agrees("answers_signals.c");
}

#[test]
fn answers_of_calls_about_time() {
    agrees("answers_time.c");
}

#[test]
fn calls_that_wait_go_on_after_a_handler_as_signal_7_says() {
    agrees("restarts.c");
}

/// Calls of threads that are the kernel's if a bound thread makes them: its kernel thread is its own, so what waits may
/// wait, and what is kept with a kernel thread is the thread's.
const OF_KERNEL: &[&str] = &[
    "accept",
    "accept4",
    "add_key",
    "brk",
    "chroot",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "fallocate",
    "getcpu",
    "getegid",
    "geteuid",
    "getgid",
    "getpid",
    "getppid",
    "getrandom",
    "gettimeofday",
    "getuid",
    "io_uring_register",
    "ioperm",
    "iopl",
    "keyctl",
    "landlock_restrict_self",
    "lseek",
    "madvise",
    "mremap",
    "nanosleep",
    "personality",
    "pidfd_send_signal",
    "pivot_root",
    "poll",
    "ppoll",
    "preadv2",
    "pselect6",
    "ptrace",
    "pwritev2",
    "readv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "request_key",
    "rt_sigpending",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "sched_yield",
    "select",
    "sendfile",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "set_mempolicy",
    "setfsgid",
    "setfsuid",
    "setns",
    "setrlimit",
    "sigaltstack",
    "time",
    "uname",
    "write",
    "writev",
];

/// The rows of the table of system calls: the calls, and whether the row says what becomes of a bound thread's.
fn rows() -> Vec<(BTreeSet<String>, bool)> {
    let file = "../../crates/upcall-guest/src/call/table.rs";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    let text = text.expect("the library's source is there");
    let rows = text.split("row(&[").skip(1);
    rows.map(|row| {
        let (calls, columns) = row.split_once(']').expect("the list ends");
        let is_name = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_';
        let names = calls.split("SYS_").skip(1);
        (
            names
                .map(|rest| rest.chars().take_while(is_name).collect())
                .collect(),
            columns.contains(".bound("),
        )
    })
    .collect()
}

/// The calls of the rows that pass.
fn calls(passes: impl Fn(bool) -> bool) -> BTreeSet<String> {
    let rows = rows()
        .into_iter()
        .filter(|&(_, is_for_bound)| passes(is_for_bound));
    rows.flat_map(|(calls, _)| calls).collect()
}

#[test]
fn each_call_that_is_served_names_its_programs() {
    let listed: BTreeSet<String> = CALLS
        .iter()
        .map(|(call, _)| *call)
        .chain(REFUSED.iter().copied())
        .map(String::from)
        .collect();
    assert_eq!(calls(|_| true), listed);
    for (call, programs) in CALLS {
        assert!(!programs.is_empty(), "{call} has no test program");
        for name in programs.split(' ') {
            source::find(name);
        }
    }
}

#[test]
fn each_call_that_is_served_is_served_for_bound_threads_or_is_the_kernels() {
    let rest = calls(|is_for_bound| !is_for_bound);
    let listed = OF_KERNEL.iter().copied().map(String::from).collect();
    assert_eq!(rest, listed);
}
