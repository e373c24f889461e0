//! memcached with four threads.

use super::{Connection, value};
use crate::program::Program;
use crate::provision;
use std::io;
use std::path::PathBuf;

/// The server. The caller adds where it listens.
pub fn program(path: PathBuf) -> Program {
    let program = Program::new(path).args(["-t", "4", "-m", "64"]);
    if provision::is_root() {
        program.args(["-u", "root"])
    } else {
        program
    }
}

/// Stores, reads back and counts, `turns` times. Several requests are under way at once.
///
/// # Errors
///
/// When an answer is wrong.
pub fn talk(mut connection: Connection, number: usize, turns: usize) -> io::Result<()> {
    // The first connection makes the counter. The answers differ, but the counter is the same.
    connection.send(b"add total 0 0 1\r\n0\r\n")?;
    connection.line()?;
    for turn in 0..turns {
        let key = format!("key-{number}-{}", turn % 40);
        let stored = value(number, turn);
        let mut request = format!("set {key} 0 0 {}\r\n", stored.len()).into_bytes();
        request.extend(&stored);
        request.extend(format!("\r\nget {key}\r\nincr total 1\r\n").as_bytes());
        connection.send(&request)?;
        connection.expect("STORED")?;
        connection.expect(&format!("VALUE {key} 0 {}", stored.len()))?;
        connection.expect_block(&stored)?;
        connection.expect("END")?;
        connection.line()?;
    }
    Ok(())
}

/// Checks that the server has counted all turns of all connections.
///
/// # Errors
///
/// When the answer is wrong.
pub fn after(mut connection: Connection, total: usize) -> io::Result<()> {
    let total = total.to_string();
    connection.send(b"get total\r\n")?;
    connection.expect(&format!("VALUE total 0 {}", total.len()))?;
    connection.expect_block(total.as_bytes())?;
    connection.expect("END")
}
