//! PostgreSQL under pgbench's own transactions, with four branches.

use std::path::Path;
use std::process::Command;

use super::place::program;
use super::probe::{Address, Probe};
use super::tail::{Tail, unread};
use super::{Clients, Plan, Server, Site, words};
use crate::child::Failure;

pub const SERVER: Server = Server {
    name: "postgres",
    needs: &["postgres", "initdb", "pgbench"],
    plan,
    fill,
    load,
};

/// The number in the name of the socket, which is in the server's own directory.
const PORT: &str = "5432";
const USER: &str = "bench";

fn plan(site: &Site) -> Result<Plan, Failure> {
    let data = format!("{}/tables", site.data);
    let mut make = vec![program("initdb")?];
    make.extend(words(["-U", USER, "--auth=trust", "--no-sync"]));
    make.extend(words(["--no-locale", "-E", "UTF8", "-D", &data]));
    let mut command = vec![program("postgres")?];
    let connections = format!("max_connections={}", site.most + 20);
    command.extend(words(["-D", &data, "-k", &site.data, "-p", PORT]));
    command.extend(words(["-c", "listen_addresses=", "-c", &connections]));
    Ok(Plan {
        steps: vec![make],
        command,
        stop: libc::SIGINT,
        probe: Probe {
            address: Address::Socket(format!("{}/.s.PGSQL.{PORT}", site.data)),
            ask: start_up(),
            // A request about authentication; E while it still starts.
            begins: b"R",
        },
    })
}

/// The first message of a client: its length, the protocol's version 3.0, and parameters.
fn start_up() -> Vec<u8> {
    let parameters = format!("user\0{USER}\0database\0postgres\0\0");
    let length = u32::try_from(8 + parameters.len()).unwrap_or(u32::MAX);
    let mut message = length.to_be_bytes().to_vec();
    message.extend(0x0003_0000_u32.to_be_bytes());
    message.extend(parameters.bytes());
    message
}

fn pgbench(site: &Site) -> Result<Command, Failure> {
    let mut command = Command::new(program("pgbench")?);
    command.args(["-h", &site.data, "-p", PORT, "-U", USER]);
    Ok(command)
}

fn fill(site: &Site, clients: &Clients) -> Result<(), Failure> {
    let mut command = pgbench(site)?;
    command.args(["-i", "-q", "-s", "4", "postgres"]);
    clients.run(command, 0).map(drop)
}

fn load(site: &Site, clients: &Clients, count: usize, seconds: u64) -> Result<Tail, Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("pgbench's log: {error}"));
    let logs = tempfile::tempdir_in(&site.logs).map_err(failed)?;
    let mut command = pgbench(site)?;
    command.args(["-n", "-l", "postgres"]);
    command.arg(format!(
        "--log-prefix={}",
        logs.path().join("log").display()
    ));
    command.args(["-c", &count.to_string()]);
    command.args(["-j", &count.min(site.processors).to_string()]);
    command.args(["-T", &seconds.to_string()]);
    let said = clients.run(command, seconds)?;
    read(&said, &all_in(logs.path()).map_err(failed)?)
}

/// The text of all files in a directory.
fn all_in(directory: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    for entry in std::fs::read_dir(directory)? {
        text += &std::fs::read_to_string(entry?.path())?;
    }
    Ok(text)
}

/// Reads pgbench's report and its log, which has a line for each transaction.
fn read(said: &str, log: &str) -> Result<Tail, Failure> {
    let find = |before: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(before))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let rate = find("tps = ").ok_or_else(|| unread("pgbench", said))?;
    // Older versions do not count them and end with an error.
    if find("number of failed transactions:").is_some_and(|failed| failed > 0.0) {
        return Err(unread("pgbench", said));
    }
    // client, number, microseconds, ...
    let took = |line: &str| {
        let took = line.split_whitespace().nth(2)?.parse::<u64>().ok()?;
        Some((took * 1000, 1))
    };
    Tail::of(rate, log.lines().filter_map(took))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = include_str!("recorded/pgbench-log.txt");

    #[test]
    fn a_report_and_its_log_are_read() {
        let tail = read(include_str!("recorded/pgbench.txt"), LOG).unwrap();
        assert_eq!(tail.throughput, 1584.756136);
        let mut took: Vec<u64> = LOG
            .lines()
            .map(|line| line.split(' ').nth(2).unwrap().parse().unwrap())
            .collect();
        took.sort_unstable();
        let last = took[took.len() - 1] as f64 * 1e3;
        assert_eq!(tail.slowest, last);
        let p95 = took[(took.len() * 95).div_ceil(100) - 1] as f64 * 1e3;
        assert!((tail.p95 / p95 - 1.0).abs() < 0.002, "{tail:?} {p95}");
    }

    #[test]
    fn failed_transactions_are_a_failure() {
        let said = include_str!("recorded/pgbench.txt");
        let some = said.replace("transactions: 0 (", "transactions: 3 (");
        assert_ne!(said, some);
        assert!(read(&some, LOG).is_err());
        assert!(read("pgbench: error: connection failed\n", "").is_err());
    }

    #[test]
    fn the_first_message_has_its_length() {
        let message = start_up();
        assert_eq!(message.len(), usize::from(message[3]));
        assert!(message.ends_with(b"postgres\0\0"));
    }
}
