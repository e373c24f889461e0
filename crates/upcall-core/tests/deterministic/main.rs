//! The core on a simulated kernel: every scenario with many seeds.
//!
//! `UPCALL_TEST_SEEDS=N` runs N seeds of each scenario; `UPCALL_TEST_SEED=S` replays one. A failing
//! run prints its seed and the state of the machine.

mod bound;
mod machine;
mod scenarios;
mod sim;
mod stepping;
mod style;
mod threads;
mod watch;

use machine::Machine;
use style::Style;
use threads::Me;

/// Seeds of each scenario in an ordinary run.
const SEEDS: u64 = 50;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `main` with many seeds.
fn explore(name: &'static str, main: fn(Me)) {
    announce_panics();
    let seeds = match number("UPCALL_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("UPCALL_TEST_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        sim::RUN.set((name, seed));
        let machine = Box::into_raw(Box::new(Machine::new(seed, |pick| Style::draw(pick))));
        // SAFETY: freed below, when nothing refers to it any more.
        let borrowed: &'static Machine = unsafe { &*machine };
        threads::boot(borrowed, main);
        bound::begin(borrowed);
        let result = borrowed.run();
        bound::end();
        if let Err(what) = result {
            let state = borrowed.describe();
            panic!(
                "{name}: {what}\nreplay: UPCALL_TEST_SEED={seed} cargo test -p upcall-core --test deterministic {name}\n{state}"
            );
        }
        // SAFETY: made above; the run is over.
        drop(unsafe { Box::from_raw(machine) });
    }
}

/// A panic inside the runtime cannot unwind: the seed is printed with its message.
fn announce_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |information| {
            let (name, seed) = sim::RUN.get();
            eprintln!("{name} with UPCALL_TEST_SEED={seed}:");
            usual(information);
        }));
    });
}

/// What the bound is for: the run ends, and says so.
#[test]
fn an_endless_loop_ends_the_run() {
    let machine: &'static Machine = Box::leak(Box::new(Machine::new(1, |pick| Style {
        stepped: 0,
        ..Style::draw(pick)
    })));
    threads::boot(machine, |me: Me| {
        me.runtime.enter();
        loop {
            std::hint::spin_loop();
        }
    });
    bound::begin(machine);
    let result = machine.run();
    bound::end();
    assert!(result.is_err_and(|what| what.contains("endless loop")));
}
