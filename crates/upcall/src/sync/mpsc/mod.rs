//! Channels from many senders to one receiver. As [`std::sync::mpsc`], with its errors.
//!
//! ```
//! use std::thread;
//! use upcall::sync::mpsc;
//!
//! let (sender, receiver) = mpsc::channel();
//! for number in 1..=3 {
//!     let sender = sender.clone();
//!     thread::spawn(move || sender.send(number).unwrap());
//! }
//! drop(sender);
//! assert_eq!(receiver.iter().sum::<i32>(), 6);
//! ```

mod channel;
mod iter;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use self::channel::Channel;
use crate::futex::Deadline;

pub use self::iter::{IntoIter, Iter, TryIter};
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// A channel with place for all messages: who sends never waits.
///
/// ```
/// let (sender, receiver) = upcall::sync::mpsc::channel();
/// sender.send("message").unwrap();
/// assert_eq!(receiver.recv(), Ok("message"));
/// ```
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel::new(None));
    (
        Sender {
            to: channel.clone(),
        },
        Receiver::new(channel),
    )
}

/// A channel with place for `bound` messages: who sends one more waits. With place for none, who sends waits until
/// its message was received.
///
/// ```
/// use upcall::sync::mpsc;
///
/// let (sender, receiver) = mpsc::sync_channel(1);
/// sender.send(1).unwrap();
/// assert_eq!(sender.try_send(2), Err(mpsc::TrySendError::Full(2)));
/// assert_eq!(receiver.recv(), Ok(1));
/// ```
#[must_use]
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let channel = Arc::new(Channel::new(Some(bound)));
    (
        SyncSender {
            to: channel.clone(),
        },
        Receiver::new(channel),
    )
}

/// The end of a [`channel()`] that sends; there may be many.
///
/// ```
/// let (sender, receiver) = upcall::sync::mpsc::channel();
/// let other = sender.clone();
/// sender.send(1).unwrap();
/// other.send(2).unwrap();
/// drop(receiver);
/// assert!(sender.send(3).is_err());
/// ```
pub struct Sender<T> {
    to: Arc<Channel<T>>,
}

/// The end of a [`sync_channel`] that sends; there may be many.
///
/// ```
/// let (sender, receiver) = upcall::sync::mpsc::sync_channel(0);
/// std::thread::spawn(move || sender.send("taken").unwrap());
/// assert_eq!(receiver.recv(), Ok("taken"));
/// ```
pub struct SyncSender<T> {
    to: Arc<Channel<T>>,
}

/// The end of a channel that receives.
///
/// ```
/// use upcall::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel::<u8>();
/// assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Empty));
/// drop(sender);
/// assert_eq!(receiver.recv(), Err(mpsc::RecvError));
/// ```
pub struct Receiver<T> {
    from: Arc<Channel<T>>,
    /// For one thread at a time.
    not_sync: PhantomData<Cell<()>>,
}

// A message is there, or it is not.
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}
impl<T> UnwindSafe for SyncSender<T> {}
impl<T> RefUnwindSafe for SyncSender<T> {}
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Sender<T> {
    /// Sends a message. That it was sent does not say that it will be received.
    ///
    /// # Errors
    ///
    /// The receiver is gone; the message comes back.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.to.send(message)
    }
}

impl<T> SyncSender<T> {
    /// Sends a message; waits until there is a place for it, or, where there are none, until it was
    /// received.
    ///
    /// # Errors
    ///
    /// The receiver is gone, before or while the caller waited; the message comes back.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.to.send(message)
    }

    /// Sends a message if that needs no wait. Where there are no places, the receiver must wait for one.
    ///
    /// # Errors
    ///
    /// There is no place, or the receiver is gone; the message comes back.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.to.try_send(message)
    }
}

impl<T> Receiver<T> {
    fn new(from: Arc<Channel<T>>) -> Self {
        Receiver {
            from,
            not_sync: PhantomData,
        }
    }

    /// The next message; waits for it.
    ///
    /// # Errors
    ///
    /// No message is left, and no sender.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.from.receive(None).map_err(|_| RecvError)
    }

    /// The next message if it is there.
    ///
    /// # Errors
    ///
    /// It is not, or never will be for there is no sender left.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.from.try_receive()
    }

    /// The next message; waits for it, but not longer than so.
    ///
    /// # Errors
    ///
    /// None came in time, or no sender is left.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.from.receive(Deadline::after(timeout))
    }

    /// The messages as they come, until no sender is left.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter::new(self)
    }

    /// The messages that are there.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter::new(self)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.to.add_sender();
        Sender {
            to: self.to.clone(),
        }
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> Self {
        self.to.add_sender();
        SyncSender {
            to: self.to.clone(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.to.remove_sender();
    }
}

impl<T> Drop for SyncSender<T> {
    fn drop(&mut self) {
        self.to.remove_sender();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.from.remove_receiver();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
