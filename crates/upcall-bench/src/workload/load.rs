//! What the web servers of `http` and `idle_connections` have to do.
//!
//! `http`: the load generator is wrk(1), in a process of its own without the runtime, on the same processors;
//! `requests/s` is what it reports. `idle_connections`: so many connections, each of which waits for its first
//! request; `bytes` is the server's resident memory for one, which is all beside what the kernel keeps, and then each
//! of a sample is asked for a page. The other ends are in processes of their own, since a process has so many
//! descriptors, and at several addresses, since one has some 28,000 ports.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Stdio};
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

/// Descriptors that are not connections.
const OTHERS: u64 = 200;

/// How many descriptors this process may have, after it has asked for `count`.
fn descriptors(count: u64) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads and writes the structure.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let (before, most) = (limit.rlim_cur, limit.rlim_max.max(count));
        if before >= count {
            return before;
        }
        // First beyond the hard limit, which takes a privilege.
        for wanted in [most, limit.rlim_max] {
            limit.rlim_cur = count.min(wanted);
            limit.rlim_max = wanted;
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 {
                return limit.rlim_cur;
            }
        }
        before
    }
}

/// Raises the limit of descriptors to what [`idle`] needs. Before the runtime starts, or right after.
pub fn allow_descriptors(params: &Params) -> Result<(), Failure> {
    let count = number(params)?;
    let allowed = descriptors(count as u64 + OTHERS);
    if allowed >= count as u64 + OTHERS {
        return Ok(());
    }
    let why =
        format!("RLIMIT_NOFILE allows {allowed} descriptors, too few for {count} connections");
    Err(Failure::Skip(why))
}

/// How many connections come from one address.
const EACH: usize = 20_000;

/// How many connections may wait to be accepted. Java's queue has 50 and that of std 128; whoever finds a full one tries
/// again after a second.
const QUEUE: usize = 40;

/// A connection from the `number`th address of this machine to itself.
fn connect(number: usize, to: SocketAddr) -> io::Result<TcpStream> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let own = Ipv4Addr::new(127, 0, 1, 1 + number as u8);
    // The port is chosen by connect(2), which knows to where: ip(7). Otherwise those that the last run has left behind
    // (TIME_WAIT) are taken.
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the option a number.
    let refused = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if refused != 0 {
        return Err(io::Error::last_os_error());
    }
    socket.bind(&SocketAddr::from((own, 0)).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::Failed(format!("{what}: {error}"))
}

/// A process that makes connections and keeps them.
struct Client {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Client {
    fn start(address: SocketAddr, first: usize, count: usize) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("idle_client")
            .arg(format!("port={}", address.port()))
            .arg(format!("first={first}"))
            .arg(format!("connections={count}"))
            .env("UPCALL_CHILDREN", "0")
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = process.stdout.take().map(BufReader::new);
        let said = said.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Client { process, said })
    }

    fn says(&mut self, word: &str) -> io::Result<()> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        match line.trim_end() == word {
            true => Ok(()),
            false => Err(io::Error::other(format!("the client says {line:?}"))),
        }
    }

    /// Asks for some pages, and ends.
    fn finish(mut self) -> io::Result<()> {
        drop(self.process.stdin.take());
        self.says("done")?;
        self.process.wait().map(drop)
    }
}

/// The process of the other ends.
pub fn idle_client(params: &Params) -> Result<Figures, Failure> {
    let port = params.number("port", 0)? as u16;
    let (first, count) = (params.number("first", 0)?, number(params)?);
    descriptors(count as u64 + OTHERS);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let connect = |number| connect(number / EACH, address).map_err(failed("connecting"));
    let mut all = Vec::with_capacity(count);
    for number in first..first + count {
        all.push(connect(number)?);
        if all.len() % QUEUE == 0 {
            // All are accepted in their order, so those before this one have been.
            ask(&connect(number)?).map_err(failed("a request on the way"))?;
        }
    }
    if let Some(last) = all.last() {
        ask(last).map_err(failed("the last request"))?;
    }
    println!("ready");
    // The server has measured when this ends.
    let _ = io::stdin().read(&mut [0]);
    for one in all.iter().step_by(97) {
        ask(one).map_err(failed("a request"))?;
    }
    Ok(Figures::default())
}

/// Makes idle connections to the server, which is in this process.
pub fn idle(params: &Params, address: SocketAddr) -> Result<Figures, Failure> {
    let count = number(params)?;
    // What the first connection needs is there before.
    let mut warm = Client::start(address, 0, 1).map_err(failed("the client"))?;
    warm.says("ready").map_err(failed("the client"))?;
    let before = resident_memory()?;
    // A process for as many as it may have.
    let each = descriptors(0).saturating_sub(OTHERS).max(1) as usize;
    let mut clients = Vec::new();
    for first in (0..count).step_by(each) {
        let mut client =
            Client::start(address, first, each.min(count - first)).map_err(failed("the client"))?;
        client.says("ready").map_err(failed("the client"))?;
        clients.push(client);
    }
    // Until memory does not grow any more: all threads wait.
    let mut bytes = resident_memory()?;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let last = std::mem::replace(&mut bytes, resident_memory()?);
        if bytes <= last {
            break;
        }
    }
    let tasks = kernel_threads().map_err(failed("ls"))?;
    for client in clients {
        client.finish().map_err(failed("the client"))?;
    }
    warm.finish().map_err(failed("the client"))?;
    let mut figures = Figures::default();
    figures.push("bytes", bytes.saturating_sub(before) as f64 / count as f64);
    figures.push("kernel_threads", tasks as f64);
    Ok(figures)
}

/// Kernel threads of this process, as another one sees them: under Upcall its own entries are its threads.
fn kernel_threads() -> io::Result<usize> {
    let tasks = format!("/proc/{}/task", std::process::id());
    let listed = std::process::Command::new("ls").arg(tasks).output()?;
    Ok(listed.stdout.split(|byte| *byte == b'\n').count() - 1)
}

fn ask(mut client: &TcpStream) -> io::Result<()> {
    client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = [0; 512];
    let count = client.read(&mut answer)?;
    match answer[..count].starts_with(b"HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}
