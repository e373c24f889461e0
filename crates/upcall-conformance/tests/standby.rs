//! Runs every scenario under `upcall run --backend standby`.

mod launched;

use launched::Backend;
use upcall_conformance::each_scenario;

/// Under this backend a program loses a processor when programs of one user take turns. A program takes part once its
/// time slices show that it computes. On a crowded machine they come too late for that, and the kernel shares the
/// processors out instead; so `is_told` is false.
const STANDBY: Backend = Backend {
    name: "standby",
    is_told: false,
};

each_scenario!(run);

fn run(name: &str, processors: usize) {
    launched::run(&STANDBY, name, processors);
}
