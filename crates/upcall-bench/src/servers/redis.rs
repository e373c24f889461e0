//! redis-server with two threads for input and output, under redis-benchmark's SET.

use std::process::Command;

use super::place::program;
use super::tail::{Tail, from_ms, unread};
use super::{Clients, Plan, Server, Site, words};
use crate::child::Failure;

pub const SERVER: Server = Server {
    name: "redis",
    needs: &["redis-server", "redis-benchmark"],
    plan,
    fill: |_, _| Ok(()),
    load,
};

/// redis-benchmark is not told how long to ask but how often. So many requests say how many there are in a second. Threads
/// for input and output spin, and a machine that others use has a twentieth of the throughput of a quiet one.
const FIRST: u64 = 2_000;
/// No more requests for a second.
const MOST: f64 = 100_000.0;

fn plan(site: &Site) -> Result<Plan, Failure> {
    let port = site.port.to_string();
    let mut command = vec![program("redis-server")?];
    command.extend(words(["--bind", "127.0.0.1", "--port", &port]));
    command.extend(words(["--io-threads", "2"]));
    // The last word: an empty value takes no further word for its own.
    command.extend(words(["--dir", &site.data, "--save", ""]));
    Ok(Plan::at_port(site, command, "PING\r\n", b"+PONG"))
}

fn load(site: &Site, clients: &Clients, count: usize, seconds: u64) -> Result<Tail, Failure> {
    let ask = |requests: u64| {
        let mut command = Command::new(program("redis-benchmark")?);
        command.args(["-p", &site.port.to_string(), "-c", &count.to_string()]);
        command.args(["-n", &requests.to_string(), "-t", "set", "--csv"]);
        read(&clients.run(command, seconds)?)
    };
    let each_second = ask(FIRST)?.throughput.min(MOST) as u64;
    ask((each_second * seconds).max(FIRST))
}

/// Reads the table that redis-benchmark prints: a head, and a row for each kind of request.
fn read(said: &str) -> Result<Tail, Failure> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split(',').map(|cell| cell.trim_matches('"'));
        cells.map(str::to_owned).collect()
    };
    let head = said.lines().find(|line| line.starts_with("\"test\""));
    let row = said.lines().find(|line| line.starts_with("\"SET\""));
    let (Some(head), Some(row)) = (head.map(cells), row.map(cells)) else {
        return Err(unread("redis-benchmark", said));
    };
    let cell = |name: &str| {
        let at = head.iter().position(|cell| cell == name)?;
        row.get(at)?.parse::<f64>().ok()
    };
    let ns = |name| cell(name).map(|ms| from_ms(ms) as f64);
    let tail = || {
        Some(Tail {
            throughput: cell("rps")?,
            p95: ns("p95_latency_ms")?,
            p99: ns("p99_latency_ms")?,
            slowest: ns("max_latency_ms")?,
        })
    };
    tail()
        .ok_or_else(|| unread("redis-benchmark", said))?
        .checked()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read() {
        let tail = read(include_str!("recorded/redis-benchmark.csv")).unwrap();
        let wanted = Tail {
            throughput: 31_948.88,
            p95: 143_000.0,
            p99: 4_191_000.0,
            slowest: 35_967_000.0,
        };
        assert_eq!(tail, wanted);
    }

    #[test]
    fn a_table_without_percentiles_is_said_to_lack_them() {
        // What versions before 6.2 print.
        assert!(read("\"SET\",\"31948.88\"\n").is_err());
        assert!(read("Could not connect to Redis\n").is_err());
    }
}
