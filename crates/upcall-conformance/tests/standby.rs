//! Every scenario under `upcall run --backend standby`.

mod launched;

use launched::Backend;
use upcall_conformance::each_scenario;

/// Programs of one user take turns, which is how a processor is taken; but who computes is seen by its
/// time slices. On a crowded machine these come so late that nobody seems to, and the kernel shares the
/// processors out by itself.
const STANDBY: Backend = Backend {
    name: "standby",
    is_told: false,
};

each_scenario!(run);

fn run(name: &str, processors: usize) {
    launched::run(&STANDBY, name, processors);
}
