//! Exit statuses, and writing to standard output.

use std::io::Write;

use serde::Serialize;

/// Exit status of every failure of `upcall` itself, wrong usage included, as of `env`,
/// `nice` and `timeout`: a program's own 1 or 2 is never mistaken for ours.
pub const EXIT_OURS: i32 = 125;
/// The program was found and cannot be executed.
pub const EXIT_NOT_EXECUTABLE: i32 = 126;
/// There is no such program.
pub const EXIT_NOT_FOUND: i32 = 127;

/// Text without control characters. A program says of itself what it likes: nothing of it may command the terminal.
pub fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Writes data to standard output. The exit status is 0 if the data arrived.
pub fn say(data: &[u8]) -> i32 {
    let mut out = std::io::stdout().lock();
    match out.write_all(data).and_then(|()| out.flush()) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("upcall: cannot write to standard output: {error}");
            EXIT_OURS
        }
    }
}

/// The same with one JSON object, in a line.
pub fn say_json(object: &impl Serialize) -> i32 {
    match serde_json::to_string(object) {
        Ok(text) => say((text + "\n").as_bytes()),
        Err(error) => {
            eprintln!("upcall: cannot write JSON: {error}");
            EXIT_OURS
        }
    }
}
