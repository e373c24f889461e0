//! Exit statuses, and writing to standard output.

use std::io::Write;

/// Exit status of every failure of `upcall` itself, wrong usage included, as of `env`,
/// `nice` and `timeout`: a program's own 1 or 2 is never mistaken for ours.
pub const EXIT_OURS: i32 = 125;
/// The program was found and cannot be executed.
pub const EXIT_NOT_EXECUTABLE: i32 = 126;
/// There is no such program.
pub const EXIT_NOT_FOUND: i32 = 127;

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
