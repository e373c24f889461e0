//! Runs every scenario under `upcall run --backend observed`, if an upcalld of root observes on this machine.

mod launched;

use launched::Backend;
use upcall_conformance::each_scenario;

/// What is told of lost processors is as with the backend `standby`.
const OBSERVED: Backend = Backend {
    name: "observed",
    is_told: false,
};

each_scenario!(run);

fn run(name: &str, processors: usize) {
    launched::run_if_it_works(&OBSERVED, name, processors);
}
