//! The kernel conformance suite: what must hold on every kernel under the runtime.
//!
//! A [`Scenario`] is written once, over a [`World`]: threads, and what the kernel does to them. A
//! scenario asserts progress and order. If a thread must run now, another thread waits for it and
//! computes meanwhile; so a scenario that fails never ends, and the test's guard ends it. No
//! scenario compares a time with a clock. What the runtime must have done is read from the
//! [`Counters`] that `--stats` prints.
//!
//! | world | what |
//! |---|---|
//! | [`sim`] | the simulated machine of `upcall-sim`, with many seeds |
//! | [`threads`] | a program with kernel threads: under `upcall run` it tests a backend; natively it tests the scenarios |
//!
//! Each scenario runs with 1, 2 and 4 virtual processors: `tests/sim.rs` runs it on the simulated machine,
//! `tests/standby.rs` under `upcall run --backend standby`. A new backend of `upcall run` takes one more
//! file like `tests/standby.rs`. A kernel that cannot start programs takes an implementation of [`World`].
//!
//! `tests/mutants` shows that each scenario can fail: it changes a line of the runtime or of a backend, and
//! the scenario must fail then.

pub mod scenarios;
pub mod sim;
pub mod threads;
pub mod world;

pub use scenarios::{Scenario, scenarios};
pub use world::{Counters, Kind, Slices, World};

/// Declares a test for each scenario and number of virtual processors. With `each_scenario!(run)` each test
/// calls `run(name, processors)` of the module that uses the macro.
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
