//! nginx with one process and a pool of threads that read files, under wrk.

use std::process::Command;

use super::place::{program, write};
use super::{Plan, Server, Site, words, wrk};
use crate::child::Failure;

pub const SERVER: Server = Server {
    name: "nginx",
    needs: &["nginx", "wrk"],
    plan,
    fill: |_, _| Ok(()),
    load: |site, clients, count, seconds| wrk::load(site, clients, count, seconds, 0.0),
};

/// Modules that make a directory for temporary files, with the setting that says where.
const WITH_FILES: [(&str, &str); 4] = [
    ("proxy", "proxy_temp_path"),
    ("fastcgi", "fastcgi_temp_path"),
    ("uwsgi", "uwsgi_temp_path"),
    ("scgi", "scgi_temp_path"),
];

fn plan(site: &Site) -> Result<Plan, Failure> {
    let nginx = program("nginx")?;
    let built = built(&nginx)?;
    if !built.contains("--with-threads") {
        let why = "this nginx was built without pools of threads (--with-threads)";
        return Err(Failure::Skipped(why.into()));
    }
    let settings = format!("{}/settings", site.data);
    write(&settings, &self::settings(site, &built))?;
    let mut command = vec![nginx];
    command.extend(words(["-c", &settings]));
    wrk::plan(site, command)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_of_the_modules_that_are_there() {
        let site = Site::sample();
        let built = "--with-threads --without-http_scgi_module";
        let text = settings(&site, built);
        assert!(text.contains("proxy_temp_path /d/proxy;") && !text.contains("scgi_temp"));
        assert!(text.contains("listen 127.0.0.1:80") && text.contains("worker_connections 82"));
    }
}
