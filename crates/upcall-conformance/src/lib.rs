//! The kernel conformance suite: what must hold on every kernel under the runtime.
//!
//! A [`Scenario`] is written once, over a [`World`]: threads, and what the kernel does to them. It
//! asserts by progress and order: a thread that must run now is one for which another waits,
//! computing, so that a scenario that fails does not end. Nothing is measured against a clock; the
//! only times are the guard of whoever runs it, and how long a call takes that ends by itself.
//! What must have happened meanwhile is asked of the [`Counters`] that `--stats` prints.
//!
//! | world | what |
//! |---|---|
//! | [`sim`] | the simulated machine of `upcall-sim`, with many seeds |
//! | [`threads`] | a program with kernel threads: under `upcall run` the world of its backend; natively the check of the scenarios themselves |
//!
//! Every scenario is run with 1, 2 and 4 virtual processors: by `tests/sim.rs` on the first, by
//! `tests/standby.rs` under `upcall run --backend standby`. A later backend of `upcall run` is one more
//! file like that; a kernel on which no program can be started implements [`World`].
//!
//! That each scenario can fail is shown by `tests/mutants`: for each a line of the runtime, or of a backend,
//! that is changed, and the scenario then fails.

pub mod scenarios;
pub mod sim;
pub mod threads;
pub mod world;

pub use scenarios::{Scenario, scenarios};
pub use world::{Counters, Kind, Slices, World};

/// Declares a test for each scenario and number of virtual processors, which calls a function of the
/// module that says so: `each_scenario!(run)` calls `run(name, processors)`.
#[macro_export]
macro_rules! each_scenario {
    ($run:ident) => {
        $crate::each_scenario! {
            $run: block fault recycle exhaustion unblock_while_idle unblock_while_busy resume
            priority_unblock preempt_in_critical_section preempt_in_runtime last_processor warning add
            need idle
        }
    };
    ($run:ident: $($name:ident)+) => {
        $(mod $name {
            #[test] fn with_1() { super::$run(stringify!($name), 1); }
            #[test] fn with_2() { super::$run(stringify!($name), 2); }
            #[test] fn with_4() { super::$run(stringify!($name), 4); }
        })+

        #[test]
        fn every_scenario_is_a_test() {
            let all = $crate::scenarios::<$crate::threads::Threads>();
            let names: Vec<_> = all.iter().map(|one| one.name).collect();
            assert_eq!(names, [$(stringify!($name)),+]);
        }
    };
}
