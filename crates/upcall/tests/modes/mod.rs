//! Runs the same cases without a runtime, and with one of 1, 2 and 4 virtual processors and short
//! time slices: a process each, since a process has one runtime.

use std::env;
use std::process::Command;
use std::time::Duration;

pub type Case = (&'static str, fn());

pub const MODE: &str = "UPCALL_SYNC_TEST_VPS";
pub const SLICE: &str = "UPCALL_SYNC_TEST_SLICE_US";

/// Lists cases with their names.
#[macro_export]
macro_rules! cases {
    ($($case:ident $(:: $within:ident)?)*) => {
        &[$((concat!(stringify!($case) $(, "::", stringify!($within))?), $case $(:: $within)?)),*]
    };
}

/// The shortest time slice, and the usual one.
const SLICES_US: [u64; 2] = [100, 5000];

/// The test program: with arguments, the cases whose names contain one of them.
#[allow(dead_code)]
pub fn main(cases: &[Case]) {
    run(cases, &SLICES_US[..1]);
}

/// As [`main`], also with the usual time slice.
#[allow(dead_code)]
pub fn main_with_slices(cases: &[Case]) {
    run(cases, &SLICES_US);
}

/// Whether there is a runtime in this process that the test has started.
#[allow(dead_code)]
pub fn has_runtime() -> bool {
    env::var(MODE).is_ok_and(|vps| vps != "0")
}

fn run(cases: &[Case], slices_us: &[u64]) {
    let Ok(mode) = env::var(MODE) else {
        let ways = slices_us
            .iter()
            .flat_map(|slice| [1, 2, 4].map(|vps| (vps, *slice)));
        for (vps, slice) in [(0, 0)].into_iter().chain(ways) {
            if vps > 0 && !upcall_linux::arch::SERVES_PROGRAMS {
                println!("skipped: with a runtime: not on this architecture");
                break;
            }
            let status = Command::new(env::current_exe().unwrap())
                .args(env::args_os().skip(1))
                .env(MODE, vps.to_string())
                .env(SLICE, slice.to_string())
                .status()
                .unwrap();
            assert!(
                status.success(),
                "{vps} virtual processors, {slice} µs: {status}"
            );
        }
        return;
    };
    let vps: u32 = mode.parse().unwrap();
    // What hangs ends by this.
    // SAFETY: asks for a signal.
    unsafe { libc::alarm(100) };
    if vps > 0 {
        upcall::Runtime::builder()
            .virtual_processors(vps, vps)
            .time_slice(Duration::from_micros(
                env::var(SLICE).unwrap().parse().unwrap(),
            ))
            .start()
            .expect("starts");
    }
    let wanted: Vec<String> = env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    for (name, case) in cases {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part)) {
            case();
            println!("ok {name} ({vps} virtual processors)");
        }
    }
}
