//! Actors (Hewitt, Bishop and Steiger, 1973). Each actor has a thread, a mailbox and a private state.
//!
//! An actor receives one message after the other. It may block meanwhile: it has a thread of its own, which costs
//! little, and its virtual processor runs other threads. The mailbox has a number of places. A thread that sends to a
//! full mailbox waits, so that no sender runs far ahead of an actor. An actor ends when all its addresses are gone and
//! its mailbox is empty, or by a panic. [`JoinHandle::join`] returns the actor or the panic.
//!
//! ```
//! use upcall::actor::{self, Actor, Reply};
//!
//! struct Account(u64);
//!
//! enum Request {
//!     Deposit(u64),
//!     Balance(Reply<u64>),
//! }
//!
//! impl Actor for Account {
//!     type Message = Request;
//!
//!     fn receive(&mut self, request: Request) {
//!         match request {
//!             Request::Deposit(amount) => self.0 += amount,
//!             Request::Balance(reply) => reply.send(self.0),
//!         }
//!     }
//! }
//!
//! let (account, handle) = actor::spawn(Account(5), 16);
//! account.send(Request::Deposit(2)).unwrap();
//! assert_eq!(account.ask(Request::Balance), Ok(7));
//! drop(account);
//! assert_eq!(handle.join().unwrap().0, 7);
//! ```
//!
//! Two actors that wait for each other's places, or that ask each other, wait for ever. An actor that has its own
//! address does not end.

use std::error::Error;
use std::fmt;

use crate::sync::mpsc::{Receiver, RecvError, SendError, SyncSender, TrySendError, sync_channel};
use crate::thread::{self, JoinHandle};

/// Defines what an actor does with its messages.
pub trait Actor: Send + 'static {
    /// What it is sent.
    type Message: Send + 'static;

    /// Receives a message, on the actor's own thread.
    fn receive(&mut self, message: Self::Message);
}

/// Starts an actor with a mailbox of so many places. With no places, a sender waits until the message is received.
///
/// # Panics
///
/// As [`thread::spawn`].
pub fn spawn<A: Actor>(mut actor: A, places: usize) -> (Address<A::Message>, JoinHandle<A>) {
    let (sender, mailbox): (_, Receiver<A::Message>) = sync_channel(places);
    let handle = thread::spawn(move || {
        for message in mailbox {
            actor.receive(message);
        }
        actor
    });
    (Address(sender), handle)
}

/// The address of an actor, to which messages of one type are sent.
pub struct Address<M>(SyncSender<M>);

impl<M> Address<M> {
    /// Sends a message. Waits for a place in the mailbox.
    ///
    /// # Errors
    ///
    /// The actor has ended: it panicked. The message is in the error.
    pub fn send(&self, message: M) -> Result<(), SendError<M>> {
        self.0.send(message)
    }

    /// Sends a message if there is a place for it.
    ///
    /// # Errors
    ///
    /// There is no place, or the actor has ended. The message is in the error.
    pub fn try_send(&self, message: M) -> Result<(), TrySendError<M>> {
        self.0.try_send(message)
    }

    /// Calls `message` with a place for the reply, sends the message that it returns, and waits for the reply.
    ///
    /// # Errors
    ///
    /// There will be no reply: the actor has ended, or has dropped the [`Reply`].
    pub fn ask<R>(&self, message: impl FnOnce(Reply<R>) -> M) -> Result<R, NoReply> {
        let (sender, answer) = sync_channel(1);
        self.send(message(Reply(sender))).map_err(|_| NoReply)?;
        answer.recv().map_err(|RecvError| NoReply)
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Address(self.0.clone())
    }
}

impl<M> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").finish_non_exhaustive()
    }
}

/// The right to reply once to the thread that asked.
#[derive(Debug)]
pub struct Reply<R>(SyncSender<R>);

impl<R> Reply<R> {
    /// Replies, and does not wait.
    pub fn send(self, reply: R) {
        // Its one place is free. The thread that asked waits for it, or has panicked.
        let _ = self.0.try_send(reply);
    }
}

/// There will be no reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoReply;

impl fmt::Display for NoReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the actor has ended, or does not reply")
    }
}

impl Error for NoReply {}
