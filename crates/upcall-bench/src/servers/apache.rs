//! Apache with the worker `event` under wrk: two processes, as Debian starts it, each with a thread for every client. Debian's
//! 25 threads do not suffice for 32 clients if most of them come to one process. And the number of processes does
//! not change, because one that ends closes its connections, which wrk takes for errors.

use std::path::Path;

use super::place::{program, write};
use super::{Plan, Server, Site, words, wrk};
use crate::child::Failure;

pub const SERVER: Server = Server {
    name: "apache",
    needs: &["apache2", "wrk"],
    plan,
    fill: |_, _| Ok(()),
    load: |site, clients, count, seconds| wrk::load(site, clients, count, seconds, CLOSED),
};

/// So many errors in a request. A server may close a connection that it has kept at any time (RFC 9112, section 9.5), as this one
/// does under pressure, and wrk takes that for an error.
const CLOSED: f64 = 0.001;

/// Where Debian has Apache's modules.
const MODULES: &str = "/usr/lib/apache2/modules";

fn plan(site: &Site) -> Result<Plan, Failure> {
    let missing = |module: &&str| !Path::new(&path(module)).exists();
    if let Some(module) = WANTED.iter().find(|module| missing(module)) {
        return Err(Failure::Skipped(format!("there is no {}", path(module))));
    }
    let settings = format!("{}/settings", site.data);
    write(&settings, &self::settings(site))?;
    let mut command = vec![program("apache2")?];
    command.extend(words(["-f", &settings, "-D", "FOREGROUND"]));
    wrk::plan(site, command)
}

const WANTED: [&str; 2] = ["mpm_event", "authz_core"];

fn path(module: &str) -> String {
    format!("{MODULES}/mod_{module}.so")
}

fn settings(site: &Site) -> String {
    let Site { data, port, .. } = site;
    let threads = site.most.max(25);
    let all = 2 * threads;
    let modules: String = WANTED
        .iter()
        .map(|module| format!("LoadModule {module}_module {}\n", path(module)))
        .collect();
    format!(
        "{modules}ServerRoot {data}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {data}/pid\n\
         DefaultRuntimeDir {data}\nErrorLog {data}/errors\nDocumentRoot {data}\n\
         StartServers 2\nThreadLimit {threads}\nThreadsPerChild {threads}\nMaxRequestWorkers {all}\n\
         MinSpareThreads 1\nMaxSpareThreads {all}\nMaxConnectionsPerChild 0\nKeepAlive On\nMaxKeepAliveRequests 0\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_name_the_place_and_the_modules() {
        let site = Site::sample();
        let text = settings(&site);
        assert!(text.contains("Listen 127.0.0.1:80\n") && text.contains("DocumentRoot /d\n"));
        assert!(text.contains("ThreadsPerChild 32\n") && text.contains("MaxRequestWorkers 64\n"));
        assert!(
            text.contains(
                "LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n"
            )
        );
    }
}
