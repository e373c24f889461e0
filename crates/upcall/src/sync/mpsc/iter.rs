//! What a receiver receives, one after the other.

use super::Receiver;

/// The messages as they come, until no sender is left: [`Receiver::iter`].
///
/// ```
/// let (sender, receiver) = upcall::sync::mpsc::channel();
/// std::thread::spawn(move || (0..3).for_each(|number| sender.send(number).unwrap()));
/// assert_eq!(receiver.iter().collect::<Vec<_>>(), [0, 1, 2]);
/// ```
#[derive(Debug)]
pub struct Iter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// The messages that are there: [`Receiver::try_iter`].
///
/// ```
/// let (sender, receiver) = upcall::sync::mpsc::channel();
/// sender.send(1).unwrap();
/// assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [1]);
/// ```
#[derive(Debug)]
pub struct TryIter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// As [`Iter`], with the receiver's own end.
///
/// ```
/// let (sender, receiver) = upcall::sync::mpsc::channel();
/// sender.send(1).unwrap();
/// drop(sender);
/// assert_eq!(receiver.into_iter().collect::<Vec<_>>(), [1]);
/// ```
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<'a, T> Iter<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> Self {
        Iter { receiver }
    }
}

impl<'a, T> TryIter<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> Self {
        TryIter { receiver }
    }
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}
