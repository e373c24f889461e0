//! redis-server with I/O threads under load, saving by a forked child; skipped aloud where it is
//! not installed.

use crate::case;
use program_tests::program::Program;
use program_tests::provision;
use program_tests::server::{Address, Connection, Service, parity, value};
use std::io;

const CONNECTIONS: usize = 24;
const TURNS: usize = 300;

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

fn talk(mut connection: Connection, number: usize) -> io::Result<()> {
    for turn in 0..TURNS {
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

fn after(mut connection: Connection) -> io::Result<()> {
    let total = (CONNECTIONS * TURNS).to_string();
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

#[test]
fn redis() {
    let Some(path) = provision::program("redis", "redis-server", "redis-server") else {
        return;
    };
    let case = case("redis");
    let socket = std::env::temp_dir().join(format!("upcall-test-redis-{}", std::process::id()));
    let program = Program::new(path)
        .args([
            "--port",
            "0",
            "--io-threads",
            "4",
            "--io-threads-do-reads",
            "yes",
        ])
        .args([
            "--save",
            "",
            "--daemonize",
            "no",
            "--logfile",
            "log",
            "--unixsocket",
        ])
        .arg(&socket);
    let service = Service {
        program,
        address: &|_| Some(Address::Unix(socket.clone())),
        talk: &talk,
        connections: CONNECTIONS,
        after: &after,
    };
    parity(&case, &service);
}
