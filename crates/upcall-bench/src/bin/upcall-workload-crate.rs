//! The workloads of `upcall bench` that need nothing but threads, in a program that is written with
//! the crate upcall.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use upcall::net::{Deadlines, Shutdown, SocketAddr, TcpListener, TcpStream};
use upcall::sync;
use upcall::thread::{self, Builder, JoinHandle};
use upcall_bench::server::{Connection, Server};
use upcall_bench::workload::threads::{self, Threads, no_thread};
use upcall_bench::workload::{Failure, Figures, Job};

/// The crate upcall as a package of threads.
struct Crate;

impl Threads for Crate {
    type Handle<R: Send + 'static> = JoinHandle<R>;
    type Semaphore = Semaphore;
    type Mutex = Mutex;
    type Reader = Reader;
    type Writer = Writer;

    #[inline]
    fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
        match Builder::new().spawn(body) {
            Ok(handle) => handle,
            Err(error) => no_thread(&error),
        }
    }

    #[inline]
    fn join<R: Send + 'static>(handle: JoinHandle<R>) -> R {
        handle.join().expect("a thread that does not panic")
    }

    #[inline]
    fn yield_now() {
        thread::yield_now();
    }

    fn pipe() -> Result<(Reader, Writer), Failure> {
        let (reader, writer) = upcall::io::pipe()
            .map_err(|error| Failure::Failed(format!("making a pipe: {error}")))?;
        Ok((Reader(reader), Writer(writer)))
    }
}

/// The crate's pipes.
struct Reader(upcall::io::PipeReader);
struct Writer(upcall::io::PipeWriter);

impl threads::Reader for Reader {
    fn read_byte(&self) -> bool {
        matches!((&self.0).read(&mut [0]), Ok(1))
    }
}

impl threads::Writer for Writer {
    fn write_byte(&self) -> bool {
        matches!((&self.0).write(&[1]), Ok(1))
    }
}

/// The crate's semaphore.
struct Semaphore(sync::Semaphore);

impl threads::Semaphore for Semaphore {
    #[inline]
    fn new() -> Self {
        Self(sync::Semaphore::new(0))
    }

    #[inline]
    fn post(&self) {
        self.0.release();
    }

    #[inline]
    fn wait(&self) {
        self.0.acquire();
    }
}

/// The crate's mutex and condition variable.
struct Mutex(sync::Mutex<usize>);

impl threads::Mutex for Mutex {
    type Guard<'a> = sync::MutexGuard<'a, usize>;
    type Condition = sync::Condvar;

    #[inline]
    fn new() -> Self {
        Self(sync::Mutex::new(0))
    }

    #[inline]
    fn lock(&self) -> sync::MutexGuard<'_, usize> {
        self.0.lock().expect("no thread panics")
    }

    #[inline]
    fn condition() -> sync::Condvar {
        sync::Condvar::new()
    }

    #[inline]
    fn wait<'a>(
        &'a self,
        condition: &sync::Condvar,
        guard: sync::MutexGuard<'a, usize>,
    ) -> sync::MutexGuard<'a, usize> {
        condition.wait(guard).expect("no thread panics")
    }

    #[inline]
    fn signal(condition: &sync::Condvar) {
        condition.notify_one();
    }
}

/// A connection, with its deadline.
struct Client(TcpStream);

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection for Client {
    fn limit(&mut self, time: Duration) {
        self.0.set_deadline(Some(Instant::now() + time));
    }

    fn wait(&mut self) -> io::Result<()> {
        self.0.peek(&mut [0]).map(drop)
    }

    fn end_writing(&mut self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }
}

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
    let runtime = upcall::Runtime::builder().virtual_processors(count, count);
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
