//! The workloads with tasks of `tokio`: they have no stack, and wait with `await`.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until};

use upcall_peers::workload::fork::{self, BATCH, right, timed};
use upcall_peers::workload::posix::{now_ns, spin};
use upcall_peers::workload::reactivity::{self, Load, Taker};
use upcall_peers::workload::{Body, Failure, Figures, Params, blocked, load, with_programs};

/// What a task comes to.
async fn result<R>(task: JoinHandle<R>) -> R {
    task.await.expect("a task that does not panic")
}

/// Runs `body` as a task, and waits for it outside of the runtime.
fn run<R: Send + 'static>(body: impl Future<Output = R> + Send + 'static) -> R {
    Handle::current().block_on(result(tokio::spawn(body)))
}

fn null_fork(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 5000)?;
    timed(samples, operations, || {
        run(async move {
            for index in 0..operations as u64 {
                right(result(tokio::spawn(async move { index })).await, index)?;
            }
            Ok(())
        })
    })
}

fn fork_batch(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let batches = params.number("batches", 5)?;
    timed(samples, batches * BATCH, || {
        run(async move {
            let mut tasks = Vec::with_capacity(BATCH);
            for _ in 0..batches {
                tasks.extend((0..BATCH as u64).map(|index| tokio::spawn(async move { index })));
                let mut sum = 0;
                for task in tasks.drain(..) {
                    sum += result(task).await;
                }
                right(sum, (BATCH * (BATCH - 1) / 2) as u64)?;
            }
            Ok(())
        })
    })
}

type Number = Pin<Box<dyn Future<Output = u64> + Send>>;

fn fib(n: u64) -> Number {
    Box::pin(async move {
        if n < 2 {
            return n;
        }
        let one = tokio::spawn(fib(n - 1));
        let other = fib(n - 2).await;
        result(one).await + other
    })
}

/// The sum of the numbers from `first` to `last`.
fn sum(first: u64, last: u64) -> Number {
    Box::pin(async move {
        if first >= last {
            return first;
        }
        let middle = first.midpoint(last);
        let low = tokio::spawn(sum(first, middle));
        let high = tokio::spawn(sum(middle + 1, last));
        result(low).await + result(high).await
    })
}

async fn take(semaphore: &Semaphore) {
    semaphore.acquire().await.expect("it stays open").forget();
}

fn semaphore(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 10_000)?;
    timed(samples, operations, || {
        let pair = Arc::new([Semaphore::new(0), Semaphore::new(0)]);
        let (first, second) = (pair.clone(), pair);
        run(async move {
            let first = tokio::spawn(async move {
                for _ in 0..operations {
                    first[1].add_permits(1);
                    take(&first[0]).await;
                }
            });
            let second = tokio::spawn(async move {
                for _ in 0..operations {
                    take(&second[1]).await;
                    second[0].add_permits(1);
                }
            });
            result(first).await;
            result(second).await;
        });
        Ok(())
    })
}

fn yields(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 50_000)?;
    timed(samples, 2 * operations, || {
        let task = move || async move {
            for _ in 0..operations {
                yield_now().await;
            }
        };
        run(async move {
            let (first, second) = (tokio::spawn(task()), tokio::spawn(task()));
            result(first).await;
            result(second).await;
        });
        Ok(())
    })
}

fn mutex(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 10_000)?;
    let mut figures = Figures::default();
    for sample in 0..=samples {
        let begin = now_ns();
        let count = run(async move {
            let mutex = Arc::new(Mutex::new(0));
            let mut tasks = Vec::new();
            for _ in 0..64 {
                let mutex = mutex.clone();
                tasks.push(tokio::spawn(async move {
                    for _ in 0..operations {
                        *mutex.lock().await += 1;
                        spin(20);
                    }
                }));
            }
            for task in tasks {
                result(task).await;
            }
            *mutex.lock().await
        });
        right(count, 64 * operations as u64)?;
        if sample > 0 {
            figures.push("Mops/s", count as f64 * 1000.0 / (now_ns() - begin) as f64);
        }
    }
    Ok(figures)
}

fn many_blocked(params: &Params) -> Result<Figures, Failure> {
    let count = blocked::number(params)?;
    let before = blocked::resident_memory()?;
    let (time, bytes) = run(async move {
        let gate = Arc::new(Semaphore::new(0));
        let all = Arc::new(Semaphore::new(0));
        let arrived = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::with_capacity(count);
        let begin = now_ns();
        for _ in 0..count {
            let (gate, all, arrived) = (gate.clone(), all.clone(), arrived.clone());
            tasks.push(tokio::spawn(async move {
                if arrived.fetch_add(1, Ordering::Relaxed) + 1 == count {
                    all.add_permits(1);
                }
                take(&gate).await;
            }));
        }
        take(&all).await;
        let time = now_ns() - begin;
        let bytes = blocked::resident_memory();
        gate.add_permits(count);
        for task in tasks {
            result(task).await;
        }
        (time, bytes)
    });
    let mut figures = Figures::default();
    figures.push("ns", time as f64 / count as f64);
    figures.push("bytes", bytes?.saturating_sub(before) as f64 / count as f64);
    Ok(figures)
}

/// A web server as one writes it with tokio, with the parser that ours has: a task for each connection.
fn serve() -> Result<SocketAddr, Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("the server: {error}"));
    let listener = Handle::current().block_on(TcpListener::bind("127.0.0.1:0"));
    let listener = listener.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            tokio::spawn(connection(stream));
        }
    });
    Ok(address)
}

/// Answers requests without a body to the connection's end.
async fn connection(mut stream: TcpStream) {
    const BODY: &str = "Hello, world!\n";
    let mut input = Vec::with_capacity(512);
    let mut output = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut input).await {
        let mut done = 0;
        while let Some(length) = request(&input[done..]) {
            done += length;
            let date = httpdate::HttpDate::from(SystemTime::now());
            let _ = write!(
                output,
                "HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Type: text/plain; charset=utf-8\r\n\
                 Content-Length: {}\r\n\r\n{BODY}",
                BODY.len()
            );
        }
        input.drain(..done);
        if stream.write_all(&output).await.is_err() {
            return;
        }
        output.clear();
    }
}

/// How long the request at the front is, if it is there.
fn request(bytes: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    match httparse::Request::new(&mut headers).parse(bytes) {
        Ok(httparse::Status::Complete(length)) => Some(length),
        _ => None,
    }
}

fn http(params: &Params) -> Result<Figures, Failure> {
    load::http(params, serve()?)
}

fn idle(params: &Params) -> Result<Figures, Failure> {
    load::allow_descriptors(params)?;
    load::idle(params, serve()?)
}

/// A task of the load: it gives way where a thread of others would be preempted.
async fn compute(load: Load, gate: Arc<Semaphore>, stop: Arc<AtomicBool>) {
    take(&gate).await;
    let period = Duration::from_nanos(reactivity::PERIOD_NS);
    let mut next = Instant::now() + period;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..load.chunks {
            spin(load.turns);
            yield_now().await;
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
        if load.load < 100 {
            sleep_until(next).await;
            next += period;
        }
    }
}

async fn events(mut stream: UnixStream, mut taker: Taker) -> Result<Figures, Failure> {
    while taker.more() {
        let mut event = [0; reactivity::EVENT];
        stream.write_all(&[1]).await.map_err(reactivity::failed)?;
        stream.read_exact(&mut event).await.map_err(reactivity::failed)?;
        taker.take(event, now_ns())?;
    }
    Ok(taker.done())
}

fn react(params: &Params) -> Result<Figures, Failure> {
    let (load, taker) = (Load::of(params)?, Taker::new(params)?);
    let stream = std::os::unix::net::UnixStream::from(reactivity::connection()?);
    stream.set_nonblocking(true).map_err(reactivity::failed)?;
    let stream = UnixStream::from_std(stream).map_err(reactivity::failed)?;
    let stop = Arc::new(AtomicBool::new(false));
    let gate = Arc::new(Semaphore::new(0));
    let computing: Vec<_> = (0..load.threads)
        .map(|_| tokio::spawn(compute(load, gate.clone(), stop.clone())))
        .collect();
    if load.load > 0 {
        gate.add_permits(load.threads);
    }
    run(async move {
        let figures = result(tokio::spawn(events(stream, taker))).await;
        stop.store(true, Ordering::Relaxed);
        gate.add_permits(load.threads);
        for task in computing {
            result(task).await;
        }
        figures
    })
}

const PROGRAMS: &[(&str, Body)] = &[
    ("blocked", many_blocked),
    ("fib", |params| fork::fibonacci_by(params, |n| run(fib(n)))),
    ("fork_batch", fork_batch),
    ("http", http),
    ("idle_client", load::idle_client),
    ("idle_connections", idle),
    ("mutex_64", mutex),
    ("null_fork", null_fork),
    ("reactivity", react),
    ("semaphore", semaphore),
    ("sumtime", |params| {
        fork::sumtime_by(params, |n| run(sum(1, n)))
    }),
    ("yield", yields),
];

fn main() -> ExitCode {
    let args = std::env::args().skip(1);
    with_programs(PROGRAMS.to_vec(), args, |workers, job| {
        let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build();
        let runtime =
            runtime.map_err(|error| Failure::Failed(format!("starting tokio: {error}")))?;
        let _inside = runtime.enter();
        job()
    })
}
