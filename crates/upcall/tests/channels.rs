//! `mpsc`, with and without a runtime.

mod modes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use upcall::sync::mpsc::{
    RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError, channel, sync_channel,
};

const SHORT: Duration = Duration::from_millis(5);
const EACH: u32 = 5000;
const SENDERS: u32 = 4;

/// Receives what all senders send: everything, and that of each in order.
fn receive_all(messages: impl Iterator<Item = (u32, u32)>) {
    let mut next = [0; SENDERS as usize];
    for (sender, number) in messages {
        assert_eq!(number, next[sender as usize]);
        next[sender as usize] += 1;
    }
    assert_eq!(next, [EACH; SENDERS as usize]);
}

fn many_send_and_nothing_is_lost() {
    let (sender, receiver) = channel();
    for own in 0..SENDERS {
        let sender = sender.clone();
        thread::spawn(move || (0..EACH).for_each(|number| sender.send((own, number)).unwrap()));
    }
    drop(sender);
    receive_all(receiver.into_iter());
}

fn many_send_where_there_are_few_places_or_none() {
    for bound in [0, 1, 3] {
        let (sender, receiver) = sync_channel(bound);
        for own in 0..SENDERS {
            let sender = sender.clone();
            thread::spawn(move || {
                for number in 0..EACH {
                    let mut message = (own, number);
                    // Some try, as long as there is no place, and some wait.
                    loop {
                        let answer = match number % 3 {
                            0 => sender.try_send(message),
                            _ => sender
                                .send(message)
                                .map_err(|error| TrySendError::Disconnected(error.0)),
                        };
                        match answer {
                            Ok(()) => break,
                            Err(TrySendError::Full(back)) => message = back,
                            Err(TrySendError::Disconnected(_)) => panic!("it is there"),
                        }
                        thread::yield_now();
                    }
                }
            });
        }
        drop(sender);
        receive_all(receiver.iter());
    }
}

fn who_sends_to_a_rendezvous_goes_on_when_it_was_met() {
    let (sender, receiver) = sync_channel(0);
    assert_eq!(sender.try_send(9), Err(TrySendError::Full(9)));
    let met = Arc::new(AtomicU32::new(0));
    let other = {
        let met = met.clone();
        thread::spawn(move || {
            for number in 1..=1000 {
                sender.send(number).unwrap();
                // It was received, since the receiver counts before it asks for the next.
                assert!(met.load(Ordering::SeqCst) + 1 >= number);
            }
        })
    };
    for number in 1..=1000 {
        assert_eq!(receiver.recv(), Ok(number));
        met.store(number, Ordering::SeqCst);
    }
    other.join().unwrap();
    assert_eq!(receiver.recv(), Err(RecvError));
}

fn messages_go_back_when_the_receiver_is_gone() {
    let (sender, receiver) = channel();
    drop(receiver);
    assert_eq!(sender.send(1), Err(SendError(1)));
    for bound in [0, 2] {
        let (sender, receiver) = sync_channel(bound);
        // Those that find a place lose their message with it.
        for number in 0..bound {
            sender.send(number).unwrap();
        }
        let blocked: Vec<_> = (10..13)
            .map(|number| {
                let sender = sender.clone();
                thread::spawn(move || sender.send(number))
            })
            .collect();
        thread::sleep(SHORT);
        drop(receiver);
        for (number, sender) in (10..).zip(blocked) {
            assert_eq!(sender.join().unwrap(), Err(SendError(number)));
        }
        assert_eq!(sender.try_send(7), Err(TrySendError::Disconnected(7)));
    }
}

/// As above, at every moment.
fn a_receiver_that_leaves_early_answers_all_senders() {
    for round in 0..300 {
        let (sender, receiver) = sync_channel(round % 3);
        let sent: Vec<_> = (0..3)
            .map(|_| {
                let sender = sender.clone();
                thread::spawn(move || {
                    let message = Arc::new(());
                    let answer = sender.send(message.clone());
                    // Taken, or back.
                    (answer.is_ok(), message)
                })
            })
            .collect();
        let received = (0..round % 2)
            .map(|_| receiver.recv().unwrap())
            .collect::<Vec<_>>();
        drop(receiver);
        let mut went = 0;
        for sender in sent {
            let (ok, message) = sender.join().unwrap();
            went += usize::from(ok);
            let kept = received.iter().any(|other| Arc::ptr_eq(other, &message));
            assert_eq!(Arc::strong_count(&message), 1 + usize::from(kept));
            assert!(ok || !kept);
        }
        assert!(went >= received.len() && (round % 3 != 0 || went == received.len()));
    }
}

fn the_receiver_learns_that_all_senders_are_gone() {
    let (sender, receiver) = channel::<u32>();
    let other = sender.clone();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    let waits = thread::spawn(move || {
        assert_eq!(receiver.recv(), Ok(1));
        assert_eq!(receiver.recv(), Err(RecvError));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(
            receiver.recv_timeout(SHORT),
            Err(RecvTimeoutError::Disconnected)
        );
    });
    drop(sender);
    other.send(1).unwrap();
    drop(other);
    waits.join().unwrap();
}

fn a_wait_for_a_message_ends_by_its_time() {
    for bound in [None, Some(0), Some(1)] {
        let (send, receiver): (Box<dyn Fn(u32) + Send>, _) = match bound {
            None => {
                let (sender, receiver) = channel();
                (
                    Box::new(move |number| sender.send(number).unwrap()),
                    receiver,
                )
            }
            Some(bound) => {
                let (sender, receiver) = sync_channel(bound);
                (
                    Box::new(move |number| sender.send(number).unwrap()),
                    receiver,
                )
            }
        };
        for timeout in [Duration::ZERO, SHORT] {
            let before = Instant::now();
            assert_eq!(
                receiver.recv_timeout(timeout),
                Err(RecvTimeoutError::Timeout)
            );
            assert!(before.elapsed() >= timeout);
        }
        let sends = thread::spawn(move || (0..300).for_each(send));
        let mut next = 0;
        loop {
            match receiver.recv_timeout(Duration::from_micros(20)) {
                Ok(number) => {
                    assert_eq!(number, next);
                    next += 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        assert_eq!(next, 300);
        sends.join().unwrap();
    }
}

fn messages_that_nobody_receives_are_dropped() {
    let message = Arc::new(());
    let (sender, receiver) = channel();
    let (other, bounded) = sync_channel(5);
    for _ in 0..5 {
        sender.send(message.clone()).unwrap();
        other.send(message.clone()).unwrap();
    }
    assert_eq!(Arc::strong_count(&message), 11);
    // At once, although the sender is there.
    drop(receiver);
    assert_eq!(Arc::strong_count(&message), 6);
    // The messages of senders that are gone are there still.
    drop(other);
    assert_eq!(bounded.try_iter().take(2).count(), 2);
    drop(bounded);
    assert_eq!(Arc::strong_count(&message), 1);
    assert!(sender.send(message).is_err());
}

fn main() {
    modes::main(cases! {
        many_send_and_nothing_is_lost
        many_send_where_there_are_few_places_or_none
        who_sends_to_a_rendezvous_goes_on_when_it_was_met
        messages_go_back_when_the_receiver_is_gone
        a_receiver_that_leaves_early_answers_all_senders
        the_receiver_learns_that_all_senders_are_gone
        a_wait_for_a_message_ends_by_its_time
        messages_that_nobody_receives_are_dropped
    });
}
