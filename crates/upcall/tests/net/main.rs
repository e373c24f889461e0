//! `net`, `io` and `time`, with and without a runtime.

mod datagrams;
mod descriptors;
#[path = "../modes/mod.rs"]
mod modes;
mod streams;

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

/// How a wait is begun, as far as can be told from outside.
fn give_time() {
    time::sleep(Duration::from_millis(3));
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
        streams::streams_carry_more_than_fits
        streams::a_deadline_ends_a_wait_and_all_calls_after_it
        streams::a_deadline_moved_by_another_thread_ends_waits_in_progress
        streams::a_later_deadline_prolongs_a_wait_in_progress
        streams::a_shutdown_ends_the_wait_of_another_thread
        streams::the_other_side_goes_away_while_a_thread_waits
        streams::nothing_is_missed_after_short_reads
        streams::a_listener_waits_until_its_deadline
        streams::connecting_fails_as_the_kernel_says
        streams::a_storm_of_connections_is_accepted_once_each
        datagrams::datagrams_over_udp
        datagrams::datagrams_over_unix_sockets_wait_for_room
        datagrams::unix_sockets_have_places_in_the_file_system
        streams::pipes_have_ends
        streams::pipes_bounce_a_byte
        descriptors::what_is_given_away_blocks_as_usual
        descriptors::any_descriptor_can_be_waited_for
        descriptors::a_number_that_is_used_again_under_a_wait
        descriptors::numbers_are_used_again_after_waits
        descriptors::a_child_of_fork_uses_what_it_inherits
        descriptors::handlers_run_during_a_wait_and_do_not_end_it
        descriptors::without_descriptors_accept_fails_and_the_connection_waits
        descriptors::a_helper_of_libc_ends_a_wait
        sleeps_end_at_their_moments
    });
}
