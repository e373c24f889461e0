//! `--stats`: prints the runtime's counters ([`ROWS`]) when the process ends, to the standard error that it had at its start.

use std::fmt::Write;

use upcall_core::Machine;
use upcall_linux::statistics::ROWS;
use upcall_linux::{Runtime, sys};

use crate::report::text::Text;
use crate::rewrite::sud;
use crate::signal::dispatch;
use crate::thread::shell;

pub fn print(runtime: &'static Runtime, descriptor: i32) {
    let stats = runtime.stats();
    let mut text = Text::<3072>::new();
    let turns = runtime.kernel().turns().report().unwrap_or_default();
    let (time, idle) = runtime.times(runtime.kernel().now());
    let looks = runtime.kernel().looks();
    let (refused, failed) = dispatch::state();
    let values: [u64; ROWS.len()] = [
        runtime.vps().len() as u64,
        time / 1000,
        idle / 1000,
        stats.created.get(),
        stats.threads.peak(),
        runtime.switches(),
        stats.blocked.get(),
        stats.unblocked(),
        stats.displaced.get(),
        stats.rung.get(),
        stats.taken.get(),
        stats.preempted.get(),
        stats.stolen.get(),
        shell::pieces_taken(),
        stats.activations.peak(),
        stats.recycled.get(),
        stats.refused.get(),
        stats.absent.peak(),
        stats.polled.get(),
        stats.activations.get(),
        turns.turns,
        turns.waited_ns / 1000,
        turns.by_daemon,
        turns.warnings,
        turns.truces,
        looks.told,
        looks.untold,
        looks.preempted,
        u64::from(refused),
        u64::from(dispatch::is_on()),
        sud::trapped(),
    ];
    for (row, value) in ROWS.iter().zip(values) {
        // Writing to the buffer cannot fail.
        let _ = writeln!(text, "upcall: {:<38} {value:>12}", row.name);
    }
    if let Some(errno) = failed {
        let _ = writeln!(
            text,
            "upcall: calls outside rewritten sites are not seen: no Syscall User Dispatch \
             (errno {errno}); see upcall doctor syscall-user-dispatch"
        );
    }
    if let Some(trouble) = runtime.kernel().turns().trouble() {
        let _ = writeln!(
            text,
            "upcall: no turns with other programs: {}; see upcall doctor turns",
            trouble.as_str()
        );
    }
    sys::say_to(descriptor, text.as_bytes());
}
