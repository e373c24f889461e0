//! memcached under load, on a Unix socket and on a loopback port of the kernel's choice.

use crate::case;
use program_tests::program::Program;
use program_tests::provision;
use program_tests::server::{Address, Service, memcached, parity};
use std::path::Path;

const CONNECTIONS: usize = 24;
const TURNS: usize = 400;

fn run(name: &str, program: Program, address: &dyn Fn(&Path) -> Option<Address>) {
    let case = case(name);
    let service = Service {
        program,
        address,
        talk: &|connection, number| memcached::talk(connection, number, TURNS),
        connections: CONNECTIONS,
        after: &|connection| memcached::after(connection, CONNECTIONS * TURNS),
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
    let program = memcached::program(path).arg("-s").arg(&socket);
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
    let program = memcached::program(path)
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
