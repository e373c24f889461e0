//! mpsc channels: many senders, bounded ones that block, timeouts, and ends that go away.

use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

include!("case.rs.inc");

fn main() -> ExitCode {
    let (sender, receiver) = channel();
    for source in 0..8u64 {
        let sender = sender.clone();
        thread::spawn(move || (0..1000).for_each(|i| sender.send(source * 1000 + i).unwrap()));
    }
    drop(sender);
    let mut all: Vec<u64> = receiver.iter().collect();
    all.sort_unstable();
    check("mpsc", all == (0..8000).collect::<Vec<_>>(), all.len());

    let (sender, receiver) = sync_channel(2);
    let feeder = thread::spawn(move || (0..2000u32).all(|i| sender.send(i).is_ok()));
    let in_order = receiver.iter().eq(0..2000);
    check("sync_channel", feeder.join().unwrap() && in_order, in_order);

    let (sender, receiver) = sync_channel::<u32>(0);
    let before = Instant::now();
    let result = receiver.recv_timeout(Duration::from_millis(20));
    let waited = before.elapsed() >= Duration::from_millis(20);
    check(
        "recv_timeout",
        result == Err(RecvTimeoutError::Timeout) && waited,
        waited,
    );
    drop(receiver);
    check(
        "disconnected",
        sender.send(1).is_err(),
        "a message went nowhere",
    );
    verdict()
}
