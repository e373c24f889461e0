//! memcached with four threads, nine values got for one that is set.

use std::process::Command;

use super::place::program;
use super::tail::Tail;
use super::{Clients, Plan, Server, Site, words};
use crate::child::Failure;

pub const SERVER: Server = Server {
    name: "memcached",
    needs: &["memcached"],
    plan,
    fill: |_, _| Ok(()),
    load,
};

fn plan(site: &Site) -> Result<Plan, Failure> {
    // Its own default, or more: it takes a part of these for itself.
    let most = (2 * site.most).max(1024);
    let [port, most] = [usize::from(site.port), most].map(|number| number.to_string());
    let mut command = vec![program("memcached")?];
    command.extend(words(["-l", "127.0.0.1", "-p", &port]));
    command.extend(words(["-c", &most, "-t", "4"]));
    Ok(Plan::at_port(site, command, "version\r\n", b"VERSION"))
}

fn load(site: &Site, clients: &Clients, count: usize, seconds: u64) -> Result<Tail, Failure> {
    let mut command = Command::new(clients.workload_program);
    command.arg("memcached_load");
    command.args([
        format!("port={}", site.port),
        format!("connections={count}"),
        format!("seconds={seconds}"),
    ]);
    Tail::of_report(&clients.start(command, seconds)?.finish()?)
}
