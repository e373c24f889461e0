//! Runs the same cases without a runtime, and with one of 1, 2 and 4 virtual processors and the shortest
//! time slice: a process each, since a process has one runtime.

use std::env;
use std::process::Command;
use std::time::Duration;

/// What a case is called, and the case.
pub type Case = (&'static str, fn());

const MODE: &str = "UPCALL_SYNC_TEST_VPS";

/// Lists cases with their names.
#[macro_export]
macro_rules! cases {
    ($($case:ident)*) => {
        &[$((stringify!($case), $case)),*]
    };
}

/// The test program: with arguments, the cases whose names contain one of them.
pub fn main(cases: &[Case]) {
    let Ok(mode) = env::var(MODE) else {
        for vps in [0, 1, 2, 4] {
            if vps > 0 && !upcall_linux::arch::SERVES_PROGRAMS {
                println!("skipped: with a runtime: not on this architecture");
                break;
            }
            let status = Command::new(env::current_exe().unwrap())
                .args(env::args_os().skip(1))
                .env(MODE, vps.to_string())
                .status()
                .unwrap();
            assert!(status.success(), "{vps} virtual processors: {status}");
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
            .time_slice(Duration::from_micros(100))
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
