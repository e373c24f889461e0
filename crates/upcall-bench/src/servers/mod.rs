//! Real servers, natively and under `upcall run`, beside clients that are always native.
//!
//! - [`Server`] is what is known of one: the programs that it needs, how it is started, filled and loaded. Each has a file of
//!   its own, and a parser for its load generator's output.
//! - `house` has the servers of one workload, one for each runtime. They stay up while the workload is measured, because to
//!   make a database takes longer than to measure it.
//! - `keep` starts a keeper (`crate::keeper`), which ends its server however this process ends.
//! - `place` finds programs, and makes a server's directory; `probe` asks if a server answers; `tail` has the figures.
//!
//! # Invariants
//!
//! 1. No server outlives this process, and no directory of one.
//! 2. No server runs as the superuser, whoever measures.
//! 3. Every step has a time-out.
//! 4. A server and its clients have the same processors, and nothing of the clients runs under the runtime.

mod apache;
mod house;
mod keep;
mod mariadb;
mod memcached;
mod nginx;
mod place;
mod postgres;
mod probe;
mod redis;
mod tail;
mod wrk;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::affinity::Processors;
use crate::catalogue::{Kind, Workload};
use crate::child::{self, Failure};
use crate::installed;

pub use house::{House, Order};
use probe::{Address, Probe};
use tail::Tail;

/// What is known of a server.
pub struct Server {
    /// The name of its workload's program.
    pub name: &'static str,
    /// Programs that must be installed.
    needs: &'static [&'static str],
    plan: fn(&Site) -> Result<Plan, Failure>,
    /// Puts in what clients ask for, once the server answers.
    fill: fn(&Site, &Clients) -> Result<(), Failure>,
    /// Loads it with so many clients for so many seconds.
    load: fn(&Site, &Clients, usize, u64) -> Result<Tail, Failure>,
}

/// All servers.
pub const SERVERS: &[Server] = &[
    mariadb::SERVER,
    postgres::SERVER,
    redis::SERVER,
    memcached::SERVER,
    nginx::SERVER,
    apache::SERVER,
];

/// Where a server is.
struct Site {
    /// A directory that is its own.
    data: String,
    /// A directory that is the clients' own.
    logs: PathBuf,
    /// A port of the loopback interface that was free.
    port: u16,
    /// The most clients that it will have.
    most: usize,
    processors: usize,
}

#[cfg(test)]
impl Site {
    /// For tests of settings.
    fn sample() -> Self {
        Site {
            data: "/d".into(),
            logs: "/l".into(),
            port: 80,
            most: 32,
            processors: 2,
        }
    }
}

/// How a server is started.
struct Plan {
    /// Commands before it.
    steps: Vec<Vec<String>>,
    command: Vec<String>,
    /// The signal that asks it to end.
    stop: i32,
    probe: Probe,
}

impl Plan {
    /// Of a server that needs nothing made before, and listens at its port.
    fn at_port(site: &Site, command: Vec<String>, ask: &str, begins: &'static [u8]) -> Self {
        Self {
            steps: Vec::new(),
            command,
            stop: libc::SIGTERM,
            probe: Probe {
                address: Address::Port(site.port),
                ask: ask.as_bytes().to_vec(),
                begins,
            },
        }
    }
}

/// How clients are started.
struct Clients<'a> {
    processors: &'a Processors,
    /// What a step may take beside what it is told to take.
    timeout: Duration,
    /// The program upcall-workload.
    workload_program: &'a Path,
}

impl Clients<'_> {
    /// Runs a program that takes about `seconds`. Returns what it said.
    fn run(&self, command: Command, seconds: u64) -> Result<String, Failure> {
        let name = command.get_program().to_string_lossy().into_owned();
        self.start(command, seconds)?
            .output()
            .map_err(|failure| match failure {
                Failure::Failed(why) => Failure::Failed(format!("{name}: {why}")),
                other => other,
            })
    }

    fn start(&self, mut command: Command, seconds: u64) -> Result<child::Running, Failure> {
        // Whoever measures under a runtime measures the servers.
        command.env_remove("LD_PRELOAD");
        let timeout = self.timeout + Duration::from_secs(seconds);
        child::start(command, Stdio::null(), self.processors, timeout)
    }
}

/// The server of a workload.
fn of(workload: &Workload) -> Option<&'static Server> {
    SERVERS.iter().find(|one| one.name == workload.program)
}

/// Why a workload's server cannot be measured here: what is not installed.
pub fn lacking(workload: &Workload) -> Option<String> {
    let server = of(workload).filter(|_| workload.kind == Kind::Server)?;
    installed::why(server.needs)
}

/// A command of words.
fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::WORKLOADS;

    #[test]
    fn every_server_has_a_workload_and_the_other_way_round() {
        let workloads = || WORKLOADS.iter().filter(|one| one.kind == Kind::Server);
        assert!(workloads().all(|workload| of(workload).is_some()));
        assert_eq!(workloads().count(), SERVERS.len());
    }
}
