//! A TCP echo server with a thread per connection, clients in threads, read timeouts, UDP, and a
//! Unix socket.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

include!("case.rs.inc");

fn serve(listener: &TcpListener, connections: usize) {
    thread::scope(|scope| {
        for _ in 0..connections {
            let (stream, _) = listener.accept().unwrap();
            scope.spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                for line in BufReader::new(stream).lines() {
                    let line = line.unwrap().to_uppercase() + "\n";
                    writer.write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

fn main() -> ExitCode {
    const CLIENTS: usize = 40;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve(&listener, CLIENTS));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                (0..50)
                    .filter(|turn| {
                        let mut line = String::new();
                        // One write a line: Nagle's algorithm would delay a second one.
                        let hello = format!("hello {number} {turn}\n");
                        stream.write_all(hello.as_bytes()).unwrap();
                        reader.read_line(&mut line).unwrap();
                        line == format!("HELLO {number} {turn}\n")
                    })
                    .count()
            })
        })
        .collect();
    let right: usize = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .sum();
    server.join().unwrap();
    check("tcp_echo", right == CLIENTS * 50, right);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let kind = stream.read(&mut [0]).map_err(|error| error.kind());
    check(
        "read_timeout",
        kind == Err(ErrorKind::WouldBlock),
        format!("{kind:?}"),
    );

    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let receiver = thread::spawn(move || {
        let mut buffer = [0; 16];
        let (length, _) = server.recv_from(&mut buffer).unwrap();
        buffer[..length].to_vec()
    });
    UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .send_to(b"datagram", address)
        .unwrap();
    check(
        "udp",
        receiver.join().unwrap() == b"datagram",
        "other bytes",
    );

    let (mut one, mut other) = UnixStream::pair().unwrap();
    let big = thread::spawn(move || one.write_all(&vec![7; 1 << 20]).is_ok());
    let mut received = Vec::new();
    other.read_to_end(&mut received).unwrap();
    let whole = received.len() == 1 << 20 && received.iter().all(|&byte| byte == 7);
    check("unix_stream", big.join().unwrap() && whole, received.len());
    verdict()
}
