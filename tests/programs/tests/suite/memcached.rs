//! memcached under load, on a Unix socket and on a loopback port of the kernel's choice.

use crate::case;
use program_tests::program::Program;
use program_tests::provision;
use program_tests::server::{Address, Connection, Service, parity, value};
use std::io;
use std::path::{Path, PathBuf};

const CONNECTIONS: usize = 24;
const TURNS: usize = 400;

fn memcached(path: PathBuf) -> Program {
    let program = Program::new(path).args(["-t", "4", "-m", "64"]);
    if provision::is_root() {
        program.args(["-u", "root"])
    } else {
        program
    }
}

/// Stores, reads back and counts; several requests are under way at once.
fn talk(mut connection: Connection, number: usize) -> io::Result<()> {
    // Whoever comes first makes the counter; the answers differ, but not what is there then.
    connection.send(b"add total 0 0 1\r\n0\r\n")?;
    connection.line()?;
    for turn in 0..TURNS {
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

/// Nobody's count got lost.
fn after(mut connection: Connection) -> io::Result<()> {
    let total = (CONNECTIONS * TURNS).to_string();
    connection.send(b"get total\r\n")?;
    connection.expect(&format!("VALUE total 0 {}", total.len()))?;
    connection.expect_block(total.as_bytes())?;
    connection.expect("END")
}

fn run(name: &str, program: Program, address: &dyn Fn(&Path) -> Option<Address>) {
    let case = case(name);
    let service = Service {
        program,
        address,
        talk: &talk,
        connections: CONNECTIONS,
        after: &after,
    };
    parity(&case, &service);
}

#[test]
fn memcached_on_unix_socket() {
    let name = "memcached_on_unix_socket";
    let Some(path) = provision::program(name, "memcached", "memcached") else {
        return;
    };
    // A socket's path must be short, and the scratch directory's may not be.
    let socket = std::env::temp_dir().join(format!("upcall-test-{}.sock", std::process::id()));
    let program = memcached(path).arg("-s").arg(&socket);
    run(name, program, &|_| Some(Address::Unix(socket.clone())));
    std::fs::remove_file(&socket).ok();
}

#[test]
fn memcached_on_tcp() {
    let name = "memcached_on_tcp";
    let Some(path) = provision::program(name, "memcached", "memcached") else {
        return;
    };
    // Port -1 lets the kernel choose; the server writes down which it became.
    let program = memcached(path)
        .args(["-l", "127.0.0.1", "-p", "-1"])
        .env("MEMCACHED_PORT_FILENAME", "ports");
    run(name, program, &|dir| {
        let ports = std::fs::read_to_string(dir.join("ports")).ok()?;
        let port = ports
            .lines()
            .find_map(|line| line.strip_prefix("TCP INET: "))?;
        Some(Address::Tcp(([127, 0, 0, 1], port.parse().ok()?).into()))
    });
}
