//! The book's second server: each line names a file below the current directory, and is answered with its text.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::{Duration, Instant};

use upcall::net::{Deadlines, TcpListener, TcpStream};
use upcall::sync::RwLock;
use upcall::thread::Builder;

// ANCHOR: cache
/// Files that have been asked for before.
#[derive(Default)]
struct Cache(RwLock<HashMap<String, Arc<Vec<u8>>>>);

impl Cache {
    fn get(&self, name: &str) -> io::Result<Arc<Vec<u8>>> {
        if let Some(known) = self.0.read().unwrap().get(name) {
            return Ok(known.clone());
        }
        let plain = |part| matches!(part, Component::Normal(_));
        if !Path::new(name).components().all(plain) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // This blocks, for as long as the disk takes, and nobody waits but this thread.
        let text = Arc::new(std::fs::read(name)?);
        self.0
            .write()
            .unwrap()
            .insert(name.to_owned(), text.clone());
        Ok(text)
    }
}
// ANCHOR_END: cache

// ANCHOR: serve
const PATIENCE: Duration = Duration::from_secs(30);

fn serve(stream: TcpStream, cache: &Cache) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    loop {
        lines
            .get_ref()
            .set_deadline(Some(Instant::now() + PATIENCE));
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = cache.get(line.trim_end());
        let stream = lines.get_mut();
        match answer {
            Ok(text) => {
                writeln!(stream, "{}", text.len())?;
                stream.write_all(&text)?;
            }
            Err(error) => writeln!(stream, "no: {error}")?,
        }
    }
}
// ANCHOR_END: serve

// ANCHOR: main
fn main() -> Result<(), Box<dyn std::error::Error>> {
    upcall::Runtime::start()?;
    let cache = Arc::new(Cache::default());
    let listener = TcpListener::bind("127.0.0.1:7000")?;
    println!("{}", listener.local_addr()?);
    for stream in listener.incoming() {
        let (stream, cache) = (stream?, cache.clone());
        Builder::new()
            .name("connection".to_owned())
            .stack_size(64 << 10)
            .spawn(move || match serve(stream, &cache) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                Err(error) => eprintln!("a connection ends: {error}"),
                Ok(()) => {}
            })?;
    }
    Ok(())
}
// ANCHOR_END: main
