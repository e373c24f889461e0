//! The small programs under `guests/`, a case each.

use crate::case;
use program_tests::program::Program;
use program_tests::{provision, source};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Declares a case per guest, and the list that [`every_program_is_run_and_has_a_name_of_its_own`] reads.
macro_rules! guests {
    ($($language:ident: $($name:ident)+;)+) => {
        $(mod $language {
            $(#[test] fn $name() { super::$language(stringify!($name)); })+
        })+
        const NAMES: &[(&str, &str)] = &[$($((stringify!($language), stringify!($name)),)+)+];
    };
}

guests! {
    c: affinity_children affinity_outside aio aio_idle alarm_main altstack_calls altstack_leaves
       altstack_parks altstack_per_thread altstack_shared altstack_small_stack altstack_switches atfork
       backtrace_thread blocks_500 bound_by_other bound_calls bound_filtered bound_identity bound_in_handler
       bound_urgent bound_wakes_in_handler c11_threads cancel_async cancel_cond_wait cancel_poll cancel_read
       cancel_sleep cancel_testcancel cancel_waits clone_small_stack cond_timeouts crowded_blocks
       descriptor_limits descriptor_numbers descriptors epoll_nest_at_once epoll_threads errno_tls_10000
       exec_from_thread file_blocking filter_after_jit fork_from_thread fork_in_handler fork_migrating
       fork_return futex_counts futex_requeue_bound handler_context helpers helpers_change helpers_scheduling identity_by_helper
       identity_changes ids_of_threads jit_altstack jit_calls jit_later kill_parked kill_reader kill_running
       leases_of_threads main_pthread_exit malloc_threads many_threads mutex_pi mutex_robust mutex_robust_pi
       mutex_shared mutex_shared_bound mutex_shared_owner_ends mutex_types nonblocking nowait_forbidden
       omp_for omp_nested omp_sync omp_tasks own_descriptors own_events own_gs_base own_rseq own_user_dispatch
       owner_of_signals page_faults pending_at_once poll_closed poll_many poll_signals poll_timeouts
       process_shared profiling_shares profiling_timer ptrace_threads raw_futex reads_that_count real_time
       refused_site registers registers_in_signals resolver rwlock_barrier seccomp_traps semaphores
       setuid_threads siginfo siglongjmp_segv signal_actions signal_before_threads signal_before_wait
       signal_blocked_late signal_bursts signal_from_child signal_in_handler_entry signal_mask_delivery
       signal_masks signal_masks_of_waits signal_no_room signal_storm signal_to_ending signal_to_first
       signal_to_oneself signal_to_other_process signal_to_parked signals_kept signals_to_process
       signals_without_room sigsys_blocked sigwait sleep_many socket_timeouts spawn spawn_handlers spin_wait
       stack_overflow start_again stdio_locks stop_continue thread_attributes thread_by_id thread_cpu_clock
       thread_exit thread_kernel_state thread_limits thread_name_of_other thread_odd_calls thread_privileges
       threads_listed threads_listed_agents time_stamps_fault timer_signal timer_slack timer_thread
       timer_thread_clock times_of_process transfers_complete transfers_interrupted turns_hostile
       turns_without_spares ucontext_in_threads uring uring_registered vdso_small_stack vfork_waits waits_disturbed
       waits_for_other_processes waits_for_own_children woken_beside_computing;
    cpp: cxx_atomic_wait cxx_cancel_unwind cxx_exceptions cxx_jthread cxx_latch_barrier cxx_mutexes
       cxx_thread_local;
    rs: rs_channels rs_children rs_overflow rs_panic rs_park rs_sleep rs_tcp rs_threads;
    py: py_futures py_locks py_multiprocessing py_select py_servers py_signals py_sleep py_subprocess
       py_threads;
}

fn c(name: &str) {
    compiled(name, "c");
}

fn cpp(name: &str) {
    compiled(name, "cpp");
}

fn rs(name: &str) {
    compiled(name, "rs");
}

fn py(name: &str) {
    let case = case(name);
    if let Some(python) = provision::python(name) {
        case.verdicts(&script(python, name));
    }
}

fn compiled(name: &str, language: &str) {
    let case = case(name);
    let file = format!("{name}.{language}");
    if let Some(path) = source::compile(name, case.scratch(), &file) {
        case.verdicts(&Program::new(path));
    }
}

fn script(python: PathBuf, name: &str) -> Program {
    // -B: no compiled files beside the sources.
    Program::new(python)
        .args(["-B", "-X", "faulthandler"])
        .arg(source::find(name))
}

/// A library is loaded by its path, so this guest takes an argument.
#[test]
fn dlopen_tls() {
    let case = case("dlopen_tls");
    let plugin = source::compile("dlopen_tls", case.scratch(), "plugin_tls.c");
    let program = source::compile("dlopen_tls", case.scratch(), "dlopen_tls.c");
    if let (Some(plugin), Some(program)) = (plugin, program) {
        case.verdicts(&Program::new(program).arg(plugin));
    }
}

/// As above; the library's sites are rewritten.
#[test]
fn dlopen_sites() {
    loads("dlopen_sites", "dlopen_sites.c", "plugin_sites.c");
}

/// As above; they cannot be rewritten.
#[test]
fn dlopen_refused_sites() {
    loads("dlopen_refused_sites", "dlopen_sites.c", "plugin_refused.c");
}

/// As above.
#[test]
fn dlopen_small_stack() {
    loads(
        "dlopen_small_stack",
        "dlopen_small_stack.c",
        "plugin_sites.c",
    );
}

fn loads(name: &str, program: &str, plugin: &str) {
    let case = case(name);
    let plugin = source::compile(name, case.scratch(), plugin);
    let program = source::compile(name, case.scratch(), program);
    if let (Some(plugin), Some(program)) = (plugin, program) {
        case.verdicts(&Program::new(program).arg(plugin));
    }
}

/// Distributions may ship Python without its sqlite3 module.
#[test]
fn py_sqlite() {
    let case = case("py_sqlite");
    let Some(python) = provision::python("py_sqlite") else {
        return;
    };
    let found = Command::new(&python)
        .args(["-c", "import sqlite3"])
        .output();
    if found.is_ok_and(|output| output.status.success()) {
        case.verdicts(&script(python, "py_sqlite.py"));
    } else {
        provision::skip("py_sqlite", "this python3 has no sqlite3 module");
    }
}

/// A program that nobody runs would rot: it is in the list above, or a test names its file.
#[test]
fn every_program_is_run_and_has_a_name_of_its_own() {
    let tests = source::files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    let tests: String = tests
        .iter()
        .map(|path| fs::read_to_string(path).expect("a test is readable"))
        .collect();
    for path in source::all() {
        let stem = path.file_stem().and_then(OsStr::to_str).expect("a name");
        let file = path.file_name().and_then(OsStr::to_str).expect("a name");
        assert_eq!(source::find(stem), path, "{file}");
        let listed = NAMES
            .iter()
            .any(|(ending, name)| format!("{name}.{ending}") == file);
        assert!(
            listed || tests.contains(&format!("\"{file}\"")),
            "no test runs {file}"
        );
    }
}
