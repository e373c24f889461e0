//! Runs every scenario on the simulated machine.

use upcall_conformance::{each_scenario, scenarios, sim};

each_scenario!(run);

fn run(name: &str, processors: usize) {
    let scenario = scenarios::find(name).expect("a scenario of that name");
    sim::run(&scenario, processors);
}
