//! redis-server with I/O threads, which saves by a forked child.

use super::{Connection, value};
use crate::program::Program;
use std::io;
use std::path::{Path, PathBuf};

/// The server, which listens on a Unix socket.
pub fn program(path: PathBuf, socket: &Path) -> Program {
    Program::new(path)
        .args(["--port", "0", "--io-threads", "4"])
        .args(["--io-threads-do-reads", "yes", "--save", ""])
        .args(["--daemonize", "no", "--logfile", "log", "--unixsocket"])
        .arg(socket)
}

/// A request in redis' own protocol.
fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Stores, reads back and counts, `turns` times. Several requests are under way at once.
///
/// # Errors
///
/// When an answer is wrong.
pub fn talk(mut connection: Connection, number: usize, turns: usize) -> io::Result<()> {
    for turn in 0..turns {
        let key = format!("key-{number}-{}", turn % 40).into_bytes();
        let stored = value(number, turn);
        let mut bytes = request(&[b"SET", &key, &stored]);
        bytes.extend(request(&[b"GET", &key]));
        bytes.extend(request(&[b"INCR", b"total"]));
        connection.send(&bytes)?;
        connection.expect("+OK")?;
        connection.expect(&format!("${}", stored.len()))?;
        connection.expect_block(&stored)?;
        connection.line()?;
    }
    Ok(())
}

/// Checks that the server has counted all turns of all connections, and that it can save its data.
///
/// # Errors
///
/// When an answer is wrong, or the save fails.
pub fn after(mut connection: Connection, total: usize) -> io::Result<()> {
    let total = total.to_string();
    connection.send(&request(&[b"GET", b"total"]))?;
    connection.expect(&format!("${}", total.len()))?;
    connection.expect_block(total.as_bytes())?;
    connection.send(&request(&[b"BGSAVE"]))?;
    connection.expect("+Background saving started")?;
    // Shutting down would kill the child: wait until the server counts no save as under way.
    loop {
        connection.send(&request(&[b"INFO", b"persistence"]))?;
        let length = connection.line()?;
        let length: usize = length
            .trim_start_matches('$')
            .parse()
            .map_err(io::Error::other)?;
        let (mut read, mut saving, mut fine) = (0, true, false);
        while read < length {
            let line = connection.line()?;
            read += line.len() + 2;
            saving &= line != "rdb_bgsave_in_progress:0";
            fine |= line == "rdb_last_bgsave_status:ok";
        }
        connection.line()?;
        match (saving, fine) {
            (true, _) => std::thread::sleep(std::time::Duration::from_millis(5)),
            (false, true) => return Ok(()),
            (false, false) => return Err(io::Error::other("the background save failed")),
        }
    }
}
