//! The workloads of `upcall bench` that need nothing but threads, in a program that is written with
//! the crate upcall.

use std::io;
use std::process::ExitCode;

#[path = "../../../upcall/examples/http/client.rs"]
mod client;
mod common;

use client::Client;
use common::Crate;
use upcall::net::{SocketAddr, TcpListener};
use upcall::thread::Builder;
use upcall_bench::server::{Connection, Server};
use upcall_bench::workload::threads::Threads;
use upcall_bench::workload::{Failure, Figures, Job};

impl Server for Crate {
    type Listener = TcpListener;
    type Stream = Client;

    fn listen() -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn accept(listener: &TcpListener) -> io::Result<Client> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(Client(stream))
    }

    fn start(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        Builder::new().spawn(body).map(drop)
    }
}

/// Runs `job` on a thread of the crate: the first thread of the process is an ordinary one, whose
/// stack and signal stack are the kernel's.
fn start(workers: usize, job: Job) -> Result<Figures, Failure> {
    let count = u32::try_from(workers)
        .map_err(|_| Failure::Usage(format!("workers={workers} are too many")))?;
    let mut runtime = upcall::Runtime::builder();
    if std::env::var_os("UPCALL_VPS").is_none() {
        runtime = runtime.virtual_processors(count, count);
    }
    let runtime = runtime
        .start()
        .map_err(|error| Failure::Failed(format!("starting the runtime: {error}")))?;
    if runtime.is_preloaded() {
        // Its threads would be those of std.
        return Err(Failure::Usage("not to be run under upcall run".into()));
    }
    Crate::join(Crate::spawn(job))
}

fn main() -> ExitCode {
    let servers = upcall_bench::server::programs::<Crate>();
    upcall_bench::workload::main_on::<Crate>(servers, std::env::args().skip(1), start)
}
