//! Runs every scenario under `upcall run --backend sched_ext`, if the scheduler of upcalld is in force on this machine. As a rule that is
//! an emulated one: `tests/vm/run --scheduler -- sh /scheduler conformance`.

mod launched;

use launched::Backend;
use upcall_conformance::each_scenario;

/// The kernel tells of no lost processor: the daemon does, as with the backend `standby`.
const SCHED_EXT: Backend = Backend {
    name: "sched_ext",
    is_told: false,
};

each_scenario!(run);

fn run(name: &str, processors: usize) {
    launched::run_if_it_works(&SCHED_EXT, name, processors);
}
