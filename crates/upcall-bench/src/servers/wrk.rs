//! wrk, which asks a web server for a page of 600 bytes.

use std::process::Command;

use super::place::{program, write};
use super::tail::{Tail, unread};
use super::{Clients, Plan, Site};
use crate::child::Failure;

/// What wrk does at its end: a line with requests, errors, and nanoseconds. wrk's own report has no 95th percentile.
const AT_THE_END: &str = "\
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format('done %d %d %d %d %d %d\\n', summary.requests, summary.duration,
    latency:percentile(95), latency:percentile(99), latency.max,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
";

/// Of a web server with this page, which this writes into the server's directory, its root.
///
/// # Errors
///
/// It cannot be written.
pub fn plan(site: &Site, command: Vec<String>) -> Result<Plan, Failure> {
    write(&format!("{}/page", site.data), &"x".repeat(600))?;
    let ask = "GET /page HTTP/1.0\r\n\r\n";
    Ok(Plan::at_port(site, command, ask, b"HTTP/1.1 200"))
}

/// Loads a web server, as [`Server::load`](super::Server) says. `closed`: so many errors in a request are no failure.
///
/// # Errors
///
/// wrk cannot run, or says that more requests failed.
pub fn load(
    site: &Site,
    clients: &Clients,
    count: usize,
    seconds: u64,
    closed: f64,
) -> Result<Tail, Failure> {
    let script = site.logs.join("wrk.lua");
    std::fs::write(&script, AT_THE_END)
        .map_err(|error| Failure::Failed(format!("{}: {error}", script.display())))?;
    let mut command = Command::new(program("wrk")?);
    command.args(["-t", &count.min(site.processors).to_string()]);
    command.args(["-c", &count.to_string(), "-d", &seconds.to_string()]);
    command.arg("-s").arg(&script);
    command.arg(format!("http://127.0.0.1:{}/page", site.port));
    read(&clients.run(command, seconds)?, closed)
}

/// Reads the line of [`AT_THE_END`].
fn read(said: &str, closed: f64) -> Result<Tail, Failure> {
    let line = || {
        let line = said.lines().find_map(|line| line.strip_prefix("done "))?;
        let numbers: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
        <[f64; 6]>::try_from(numbers.ok()?).ok()
    };
    let none = || unread("wrk", said);
    let [requests, duration, p95, p99, slowest, errors] = line().ok_or_else(none)?;
    if errors > requests * closed {
        return Err(none());
    }
    Tail {
        throughput: requests / (duration / 1e6),
        p95: p95 * 1e3,
        p99: p99 * 1e3,
        slowest: slowest * 1e3,
    }
    .checked()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let said = include_str!("recorded/wrk.txt");
        let tail = read(said, 0.0).unwrap();
        // As wrk itself says it.
        assert!((tail.throughput - 38_616.88).abs() < 0.01, "{tail:?}");
        assert_eq!(tail.p99, 3_550_000.0);
        assert_eq!(tail.slowest, 7_070_000.0);
        assert_eq!(tail.p95, 1_074_000.0);
        let with = |errors: u64| said.replace("7070 0", &format!("7070 {errors}"));
        assert!(read(&with(2), 0.0).is_err() && read("unable to connect\n", 0.0).is_err());
        assert!(read(&with(30), 0.001).is_ok() && read(&with(1000), 0.001).is_err());
    }
}
