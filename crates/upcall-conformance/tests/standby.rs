//! Every scenario under `upcall run --backend standby`.

mod launched;

use upcall_conformance::each_scenario;

each_scenario!(run);

fn run(name: &str, processors: usize) {
    launched::run("standby", name, processors);
}
