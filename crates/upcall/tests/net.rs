//! `net`, `io` and `time`, with and without a runtime.

mod modes;

use std::fs::File;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use upcall::io::{self, Deadlines, Interest};
use upcall::net::{
    Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use upcall::time::{self, Duration, Instant};

const SHORT: Duration = Duration::from_millis(10);
/// Longer than anything takes that goes right.
const LONG: Duration = Duration::from_secs(60);

/// A thread of the crate, or, without a runtime, one of std, which would otherwise start one.
fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> impl FnOnce() -> R {
    let of_crate = modes::has_runtime();
    let (sender, receiver) = std::sync::mpsc::channel();
    let body = move || drop(sender.send(body()));
    let (own, other) = if of_crate {
        (Some(upcall::thread::spawn(body)), None)
    } else {
        (None, Some(std::thread::spawn(body)))
    };
    move || {
        let joined = own.map_or(Ok(()), |own| own.join());
        let other = other.map_or(Ok(()), |other| other.join());
        joined.and(other).expect("does not panic");
        receiver.recv().expect("it was sent")
    }
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + SHORT)
}

fn late() -> Option<Instant> {
    Some(Instant::now() + LONG)
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listener();
    let one = TcpStream::connect(address).unwrap();
    let (other, peer) = listener.accept().unwrap();
    assert_eq!(peer, one.local_addr().unwrap());
    assert_eq!(one.peer_addr().unwrap(), address);
    (one, other)
}

/// Both kinds of streams, as what they have in common.
trait Stream: Read + Write + Deadlines + AsFd + Send + Sync + 'static {
    fn end(&self, how: Shutdown);
    fn read_shared(&self, buffer: &mut [u8]) -> std::io::Result<usize>;
    fn write_shared(&self, buffer: &[u8]) -> std::io::Result<usize>;
}

macro_rules! stream {
    ($name:ty) => {
        impl Stream for $name {
            fn end(&self, how: Shutdown) {
                self.shutdown(how).unwrap();
            }
            fn read_shared(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let mut shared = self;
                shared.read(buffer)
            }
            fn write_shared(&self, bytes: &[u8]) -> std::io::Result<usize> {
                let mut shared = self;
                shared.write(bytes)
            }
        }
    };
}
stream!(TcpStream);
stream!(UnixStream);

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

fn streams_carry_more_than_fits() {
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

fn a_deadline_ends_a_wait_and_all_calls_after_it() {
    deadlines_end(tcp_pair());
    deadlines_end(UnixStream::pair().unwrap());
}

/// How a wait is begun, as far as can be told from outside.
fn give_time() {
    time::sleep(Duration::from_millis(3));
}

fn a_deadline_moved_by_another_thread_ends_waits_in_progress() {
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

fn a_later_deadline_prolongs_a_wait_in_progress() {
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

fn a_shutdown_ends_the_wait_of_another_thread() {
    shut(tcp_pair());
    shut(UnixStream::pair().unwrap());
}

fn the_other_side_goes_away_while_a_thread_waits() {
    let (one, other) = tcp_pair();
    let reader = spawn(move || one.read_shared(&mut [0; 8]));
    give_time();
    drop(other);
    assert_eq!(reader().unwrap(), 0);
}

/// Who reads with more room than there is data has everything that comes afterwards: data, what is behind urgent
/// data, and the end, which may come together with data.
fn nothing_is_missed_after_short_reads() {
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

fn a_listener_waits_until_its_deadline() {
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

fn connecting_fails_as_the_kernel_says() {
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

fn a_storm_of_connections_is_accepted_once_each() {
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

fn datagrams_over_udp() {
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

fn datagrams_over_unix_sockets_wait_for_room() {
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

fn unix_sockets_have_places_in_the_file_system() {
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

fn pipes_have_ends() {
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

fn pipes_bounce_a_byte() {
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

fn what_is_given_away_blocks_as_usual() {
    let (reader, mut writer) = io::pipe().unwrap();
    let mut file = File::from(reader.into_blocking_fd().unwrap());
    let reads = spawn(move || {
        let mut said = String::new();
        file.read_to_string(&mut said).map(|_| said)
    });
    give_time();
    writer.write_all(b"said").unwrap();
    drop(writer);
    assert_eq!(reads().unwrap(), "said");
    let (one, other) = UnixStream::pair().unwrap();
    let mut of_std = one.into_std().unwrap();
    let reads = spawn(move || {
        let mut byte = [0];
        of_std.read(&mut byte).map(|count| (count, of_std))
    });
    give_time();
    other.write_shared(b"x").unwrap();
    let (count, of_std) = reads().unwrap();
    assert_eq!(count, 1);
    let again = UnixStream::from_std(of_std).unwrap();
    let clone = again.try_clone().unwrap();
    again.set_deadline(Some(Instant::now()));
    other.write_shared(b"y").unwrap();
    assert!(again.read_shared(&mut [0]).is_err());
    assert_eq!(clone.read_shared(&mut [0]).unwrap(), 1);
    let owned = OwnedFd::from(clone);
    let clone = UnixStream::try_from(owned).unwrap();
    clone.set_deadline(soon());
    assert!(clone.take_error().unwrap().is_none());
    assert_eq!(
        clone.read_shared(&mut [0]).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
}

fn event() -> File {
    // SAFETY: a new descriptor.
    unsafe { File::from_raw_fd(libc::eventfd(0, 0)) }
}

fn any_descriptor_can_be_waited_for() {
    let error = io::wait(event(), Interest::READABLE, soon()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let event = Arc::new(event());
    let waits = {
        let event = event.clone();
        spawn(move || io::wait(&*event, Interest::READABLE | Interest::PRIORITY, late()))
    };
    give_time();
    (&*event).write_all(&1u64.to_ne_bytes()).unwrap();
    let ready = waits().unwrap();
    assert!(ready.is_readable() && !ready.is_priority() && !ready.is_error());
    // A deadline that has passed asks.
    let past = Some(Instant::now() - SHORT);
    let ready = io::wait(&*event, Interest::WRITABLE, past).unwrap();
    assert!(ready.is_writable());
    let file = File::open("/proc/self/exe").unwrap();
    let ready = io::wait(&file, Interest::READABLE | Interest::WRITABLE, None).unwrap();
    assert!(ready.is_readable() && ready.is_writable());
    let (one, other) = UnixStream::pair().unwrap();
    drop(other);
    let ready = io::wait(&one, Interest::READABLE, None).unwrap();
    assert!(ready.is_hung_up() && ready.is_readable());
    // SAFETY: nobody has this number.
    let nothing = unsafe { BorrowedFd::borrow_raw(1_000_000) };
    let error = io::wait(nothing, Interest::READABLE, None).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
}

/// In the kernel a wait goes on with the file that it began with.
fn a_number_that_is_used_again_under_a_wait() {
    for _ in 0..20 {
        let (reader, mut writer) = io::pipe().unwrap();
        let number = reader.as_fd().as_raw_fd();
        let waits = spawn(move || {
            // SAFETY: closed meanwhile, on purpose: waiting is all that is done with it.
            let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
            io::wait(borrowed, Interest::READABLE, late())
        });
        give_time();
        let (mut other_reader, mut other_writer) = io::pipe().unwrap();
        // SAFETY: the number of `reader` means another file from here on.
        unsafe {
            assert_eq!(libc::dup2(other_reader.as_fd().as_raw_fd(), number), number);
        }
        let again = spawn(move || {
            let mut reader = reader;
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            byte
        });
        give_time();
        other_writer.write_all(b"n").unwrap();
        assert_eq!(again(), *b"n");
        // Nobody can read the first one any more but who waits for it.
        let _ = writer.write(b"o");
        drop(writer);
        drop(other_writer);
        // Under a runtime poll(2) is made again, on the number, which is closed; natively on the first file.
        if let Ok(ready) = waits() {
            assert!(ready.is_readable() || ready.is_error() || ready.is_hung_up());
        }
        assert_eq!(other_reader.read(&mut [0]).unwrap(), 0);
    }
}

/// Numbers that were waited for by others before are as new.
fn numbers_are_used_again_after_waits() {
    let mut last = -1;
    let mut again = 0;
    for round in 0..200u32 {
        let (mut one, other) = UnixStream::pair().unwrap();
        again += u32::from(one.as_raw_fd() == last);
        last = one.as_raw_fd();
        let waits = spawn(move || {
            let mut word = [0; 4];
            one.read_exact(&mut word).unwrap();
            u32::from_ne_bytes(word)
        });
        if round % 3 == 0 {
            give_time();
        }
        (&other).write_all(&round.to_ne_bytes()).unwrap();
        assert_eq!(waits(), round);
    }
    assert!(again > 100, "{again} of 200");
}

fn a_child_of_fork_uses_what_it_inherits() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    let (mut go_in, mut go) = io::pipe().unwrap();
    // SAFETY: the child makes system calls only, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut byte = [0];
        let ok = go_in.read(&mut byte).is_ok() && writer.write_all(b"from the child").is_ok();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if ok { 0 } else { 9 }) };
    }
    assert!(child > 0);
    drop(writer);
    let reads = spawn(move || {
        let mut said = String::new();
        reader.read_to_string(&mut said).map(|_| said)
    });
    give_time();
    go.write_all(b"!").unwrap();
    assert_eq!(reads().unwrap(), "from the child");
    let mut status = 0;
    // SAFETY: our child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handle(_signal: i32) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

fn handlers_run_during_a_wait_and_do_not_end_it() {
    // SAFETY: a handler that counts; without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    for by_descriptor in [false, true] {
        let (one, mut other) = UnixStream::pair().unwrap();
        one.set_read_deadline(late());
        let begun = Arc::new(Barrier::new(2));
        let own = begun.clone();
        let whose = Arc::new(AtomicUsize::new(0));
        let tells = whose.clone();
        let reads = spawn(move || {
            // SAFETY: asks.
            tells.store(unsafe { libc::pthread_self() } as usize, Ordering::SeqCst);
            own.wait();
            if by_descriptor {
                io::wait(&one, Interest::READABLE, late()).unwrap();
            }
            one.read_shared(&mut [0; 8])
        });
        begun.wait();
        let before = HANDLED.load(Ordering::SeqCst);
        for round in 1..=5 {
            give_time();
            let whose = whose.load(Ordering::SeqCst) as libc::pthread_t;
            // SAFETY: the thread waits for what comes below.
            assert_eq!(unsafe { libc::pthread_kill(whose, libc::SIGUSR1) }, 0);
            while HANDLED.load(Ordering::SeqCst) < before + round {
                upcall::thread::yield_now();
            }
        }
        other.write_all(b"done").unwrap();
        assert_eq!(reads().unwrap(), 4);
        assert_eq!(HANDLED.load(Ordering::SeqCst), before + 5);
    }
}

/// Descriptors and their limit.
fn limit(new: Option<u64>) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads and writes the structure.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = limit.rlim_cur;
        if let Some(new) = new {
            limit.rlim_cur = new;
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        }
        before
    }
}

fn without_descriptors_accept_fails_and_the_connection_waits() {
    let (listener, address) = listener();
    let client = TcpStream::connect(address).unwrap();
    let wall = File::open("/dev/null").unwrap();
    let before = limit(Some(wall.as_raw_fd() as u64 + 1));
    listener.set_deadline(late());
    let error = listener.accept().unwrap_err();
    let pipe = io::pipe().unwrap_err();
    limit(Some(before));
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    assert_eq!(pipe.raw_os_error(), Some(libc::EMFILE));
    let (served, _) = listener.accept().unwrap();
    (&served).write_all(b"x").unwrap();
    assert_eq!((&client).read(&mut [0; 2]).unwrap(), 1);
}

/// A kernel thread that libc starts for itself moves the deadline.
fn a_helper_of_libc_ends_a_wait() {
    #[repr(C)]
    struct Event {
        value: usize,
        signal: i32,
        notify: i32,
        function: extern "C" fn(usize),
        attributes: usize,
        room: [usize; 8],
    }
    const SIGEV_THREAD: i32 = 2;
    extern "C" fn ends(socket: usize) {
        // SAFETY: the test waits for it.
        let socket = unsafe { &*(socket as *const UnixStream) };
        socket.set_deadline(Some(Instant::now()));
    }
    let (one, _other) = UnixStream::pair().unwrap();
    let one = Arc::new(one);
    let reads = {
        let one = one.clone();
        spawn(move || one.read_shared(&mut [0]).unwrap_err().kind())
    };
    let mut event = Event {
        value: Arc::as_ptr(&one) as usize,
        signal: 0,
        notify: SIGEV_THREAD,
        function: ends,
        attributes: 0,
        room: [0; 8],
    };
    // SAFETY: libc's structure for this kind of notification; a timer that rings once.
    unsafe {
        let mut timer = std::mem::zeroed();
        let place = (&raw mut event).cast();
        assert_eq!(
            libc::timer_create(libc::CLOCK_MONOTONIC, place, &raw mut timer),
            0
        );
        let mut setting: libc::itimerspec = std::mem::zeroed();
        setting.it_value.tv_nsec = 5_000_000;
        assert_eq!(
            libc::timer_settime(timer, 0, &raw const setting, std::ptr::null_mut()),
            0
        );
        assert_eq!(reads(), ErrorKind::TimedOut);
        assert_eq!(libc::timer_delete(timer), 0);
    }
}

fn sleeps_end_at_their_moments() {
    let moment = Instant::now() + SHORT;
    time::sleep_until(moment);
    assert!(Instant::now() >= moment);
    time::sleep_until(moment);
    time::sleep(Duration::ZERO);
    let begun = Instant::now();
    let mut clock = time::interval(SHORT);
    assert_eq!(clock.period(), SHORT);
    let mut ticks = 0;
    while ticks < 3 {
        ticks += clock.tick();
        assert!(begun.elapsed() >= SHORT * ticks);
    }
    // Those that were missed are counted, and nothing is made up for.
    time::sleep(3 * SHORT + SHORT / 2);
    let missed = clock.tick();
    assert!(missed >= 3, "{missed}");
    ticks += missed;
    ticks += clock.tick();
    assert!(begun.elapsed() >= SHORT * ticks);
}

fn main() {
    modes::main_with_slices(cases! {
        streams_carry_more_than_fits
        a_deadline_ends_a_wait_and_all_calls_after_it
        a_deadline_moved_by_another_thread_ends_waits_in_progress
        a_later_deadline_prolongs_a_wait_in_progress
        a_shutdown_ends_the_wait_of_another_thread
        the_other_side_goes_away_while_a_thread_waits
        nothing_is_missed_after_short_reads
        a_listener_waits_until_its_deadline
        connecting_fails_as_the_kernel_says
        a_storm_of_connections_is_accepted_once_each
        datagrams_over_udp
        datagrams_over_unix_sockets_wait_for_room
        unix_sockets_have_places_in_the_file_system
        pipes_have_ends
        pipes_bounce_a_byte
        what_is_given_away_blocks_as_usual
        any_descriptor_can_be_waited_for
        a_number_that_is_used_again_under_a_wait
        numbers_are_used_again_after_waits
        a_child_of_fork_uses_what_it_inherits
        handlers_run_during_a_wait_and_do_not_end_it
        without_descriptors_accept_fails_and_the_connection_waits
        a_helper_of_libc_ends_a_wait
        sleeps_end_at_their_moments
    });
}
