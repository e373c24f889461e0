//! Datagrams, and where Unix sockets are.

use super::*;

pub fn datagrams_over_udp() {
    let one = UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (here, there) = (one.local_addr().unwrap(), other.local_addr().unwrap());
    one.set_read_deadline(soon());
    let mut buffer = [0; 16];
    let error = one.recv_from(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    one.set_read_deadline(None);
    let sender = spawn(move || {
        give_time();
        assert_eq!(other.send_to(b"first", here).unwrap(), 5);
        assert_eq!(other.send_to(b"second", here).unwrap(), 6);
        other
    });
    assert_eq!(one.peek_from(&mut buffer).unwrap(), (5, there));
    assert_eq!(one.recv_from(&mut buffer).unwrap(), (5, there));
    one.connect(there).unwrap();
    assert_eq!(one.peer_addr().unwrap(), there);
    // What is too long is cut off.
    assert_eq!(one.recv(&mut buffer[..3]).unwrap(), 3);
    assert_eq!(&buffer[..3], b"sec");
    let other = sender();
    assert_eq!(one.send(b"back").unwrap(), 4);
    assert_eq!(other.recv_from(&mut buffer).unwrap(), (4, here));
    drop(other);
    one.send(b"nobody").unwrap();
    let error = one.recv(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

pub fn datagrams_over_unix_sockets_wait_for_room() {
    let (one, other) = UnixDatagram::pair().unwrap();
    let mut sent = 0;
    let error = loop {
        one.set_write_deadline(soon());
        match one.send(&[7; 100]) {
            Ok(100) => sent += 1,
            Ok(count) => panic!("a datagram of {count} bytes"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(sent > 0);
    one.set_write_deadline(late());
    let one = Arc::new(one);
    let sender = {
        let one = one.clone();
        spawn(move || one.send(b"after all"))
    };
    give_time();
    let mut buffer = [0; 200];
    for _ in 0..sent {
        assert_eq!(other.recv(&mut buffer).unwrap(), 100);
    }
    assert_eq!(other.recv(&mut buffer).unwrap(), 9);
    assert_eq!(sender().unwrap(), 9);
    one.shutdown(Shutdown::Both).unwrap();
    assert!(one.send(b"x").is_err());
}

pub fn unix_sockets_have_places_in_the_file_system() {
    let place = std::env::temp_dir().join(format!("upcall-net-{}", std::process::id()));
    let listener = UnixListener::bind(&place).unwrap();
    let error = UnixListener::bind(&place).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let own = place.clone();
    let client = spawn(move || {
        let mut stream = UnixStream::connect(own).unwrap();
        stream.write_all(b"through the file").unwrap();
    });
    let mut said = String::new();
    let mut stream = listener.incoming().next().unwrap().unwrap();
    stream.read_to_string(&mut said).unwrap();
    assert_eq!(said, "through the file");
    client();
    std::fs::remove_file(&place).unwrap();
    let receiver = UnixDatagram::bind(&place).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    assert_eq!(sender.try_send_to(b"a", &place).unwrap(), 1);
    sender.connect(&place).unwrap();
    assert_eq!(sender.send(b"bc").unwrap(), 2);
    let mut buffer = [0; 4];
    assert_eq!(receiver.recv_from(&mut buffer).unwrap().0, 1);
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 2);
    std::fs::remove_file(&place).unwrap();
}
