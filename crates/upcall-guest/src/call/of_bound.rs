//! The calls of bound threads ([`crate::thread::bound`]). The kernel serves them, except those that concern what the
//! runtime keeps.

use core::sync::atomic::Ordering;

use upcall_linux::{Runtime, Thread};

use crate::call::table::row_of;
use crate::call::{again, serve};
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{self, Frame, NEVER, pass_through};
use crate::ground::record;
use crate::ground::state::GUEST;
use crate::thread::bound;

pub fn serve(thread: &'static Thread, frame: &mut Frame) {
    let state = thread.guest();
    let own = core::ptr::from_ref(frame) as usize;
    // As for other threads, so that a handler finds the thread at its call.
    let before = state.frame.swap(own, Ordering::Relaxed);
    if entry::needs_site(frame.rax) {
        once(thread, frame);
    } else {
        frame.rax = again::call_in_kernel(thread, frame, |frame| {
            let number = frame.rax;
            once(thread, frame);
            let answer = core::mem::replace(&mut frame.rax, number);
            answer as i64
        }) as u64;
    }
    state.frame.store(before, Ordering::Relaxed);
}

/// Makes the call once. Its answer replaces the number.
fn once(thread: &'static Thread, frame: &mut Frame) {
    match (row_of(frame.rax).bound)(thread, frame) {
        Some(answer) => frame.rax = answer as u64,
        // SAFETY: the entry's own frame.
        None => unsafe { entry::native(frame) },
    }
}

/// Makes the call as it stands.
#[inline]
pub fn raw(frame: &Frame) -> i64 {
    // SAFETY: the program's own call, as it made it.
    (unsafe { frame.raw() }) as i64
}

/// Makes the program's call with these words instead of its own.
pub fn program_call(words: [u64; 7], frame: &Frame) -> i64 {
    // SAFETY: the program's own call, with what the runtime puts in its place.
    (unsafe { entry::program_call(&words, &frame.made, &NEVER) }) as i64
}

/// Makes a call of the program's with these words.
pub fn call([number, words @ ..]: [u64; 7]) -> i64 {
    // SAFETY: what the program has asked for, as it stands or with what the runtime puts in its place.
    (unsafe { pass_through(number as i64, words) }) as i64
}

/// Serves a call about the thread with this id, which stands in the word with this index. It may be the calling thread or
/// another one.
pub fn to_thread(thread: &'static Thread, frame: &mut Frame, id: i32, index: usize) -> Option<i64> {
    let own = thread.guest().tid.load(Ordering::Relaxed);
    if id == own {
        let mut asked = frame.clone();
        let of_kernel = record::kernel_id(thread)? as u64;
        match index {
            0 => asked.rdi = of_kernel,
            _ => asked.rsi = of_kernel,
        }
        // SAFETY: the program's own call, with the kernel's id for its own.
        return Some(unsafe { asked.raw() } as i64);
    }
    GUEST.identities.find(id)?;
    bound::visit(thread, |runtime: &'static Runtime| {
        serve::once_more(runtime, thread, frame)
    })
}
