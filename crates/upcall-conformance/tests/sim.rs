//! Every scenario on the simulated machine.

use upcall_conformance::{scenarios, sim};

/// Declares a test for each scenario and number of virtual processors.
macro_rules! on_sim {
    ($($name:ident)+) => {
        $(mod $name {
            #[test] fn with_1() { super::run(stringify!($name), 1); }
            #[test] fn with_2() { super::run(stringify!($name), 2); }
            #[test] fn with_4() { super::run(stringify!($name), 4); }
        })+

        #[test]
        fn every_scenario_is_a_test() {
            let names: Vec<_> = scenarios::<sim::Sim>().iter().map(|one| one.name).collect();
            assert_eq!(names, [$(stringify!($name)),+]);
        }
    };
}

on_sim! {
    block fault unblock_while_idle unblock_while_busy priority_unblock preempt_in_critical_section
    preempt_in_runtime last_processor add idle need resume recycle warning exhaustion
}

fn run(name: &str, processors: usize) {
    let all = scenarios();
    let scenario = all.iter().find(|one| one.name == name);
    sim::run(scenario.expect("a scenario of that name"), processors);
}
