//! Runs every scenario under `upcall run --backend observed`, if an upcalld of root observes on this machine.

mod launched;

use launched::Backend;
use program_tests::provision;
use upcall_conformance::each_scenario;

/// What is told of lost processors is as with the backend `standby`.
const OBSERVED: Backend = Backend {
    name: "observed",
    is_told: false,
};

each_scenario!(run);

fn run(name: &str, processors: usize) {
    let found = upcall_linux::probe::find("observed").expect("a backend");
    let finding = found.probe();
    if !finding.works {
        let title = format!("{name}_with_{processors}");
        return provision::skip(&title, &finding.evidence);
    }
    launched::run(&OBSERVED, name, processors);
}
