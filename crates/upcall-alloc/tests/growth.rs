//! What a decision costs, in instructions, and how that grows with the machine.
//!
//! `valgrind` counts the instructions of the example `decisions`, twice for each machine, with a
//! few and with many calls; the difference is the calls'. Instructions do not depend on what else
//! the machine does, so they can be held to a bound; the margins are wide, for other compilers.

use std::process::Command;

/// Instructions of a call at 64 processors and 100 spaces, those of the example included: a
/// microsecond, at 3 GHz and two instructions a cycle.
const CALL: f64 = 6000.0;

/// How much more a change of hands may cost on a machine with 10,000 processors and 10,000 spaces than
/// on that one. A logarithm grows by 2, a search through all spaces by 100. The other half of a factor is
/// for the nodes of the trees, which are searched one key after the other.
const GROWTH: f64 = 2.5;

/// How much more a step may cost in the mix of calls. On the larger machine most steps are changes, and
/// on the smaller one most change nothing, which costs a half or less.
const GROWTH_OF_MIX: f64 = 4.0;

/// What some calls cost.
struct Cost {
    instructions: f64,
    calls: f64,
    /// How many processors changed hands.
    changes: f64,
}

impl Cost {
    /// The cost of calls on a machine in use (`count`), or of turns (`turns`).
    fn of(what: &str, processors: u32, spaces: u32) -> Self {
        let [few, many] = [2_000, 22_000].map(|number| run(what, processors, spaces, number));
        Cost {
            instructions: many.instructions - few.instructions,
            calls: many.calls - few.calls,
            changes: many.changes - few.changes,
        }
    }

    /// Of a call.
    fn per_call(&self) -> f64 {
        self.instructions / self.calls
    }

    /// Of a step: a call that changes nothing, or a change.
    fn per_step(&self) -> f64 {
        self.instructions / (self.calls + self.changes)
    }

    /// Of a change, if there is little else.
    fn per_change(&self) -> f64 {
        self.instructions / self.changes
    }
}

fn run(what: &str, processors: u32, spaces: u32, number: u32) -> Cost {
    let mut example = std::env::current_exe().expect("this test is a file");
    example.pop();
    example.pop();
    example.push("examples/decisions");
    assert!(
        example.exists(),
        "not built: {} (cargo build --release --examples)",
        example.display()
    );
    let numbers = [processors, spaces, number].map(|number| number.to_string());
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no"])
        .arg("--cachegrind-out-file=/dev/null")
        .arg(example)
        .arg(what)
        .args(numbers)
        .output()
        .expect("valgrind was there before");
    let [said, counted] = [output.stdout, output.stderr];
    let [said, counted] = [said, counted].map(|text| String::from_utf8_lossy(&text).into_owned());
    let line = counted
        .lines()
        .find(|line| line.contains("I ") && line.contains("refs:"));
    let count = line.and_then(|line| line.split_whitespace().last());
    let mut numbers = count.into_iter().chain(said.split_whitespace());
    let mut number = || numbers.next()?.replace(',', "").parse().ok();
    match [number(), number(), number()] {
        [Some(instructions), Some(calls), Some(changes)] => Cost {
            instructions,
            calls,
            changes,
        },
        _ => panic!("no count in what valgrind said: {counted}"),
    }
}

#[test]
fn a_decision_costs_a_logarithm() {
    let found = Command::new("valgrind").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        println!("skipped: valgrind is not installed");
        return;
    }
    if cfg!(debug_assertions) {
        println!("skipped: this is a debug build");
        return;
    }
    let usual = [Cost::of("count", 64, 100), Cost::of("turns", 64, 100)];
    let [call, change] = [usual[0].per_call(), usual[1].per_change()];
    println!("64 processors, 100 spaces: {call:.0} instructions a call, {change:.0} a change");
    assert!(
        call < CALL,
        "{call:.0} instructions a call, more than {CALL}"
    );
    for (processors, spaces) in [(64, 1000), (10_000, 1000), (10_000, 10_000)] {
        let machine = format!("{processors} processors, {spaces} spaces");
        let step = Cost::of("count", processors, spaces).per_step();
        let change = Cost::of("turns", processors, spaces).per_change();
        let of_mix = step / usual[0].per_step();
        let times = change / usual[1].per_change();
        println!(
            "{machine}: {change:.0} a change, {times:.2} times that; \
             {step:.0} a step, {of_mix:.2} times that"
        );
        assert!(
            times < GROWTH,
            "{machine}: {times:.2} times, more than {GROWTH}"
        );
        assert!(
            of_mix < GROWTH_OF_MIX,
            "{machine}: {of_mix:.2} times, more than {GROWTH_OF_MIX}"
        );
    }
}
