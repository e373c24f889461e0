//! The test programs, a case each: natively and launched they must print the same, and natively all `ok`.
//!
//! A program is named under its folder below. One that takes arguments has a function of its own.

use crate::case;
use program_tests::program::Program;
use program_tests::{provision, source};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Declares a case per program, by folder, and the list that [`every_program_is_run_and_has_a_name_of_its_own`] reads.
macro_rules! programs {
    ($($folder:ident: $($name:ident)+;)+) => {
        $(mod $folder {
            $(#[test] fn $name() { super::agrees(stringify!($name)); })+
        })+
        const NAMES: &[(&str, &str)] = &[$($((stringify!($folder), stringify!($name)),)+)+];
    };
}

programs! {
    bound: bound_by_other bound_calls bound_cleared_word bound_clones bound_filtered bound_gs_base bound_identity bound_in_handler
        bound_lists_threads bound_urgent bound_wakes_in_handler own_events ptrace_threads thread_kernel_state;
    code: filter_after_jit filter_without_barriers first_thread_late jit_altstack jit_calls jit_later own_gs_base own_rseq own_user_dispatch refused_site
        registers seccomp_traps time_stamps_fault time_stamps_fault_here;
    identity: capabilities_by_id identity_by_helper identity_changes setuid_threads thread_privileges;
    languages: cxx_atomic_wait cxx_cancel_unwind cxx_fork_while_throwing cxx_exceptions cxx_jthread cxx_latch_barrier cxx_mutexes
        cxx_thread_local omp_for omp_nested omp_sync omp_tasks py_futures py_locks py_multiprocessing py_select
        py_servers py_signals py_sleep py_subprocess py_threads rs_channels rs_children rs_overflow rs_panic
        rs_park rs_sleep rs_tcp rs_threads;
    locks: cond_timeouts futex_counts futex_requeue_bound mutex_pi mutex_robust mutex_robust_pi mutex_shared
        mutex_shared_bound mutex_shared_owner_ends mutex_types process_shared raw_futex rwlock_barrier
        semaphores spin_locks stdio_locks;
    memory: byte_functions clone_small_stack kept_stacks malloc_threads page_faults stack_overflow vdso_small_stack;
    processes: atfork clone_clears_handlers exec_from_thread fork_and_code fork_from_thread fork_in_handler fork_migrating
        fork_return fork_while_threads_start spawn spawn_handlers stop_continue traced_child vfork_waits waits_for_own_children;
    scheduling: affinity_beside affinity_children affinity_kept affinity_outside affinity_threads affinity_while_waiting
        affinity_wider crowded_blocks helpers_scheduling real_time spin_wait turns_hostile turns_without_spares turns_without_timers
        woken_beside_computing woken_by_computing;
    signals: alarm_main altstack_calls altstack_leaves altstack_parks altstack_per_thread altstack_shared
        altstack_small_stack altstack_switches handler_context handler_context_parked kill_parked kill_reader kill_reader_parked
        kill_running
        leases_of_threads owner_of_signals pending_at_once registers_in_signals siginfo siglongjmp_segv
        signal_actions signal_after_handler signal_as_handler_goes signal_as_mask_opens
        signal_before_threads signal_before_wait signal_blocked_late signal_bursts signal_bursts_parked signal_from_child
        signal_in_handler_entry signal_leaves_wait signal_mask_delivery signal_masks signal_masks_of_waits
        signal_no_room signal_numbers_of_faults signal_numbers_to_others signal_of_first signal_of_write
        signal_order signal_storm signal_to_ending signal_to_first signal_to_last signal_to_oneself
        signal_to_other_process signal_to_parked signalfd_before_threads signalfd_of_one signals_kept
        signals_to_process signals_while_threads_start signals_without_room sigsys_blocked sigwait
        stack_pointer_away tiles wait_and_handler wait_and_handler_parked;
    threads: backtrace_thread c11_threads cancel_async cancel_cond_wait cancel_poll cancel_read cancel_read_parked cancel_sleep
        cancel_testcancel cancel_waits errno_tls_10000 helpers helpers_change ids_of_threads main_pthread_exit
        many_threads start_again thread_attributes thread_by_id thread_exit thread_limits thread_name_of_other
        thread_odd_calls threads_listed threads_listed_agents ucontext_in_threads;
    time: profiling_shares profiling_timer sleep_many sleep_on_thread thread_clocks_grow thread_cpu_clock timer_overruns timer_signal
        timer_slack timer_thread timer_thread_clock timer_thread_point times_of_process;
    waits_and_io: accept_calls aio aio_idle blocks_500 datagrams descriptor_limits descriptor_numbers descriptors descriptors_replaced
        epoll_nest_at_once epoll_threads event_switches faults_served file_blocking loop_writes nonblocking nowait_forbidden
        own_descriptors poll_closed poll_many poll_signals poll_timeouts prompt_calls reads_that_count reads_that_empty
        reads_that_fail receives_that_fail resolver socket_timeouts serves_and_blocks transfers_complete transfers_interrupted uring
        uring_registered waits_disturbed waits_for_other_processes;
}

/// Runs the program of that name, in whatever language.
fn agrees(name: &str) {
    let case = case(name);
    let source = source::find(name);
    let program = if source.extension() == Some("py".as_ref()) {
        provision::python(name).map(|python| script(python, name))
    } else {
        let file = source.file_name().and_then(OsStr::to_str).expect("a name");
        case.compile(file).map(Program::new)
    };
    if let Some(program) = program {
        case.verdicts(&program);
    }
}

fn script(python: PathBuf, name: &str) -> Program {
    // -B: no compiled files beside the sources.
    Program::new(python)
        .args(["-B", "-X", "faulthandler"])
        .arg(source::find(name))
}

/// OpenMP binds its threads only if it is asked to, and by places.
#[test]
fn omp_bound() {
    let case = case("omp_bound");
    if let Some(program) = case.compile("omp_bound.c") {
        let program = Program::new(program)
            .env("OMP_PROC_BIND", "true")
            .env("OMP_PLACES", "threads");
        case.verdicts(&program);
    }
}

/// A library is loaded by its path, so this program takes an argument.
#[test]
fn dlopen_tls() {
    loads("dlopen_tls", "dlopen_tls.c", "plugin_tls.c");
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
    let plugin = case.compile(plugin);
    let program = case.compile(program);
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
    // The daemon's tests run such programs, too.
    let tests: String = ["tests", "../../crates/upcalld/tests"]
        .map(|folder| source::files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)))
        .iter()
        .flatten()
        .map(|path| fs::read_to_string(path).expect("a test is readable"))
        .collect();
    for path in source::all() {
        let stem = path.file_stem().and_then(OsStr::to_str).expect("a name");
        let file = path.file_name().and_then(OsStr::to_str).expect("a name");
        assert_eq!(source::find(stem), path, "{file}");
        let folder = path
            .parent()
            .and_then(Path::file_name)
            .and_then(OsStr::to_str);
        let listed = NAMES.contains(&(folder.expect("a folder"), stem));
        assert!(
            listed || tests.contains(&format!("\"{file}\"")),
            "no test runs {}",
            path.display()
        );
    }
}
