//! Takers: threads that run other threads' pieces.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use upcall_guest::state::GUEST;
use upcall_guest::{direct, shell};
use upcall_linux::{Thread, sys};

use super::ended;
use super::list::{List, Place};
use super::piece::Header;
use super::pieces::Pieces;
use super::search::{self, Others};
use crate::thread::{self, Builder};
use crate::waiting;

thread_local! {
    /// The calling thread's list.
    static OWN: Cell<*const List> = const { Cell::new(ptr::null()) };
    /// What must be put in order at its end.
    static KEPT: Kept = const { Kept { list: Cell::new(None), runs: Cell::new(None) } };
}

struct Kept {
    list: Cell<Option<&'static List>>,
    /// The piece that the thread has taken and runs.
    runs: Cell<Option<NonNull<Header>>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (list, runs) = (self.list.get(), self.runs.get());
        let left = list.is_some_and(|list| !list.is_empty());
        if left || runs.is_some() {
            ended::between_fork_and_join(left, runs);
            return;
        }
        OWN.set(ptr::null());
        if let Some(list) = list {
            list.owner.thread.store(ptr::null_mut(), Ordering::Relaxed);
            pieces().give_back(list);
        }
    }
}

/// Which thread has a list.
pub(super) struct Owner {
    thread: AtomicPtr<Thread>,
    /// In the child of a fork, for the list of the thread that has forked the process: that thread's `OWN`. Else null.
    in_child: AtomicPtr<Cell<*const List>>,
}

impl Owner {
    pub(super) fn nobody() -> Self {
        Owner {
            thread: AtomicPtr::new(ptr::null_mut()),
            in_child: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn thread(&self) -> Option<&'static Thread> {
        // SAFETY: null, or a thread, whose memory is there for ever.
        unsafe { self.thread.load(Ordering::Relaxed).as_ref() }
    }

    /// Returns true if the thread waits, as far as one can know.
    pub(super) fn waits(&self) -> bool {
        self.thread().is_some_and(Thread::is_waiting)
    }
}

/// Those of the process.
static PIECES: AtomicPtr<Pieces> = AtomicPtr::new(ptr::null_mut());

fn pieces() -> &'static Pieces {
    // SAFETY: null, or leaked.
    unsafe { PIECES.load(Ordering::Acquire).as_ref() }.unwrap_or_else(make)
}

#[cold]
fn make() -> &'static Pieces {
    let new = Box::into_raw(Box::new(Pieces::new(waiting::pass_barriers())));
    // AcqRel: pairs with itself and with the Acquire in `pieces`.
    match PIECES.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            // SAFETY: a function without conditions.
            unsafe { libc::pthread_atfork(None, None, Some(forget)) };
            direct::before_barriers_end(end_bias);
            // SAFETY: leaked.
            unsafe { &*new }
        }
        Err(first) => {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: leaked.
            unsafe { &*first }
        }
    }
}

/// In the child of a fork there are no takers. What the parent had, perhaps locked, is left alone. The thread joins what it
/// has forked as ever, unless another one runs it.
extern "C" fn forget() {
    PIECES.store(ptr::null_mut(), Ordering::Relaxed);
    if let Some(list) = list() {
        list.owner.in_child.store(here(), Ordering::Relaxed);
    }
    OWN.set(ptr::null());
    let _ = KEPT.try_with(|kept| kept.list.take());
}

/// The program is about to install a filter, and no barrier may be passed any more.
fn end_bias() {
    // SAFETY: null, or leaked.
    if let Some(pieces) = unsafe { PIECES.load(Ordering::Acquire).as_ref() } {
        pieces.end_bias();
    }
}

/// The calling thread's `OWN`: a name for the thread, which it keeps in the child of a fork.
fn here() -> *mut Cell<*const List> {
    OWN.with(|own| ptr::from_ref(own).cast_mut())
}

/// Returns true if the calling thread has forked the piece at this place.
#[inline]
pub(super) fn is_own(place: Place) -> bool {
    list().is_some_and(|own| place.is_in(own)) || is_of_parent(place)
}

/// Returns true if the calling thread has forked the piece at this place, and then this process.
#[cold]
fn is_of_parent(place: Place) -> bool {
    place.list().owner.in_child.load(Ordering::Relaxed) == here()
}

/// Returns true if the taker of a piece, which the calling thread has forked, is not in this process.
pub(super) fn is_lost(place: Place, piece: &Header) -> bool {
    is_of_parent(place) && !piece.has_ended()
}

/// Called before the calling thread waits for a piece that was taken. Ends the process if it would wait for ever.
#[cold]
pub(super) fn expect_end(place: Place, piece: &Header) {
    if is_lost(place, piece) {
        sys::say(
            b"upcall: the child of a fork(2) cannot join what another thread of its parent runs\n",
        );
        std::process::abort();
    }
}

/// Returns the list of the calling thread, if what it forks may be a piece.
#[inline]
pub(super) fn own() -> Option<&'static List> {
    match list() {
        Some(list) if !list.is_bound() => Some(list),
        Some(_) => None,
        None => first(),
    }
}

/// Returns the list of the calling thread, if it has one.
#[inline]
pub(super) fn list() -> Option<&'static List> {
    // SAFETY: null, or leaked.
    unsafe { OWN.get().as_ref() }
}

/// As [`own`], for a thread that has no list yet.
#[cold]
fn first() -> Option<&'static List> {
    thread::start();
    direct::runtime()?;
    // What has a rank is a thread: only so it waits in its place.
    if GUEST.has_ranks() {
        return None;
    }
    let thread = direct::own_thread()?;
    // Not at the end of the thread, when its thread-local storage is gone.
    KEPT.try_with(|kept| {
        let list = pieces().list();
        kept.list.set(Some(list));
        let owner = &list.owner.thread;
        owner.store(ptr::from_ref(thread).cast_mut(), Ordering::Relaxed);
        OWN.set(list);
        list
    })
    .ok()
}

impl List {
    /// Returns true if its thread has a kernel thread of its own, perhaps with other rights than takers have.
    #[inline]
    fn is_bound(&self) -> bool {
        let thread = self.owner.thread();
        thread.is_some_and(|thread| direct::bound_word(thread).load(Ordering::Relaxed) != 0)
    }
}

/// Called when the calling thread has forked a piece and nobody looks after its list.
#[cold]
#[inline(never)]
pub(super) fn announce(list: &'static List) {
    // Not if a signal's handler has just made this the child of a fork.
    let is_parents = !list.owner.in_child.load(Ordering::Relaxed).is_null();
    if !is_parents && pieces().announce(list) {
        begin();
    }
}

/// Makes a taker.
fn begin() {
    if Builder::new().serves().spawn(take).is_err() {
        pieces().give_up();
    }
}

/// The other threads of the runtime.
struct OfRuntime;

impl Others for OfRuntime {
    fn are_ready(&self) -> bool {
        direct::runtime().is_some_and(direct::has_company)
    }

    fn begin_taker(&self) {
        begin();
    }

    fn give_way(&self) {
        thread::yield_now();
    }
}

/// What a taker does.
fn take() {
    let Some((piece, list)) = search::find(pieces(), &OfRuntime) else {
        return;
    };
    if let Some(creator) = list.owner.thread() {
        adopt_mask(creator);
    }
    shell::count_piece();
    KEPT.with(|kept| kept.runs.set(Some(piece)));
    // SAFETY: it was taken.
    unsafe { Header::run(piece) };
    KEPT.with(|kept| kept.runs.set(None));
    // SAFETY: as above, once.
    unsafe { end(piece) };
}

/// Ends the piece that the calling thread has run. What goes on is a thread that the program does not know.
///
/// # Safety
///
/// As [`Header::end`].
pub(super) unsafe fn end(piece: NonNull<Header>) {
    set_mask(!0);
    // SAFETY: the caller's promise.
    unsafe { Header::end(piece) };
}

/// Gives the calling thread the signal mask of the thread that has forked its piece, and waits for it at the latest when it
/// joins.
fn adopt_mask(creator: &'static Thread) {
    set_mask(direct::mask(creator));
}

fn set_mask(mask: u64) {
    // SAFETY: a set of which the first 64 signals are all that there are.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        (&raw mut set).cast::<u64>().write(mask);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
    }
}
