//! Tables 1, 4 and 5 and Figures 2 and 3 of Anderson et al. (1991), beside what they give here. With
//! the argument `sensitivity`: Table 5 where the application, or the kernel's turn, is another.

use upcall_timed::nbody::firefly::{
    PROBLEM, PROCESSORS, SYSTEMS, System, published, speedup, time,
};
use upcall_timed::nbody::program::{Problem, sequential};

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("sensitivity") => sensitivity(),
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
    let table_5 = |what: String, problem: Problem| {
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
    }
}
