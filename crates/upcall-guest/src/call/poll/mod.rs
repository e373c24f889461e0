//! Waiting for several descriptors: poll(2), select(2), epoll_wait(2) and their variants.
//!
//! 1. The call is made with no time to wait. If it has an answer, that is the answer.
//! 2. Otherwise the thread parks on all descriptors of the call ([`upcall_linux::poller`]), with the call's deadline, and
//!    then tries again. An epoll instance is one descriptor. A call without a descriptor is a sleep.
//! 3. A call with a signal mask has that mask from the end of the first try until its own end. A signal that the mask lets
//!    through runs its handler then, and ends the call. A handler that runs between that and the sleep ends it too.
//! 4. Where a descriptor was closed meanwhile, the kernel would keep waiting for its file: the activation blocks on that.
//!
//! The activation blocks, as for any other call, when the kernel's own wake-up is fastest: where the virtual processor only
//! computes, and for an event loop whose events come from outside while nothing else can run here
//! ([`upcall_linux::poller::choice`]). It also blocks when a descriptor cannot be watched, and for sets of more than
//! [`BOUND`] descriptors: each costs the runtime a lock and a place in a list, in a section in which nothing else can run,
//! and few threads of a program wait for many descriptors.

mod question;

use core::sync::atomic::Ordering;

use upcall_linux::poller::{Readiness, Watch};
use upcall_linux::{Runtime, Thread, descriptors};

use crate::call::select::Sets;
use crate::call::{io, serve};
use crate::ground::entry::{Frame, raw_syscall};
use crate::signal::{self, mask_place};

pub use question::{BOUND, Watches};
use question::{Call, FEW, Limit, NS, NS_PER_MS, Question};

const EINTR: i64 = -(libc::EINTR as i64);
const EPOLL_CTL_ADD: u64 = 1;

/// Serves the call in `frame` if it has no time to wait, and no mask. Returns false if it has, or has to be made again.
pub fn serve_prompt(runtime: &'static Runtime, thread: &'static Thread, frame: &mut Frame) -> bool {
    let (time, mask) = match frame.rax as i64 {
        libc::SYS_poll => (frame.rdx, 0),
        libc::SYS_epoll_wait => (frame.r10, 0),
        libc::SYS_epoll_pwait => (frame.r10, frame.r8),
        // The time is in the program's memory.
        _ => return false,
    };
    if time as i32 != 0 || mask != 0 {
        return false;
    }
    runtime.end_turn();
    serve::promptly(thread, frame)
}

/// Makes the call in `frame`. The caller is outside the runtime.
// Not inlined: its frame would be part of every call's, on the stacks of threads that wait.
#[inline(never)]
pub fn serve(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    runtime.end_turn();
    let question = match frame.rax as i64 {
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Question::Epoll,
        libc::SYS_poll | libc::SYS_ppoll if frame.rsi as u32 as usize <= FEW => Question::Poll,
        _ => return serve_many(runtime, thread, frame),
    };
    let mut room = [Watch::default(); FEW];
    let call = Call::of(runtime, frame, question, Watches::on(&mut room));
    answer(runtime, thread, frame, call)
}

/// The same for a call that may have many descriptors.
// Not inlined: few calls need its room.
#[inline(never)]
fn serve_many(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let mut room = [Watch::default(); BOUND];
    let mut watches = Watches::on(&mut room);
    let mut sets;
    let question = match frame.rax as i64 {
        libc::SYS_poll | libc::SYS_ppoll => Some(Question::Poll),
        _ => {
            sets = Sets::read(frame, &mut watches);
            sets.as_mut().map(Question::Select)
        }
    };
    let call = question.and_then(|question| Call::of(runtime, frame, question, watches));
    answer(runtime, thread, frame, call)
}

/// Makes the call in `frame`, which asks for `call`, or what the kernel can judge more simply.
fn answer(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    call: Option<Call>,
) -> i64 {
    let Some(mut call) = call else {
        let at = mask_place(frame).map_or(0, |(at, _)| at);
        return signal::maybe_with_mask(runtime, thread, frame, at);
    };
    // A call with a mask is tried first: a ready descriptor goes before a signal.
    if call.mask_at == 0 && call.had_better_block(runtime) {
        return runtime.kernel().poller().block(runtime, thread, || {
            signal::maybe_with_mask(runtime, thread, frame, 0)
        });
    }
    let mut mask = Opened {
        runtime,
        thread,
        before: None,
    };
    let answer = wait(&mut mask, frame, &mut call);
    mask.close();
    call.finish(runtime, frame, answer)
}

/// The thread's mask while the call has its own.
struct Opened {
    runtime: &'static Runtime,
    thread: &'static Thread,
    before: Option<u64>,
}

impl Opened {
    /// Sets the mask. Signals that it lets through are delivered before this returns.
    fn open(&mut self, mask: u64) {
        if self.before.is_none() {
            let before = self.thread.kernel.mask.load(Ordering::Relaxed);
            self.before = Some(before);
            if before != mask {
                signal::set_thread_mask(self.runtime, self.thread, mask);
            }
        }
    }

    fn close(&mut self) {
        if let Some(before) = self.before.take()
            && self.thread.kernel.mask.load(Ordering::Relaxed) != before
        {
            signal::set_thread_mask(self.runtime, self.thread, before);
        }
    }
}

fn wait(mask: &mut Opened, frame: &Frame, call: &mut Call) -> i64 {
    let (runtime, thread) = (mask.runtime, mask.thread);
    let poller = runtime.kernel().poller();
    let handled = || thread.kernel.seen.load(Ordering::Relaxed) != 0;
    let mut over = call.limit == Limit::Now;
    loop {
        for watch in call.watches.as_mut() {
            *watch = poller.watch(watch.descriptor, watch.wants);
        }
        let answer = call.attempt(frame);
        if answer != 0 {
            return answer;
        }
        if call.mask_at != 0 {
            if mask.before.is_none() && call.had_better_block(runtime) {
                call.written = true;
                return poller.block(runtime, thread, || {
                    block(runtime, thread, frame, call, None)
                });
            }
            mask.open(call.mask);
            if handled() {
                return EINTR;
            }
        }
        if over {
            return 0;
        }
        for watch in call.watches.as_mut() {
            // Lets a pipe's writers in this process find the thread that waits for it.
            poller.kind(runtime, watch.descriptor);
        }
        // Before the runtime is entered again: the handler may have made this the child of a fork, which has none.
        if handled() {
            return EINTR;
        }
        let deadline = match call.limit {
            Limit::At(deadline) => Some(deadline),
            _ => None,
        };
        match poller.wait(runtime, call.watches.as_mut(), deadline) {
            Readiness::Try => {}
            Readiness::TimedOut => over = true,
            Readiness::Interrupted if handled() => return EINTR,
            Readiness::Interrupted => {}
            Readiness::NotPollable => {
                mask.close();
                call.written = true;
                return block(runtime, thread, frame, call, None);
            }
            Readiness::Moved => {
                mask.close();
                let answer = block_on_moved(runtime, thread, frame, call);
                match call.question {
                    Question::Epoll => return answer,
                    _ if answer < 0 => return answer,
                    _ => over = answer == 0,
                }
            }
        }
    }
}

/// Blocks the activation in the rest of the call, which may be on another epoll instance.
fn block(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    call: &Call,
    moved: Option<i32>,
) -> i64 {
    let mut rest = frame.clone();
    let mut words = [0; 2];
    if let Some(left) = call.left(runtime) {
        words = [left / NS, left % NS];
        let at = words.as_ptr() as u64;
        match frame.rax as i64 {
            libc::SYS_poll => rest.rdx = left.div_ceil(NS_PER_MS),
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => rest.r10 = left.div_ceil(NS_PER_MS),
            libc::SYS_ppoll => rest.rdx = at,
            libc::SYS_epoll_pwait2 => rest.r10 = at,
            libc::SYS_pselect6 => rest.r8 = at,
            _ => {
                words[1] /= 1000;
                rest.r8 = at;
            }
        }
    }
    if let Some(descriptor) = moved {
        rest.rdi = descriptor as u64;
    }
    let answer = signal::maybe_with_mask(runtime, thread, &rest, call.mask_at);
    // The kernel has read it, and perhaps written it.
    core::hint::black_box(&mut words);
    if rest.made.get() != 0 {
        frame.made.set(1);
    }
    answer
}

/// Blocks on the files with which the call began, when one of them has lost its number. As in the kernel, the descriptors'
/// meaning at the end decides.
fn block_on_moved(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    call: &mut Call,
) -> i64 {
    let answer = loop {
        let answer = match (&call.question, call.watches[0].moved) {
            (Question::Epoll, moved) => block(runtime, thread, frame, call, moved),
            _ => poll_files(runtime, thread, frame, call),
        };
        if answer != EINTR || thread.kernel.seen.load(Ordering::Relaxed) != 0 {
            break answer;
        }
    };
    for watch in call.watches.as_mut() {
        if let Some(moved) = watch.moved.take() {
            descriptors::give_back(moved);
        }
    }
    answer
}

/// Makes a poll(2) of the call's files under their present numbers.
fn poll_files(
    runtime: &'static Runtime,
    thread: &'static Thread,
    frame: &Frame,
    call: &mut Call,
) -> i64 {
    let mut files = [libc::pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    }; BOUND];
    for (file, watch) in files.iter_mut().zip(call.watches.as_mut()) {
        file.fd = watch.moved.unwrap_or(watch.descriptor);
        file.events = watch.wants.events();
    }
    let mut words = call.left(runtime).map(|left| [left / NS, left % NS]);
    let mut ppoll = frame.clone();
    ppoll.rax = libc::SYS_ppoll as u64;
    ppoll.rdi = files.as_mut_ptr() as u64;
    ppoll.rsi = call.watches.len() as u64;
    ppoll.rdx = words.as_mut().map_or(0, |words| words.as_mut_ptr() as u64);
    ppoll.r10 = call.mask_at;
    ppoll.r8 = 8;
    let answer = signal::maybe_with_mask(runtime, thread, &ppoll, call.mask_at);
    core::hint::black_box((&mut files, &mut words));
    answer
}

/// epoll_ctl(2). The kernel limits how epoll instances nest and how many paths lead to a file, and our watches count as
/// well.
pub fn control(runtime: &'static Runtime, frame: &Frame) -> i64 {
    // SAFETY: the program's own call.
    let make = || runtime.blocking(|| unsafe { frame.raw() }) as i64;
    let poller = runtime.kernel().poller();
    let answer = make();
    let limited = [-i64::from(libc::ELOOP), -i64::from(libc::EINVAL)].contains(&answer);
    if frame.rsi != EPOLL_CTL_ADD || !limited {
        return answer;
    }
    poller.give_way(runtime);
    let answer = make();
    if answer < 0 {
        poller.stay();
    }
    answer
}

/// setsockopt(2). A time limit may have changed.
pub fn set_option(runtime: &'static Runtime, frame: &Frame) -> i64 {
    /// SO_RCVTIMEO_NEW and SO_SNDTIMEO_NEW.
    const NEW: [i32; 2] = [66, 67];
    // SAFETY: the program's own call.
    let answer = runtime.blocking(|| unsafe { frame.raw() }) as i64;
    let option = frame.rdx as i32;
    if frame.rsi as i32 == libc::SOL_SOCKET
        && (matches!(option, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) || NEW.contains(&option))
    {
        runtime.kernel().poller().flags_change();
    }
    note_option(frame);
    answer
}

/// setsockopt(2), with or without a runtime: notes what tries must remember for ever.
pub fn note_option(frame: &Frame) {
    let level = frame.rsi as i32;
    if level == libc::SOL_SOCKET && frame.rdx as i32 == libc::SO_RCVLOWAT {
        io::counts_bytes();
    }
    if level == libc::SOL_TCP && frame.rdx as i32 == libc::TCP_ULP {
        io::gets_layers();
    }
}

/// Makes a poll(2) of ours on one descriptor, without waiting. Returns its result.
pub fn is_ready(descriptor: i32, events: i16) -> i64 {
    ask(descriptor, events).0
}

/// Returns the events that such a poll(2) finds.
pub fn events(descriptor: i32, events: i16) -> i16 {
    ask(descriptor, events).1
}

fn ask(descriptor: i32, events: i16) -> (i64, i16) {
    let mut one = libc::pollfd {
        fd: descriptor,
        events,
        revents: 0,
    };
    // SAFETY: reads and writes one pollfd.
    let answer =
        unsafe { raw_syscall(libc::SYS_poll, [(&raw mut one) as u64, 1, 0, 0, 0, 0]) as i64 };
    (answer, one.revents)
}
