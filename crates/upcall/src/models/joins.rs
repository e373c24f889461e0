//! Fork and join: who runs a piece, and that somebody comes where its thread waits for it.

use std::sync::Arc;

use loom::thread::{self, JoinHandle};

use super::{Watched, check, spawn};
use crate::join::{Header, List, Looked, Piece, Pieces};
use crate::signal::Signal;

fn list() -> &'static List {
    Box::leak(Box::new(List::new()))
}

/// What the threads of a model share.
#[derive(Clone, Copy)]
struct Forks {
    pieces: &'static Pieces,
    list: &'static List,
}

impl Forks {
    fn new(may_be_biased: bool) -> Self {
        let pieces = Box::leak(Box::new(Pieces::new(may_be_biased)));
        let list = list();
        Forks { pieces, list }
    }

    /// Takes a piece and runs it, after the next taker has begun. Returns how many pieces were run.
    fn take(self) -> u32 {
        loop {
            match self.pieces.look(|_| true) {
                Looked::Piece { piece, another, .. } => {
                    let next = another.then(|| self.begin());
                    // SAFETY: it was taken.
                    unsafe {
                        Header::run(piece);
                        Header::end(piece);
                    }
                    return 1 + next.map_or(0, |next| next.join().unwrap());
                }
                Looked::Later => thread::yield_now(),
                Looked::Nothing => return 0,
            }
        }
    }

    fn begin(self) -> JoinHandle<u32> {
        thread::spawn(move || self.take())
    }

    /// Forks a piece, and waits for what it does. Returns the taker that it began.
    fn wait_for_piece(self) -> Option<JoinHandle<u32>> {
        let done = Signal::new();
        let piece = Piece::new(|| done.set());
        let place = self.list.push(piece.header()).unwrap();
        let taker = self.announce();
        done.wait();
        assert!(!place.take_back());
        // SAFETY: it was taken.
        assert!(unsafe { piece.join() }.is_some());
        taker
    }

    /// After a fork: begins a taker if there must be one.
    fn announce(self) -> Option<JoinHandle<u32>> {
        let begins = !self.list.is_known() && self.pieces.announce(self.list);
        begins.then(|| self.begin())
    }
}

/// The thread that has forked takes it back, and another one takes it. What was taken back is changed and forked again, at the
/// same place.
#[test]
fn a_piece_is_run_by_one_of_two() {
    check(|| {
        let list = list();
        let value = Watched::default();
        value.add();
        let piece = Piece::new(|| value.add());
        let mut place = list.push(piece.header()).unwrap();
        let taker = thread::spawn(move || {
            let piece = list.take();
            // SAFETY: it was taken.
            piece.inspect(|&piece| unsafe {
                Header::run(piece);
                Header::end(piece);
            });
            piece.is_some()
        });
        let mut called = place.take_back();
        let again = u32::from(called);
        if called {
            value.add();
            place = list.push(piece.header()).unwrap();
            called = place.take_back();
        }
        // SAFETY: it is this thread's, or was taken.
        unsafe {
            match called {
                true => piece.body()(),
                false => assert!(piece.join().is_some()),
            }
        }
        assert_eq!(value.get(), 2 + again);
        drop(piece);
        assert_ne!(taker.join().unwrap(), called);
    });
}

/// The thread that has forked is unwound, and a taker may run the piece, which panics. What the piece holds is dropped once, and before
/// that stack is gone; the panic is there for the thread.
#[test]
fn a_piece_that_panics_is_dropped_by_one_of_two() {
    struct Holds<'a>(&'a Watched);
    impl Drop for Holds<'_> {
        fn drop(&mut self) {
            self.0.add();
        }
    }
    check(|| {
        let list = list();
        let value = Watched::default();
        let holds = Holds(&value);
        let piece = Piece::new(move || -> () {
            let _holds = holds;
            std::panic::resume_unwind(Box::new(5))
        });
        let place = list.push(piece.header()).unwrap();
        let taker = thread::spawn(move || {
            // SAFETY: it was taken.
            list.take().inspect(|&piece| unsafe {
                Header::run(piece);
                Header::end(piece);
            });
        });
        // As the drop of what `join` has forked.
        // SAFETY: it is this thread's, or was taken.
        unsafe {
            if place.take_back() {
                drop(piece.body());
            } else {
                let panic = piece.join().unwrap().unwrap_err();
                assert_eq!(*panic.downcast::<i32>().unwrap(), 5);
            }
        }
        assert_eq!(value.get(), 1);
        drop(piece);
        taker.join().unwrap();
    });
}

/// The older of two is joined before the younger one, and a taker takes up to two. Then there is room for two again.
#[test]
fn pieces_are_joined_in_any_order() {
    check(|| {
        let list = list();
        let values = [Watched::default(), Watched::default()];
        let piece = |which: usize| {
            let value = &values[which];
            Piece::new(move || value.add())
        };
        let [older, younger] = [piece(0), piece(1)];
        let places = [older.header(), younger.header()].map(|piece| list.push(piece).unwrap());
        let taker = thread::spawn(move || {
            while let Some(piece) = list.take() {
                // SAFETY: it was taken.
                unsafe {
                    Header::run(piece);
                    Header::end(piece);
                }
            }
        });
        for (which, piece) in [&older, &younger].into_iter().enumerate() {
            // SAFETY: it is this thread's, or was taken.
            unsafe {
                match places[which].take_back_any() {
                    true => piece.body()(),
                    false => assert!(piece.join().is_some()),
                }
            }
            assert_eq!(values[which].get(), 1);
        }
        taker.join().unwrap();
        let again = [piece(0), piece(1)];
        let places = again.each_ref().map(|piece| list.push(piece.header()));
        for place in places.into_iter().rev() {
            assert!(place.unwrap().take_back());
        }
    });
}

/// The first piece is joined at once, whoever runs it. Then the thread forks another one, and waits for what that does, while
/// a taker may be about to forget the list.
fn waits_for_its_second_piece(may_be_biased: bool) {
    check(move || {
        let forks = Forks::new(may_be_biased);
        let value = Arc::new(Watched::default());
        let first = Piece::new(|| value.add());
        let place = forks.list.push(first.header()).unwrap();
        let mut takers = vec![forks.announce()];
        // SAFETY: it is this thread's, or was taken.
        unsafe {
            match place.take_back() {
                true => first.body()(),
                false => assert!(first.join().is_some()),
            }
        }
        assert_eq!(value.get(), 1);
        takers.push(forks.wait_for_piece());
        for taker in takers.into_iter().flatten() {
            taker.join().unwrap();
        }
    });
}

#[test]
fn a_piece_is_taken_where_its_thread_waits() {
    waits_for_its_second_piece(false);
}

#[test]
fn a_piece_of_a_biased_list_is_taken_where_its_thread_waits() {
    waits_for_its_second_piece(true);
}

/// The older of two pieces waits for the younger one, and the thread for both.
#[test]
fn pieces_that_wait_for_one_another_are_all_taken() {
    check(|| {
        let forks = Forks::new(true);
        let (one, two) = (Signal::new(), Signal::new());
        let older = Piece::new(|| {
            two.wait();
            one.set();
        });
        let younger = Piece::new(|| two.set());
        let places = [older.header(), younger.header()].map(|piece| {
            let place = forks.list.push(piece).unwrap();
            (place, forks.announce())
        });
        one.wait();
        let [first, second] = places;
        assert!(!second.0.take_back());
        // SAFETY: it was taken.
        assert!(unsafe { younger.join() }.is_some());
        assert!(!first.0.take_back());
        // SAFETY: as above.
        assert!(unsafe { older.join() }.is_some());
        let takers = [first.1, second.1].into_iter().flatten();
        let ran: u32 = takers.map(|taker| taker.join().unwrap()).sum();
        assert_eq!(ran, 2);
    });
}

/// Two threads with pieces, one taker: it takes from one, and leaves the next taker to the other.
#[test]
fn the_pieces_of_two_threads_are_taken() {
    check(|| {
        let forks = Forks::new(true);
        let other = Forks {
            list: list(),
            ..forks
        };
        let waits = |forks: Forks| {
            let taker = forks.wait_for_piece();
            taker.map_or(0, |taker| taker.join().unwrap())
        };
        let second = spawn(&Arc::new(()), move |()| waits(other));
        let ran = waits(forks);
        assert_eq!(ran + second.join().unwrap(), 2);
    });
}
