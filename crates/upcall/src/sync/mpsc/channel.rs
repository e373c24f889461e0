//! What the ends of a channel share: a queue under a mutex.
//!
//! A rendezvous is a queue of one place whose sender waits on until its message was taken. Two threads that meet
//! at a queue wait for nanoseconds at user level, so that a queue without locks would gain little.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::mpsc::{RecvTimeoutError, SendError, TryRecvError, TrySendError};

use crate::futex::Deadline;
use crate::sync::{Condvar, Mutex, MutexGuard};

pub(super) struct Channel<T> {
    state: Mutex<State<T>>,
    /// How many messages there is place for; `None`: for all.
    bound: Option<usize>,
    /// The receiver waits for a message.
    filled: Condvar,
    /// Senders wait for a place.
    emptied: Condvar,
    /// Senders wait for their messages to be taken: of a rendezvous.
    taken: Condvar,
}

struct State<T> {
    queue: VecDeque<T>,
    /// How many messages were taken, ever.
    taken: u64,
    senders: usize,
    /// Whether the receiver is there.
    receiver: bool,
    /// Whether it waits, and will take a message that is put now.
    receiving: bool,
}

fn wait_while<'a, T>(
    changed: &Condvar,
    state: MutexGuard<'a, State<T>>,
    condition: impl Fn(&State<T>) -> bool,
) -> MutexGuard<'a, State<T>> {
    changed
        .wait_while(state, |state| condition(state))
        .unwrap_or_else(PoisonError::into_inner)
}

impl<T> Channel<T> {
    /// With one sender, and the receiver.
    pub(super) fn new(bound: Option<usize>) -> Self {
        let state = State {
            queue: VecDeque::new(),
            taken: 0,
            senders: 1,
            receiver: true,
            receiving: false,
        };
        Channel {
            state: Mutex::new(state),
            bound,
            filled: Condvar::new(),
            emptied: Condvar::new(),
            taken: Condvar::new(),
        }
    }

    /// Nothing of what runs under the mutex leaves the state in doubt.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut state = self.lock();
        if let Some(bound) = self.bound {
            state = wait_while(&self.emptied, state, |state| {
                state.receiver && state.queue.len() >= bound.max(1)
            });
        }
        if !state.receiver {
            return Err(SendError(message));
        }
        let number = self.put(&mut state, message);
        if self.bound != Some(0) {
            drop(state);
            self.filled.notify_one();
            return Ok(());
        }
        self.filled.notify_one();
        let mut state = wait_while(&self.taken, state, |state| {
            state.receiver && state.taken == number
        });
        // The one place is this sender's as long as nobody has taken the message.
        if state.taken == number
            && let Some(message) = state.queue.pop_front()
        {
            return Err(SendError(message));
        }
        Ok(())
    }

    pub(super) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut state = self.lock();
        if !state.receiver {
            return Err(TrySendError::Disconnected(message));
        }
        let full = match self.bound {
            None => false,
            Some(0) => !state.receiving || !state.queue.is_empty(),
            Some(bound) => state.queue.len() >= bound,
        };
        if full {
            return Err(TrySendError::Full(message));
        }
        self.put(&mut state, message);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Returns how many messages will have been taken before this one.
    fn put(&self, state: &mut State<T>, message: T) -> u64 {
        let number = state.taken + state.queue.len() as u64;
        state.queue.push_back(message);
        number
    }

    pub(super) fn try_receive(&self) -> Result<T, TryRecvError> {
        let state = self.lock();
        let senders = state.senders;
        self.take(state).map_err(|_| match senders {
            0 => TryRecvError::Disconnected,
            _ => TryRecvError::Empty,
        })
    }

    pub(super) fn receive(&self, deadline: Option<Deadline>) -> Result<T, RecvTimeoutError> {
        let mut state = self.lock();
        let mut in_time = true;
        loop {
            state = match self.take(state) {
                Ok(message) => return Ok(message),
                Err(state) => state,
            };
            if state.senders == 0 || !in_time {
                state.receiving = false;
                return Err(match state.senders {
                    0 => RecvTimeoutError::Disconnected,
                    _ => RecvTimeoutError::Timeout,
                });
            }
            state.receiving = true;
            in_time = self.filled.wait_until(state.raw(), deadline);
        }
    }

    /// The first message if there is one.
    fn take<'a>(&self, mut state: MutexGuard<'a, State<T>>) -> Result<T, MutexGuard<'a, State<T>>> {
        let Some(message) = state.queue.pop_front() else {
            return Err(state);
        };
        state.taken += 1;
        state.receiving = false;
        drop(state);
        if self.bound.is_some() {
            self.emptied.notify_one();
            self.taken.notify_all();
        }
        Ok(message)
    }

    pub(super) fn add_sender(&self) {
        self.lock().senders += 1;
    }

    pub(super) fn remove_sender(&self) {
        let mut state = self.lock();
        state.senders -= 1;
        let last = state.senders == 0;
        drop(state);
        if last {
            self.filled.notify_all();
        }
    }

    pub(super) fn remove_receiver(&self) {
        let mut state = self.lock();
        state.receiver = false;
        // A message that its sender still waits with goes back to it.
        let queue = match self.bound {
            Some(0) => VecDeque::new(),
            _ => std::mem::take(&mut state.queue),
        };
        drop(state);
        self.emptied.notify_all();
        self.taken.notify_all();
        // Without the mutex: it is the messages' own code.
        drop(queue);
    }
}
