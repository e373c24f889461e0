//! In the place of the crate's `taker`: which thread has which list, and how takers are made.
//!
//! It says so if two takers look at a time, or if a piece waits that no taker comes for.

use std::cell::{Cell, RefCell};

use upcall_sim::{Me, Thread};

use super::list::{List, Place};
use super::piece::Header;
use super::pieces::Pieces;
use super::search::{self, Others};
use crate::waiting::{self, this};

/// Which thread has a list.
pub(super) struct Owner(Cell<Option<&'static Thread>>);

impl Owner {
    pub(super) fn nobody() -> Self {
        Owner(Cell::new(None))
    }

    pub(super) fn waits(&self) -> bool {
        self.0.get().is_some_and(Thread::is_waiting)
    }
}

/// So many threads may have lists at a time.
const MOST_LISTS: usize = 512;

/// What the takers of a run are.
struct Run {
    pieces: *mut Pieces,
    /// Memory for lists: that of the last run. So a million runs take no more than one.
    lists: Vec<*mut List>,
    /// Which thread has which list.
    own: Vec<(&'static Thread, &'static List)>,
    takers: Takers,
    /// No taker can be made once in so many times; 0: never.
    refusals: u64,
}

thread_local! {
    static RUN: RefCell<Run> = const { RefCell::new(Run {
        pieces: std::ptr::null_mut(),
        lists: Vec::new(),
        own: Vec::new(),
        takers: Takers::NONE,
        refusals: 0,
    }) };
}

/// Begins a run, in which no taker can be made once in so many times; 0: never.
pub(crate) fn begin(main: Me, refusals: u64) {
    waiting::begin(main);
    RUN.with_borrow_mut(|run| {
        if !run.pieces.is_null() {
            // SAFETY: made below. The run in which it was used is over.
            drop(unsafe { Box::from_raw(run.pieces) });
        }
        run.pieces = Box::into_raw(Box::new(Pieces::new(true)));
        (run.own, run.takers) = (Vec::new(), Takers::NONE);
        run.refusals = refusals;
        let new = || Box::into_raw(Box::new(List::new()));
        run.lists.resize_with(MOST_LISTS, new);
        for &list in &run.lists {
            // SAFETY: as above: nothing refers to it.
            unsafe { list.write(List::new()) };
        }
    });
    waiting::quietly(|| {
        for index in 0..MOST_LISTS {
            let list = RUN.with_borrow(|run| run.lists[index]);
            // SAFETY: it is there for ever, and shared for the run.
            pieces().give_back(unsafe { &*list });
        }
    });
    if refusals == 0 {
        main.at_rest("who_forks_has_a_taker", move || who_forks_has_a_taker(main));
    }
}

/// Takers can be made from here on.
pub(crate) fn relieve() {
    RUN.with_borrow_mut(|run| run.refusals = 0);
}

/// While there are pieces that nobody has taken, a taker is ready or runs, so that no virtual processor is idle: where nothing
/// can run, and nothing is ready, there are none.
fn who_forks_has_a_taker(main: Me) -> Result<(), String> {
    let has_piece = waiting::quietly(|| {
        RUN.with_borrow(|run| run.own.iter().any(|(_, list)| list.has_piece()))
    });
    let is_ready = main.runtime.vps().iter().any(|vp| vp.has_ready());
    match has_piece && !is_ready {
        true => Err("a piece waits, and nobody comes for it".to_owned()),
        false => Ok(()),
    }
}

fn pieces() -> &'static Pieces {
    // SAFETY: there until the next run begins.
    unsafe { &*RUN.with_borrow(|run| run.pieces) }
}

/// The list of the calling thread.
pub(crate) fn own() -> &'static List {
    let thread = this().thread;
    if let Some(list) = RUN.with_borrow(|run| run.list_of(thread)) {
        return list;
    }
    let list = pieces().list();
    RUN.with_borrow_mut(|run| {
        let is_ours = |one: &*mut List| std::ptr::eq(*one, list);
        assert!(run.lists.iter().any(is_ours), "too many lists");
        run.own.push((thread, list));
    });
    list.owner.0.set(Some(thread));
    list
}

/// Called at the end of a thread that may have forked.
pub(crate) fn end() {
    let thread = this().thread;
    if let Some(list) = RUN.with_borrow(|run| run.list_of(thread)) {
        list.owner.0.set(None);
        assert!(list.is_empty(), "a piece was not joined");
        RUN.with_borrow_mut(|run| run.own.retain(|one| !std::ptr::eq(one.0, thread)));
        pieces().give_back(list);
    }
}

impl Run {
    fn list_of(&self, thread: &Thread) -> Option<&'static List> {
        let mut own = self.own.iter();
        let found = own.find(|one| std::ptr::eq(one.0, thread));
        found.map(|&(_, list)| list)
    }
}

/// Called when the calling thread has forked a piece and nobody looks after its list.
pub(super) fn announce(list: &'static List) {
    if pieces().announce(list) {
        make();
    }
}

/// Called before the calling thread waits for a piece that was taken. There is one process: the piece ends at some time.
pub(super) fn expect_end(_: Place, piece: &Header) {
    piece.has_ended();
}

/// The program installs a filter: no barriers can be passed any more when this returns.
pub(crate) fn filter_comes() {
    pieces().end_bias();
    waiting::forbid_barriers();
}

/// Makes a taker.
fn make() {
    let refusals = RUN.with_borrow(|run| run.refusals);
    if this().machine.chance(refusals) {
        return pieces().give_up();
    }
    let number = RUN.with_borrow_mut(|run| run.takers.next());
    waiting::calls(|me| me.spawn(move |_| take(number)));
}

/// The other threads of the run.
struct OfRun;

impl Others for OfRun {
    fn are_ready(&self) -> bool {
        waiting::has_company()
    }

    fn begin_taker(&self) {
        make();
    }

    fn give_way(&self) {
        waiting::calls(Me::yield_now);
    }
}

/// What the taker with this number does.
fn take(number: u64) {
    let thread = this().thread;
    RUN.with_borrow_mut(|run| run.takers.look.push((thread, number)));
    let found = search::find(pieces(), &OfRun);
    let is_other = |one: &(&Thread, u64)| one.1 != number;
    RUN.with_borrow_mut(|run| run.takers.look.retain(is_other));
    if let Some((piece, _)) = found {
        // SAFETY: it was taken.
        unsafe {
            Header::run(piece);
            Header::end(piece);
        }
    }
    end();
}

/// Who looks for pieces. The makings of takers, and their looks, are numbered together.
struct Takers {
    last: u64,
    /// Those that look, or will look: which thread each one is, and the number of its making.
    look: Vec<(&'static Thread, u64)>,
    /// The last look, and the number of the taker.
    last_look: (u64, u64),
}

impl Takers {
    const NONE: Self = Takers {
        last: 0,
        look: Vec::new(),
        last_look: (0, 0),
    };

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// The calling thread has the lock of the pieces. If it is a taker, it looks: none other may have looked since it was made.
pub(crate) fn has_lock() {
    let thread = this().thread;
    RUN.with_borrow_mut(|run| {
        let takers = &mut run.takers;
        let mut look = takers.look.iter();
        let Some(&(_, number)) = look.find(|one| std::ptr::eq(one.0, thread)) else {
            return;
        };
        let (last, whose) = takers.last_look;
        assert!(
            whose == number || last < number,
            "two takers look at a time"
        );
        takers.last_look = (takers.next(), number);
    });
}
