//! What a program is told of the machine under `-p`.

use crate::real_on_two;
use program_tests::program::Program;

/// Programs make a thread for each processor that they are told of. Threads that spin for each other waste the time of
/// those for which there is no virtual processor.
#[test]
fn a_program_is_told_of_as_many_processors_as_it_has_virtual_ones() {
    let name = "a_program_is_told_of_as_many_processors_as_it_has_virtual_ones";
    let Some((case, path)) = real_on_two(name, "affinity_told.c") else {
        return;
    };
    for (flag, count) in [("-p1", "1"), ("-p2", "2")] {
        let program = Program::new(&path).args([count]);
        let outcome = case.run_launched(&program, &[flag]);
        let fine = outcome.status.success() && outcome.stdout == b"ok affinity_told\n";
        assert!(fine, "{flag}: {}\n{}", outcome.ending(), outcome.talk());
    }
}
