//! nginx with one process and a pool of threads that read files, under wrk: a page of 600 bytes.

use std::process::Command;

use super::place::{program, write};
use super::tail::{Tail, unread};
use super::{Clients, Plan, Server, Site, words};
use crate::child::Failure;

pub const SERVER: Server = Server {
    name: "nginx",
    needs: &["nginx", "wrk"],
    plan,
    fill: |_, _| Ok(()),
    load,
};

/// Modules that make a directory for temporary files, with the setting that says where.
const WITH_FILES: [(&str, &str); 4] = [
    ("proxy", "proxy_temp_path"),
    ("fastcgi", "fastcgi_temp_path"),
    ("uwsgi", "uwsgi_temp_path"),
    ("scgi", "scgi_temp_path"),
];

/// What wrk does at its end: a line with requests, errors, and nanoseconds. wrk's own report has no 95th percentile.
const AT_THE_END: &str = "\
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format('done %d %d %d %d %d %d\\n', summary.requests, summary.duration,
    latency:percentile(95), latency:percentile(99), latency.max,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
";

fn plan(site: &Site) -> Result<Plan, Failure> {
    let nginx = program("nginx")?;
    let built = built(&nginx)?;
    if !built.contains("--with-threads") {
        let why = "this nginx was built without pools of threads (--with-threads)";
        return Err(Failure::Skipped(why.into()));
    }
    let settings = format!("{}/settings", site.data);
    write(&settings, &self::settings(site, &built))?;
    write(&format!("{}/page", site.data), &"x".repeat(600))?;
    let mut command = vec![nginx];
    command.extend(words(["-c", &settings]));
    Ok(Plan::at_port(
        site,
        command,
        "GET /page HTTP/1.0\r\n\r\n",
        b"HTTP/1.1 200",
    ))
}

/// With which options this nginx was built.
fn built(nginx: &str) -> Result<String, Failure> {
    let output = Command::new(nginx).arg("-V").output();
    let output = output.map_err(|error| Failure::Failed(format!("{nginx}: {error}")))?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn settings(site: &Site, built: &str) -> String {
    let Site {
        data, port, most, ..
    } = site;
    let has = |module: &str| !built.contains(&format!("--without-http_{module}_module"));
    let paths: String = WITH_FILES
        .iter()
        .filter(|(module, _)| has(module))
        .map(|(module, setting)| format!("{setting} {data}/{module};\n"))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\npid {data}/pid;\nerror_log {data}/errors;\n\
         events {{ worker_connections {}; }}\n\
         http {{\naccess_log off;\nclient_body_temp_path {data}/body;\n{paths}\
         server {{ listen 127.0.0.1:{port}; root {data}; aio threads; }}\n}}\n",
        most + 50
    )
}

fn load(site: &Site, clients: &Clients, count: usize, seconds: u64) -> Result<Tail, Failure> {
    let script = site.logs.join("wrk.lua");
    std::fs::write(&script, AT_THE_END)
        .map_err(|error| Failure::Failed(format!("{}: {error}", script.display())))?;
    let mut command = Command::new(program("wrk")?);
    command.args(["-t", &count.min(site.processors).to_string()]);
    command.args(["-c", &count.to_string(), "-d", &seconds.to_string()]);
    command.arg("-s").arg(&script);
    command.arg(format!("http://127.0.0.1:{}/page", site.port));
    read(&clients.run(command, seconds)?)
}

/// Reads the line of [`AT_THE_END`].
fn read(said: &str) -> Result<Tail, Failure> {
    let line = || {
        let line = said.lines().find_map(|line| line.strip_prefix("done "))?;
        let numbers: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
        <[f64; 6]>::try_from(numbers.ok()?).ok()
    };
    let none = || unread("wrk", said);
    let [requests, duration, p95, p99, slowest, errors] = line().ok_or_else(none)?;
    if errors > 0.0 {
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
        let tail = read(said).unwrap();
        // As wrk itself says it.
        assert!((tail.throughput - 38_616.88).abs() < 0.01, "{tail:?}");
        assert_eq!(tail.p99, 3_550_000.0);
        assert_eq!(tail.slowest, 7_070_000.0);
        assert_eq!(tail.p95, 1_074_000.0);
        let errors = said.replace("7070 0", "7070 2");
        assert!(read(&errors).is_err() && read("unable to connect\n").is_err());
    }

    #[test]
    fn settings_are_of_the_modules_that_are_there() {
        let site = Site {
            data: "/d".into(),
            logs: "/l".into(),
            port: 80,
            most: 32,
            processors: 2,
        };
        let built = "--with-threads --without-http_scgi_module";
        let text = settings(&site, built);
        assert!(text.contains("proxy_temp_path /d/proxy;") && !text.contains("scgi_temp"));
        assert!(text.contains("listen 127.0.0.1:80") && text.contains("worker_connections 82"));
    }
}
