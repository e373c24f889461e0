//! What debuggers, `upcall stacks` and `upcall top` see of a program from outside: each thread with its name, its state, what it waits
//! for, and the functions that it is in. Live and in core files.
//!
//! The threads of `known_states.c`, under `upcall run`, and of `known_states_of_crate.rs` are in known states. Those of
//! memcached and of a Java program must be there with whole call chains. And what `upcall trace` sees of what threads do.

mod gdb;
mod servers;
mod stacks;
mod subject;
mod top;
mod trace;

/// What must be said of a thread.
struct Known {
    name: &'static str,
    /// One of these. Where a debugger has stopped the program, a thread that runs may have been replaced as if it had
    /// blocked.
    states: &'static [&'static str],
    /// A part of what it waits for.
    waits: &'static str,
    /// A function that it is in.
    function: &'static str,
}

const ANY_RUNS: &[&str] = &["running", "ready", "preempted", "blocked"];
const WORD: &str = "the word at 0x";

const fn thread(
    name: &'static str,
    states: &'static [&'static str],
    waits: &'static str,
    function: &'static str,
) -> Known {
    Known {
        name,
        states,
        waits,
        function,
    }
}

/// Four threads that both programs have.
const PARKED: [Known; 4] = [
    thread("in mutex", &["parked"], WORD, "waits_in_mutex"),
    thread("in condition", &["parked"], WORD, "waits_in_condition"),
    thread(
        "in read",
        &["parked"],
        "descriptor 3 to read",
        "waits_in_read",
    ),
    thread("in sleep", &["parked"], "its deadline", "waits_in_sleep"),
];

/// The threads of `known_states.c`, with what its first thread does.
fn known_in_c(first: &'static str) -> Vec<Known> {
    let mut known = vec![thread("first", ANY_RUNS, "", first)];
    known.extend(PARKED);
    known.extend([
        thread(
            "in flock",
            &["blocked"],
            "flock of descriptor 6",
            "waits_in_flock",
        ),
        thread("computing", ANY_RUNS, "", "computes"),
        // It has its creator's name, and is nowhere, until it has begun.
        thread("", ANY_RUNS, "", ""),
    ]);
    known
}

/// The same in the core file of a crash, before which nothing has stopped them.
fn known_in_crashed_c() -> Vec<Known> {
    let mut known = known_in_c("main");
    known[0].states = &["running"];
    known[6].states = &["ready"];
    known[7].name = "first";
    known[7].states = &["ready"];
    known[7].waits = "has not begun";
    known
}

/// The threads of `known_states_of_crate.rs`, with what its first thread does. The second one is the runtime's own.
fn known_in_crate(first: &'static str) -> Vec<Known> {
    let mut known = vec![
        thread("known_states_of", ANY_RUNS, "", first),
        thread("deadlock", &["parked"], WORD, ""),
    ];
    known.extend(PARKED);
    known.extend([
        thread(
            "in join",
            &["parked"],
            "the end of a thread",
            "waits_in_join",
        ),
        thread("computing", ANY_RUNS, "", "computes"),
    ]);
    known
}
