//! The book's first server: a thread for each connection, which gives back what it gets.

// ANCHOR: serve
use std::io::{self, Read, Write};

use upcall::net::{TcpListener, TcpStream};
use upcall::thread;

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 1024];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length])?,
        }
    }
}
// ANCHOR_END: serve

// ANCHOR: main
fn main() -> Result<(), Box<dyn std::error::Error>> {
    upcall::Runtime::start()?;
    let listener = TcpListener::bind("127.0.0.1:7000")?;
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            if let Err(error) = serve(stream) {
                eprintln!("a connection ends: {error}");
            }
        });
    }
    Ok(())
}
// ANCHOR_END: main
