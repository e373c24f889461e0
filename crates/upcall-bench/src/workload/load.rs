//! What the web servers of `http` and `idle_connections` have to do.
//!
//! `http`: the load generator is wrk(1), in a process of its own without the runtime, on the same processors; `requests/s` is
//! what it reports. `idle_connections`: so many connections, each of which waits for its first request; `bytes` is
//! the resident memory of one, which is all above what the kernel keeps by itself, and then each of
//! a sample is asked for a page. Both ends are in one process: the other one has nothing but descriptors, of several
//! addresses, since one has some 28,000 ports.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use super::blocked::resident_memory;
use super::{Failure, Figures, Params};

/// Runs wrk against the server.
pub fn http(params: &Params, address: SocketAddr) -> Result<Figures, Failure> {
    let connections = params.number("connections", 64)?;
    let seconds = params.number("seconds", 2)?;
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", &format!("-c{connections}")])
        .arg(format!("-d{seconds}"))
        .arg(format!("http://{address}/"))
        .env("UPCALL_CHILDREN", "0")
        .env_remove("LD_PRELOAD");
    let output = wrk.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::Skip("wrk is not installed".into()),
        _ => Failure::Failed(format!("wrk: {error}")),
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rate = said.lines().find_map(|line| {
        let rate = line.strip_prefix("Requests/sec:")?;
        rate.trim().parse::<f64>().ok()
    });
    let bad = said
        .lines()
        .any(|line| line.contains("Socket errors") || line.contains("Non-2xx"));
    match rate.filter(|rate| *rate > 0.0 && !bad && output.status.success()) {
        Some(rate) => {
            let mut figures = Figures::default();
            figures.push("requests/s", rate);
            Ok(figures)
        }
        None => Err(Failure::Failed(format!("wrk says: {said}"))),
    }
}

fn number(params: &Params) -> Result<usize, Failure> {
    params.number("connections", 10_000)
}

/// Raises the limit of descriptors to what [`idle`] needs.
pub fn allow_descriptors(params: &Params) -> Result<(), Failure> {
    let count = 2 * number(params)? as u64 + 200;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads and writes the structure.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        if limit.rlim_cur >= count {
            return Ok(());
        }
        limit.rlim_cur = count;
        limit.rlim_max = limit.rlim_max.max(count);
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 {
            return Ok(());
        }
    }
    let why = format!("{count} descriptors are more than RLIMIT_NOFILE allows");
    Err(Failure::Skip(why))
}

/// How many connections come from one address.
const EACH: usize = 20_000;

/// A connection from the `number`th address of this machine to itself.
fn connect(number: usize, to: SocketAddr) -> io::Result<std::net::TcpStream> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let own = Ipv4Addr::new(127, 0, 1, 1 + number as u8);
    socket.bind(&SocketAddr::from((own, 0)).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// Makes idle connections to the server, which is in this process.
pub fn idle(params: &Params, address: SocketAddr) -> Result<Figures, Failure> {
    let count = number(params)?;
    let failed = |what: &str, error: io::Error| Failure::Failed(format!("{what}: {error}"));
    let mut clients = Vec::with_capacity(count + 1);
    let mut before = 0;
    for number in 0..=count {
        let client = connect(number / EACH, address);
        clients.push(client.map_err(|error| failed("connecting", error))?);
        if number == 0 {
            // What the first one needs is there before.
            ask(&clients[0]).map_err(|error| failed("the first request", error))?;
            before = resident_memory()?;
        }
    }
    // The last one is served, so all threads have begun.
    ask(&clients[count]).map_err(|error| failed("the last request", error))?;
    settle()?;
    let bytes = resident_memory()?.saturating_sub(before);
    let tasks = std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count());
    for client in clients.iter().step_by(97) {
        ask(client).map_err(|error| failed("a request", error))?;
    }
    let mut figures = Figures::default();
    figures.push("bytes", bytes as f64 / count as f64);
    figures.push("kernel_threads", tasks as f64);
    Ok(figures)
}

/// Waits until memory does not grow any more: all threads wait.
fn settle() -> Result<(), Failure> {
    let mut last = 0;
    loop {
        let now = resident_memory()?;
        if now <= last {
            return Ok(());
        }
        last = now;
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn ask(mut client: &std::net::TcpStream) -> io::Result<()> {
    client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = [0; 512];
    let count = client.read(&mut answer)?;
    match answer[..count].starts_with(b"HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}
