//! Streams: TCP, Unix sockets, pipes, and listeners.

use super::*;

fn byte_at(index: usize) -> u8 {
    (index * 7 + index / 251) as u8
}

/// More than fits: each write is partial, and both sides wait again and again.
fn everything_arrives<S: Stream>((mut one, mut other): (S, S)) {
    const ALL: usize = 3 << 20;
    let sender = spawn(move || {
        let bytes: Vec<u8> = (0..ALL).map(byte_at).collect();
        one.write_all(&bytes).unwrap();
        one.end(Shutdown::Write);
        let mut back = Vec::new();
        one.read_to_end(&mut back).unwrap();
        back
    });
    let mut buffer = vec![0; 10_007];
    let mut at = 0;
    loop {
        let count = other.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        for (index, byte) in buffer[..count].iter().enumerate() {
            assert_eq!(*byte, byte_at(at + index));
        }
        at += count;
    }
    assert_eq!(at, ALL);
    let parts = [IoSlice::new(b"all "), IoSlice::new(b"here")];
    assert_eq!(other.write_vectored(&parts).unwrap(), 8);
    drop(other);
    assert_eq!(sender(), b"all here");
}

pub fn streams_carry_more_than_fits() {
    everything_arrives(tcp_pair());
    everything_arrives(UnixStream::pair().unwrap());
}

fn deadlines_end<S: Stream>((one, other): (S, S)) {
    let mut buffer = [0; 8];
    let moment = soon();
    one.set_read_deadline(moment);
    let error = one.read_shared(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(Instant::now() >= moment.unwrap());
    // From then on nothing is read, whatever there is, until it is moved.
    assert_eq!(other.write_shared(b"data").unwrap(), 4);
    io::wait(&one, Interest::READABLE, late()).unwrap();
    let error = one.read_shared(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // The other direction goes on.
    assert_eq!(one.write_shared(b"back").unwrap(), 4);
    for deadline in [late(), None] {
        one.set_read_deadline(deadline);
        assert_eq!(one.read_shared(&mut buffer[..2]).unwrap(), 2);
    }
    // A write that waits for room, which nobody makes.
    one.set_deadline(soon());
    let error = loop {
        match one.write_shared(&[1; 1 << 16]) {
            Ok(_) => one.set_deadline(soon()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

pub fn a_deadline_ends_a_wait_and_all_calls_after_it() {
    deadlines_end(tcp_pair());
    deadlines_end(UnixStream::pair().unwrap());
}

pub fn a_deadline_moved_by_another_thread_ends_waits_in_progress() {
    for round in 0..20 {
        let (one, other) = tcp_pair();
        let one = Arc::new(one);
        one.set_deadline(late());
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let one = one.clone();
                spawn(move || one.read_shared(&mut [0; 8]).unwrap_err().kind())
            })
            .collect();
        let writer = {
            let one = one.clone();
            spawn(move || {
                loop {
                    if let Err(error) = one.write_shared(&[1; 1 << 16]) {
                        return error.kind();
                    }
                }
            })
        };
        if round % 2 == 0 {
            give_time();
        }
        one.set_read_deadline(Some(Instant::now()));
        for reader in readers {
            assert_eq!(reader(), ErrorKind::TimedOut);
        }
        one.set_write_deadline(Some(Instant::now() - LONG));
        assert_eq!(writer(), ErrorKind::TimedOut);
        drop(other);
    }
}

pub fn a_later_deadline_prolongs_a_wait_in_progress() {
    let (one, other) = UnixStream::pair().unwrap();
    let one = Arc::new(one);
    one.set_read_deadline(Some(Instant::now() + 4 * SHORT));
    let reader = {
        let one = one.clone();
        spawn(move || one.read_shared(&mut [0; 8]))
    };
    one.set_read_deadline(late());
    time::sleep(6 * SHORT);
    assert_eq!(other.write_shared(b"late").unwrap(), 4);
    assert_eq!(reader().unwrap(), 4);
}

fn shut<S: Stream>((one, other): (S, S)) {
    let one = Arc::new(one);
    let reader = {
        let one = one.clone();
        spawn(move || one.read_shared(&mut [0; 8]))
    };
    give_time();
    one.end(Shutdown::Read);
    assert_eq!(reader().unwrap(), 0);
    one.end(Shutdown::Write);
    assert_eq!(other.read_shared(&mut [0; 8]).unwrap(), 0);
    // No signal, but an error.
    let error = one.write_shared(b"too late").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

pub fn a_shutdown_ends_the_wait_of_another_thread() {
    shut(tcp_pair());
    shut(UnixStream::pair().unwrap());
}

pub fn the_other_side_goes_away_while_a_thread_waits() {
    let (one, other) = tcp_pair();
    let reader = spawn(move || one.read_shared(&mut [0; 8]));
    give_time();
    drop(other);
    assert_eq!(reader().unwrap(), 0);
}

/// Who reads with more room than there is data has everything that comes afterwards: data, what is behind urgent
/// data, and the end, which may come together with data.
pub fn nothing_is_missed_after_short_reads() {
    const ROUNDS: u8 = 200;
    const URGENT: u8 = 255;
    for kind in 0..4 {
        let (mut one, mut other) = tcp_pair();
        one.set_nodelay(true).unwrap();
        let reader = spawn(move || {
            let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
            other.set_read_deadline(late());
            loop {
                match other.read(&mut buffer).unwrap() {
                    0 => return all,
                    count => all.extend_from_slice(&buffer[..count]),
                }
            }
        });
        let mut sent = Vec::new();
        for round in 0..ROUNDS {
            let bytes = [round, round, round];
            match kind {
                // One edge for both, or two.
                0 => one.write_all(&bytes).unwrap(),
                1 => {
                    one.write_all(&bytes).unwrap();
                    give_way(round);
                }
                // Reads end before it. It is no part of the stream, or of it where another one has come since.
                2 if round % 8 == 0 => {
                    one.write_all(&bytes).unwrap();
                    // SAFETY: reads one byte.
                    let urgent = unsafe {
                        libc::send(one.as_raw_fd(), [URGENT].as_ptr().cast(), 1, libc::MSG_OOB)
                    };
                    assert_eq!(urgent, 1);
                    one.write_all(&bytes).unwrap();
                    sent.extend_from_slice(&bytes);
                    give_way(round);
                }
                2 => one.write_all(&bytes).unwrap(),
                // Much at a time: some reads have no room for all.
                _ => {
                    let much = [round; 6000];
                    one.write_all(&much).unwrap();
                    sent.extend_from_slice(&much[3..]);
                    give_way(round);
                }
            }
            sent.extend_from_slice(&bytes);
        }
        // Data and the end, without anything in between.
        one.write_all(b"end").unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        sent.extend_from_slice(b"end");
        let mut all = reader();
        all.retain(|&byte| byte != URGENT);
        assert!(all == sent, "kind {kind}");
    }
}

/// Lets the other thread run, in some rounds.
fn give_way(round: u8) {
    match round % 4 {
        0 => {}
        1 => std::thread::sleep(Duration::from_micros(100)),
        _ => std::thread::yield_now(),
    }
}

pub fn a_listener_waits_until_its_deadline() {
    let (listener, address) = listener();
    listener.set_deadline(soon());
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::TimedOut);
    let listener = Arc::new(listener);
    listener.set_deadline(None);
    let waits = {
        let listener = listener.clone();
        spawn(move || listener.accept().unwrap_err().kind())
    };
    give_time();
    listener.set_deadline(Some(Instant::now()));
    assert_eq!(waits(), ErrorKind::TimedOut);
    listener.set_deadline(None);
    let client = TcpStream::connect(address).unwrap();
    let mut served = listener.incoming().next().unwrap().unwrap();
    assert!(!served.nodelay().unwrap());
    served.set_nodelay(true).unwrap();
    served.write_all(b"hello").unwrap();
    let mut peeked = [0; 8];
    assert_eq!(client.peek(&mut peeked).unwrap(), 5);
    assert_eq!((&client).read(&mut peeked).unwrap(), 5);
    let (mut a, mut b) = ([0; 2], [0; 4]);
    served.write_all(b"abcdef").unwrap();
    io::wait(&client, Interest::READABLE, late()).unwrap();
    let mut parts = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
    assert_eq!((&client).read_vectored(&mut parts).unwrap(), 6);
    assert_eq!((&a, &b), (b"ab", b"cdef"));
}

pub fn connecting_fails_as_the_kernel_says() {
    let (gone, address) = listener();
    drop(gone);
    let error = TcpStream::connect(address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let nowhere: &[SocketAddr] = &[];
    let error = TcpStream::connect(nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    // The first of several that answers.
    let (_kept, kept) = listener();
    assert!(TcpStream::connect(&[address, kept][..]).is_ok());
    // A full queue does not answer.
    let (full, address) = listener();
    // SAFETY: a socket of ours.
    assert_eq!(unsafe { libc::listen(full.as_raw_fd(), 0) }, 0);
    let mut waiting = Vec::new();
    let error = loop {
        assert!(waiting.len() < 8, "a queue for one takes so many");
        match TcpStream::connect_timeout(&address, 5 * SHORT) {
            Ok(stream) => waiting.push(stream),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let error = UnixStream::connect("/nowhere/at/all").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

pub fn a_storm_of_connections_is_accepted_once_each() {
    const ALL: usize = 200;
    const ACCEPT: usize = 4;
    let (listener, address) = listener();
    let listener = Arc::new(listener);
    let served = Arc::new(AtomicUsize::new(0));
    let acceptors: Vec<_> = (0..ACCEPT)
        .map(|_| {
            let (listener, served) = (listener.clone(), served.clone());
            spawn(move || {
                while let Ok((mut stream, _)) = listener.accept() {
                    served.fetch_add(1, Ordering::Relaxed);
                    drop(spawn(move || {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).unwrap();
                        stream.write_all(&byte).unwrap();
                    }));
                }
            })
        })
        .collect();
    let clients: Vec<_> = (0..8)
        .map(|own| {
            spawn(move || {
                for number in 0..ALL / 8 {
                    let mut stream = TcpStream::connect(address).unwrap();
                    let mut byte = [(own * 31 + number) as u8];
                    stream.write_all(&byte).unwrap();
                    let sent = byte;
                    stream.read_exact(&mut byte).unwrap();
                    assert_eq!(byte, sent);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client());
    listener.set_deadline(Some(Instant::now()));
    acceptors.into_iter().for_each(|acceptor| acceptor());
    assert_eq!(served.load(Ordering::Relaxed), ALL);
}

pub fn pipes_have_ends() {
    let (mut reader, writer) = io::pipe().unwrap();
    reader.set_deadline(soon());
    let error = reader.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    reader.set_deadline(None);
    let from_other = spawn(move || {
        let mut shared = &writer;
        give_time();
        shared.write_all(&[5; 300_000]).unwrap();
    });
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, vec![5; 300_000]);
    from_other();
    let (reader, mut writer) = io::pipe().unwrap();
    writer.set_deadline(soon());
    let error = writer.write_all(&[1; 1 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    writer.set_deadline(None);
    drop(reader);
    let error = writer.write(&[1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

pub fn pipes_bounce_a_byte() {
    let (mut there_in, mut there_out) = io::pipe().unwrap();
    let (mut back_in, mut back_out) = io::pipe().unwrap();
    let echo = spawn(move || {
        let mut byte = [0];
        while there_in.read(&mut byte).unwrap() == 1 {
            back_out.write_all(&byte).unwrap();
        }
    });
    for number in 0..20_000u32 {
        let mut byte = [number as u8];
        there_out.write_all(&byte).unwrap();
        back_in.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [number as u8]);
    }
    drop(there_out);
    echo();
}
