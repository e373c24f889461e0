//! Fork and join for bindings to another language: a fork is in the caller's memory, and is joined in any order with others. Not
//! part of the crate's stable interface.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::list::Place;
use super::piece::Header;
use super::taker;

/// A function of another language. An exception, or the unwinding of pthread_exit(3), goes through frames with nothing to clean
/// up.
pub type Function = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// A forked call, in the caller's memory.
#[repr(C)]
#[allow(missing_debug_implementations)]
pub struct Fork {
    header: Header,
    function: Function,
    argument: *mut c_void,
    result: *mut c_void,
    /// None: it was joined.
    place: Option<Place>,
}

/// Why there is nothing to join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotJoined {
    /// Another thread has forked it.
    OfOther,
    /// It was joined before.
    Before,
    /// Another thread has begun it, before fork(2) made this process.
    OfParent,
}

impl Fork {
    /// Forks a call, in memory that is not in use. A call that is ended by pthread_exit(3) in a thread of its own gives
    /// `ended_early`. Returns false if it must be a thread of its own from the beginning: then nothing was forked.
    ///
    /// # Safety
    ///
    /// The memory is the caller's, and stays where it is until the fork was [joined](Fork::join). The function may be called
    /// in another thread.
    #[inline]
    pub unsafe fn begin(
        fork: NonNull<Fork>,
        (function, argument): (Function, *mut c_void),
        ended_early: *mut c_void,
    ) -> bool {
        let Some(own) = taker::own() else {
            return false;
        };
        // SAFETY: the caller's promise.
        let place = unsafe {
            fork.write(Fork {
                header: Header::new(run),
                function,
                argument,
                result: ended_early,
                place: None,
            });
            &mut (*fork.as_ptr()).place
        };
        // Takers use the other fields only.
        *place = own.push(fork.cast());
        if place.is_none() {
            return false;
        }
        if !own.is_known() {
            taker::announce(own);
        }
        true
    }

    /// Joins it: calls the function if nobody has begun to, else waits for its end. Returns its result.
    ///
    /// # Errors
    ///
    /// See there.
    ///
    /// # Safety
    ///
    /// It [has begun](Fork::begin), and its memory is there.
    #[inline]
    pub unsafe fn join(fork: NonNull<Fork>) -> Result<*mut c_void, NotJoined> {
        let fork = fork.as_ptr();
        // SAFETY: the caller's promise. Takers use the other fields only.
        let place = unsafe { &mut (*fork).place };
        let found = place.ok_or(NotJoined::Before)?;
        if !taker::is_own(found) {
            return Err(NotJoined::OfOther);
        }
        *place = None;
        // SAFETY: the call as it was forked is this thread's again, or it was taken, and ends.
        unsafe {
            if found.take_back_any() {
                return Ok(((*fork).function)((*fork).argument));
            }
            let header = &(*fork).header;
            if taker::is_lost(found, header) {
                return Err(NotJoined::OfParent);
            }
            header.wait();
            Ok((*fork).result)
        }
    }
}

/// # Safety
///
/// As [`Header::run`], for the header of a [`Fork`].
unsafe fn run(piece: NonNull<Header>) {
    let fork = piece.cast::<Fork>().as_ptr();
    // SAFETY: it is there until it has ended; what is forked may be called here.
    unsafe { (*fork).result = ((*fork).function)((*fork).argument) };
}
