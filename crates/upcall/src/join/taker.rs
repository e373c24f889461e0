//! Takers: threads that run other threads' pieces.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use upcall_guest::state::GUEST;
use upcall_guest::{direct, shell};
use upcall_linux::{Thread, sys};

use super::list::List;
use super::piece::Header;
use super::pieces::{Looked, Pieces};
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
        OWN.set(ptr::null());
        if let Some(list) = self.list.take() {
            list.owner.0.store(ptr::null_mut(), Ordering::Relaxed);
            if list.leave() {
                // pthread_exit(3) has ended the thread, and nothing was dropped, since panics abort.
                sys::say(
                    b"upcall: a thread has ended while another one ran a piece on its stack\n",
                );
                std::process::abort();
            }
            pieces().give_back(list);
        }
        if let Some(piece) = self.runs.take() {
            // SAFETY: this thread has taken it, and pthread_exit(3) has ended the thread.
            unsafe { end(piece) };
        }
    }
}

/// Which thread has a list.
pub(super) struct Owner(AtomicPtr<Thread>);

impl Owner {
    pub(super) fn nobody() -> Self {
        Owner(AtomicPtr::new(ptr::null_mut()))
    }

    fn thread(&self) -> Option<&'static Thread> {
        // SAFETY: null, or a thread, whose memory is there for ever.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }
    }

    /// Returns true if the thread waits, as far as one can know.
    fn waits(&self) -> bool {
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
/// has forked as ever.
extern "C" fn forget() {
    PIECES.store(ptr::null_mut(), Ordering::Relaxed);
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
        list.owner
            .0
            .store(ptr::from_ref(thread).cast_mut(), Ordering::Relaxed);
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
    if pieces().announce(list) {
        begin();
    }
}

/// Makes a taker.
fn begin() {
    if Builder::new().serves().spawn(take).is_err() {
        pieces().give_up();
    }
}

/// So many turns a taker leaves pieces to threads that run. Their threads may wait for them in a way that nobody sees.
const PATIENCE: u32 = 16;

/// What a taker does. Where other threads are ready behind it, it first takes only pieces of threads that wait: those of
/// others are theirs to run, and they want the processor, too.
fn take() {
    let pieces = pieces();
    for turn in 0.. {
        let crowded = turn < PATIENCE && direct::runtime().is_some_and(direct::has_company);
        match pieces.look(|list| !crowded || list.owner.waits()) {
            Looked::Piece {
                piece,
                list,
                another,
            } => {
                if another {
                    begin();
                }
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
                return;
            }
            Looked::Later => thread::yield_now(),
            Looked::Nothing => return,
        }
    }
}

/// Ends the piece that the calling thread has run. What goes on is a thread that the program does not know.
///
/// # Safety
///
/// As [`Header::end`].
unsafe fn end(piece: NonNull<Header>) {
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
