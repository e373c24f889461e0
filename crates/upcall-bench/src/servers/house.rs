//! The servers that are up: of one workload, one for each runtime.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::affinity::Processors;
use crate::catalogue::Workload;
use crate::child::Failure;
use crate::keeper::Errand;
use crate::runtime::Runtime;
use crate::servers::keep::Kept;
use crate::servers::{Clients, Plan, Server, Site, of, place};

/// What is wanted of a server.
pub struct Order<'a> {
    pub workload: &'static Workload,
    pub runtime: &'a Runtime,
    /// The number of the runtime.
    pub index: usize,
    pub processors: &'a Processors,
    /// How many clients for each processor, at once and at most.
    pub times: usize,
    pub most_times: usize,
    pub seconds: u64,
    pub timeout: Duration,
    pub workload_program: &'a Path,
}

/// A server that is up.
struct Up {
    site: Site,
    kept: Kept,
}

/// The servers that are up, by the number of the runtime.
#[derive(Default)]
pub struct House(BTreeMap<usize, Up>);

impl House {
    /// Ends all of them.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The process of a server that is up.
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.0.get(&index)?.kept.pid()
    }

    /// Loads a server, which is started if it is not up yet. Returns figures by series.
    ///
    /// # Errors
    ///
    /// Why there are none. The server is ended, and started anew the next time.
    pub fn load(&mut self, order: &Order) -> Result<Vec<(&'static str, Vec<f64>)>, Failure> {
        let none = || Failure::Failed(format!("there is no server {}", order.workload.program));
        let server = of(order.workload).ok_or_else(none)?;
        let clients = Clients {
            processors: order.processors,
            timeout: order.timeout,
            workload_program: order.workload_program,
        };
        let mut up = match self.0.remove(&order.index) {
            Some(up) => up,
            None => start(server, order, &clients)?,
        };
        let count = order.times * order.processors.count();
        let loaded = (server.load)(&up.site, &clients, count, order.seconds);
        if let Some(why) = up.kept.ended() {
            return Err(Failure::Failed(why));
        }
        let tail = loaded?;
        self.0.insert(order.index, up);
        Ok(tail.series())
    }
}

fn start(server: &Server, order: &Order, clients: &Clients) -> Result<Up, Failure> {
    let user = place::user()?;
    let directory = place::directory(user)?;
    let site = Site {
        data: place::text(&directory.path().join("data"))?,
        logs: directory.path().join("logs"),
        port: place::free_port()?,
        most: order.most_times * order.processors.count(),
        processors: order.processors.count(),
    };
    let Plan {
        steps,
        command,
        stop,
        probe,
    } = (server.plan)(&site)?;
    let errand = Errand {
        directory: place::text(directory.path())?,
        user,
        steps,
        server: under(order, command)?,
        stop,
    };
    let Order {
        workload_program,
        processors,
        timeout,
        ..
    } = *order;
    let mut kept = Kept::start(workload_program, directory, &errand, processors, timeout)?;
    let mut why = None;
    let runs = || {
        why = kept.ended();
        why.is_none()
    };
    if !probe.wait(Instant::now() + timeout, runs) {
        let late = || format!("{} did not answer within {timeout:?}", server.name);
        return Err(Failure::Failed(why.unwrap_or_else(late)));
    }
    (server.fill)(&site, clients)?;
    Ok(Up { site, kept })
}

/// The words that start `command` on the runtime.
fn under(order: &Order, command: Vec<String>) -> Result<Vec<String>, Failure> {
    let (program, rest) = command
        .split_first()
        .ok_or_else(|| Failure::Failed("there is no command".into()))?;
    let whole = order
        .runtime
        .command(Some(Path::new(program)), order.processors.count());
    // The server starts in a directory of its own.
    let starter = std::path::absolute(whole.get_program())
        .map_err(|error| Failure::Failed(format!("this directory: {error}")))?;
    let mut words = vec![place::text(&starter)?];
    for word in whole.get_args() {
        words.push(place::text(Path::new(word))?);
    }
    words.extend(rest.iter().cloned());
    Ok(words)
}
