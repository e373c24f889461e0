//! Load for a memcached server, for `crates/upcall-bench/servers`: each connection asks again as soon as it has its answer,
//! nine times of ten for a value, else to set one.
//!
//! `memcached_load PORT CONNECTIONS SECONDS` prints answers a second, and the 95th and 99th percentile and the slowest
//! answer in milliseconds.

use std::env::args;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const VALUE: &str = "a value of some forty bytes, as they often are";
const KEYS: usize = 1000;

/// Asks until the time is over. Returns how long each answer took, in nanoseconds.
fn ask(port: u16, number: usize, end: Instant) -> std::io::Result<Vec<u64>> {
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    server.set_nodelay(true)?;
    let mut took = Vec::new();
    let mut answer = [0; 512];
    let mut turn = number;
    loop {
        let before = Instant::now();
        if before >= end {
            return Ok(took);
        }
        turn += 1;
        let key = turn * 7 % KEYS;
        let (request, last): (_, &[u8]) = match turn % 10 {
            0 => (
                format!("set key{key} 0 0 {}\r\n{VALUE}\r\n", VALUE.len()),
                b"STORED\r\n",
            ),
            _ => (format!("get key{key}\r\n"), b"END\r\n"),
        };
        server.write_all(request.as_bytes())?;
        let mut length = 0;
        while !answer[..length].ends_with(last) {
            match server.read(&mut answer[length..])? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                more => length += more,
            }
        }
        took.push(before.elapsed().as_nanos() as u64);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u64> = args()
        .skip(1)
        .map(|word| word.parse())
        .collect::<Result<_, _>>()?;
    let &[port, connections, seconds] = numbers.as_slice() else {
        return Err("memcached_load PORT CONNECTIONS SECONDS".into());
    };
    let port = u16::try_from(port)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let asking: Vec<_> = (0..connections as usize)
        .map(|number| thread::spawn(move || ask(port, number, end)))
        .collect();
    let mut took = Vec::new();
    for asks in asking {
        took.extend(
            asks.join()
                .map_err(|_| "a connection's thread panicked")??,
        );
    }
    took.sort_unstable();
    let ms =
        |share: f64| took[((share * took.len() as f64) as usize).min(took.len() - 1)] as f64 / 1e6;
    let rate = took.len() as f64 / seconds as f64;
    println!("{rate:.0} {:.4} {:.4} {:.4}", ms(0.95), ms(0.99), ms(1.0));
    Ok(())
}
