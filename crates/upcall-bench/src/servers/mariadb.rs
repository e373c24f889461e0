//! mariadbd under sysbench's `oltp_read_write`, with four tables of 20,000 rows.

use std::process::Command;

use super::place::program;
use super::probe::{Address, Probe};
use super::tail::{Tail, from_ms, unread};
use super::{Clients, Plan, Server, Site, words};
use crate::child::Failure;

pub const SERVER: Server = Server {
    name: "mariadb",
    needs: &["mariadbd", "mariadb-install-db", "sysbench"],
    plan,
    fill,
    load,
};

fn socket(site: &Site) -> String {
    format!("{}/socket", site.data)
}

fn plan(site: &Site) -> Result<Plan, Failure> {
    let data = format!("--datadir={}/tables", site.data);
    let install = vec![
        program("mariadb-install-db")?,
        "--no-defaults".into(),
        data.clone(),
        "--auth-root-authentication-method=normal".into(),
    ];
    let mut command = vec![program("mariadbd")?];
    command.extend(words([
        "--no-defaults",
        "--skip-networking",
        "--skip-grant-tables",
    ]));
    command.extend([
        data,
        format!("--socket={}", socket(site)),
        format!("--pid-file={}/pid", site.data),
        format!("--max-connections={}", site.most + 20),
    ]);
    Ok(Plan {
        steps: vec![install],
        command,
        stop: libc::SIGTERM,
        // It greets who connects, with anything.
        probe: Probe {
            address: Address::Socket(socket(site)),
            ask: Vec::new(),
            begins: b"",
        },
    })
}

fn sysbench(site: &Site, clients: usize) -> Result<Command, Failure> {
    let mut command = Command::new(program("sysbench")?);
    command.arg("oltp_read_write");
    command.arg(format!("--mysql-socket={}", socket(site)));
    command.args(["--mysql-user=root", "--mysql-db=test"]);
    command.args(["--tables=4", "--table-size=20000"]);
    command.arg(format!("--threads={clients}"));
    Ok(command)
}

fn fill(site: &Site, clients: &Clients) -> Result<(), Failure> {
    let mut command = sysbench(site, 2)?;
    command.arg("prepare");
    clients.run(command, 0).map(drop)
}

fn load(site: &Site, clients: &Clients, count: usize, seconds: u64) -> Result<Tail, Failure> {
    let mut command = sysbench(site, count)?;
    command.arg(format!("--time={seconds}"));
    command.args(["--histogram=on", "run"]);
    read(&clients.run(command, seconds)?)
}

/// Reads sysbench's report with its histogram.
fn read(said: &str) -> Result<Tail, Failure> {
    let find = |before: &str| {
        let line = said
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(before))?;
        Some(line.trim())
    };
    // transactions:  1743   (867.32 per sec.)
    let rate = || {
        let (_, rate) = find("transactions:")?.split_once('(')?;
        rate.split_whitespace().next()?.parse::<f64>().ok()
    };
    let slowest = || find("max:")?.parse::<f64>().ok();
    //  5.986 |******************   30
    let bucket = |line: &str| {
        let (value, rest) = line.split_once('|')?;
        let count = rest.split_whitespace().next_back()?;
        let value = value.trim().parse::<f64>().ok()?;
        Some((from_ms(value), count.parse::<u64>().ok()?))
    };
    let (Some(rate), Some(slowest)) = (rate(), slowest()) else {
        return Err(unread("sysbench", said));
    };
    let tail = Tail::of(rate, said.lines().filter_map(bucket))?;
    Tail {
        slowest: from_ms(slowest) as f64,
        ..tail
    }
    .checked()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let tail = read(include_str!("recorded/sysbench.txt")).unwrap();
        assert_eq!(tail.throughput, 867.32);
        assert_eq!(tail.slowest, 35_030_000.0);
        // What sysbench itself says, to the histogram's thousandth.
        assert!((tail.p95 / 16_120_000.0 - 1.0).abs() < 0.002, "{tail:?}");
        assert!(tail.p99 > tail.p95 && tail.p99 < tail.slowest, "{tail:?}");
    }

    #[test]
    fn what_is_no_report_is_quoted() {
        let Err(Failure::Failed(text)) = read("FATAL: unable to connect\n") else {
            panic!("read");
        };
        assert!(text.contains("sysbench") && text.contains("unable to connect"));
    }
}
