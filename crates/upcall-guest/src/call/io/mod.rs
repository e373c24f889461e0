//! Reading, writing and accepting. A thread that would wait for a pollable descriptor parks on the poller. Everything else
//! blocks its activation, which is replaced.
//!
//! The flags of the file description are not touched, since other processes share them. `RWF_NOWAIT` (sockets, and pipes
//! since Linux 6.4), `MSG_DONTWAIT` or poll(2) tell if a call would block. If none of them can tell, the call is made, and
//! if it blocks, that is an upcall. A filter may forbid the calls with `RWF_NOWAIT`; then only poll(2) is used.
//!
//! A write to a pipe or a stream goes on until all bytes are moved, as in the kernel (`rest`). So does a call that blocks
//! and is cut short by a signal of the runtime's own, if the kernel would have gone on with it.
//!
//! Calls on sockets that never wait are made as they stand (`prompt`).
//!
//! A read of a TCP connection that is known to be empty waits without being tried (`drained`). A read of a pipe that other
//! processes write blocks its activation where an event loop would ([`upcall_linux::poller::choice`]).
//!
//! A socket's time limit (SO_RCVTIMEO, SO_SNDTIMEO) is the wait's deadline. The poller remembers that there is none, as it
//! remembers that O_NONBLOCK is not set; a limit is read at each wait. If the kernel cannot tell the limit, the call
//! blocks.

use core::sync::atomic::Ordering;

use upcall_linux::poller::{self, Kind, Readiness, Wants, Watch, choice};
use upcall_linux::{Runtime, base, descriptors};

use crate::call::{poll, procfs};
use crate::ground::attributes::GuestAttributes;
use crate::ground::caller;
use crate::ground::entry::{Frame, NEVER, program_call};
use crate::ground::state::GUEST;
use crate::signal::seen;

use attempt::{Attempt, asked_not_to_wait, attempt};
use drained::Reading;
use limit::Limit;
use rest::Rest;

mod attempt;
mod drained;
mod limit;
mod many;
mod prompt;
mod rest;

pub use attempt::counts_bytes;
pub use drained::{gets_layers, is_layered};
pub use many::{NEVER_SHORT, allocate, fill, receive_many, send_file, send_many};
pub use prompt::serve_prompt;

const EAGAIN: i64 = -(libc::EAGAIN as i64);
const EINTR: i64 = -(libc::EINTR as i64);

/// Makes the call in `frame`, which waits for a descriptor. The caller is outside the runtime.
pub fn serve(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let descriptor = frame.rdi as i32;
    let kind = runtime.kernel().poller().kind(runtime, descriptor);
    if GUEST.runtime().is_none() {
        // A handler that came meanwhile has made this the child of a fork.
        // SAFETY: the program's own call.
        return (unsafe { frame.raw() }) as i64;
    }
    if kind == Kind::File || rest::has_position(frame) {
        let answer = block(runtime, frame, descriptor, kind, 0);
        return procfs::counts::read(frame, answer);
    }
    let reads = !rest::is_output(frame.rax as i64);
    let poller = runtime.kernel().poller();
    if kind == Kind::Socket && poller.is_worth_asking(descriptor, reads) {
        attempt::learn_flags(descriptor);
    }
    let answer = transfer(runtime, frame, kind);
    if answer > 0 && is_stream_write(frame) && kind != Kind::Socket {
        poller.count_write();
        if kind == Kind::Pipe {
            poller.written(runtime, descriptor);
        }
    }
    answer
}

fn transfer(runtime: &'static Runtime, frame: &Frame, kind: Kind) -> i64 {
    let descriptor = frame.rdi as i32;
    let poller = runtime.kernel().poller();
    let wants = wants(frame.rax as i64);
    let mut limit = None;
    let mut moved = 0;
    let reading = Reading::of(frame, kind);
    // A thread that has waited tries, whatever has ended the wait.
    let mut trusts = reading.is_some();
    if wants == Wants::IN {
        runtime.end_turn();
    }
    loop {
        // The call is announced, if it waits or wakes: a thread that is woken can then take the processor over without an
        // interrupt.
        if prefers_blocking() {
            poller.goes_unwanted(runtime, descriptor);
            return block(runtime, frame, descriptor, kind, moved);
        }
        if kind == Kind::Pipe
            && wants == Wants::IN
            && moved == 0
            && let Some(thread) = caller::current_thread().filter(|_| is_asked_from_outside())
        {
            poller.goes_unwanted(runtime, descriptor);
            return poller.block(runtime, thread, || {
                block(runtime, frame, descriptor, kind, moved)
            });
        }
        let mut watch = poller.watch(descriptor, wants);
        let tried = match core::mem::take(&mut trusts) && Reading::is_vain(runtime, &watch) {
            true => Attempt::WouldBlock,
            false => attempt(poller, frame, kind, moved),
        };
        let answer = match tried {
            Attempt::Done(answer) => {
                if reading.is_some_and(|reading| reading.takes_all(answer)) {
                    poller.note_drained(&watch);
                }
                answer
            }
            Attempt::WouldBlock => {
                if reading.is_some() {
                    poller.note_vain(runtime, &watch);
                }
                if !poller.is_plain(&watch) && is_shut(frame, kind) {
                    return block(runtime, frame, descriptor, kind, moved);
                }
                let known = limit.or_else(|| Limit::of(runtime, descriptor, kind, wants));
                let Some(known) = known else {
                    if !runtime.is_short() {
                        return block(runtime, frame, descriptor, kind, moved);
                    }
                    // The activation would block without a successor, and it may be the last one.
                    let paused = poller::pause(runtime);
                    if paused == Readiness::Interrupted && interrupted(Limit(None)) {
                        return if moved > 0 { moved as i64 } else { EINTR };
                    }
                    continue;
                };
                limit = Some(known);
                match wait(runtime, &mut watch, known) {
                    Wait::Again => continue,
                    Wait::Ended(answer) => answer,
                    Wait::Block => return block(runtime, frame, descriptor, kind, moved),
                    Wait::BlockOn(file) => {
                        let mut answer = EINTR;
                        while answer == EINTR {
                            answer = block(runtime, frame, file, kind, moved);
                            if interrupted(known) {
                                break;
                            }
                        }
                        descriptors::give_back(file);
                        return answer;
                    }
                }
            }
            Attempt::Unknown => return block(runtime, frame, descriptor, kind, moved),
        };
        // A call that must move all bytes goes on until it has.
        match usize::try_from(answer) {
            Ok(more) if rest::is_output(frame.rax as i64) => {
                moved += more;
                if more == 0
                    || moved >= rest::total(frame)
                    || asked_not_to_wait(frame)
                    || rest::has_failed(descriptor, kind)
                {
                    return moved as i64;
                }
            }
            Ok(_) => return answer,
            Err(_) if moved > 0 => return moved as i64,
            Err(_) => return answer,
        }
    }
}

/// Returns true if the call would receive from a socket that was shut down for that. On one for datagrams it ends at once,
/// with nothing; a try tells only that there is nothing.
fn is_shut(frame: &Frame, kind: Kind) -> bool {
    kind == Kind::Socket
        && !rest::is_output(frame.rax as i64)
        && poll::events(frame.rdi as i32, libc::POLLRDHUP) & libc::POLLRDHUP != 0
}

/// Returns true if a thread that would wait had better block its activation.
fn prefers_blocking() -> bool {
    // A hint: the thread may be on another activation next.
    // SAFETY: on an activation.
    unsafe { base::current() }.prefers_blocking()
}

/// Returns true if other processes write what a thread reads from pipes, and nothing else would run here meanwhile
/// ([`upcall_linux::poller::choice`]). What is written here is counted.
fn is_asked_from_outside() -> bool {
    // A hint: the thread may be on another activation next.
    // SAFETY: on an activation.
    let activation = unsafe { base::current() };
    !activation.vp().has_ready() && choice::prefers_blocking(activation)
}

/// Makes the call, or its rest, on `descriptor`. It goes on after a signal of the runtime's own.
fn block(
    runtime: &'static Runtime,
    frame: &Frame,
    descriptor: i32,
    kind: Kind,
    mut moved: usize,
) -> i64 {
    let moves_all = rest::moves_all(frame, kind);
    let room = rest::control_capacity(frame);
    loop {
        let (answer, asked) = call(runtime, frame, descriptor, (kind, moved), room);
        if answer == EINTR {
            let limit = Limit::of(runtime, descriptor, kind, wants(frame.rax as i64));
            if !interrupted(limit.unwrap_or(Limit(None))) && moved > 0 {
                continue;
            }
        }
        let Ok(more) = usize::try_from(answer) else {
            return if moved > 0 { moved as i64 } else { answer };
        };
        moved += more;
        if !moves_all || more == 0 || moved >= rest::total(frame) {
            return moved as i64;
        }
        let may_go_on = if more < asked {
            was_disturbed() && !rest::has_failed(descriptor, kind)
        } else {
            !interrupted(Limit(None))
        };
        let receives = rest::flags(frame).is_some() && !rest::is_output(frame.rax as i64);
        if !may_go_on || receives && !rest::receives_on(frame, descriptor) {
            return moved as i64;
        }
    }
}

/// Makes the rest of the call once. Returns its answer, and how many bytes it was asked to move.
// Not inlined: only threads that block need its memory.
#[inline(never)]
fn call(
    runtime: &'static Runtime,
    frame: &Frame,
    descriptor: i32,
    (kind, moved): (Kind, usize),
    room: u64,
) -> (i64, usize) {
    let mut rest = Rest::empty();
    let words = rest.words(frame, descriptor, (kind, moved), true);
    rest.take_control(room);
    begin_undisturbed();
    // SAFETY: the program's own call, or the rest of it.
    let make = || unsafe { program_call(&words, &frame.made, &NEVER) };
    let answer = runtime.blocking(make) as i64;
    if moved > 0 && answer > 0 {
        rest.give_control(frame);
    }
    (answer, rest.asked)
}

/// Called when a call begins that a signal of the runtime's own may cut short.
pub fn begin_undisturbed() {
    if let Some(thread) = caller::current_thread() {
        thread.guest().disturbed.store(false, Ordering::Relaxed);
    }
}

/// Returns true if a signal of the runtime's own, and no handler of the program's, has come since then.
pub fn was_disturbed() -> bool {
    caller::current_thread().is_some_and(|thread| {
        thread.guest().disturbed.load(Ordering::Relaxed)
            && thread.kernel.seen.load(Ordering::Relaxed) == seen::UNSEEN
    })
}

fn wants(number: i64) -> Wants {
    if rest::is_output(number) {
        Wants::OUT
    } else {
        Wants::IN
    }
}

fn is_stream_write(frame: &Frame) -> bool {
    matches!(
        frame.rax as i64,
        libc::SYS_write | libc::SYS_writev | libc::SYS_pwritev2
    )
}

enum Wait {
    Again,
    Ended(i64),
    Block,
    /// Makes the call on a number of ours for the file.
    BlockOn(i32),
}

fn wait(runtime: &'static Runtime, watch: &mut Watch, limit: Limit) -> Wait {
    let poller = runtime.kernel().poller();
    match poller.wait(runtime, core::slice::from_mut(watch), limit.0) {
        Readiness::Try => Wait::Again,
        Readiness::Interrupted if interrupted(limit) => Wait::Ended(EINTR),
        Readiness::Interrupted => Wait::Again,
        Readiness::TimedOut => Wait::Ended(EAGAIN),
        Readiness::NotPollable => Wait::Block,
        Readiness::Moved => watch.moved.map_or(Wait::Again, Wait::BlockOn),
    }
}

/// Returns true if a handler ran since the call began. A call with a time limit is not made again then (signal(7)).
fn interrupted(limit: Limit) -> bool {
    let Some(thread) = caller::current_thread() else {
        return true;
    };
    let seen = &thread.kernel.seen;
    if seen.load(Ordering::Relaxed) != 0 && limit.0.is_some() {
        seen.store(seen::SEEN, Ordering::Relaxed);
    }
    seen.load(Ordering::Relaxed) != 0
}
