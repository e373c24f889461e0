//! redis-server with I/O threads under load, which saves by a forked child. Skipped aloud if it is not
//! installed.

use crate::case;
use program_tests::provision;
use program_tests::server::{Address, Service, parity, redis};

const CONNECTIONS: usize = 24;
const TURNS: usize = 300;

#[test]
fn redis_under_load() {
    let Some(path) = provision::program("redis", "redis-server", "redis-server") else {
        return;
    };
    let case = case("redis");
    let socket = std::env::temp_dir().join(format!("upcall-test-redis-{}", std::process::id()));
    let service = Service {
        program: redis::program(path, &socket),
        address: &|_| Some(Address::Unix(socket.clone())),
        talk: &|connection, number| redis::talk(connection, number, TURNS),
        connections: CONNECTIONS,
        after: &|connection| redis::after(connection, CONNECTIONS * TURNS),
    };
    parity(&case, &service);
}
