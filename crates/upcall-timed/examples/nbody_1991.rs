//! Tables 1, 4 and 5 and Figures 2 and 3 of Anderson et al. (1991), beside what they give here. With
//! the argument `sensitivity`: Table 5 where the application, or the machine, is another (of which one
//! further argument picks a part); with `where`: where the processors' time goes.

use upcall_timed::costs::{Costs, US};
use upcall_timed::nbody::firefly::{
    PROBLEM, PROCESSORS, SYSTEMS, System, published, shares, speedup, speedup_with, time,
};
use upcall_timed::nbody::program::{Problem, sequential};

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("sensitivity") => sensitivity(),
        Some("where") => where_time_goes(),
        _ => figures(),
    }
}

fn figures() {
    println!("Published figures, and what the core does with the Firefly's costs");
    println!("\n{:<44} {:>9} {:>9} {:>7}", "", "paper", "here", "");
    for point in published() {
        let here = (point.measure)();
        let off = 100.0 * (here / point.paper - 1.0);
        println!(
            "{:<44} {:>9.2} {here:>9.2} {off:>+6.1}%",
            point.what, point.paper
        );
    }

    println!("\nFigure 2: speedup, 100 % of memory");
    heading("processors");
    for processors in 1..=PROCESSORS {
        row(processors, "", |system| {
            speedup(PROBLEM, system, processors, 1)
        });
    }

    let alone = sequential(PROBLEM).sequential as f64 / 1e9;
    println!(
        "\nFigure 3: seconds on {PROCESSORS} processors (sequential, all in memory: {alone:.1})"
    );
    heading("memory");
    for memory in [100, 95, 90, 80, 70, 60, 50, 40] {
        row(memory, "%", |system| time(system, memory));
    }
}

fn heading(first: &str) {
    println!(
        "{first:>20} {:>12} {:>12} {:>12}",
        "Topaz", "original", "new"
    );
}

fn row(first: impl std::fmt::Display, unit: &str, figure: impl Fn(System) -> f64) {
    print!("{:>20}", format!("{first}{unit}"));
    for system in SYSTEMS {
        print!(" {:>12.2}", figure(system));
    }
    println!();
}

fn sensitivity() {
    let picked = std::env::args().nth(2).unwrap_or_default();
    let table_5 = |what: String, problem: Problem| {
        if !what.starts_with(&picked) {
            return;
        }
        row(what, "", |system| speedup(problem, system, PROCESSORS, 2));
    };
    let scaled = |value: u64, percent| value * percent / 100;
    heading("Table 5");
    row("the paper", "", |system| match system {
        System::Topaz => 1.29,
        System::Original => 1.26,
        System::New => 2.45,
    });
    table_5("as chosen".into(), PROBLEM);
    for percent in [50, 80, 125, 200] {
        let bodies = scaled(PROBLEM.bodies as u64, percent) as usize;
        let steps = PROBLEM.steps * PROBLEM.bodies / bodies;
        let interaction = scaled(PROBLEM.interaction, percent);
        let lookup = scaled(PROBLEM.lookup, percent);
        let insertion = scaled(PROBLEM.insertion, percent);
        let page = scaled(PROBLEM.page.into(), percent) as u32;
        let quantum = scaled(PROBLEM.quantum, percent);
        let daemon = scaled(PROBLEM.daemon, percent);
        let with = |what: &str, problem| table_5(format!("{what} {percent} %"), problem);
        with(
            "bodies",
            Problem {
                bodies,
                steps,
                ..PROBLEM
            },
        );
        with(
            "interaction",
            Problem {
                interaction,
                ..PROBLEM
            },
        );
        with("lookup", Problem { lookup, ..PROBLEM });
        with(
            "insertion",
            Problem {
                insertion,
                ..PROBLEM
            },
        );
        with("page", Problem { page, ..PROBLEM });
        with("quantum", Problem { quantum, ..PROBLEM });
        // Only whole bodies.
        if (PROBLEM.grain as u64 * percent).is_multiple_of(100) {
            let grain = scaled(PROBLEM.grain as u64, percent) as usize;
            with("grain", Problem { grain, ..PROBLEM });
        }
        with("daemon", Problem { daemon, ..PROBLEM });
    }
    let machine = |what: &str, change: fn(&mut Costs)| {
        if !what.starts_with(&picked) {
            return;
        }
        row(what, "", |system| {
            speedup_with(PROBLEM, system, PROCESSORS, 2, change)
        });
    };
    machine("bus 0 %", |costs| costs.bus = 0);
    machine("bus 2 %", |costs| costs.bus = 2);
    machine("no one lock", |costs| costs.one_lock = false);
}

fn where_time_goes() {
    println!(
        "{:>24} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "percent", "forces", "lookups", "alone", "others", "rest", "lock held"
    );
    let slow_lookups = Problem {
        lookup: 100 * US,
        ..PROBLEM
    };
    for (name, problem) in [("", PROBLEM), (", lookup 100 us", slow_lookups)] {
        for system in SYSTEMS {
            let it = shares(problem, system, PROCESSORS);
            println!(
                "{:>24} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>10.1}",
                format!("{system:?}{name}"),
                it.forces,
                it.lookups,
                it.alone,
                it.others,
                it.rest,
                it.lock
            );
        }
    }
}
