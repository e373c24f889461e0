//! Reading, writing and accepting: a thread that would wait for a pollable descriptor parks on the
//! poller; everything else blocks its activation, which is replaced.
//!
//! The file description's flags are not touched, since other processes share them: whether a call
//! would block is learned from `RWF_NOWAIT` (pipes since Linux 6.4, sockets), `MSG_DONTWAIT` or poll(2). What cannot
//! be learned is not a problem: the call is made, and if it blocks, that is an upcall.
//!
//! A socket's time limit (SO_RCVTIMEO, SO_SNDTIMEO) is the wait's deadline. That there is none is
//! remembered as is that O_NONBLOCK is not set; a limit is asked for at each wait. Where the kernel does
//! not say, the call blocks.

use core::sync::atomic::Ordering;

use upcall_core::Kernel;
use upcall_linux::poller::{self, Kind, Readiness, Wants, Watch};
use upcall_linux::{Runtime, base, descriptors};

use crate::entry::{Frame, NEVER, pass_through, program_call, raw_syscall};
use crate::guest::GUEST;
use crate::{again, caller, poll};

const SYS_PREADV2: i64 = 327;
const SYS_PWRITEV2: i64 = 328;
const RWF_NOWAIT: u64 = 8;
const MSG_DONTWAIT: u64 = libc::MSG_DONTWAIT as u64;
const MSG_WAITALL: u64 = libc::MSG_WAITALL as u64;
const EAGAIN: i64 = -(libc::EAGAIN as i64);
const EINTR: i64 = -(libc::EINTR as i64);

/// Makes the call in `frame`, which waits for a descriptor. Outside the runtime.
pub fn serve(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let descriptor = frame.rdi as i32;
    let kind = runtime.kernel().poller().kind(runtime, descriptor);
    if kind == Kind::File {
        return block(runtime, frame, descriptor, kind, 0);
    }
    let answer = transfer(runtime, frame, kind);
    if answer > 0 && is_stream_write(frame) && kind != Kind::Socket {
        let poller = runtime.kernel().poller();
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
    loop {
        // Announced, whether it waits or wakes: who is woken takes the processor over without
        // having to interrupt anybody.
        if prefers_blocking(runtime) {
            poller.goes_unwanted(runtime, descriptor);
            return block(runtime, frame, descriptor, kind, moved);
        }
        let mut watch = poller.watch(descriptor, wants);
        let answer = match attempt(frame, moved) {
            Attempt::Done(answer) => answer,
            Attempt::WouldBlock => {
                let known = limit.or_else(|| Limit::of(runtime, descriptor, kind, wants));
                let Some(known) = known else {
                    if !runtime.is_short() {
                        return block(runtime, frame, descriptor, kind, moved);
                    }
                    // The activation would block without a successor, perhaps the last one.
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
        // A call that must move everything goes on until it has.
        match usize::try_from(answer) {
            Ok(more) if is_stream_write(frame) => {
                moved += more;
                if moved >= frame.rdx as usize || more == 0 {
                    return moved as i64;
                }
            }
            Ok(_) => return answer,
            Err(_) if moved > 0 => return moved as i64,
            Err(_) => return answer,
        }
    }
}

/// Whether a thread that would wait had better block its activation.
fn prefers_blocking(runtime: &'static Runtime) -> bool {
    // A hint, from whatever activation this is at the moment.
    // SAFETY: on an activation.
    runtime.prefers_blocking(unsafe { base::current() })
}

/// Makes the call, or the rest of it, on `descriptor`.
fn block(
    runtime: &'static Runtime,
    frame: &Frame,
    descriptor: i32,
    kind: Kind,
    moved: usize,
) -> i64 {
    if moved == 0 {
        let mut call = frame.words();
        call[1] = descriptor as u64;
        // SAFETY: the program's own call.
        let make = || unsafe { program_call(&call, &frame.made, &NEVER) };
        let answer = runtime.blocking(make) as i64;
        if answer == EINTR {
            let limit = Limit::of(runtime, descriptor, kind, wants(frame.rax as i64));
            interrupted(limit.unwrap_or(Limit(None)));
        }
        return answer;
    }
    let rest = [
        descriptor as u64,
        frame.rsi + moved as u64,
        frame.rdx - moved as u64,
        0,
        0,
        0,
    ];
    // SAFETY: the rest of the program's own write.
    let more = runtime.blocking(|| unsafe { pass_through(libc::SYS_write, rest) }) as i64;
    moved as i64 + more.max(0)
}

fn wants(number: i64) -> Wants {
    match number {
        libc::SYS_write | libc::SYS_sendto | libc::SYS_sendmsg => Wants::OUT,
        _ => Wants::IN,
    }
}

fn is_stream_write(frame: &Frame) -> bool {
    frame.rax as i64 == libc::SYS_write
}

enum Attempt {
    Done(i64),
    WouldBlock,
    Unknown,
}

/// Tries the call without waiting.
fn attempt(frame: &Frame, moved: usize) -> Attempt {
    let raw = |number: i64, words: [u64; 6]| {
        let [a, b, c, d, e, f] = words;
        let words = [number as u64, a, b, c, d, e, f];
        // SAFETY: the program's own buffers, as it passed them.
        (unsafe { program_call(&words, &frame.made, &NEVER) }) as i64
    };
    let vector = [frame.rsi + moved as u64, frame.rdx - moved as u64];
    let words = |flags| [frame.rdi, vector.as_ptr() as u64, 1, u64::MAX, 0, flags];
    let answer = match frame.rax as i64 {
        libc::SYS_read => raw(SYS_PREADV2, words(RWF_NOWAIT)),
        libc::SYS_write => raw(SYS_PWRITEV2, words(RWF_NOWAIT)),
        libc::SYS_recvfrom | libc::SYS_sendto if frame.r10 & MSG_WAITALL == 0 => raw(
            frame.rax as i64,
            [
                frame.rdi,
                frame.rsi,
                frame.rdx,
                frame.r10 | MSG_DONTWAIT,
                frame.r8,
                frame.r9,
            ],
        ),
        libc::SYS_recvmsg | libc::SYS_sendmsg if frame.rdx & MSG_WAITALL == 0 => raw(
            frame.rax as i64,
            [frame.rdi, frame.rsi, frame.rdx | MSG_DONTWAIT, 0, 0, 0],
        ),
        libc::SYS_accept | libc::SYS_accept4 => return attempt_polled(frame, libc::POLLIN),
        _ => return Attempt::Unknown,
    };
    if answer == EAGAIN {
        return if asked_not_to_wait(frame) {
            Attempt::Done(EAGAIN)
        } else {
            Attempt::WouldBlock
        };
    }
    // A filter of the program's may know read(2) and write(2) only.
    let is_refused = matches!(-answer as i32, libc::ENOSYS | libc::EPERM | libc::EACCES)
        && matches!(frame.rax as i64, libc::SYS_read | libc::SYS_write);
    if is_refused || [libc::EOPNOTSUPP, libc::EINVAL].contains(&(-answer as i32)) {
        return match frame.rax as i64 {
            libc::SYS_read => attempt_polled(frame, libc::POLLIN),
            _ => Attempt::Unknown,
        };
    }
    Attempt::Done(answer)
}

/// Makes the call if poll(2) says that it will not wait; another thread may be faster, and then
/// the activation blocks, which is no harm.
fn attempt_polled(frame: &Frame, events: i16) -> Attempt {
    let ready = poll::is_ready(frame.rdi as i32, events);
    if ready == 0 && !asked_not_to_wait(frame) {
        Attempt::WouldBlock
    } else {
        Attempt::Unknown
    }
}

/// Whether the program itself asked for a call that does not wait.
fn asked_not_to_wait(frame: &Frame) -> bool {
    let dont_wait = match frame.rax as i64 {
        libc::SYS_recvfrom | libc::SYS_sendto => frame.r10 & MSG_DONTWAIT != 0,
        libc::SYS_recvmsg | libc::SYS_sendmsg => frame.rdx & MSG_DONTWAIT != 0,
        _ => false,
    };
    if dont_wait {
        return true;
    }
    let poller = GUEST.runtime().map(|runtime| runtime.kernel().poller());
    if poller.is_some_and(|poller| poller.is_known_to_wait(frame.rdi as i32)) {
        return false;
    }
    // SAFETY: asks only.
    let flags = unsafe {
        raw_syscall(
            libc::SYS_fcntl,
            [frame.rdi, libc::F_GETFL as u64, 0, 0, 0, 0],
        )
    };
    let asked = flags > 0 && flags as i32 & libc::O_NONBLOCK != 0;
    if let Some(poller) = poller.filter(|_| !asked) {
        poller.note_waits(frame.rdi as i32);
    }
    asked
}

enum Wait {
    Again,
    Ended(i64),
    Block,
    /// On a number of ours for the file.
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

/// Whether a handler ran since the call began. After one, a call with a time limit is not made again
/// (signal(7)).
fn interrupted(limit: Limit) -> bool {
    let Some(thread) = caller::current_thread() else {
        return true;
    };
    let seen = &thread.kernel.seen;
    if seen.load(Ordering::Relaxed) != 0 && limit.0.is_some() {
        seen.store(again::SEEN, Ordering::Relaxed);
    }
    seen.load(Ordering::Relaxed) != 0
}

/// When a call that waits for a socket gives up.
#[derive(Clone, Copy)]
struct Limit(Option<u64>);

impl Limit {
    /// `None` if it could not be learned.
    fn of(runtime: &'static Runtime, descriptor: i32, kind: Kind, wants: Wants) -> Option<Self> {
        const ENOTSOCK: i64 = -(libc::ENOTSOCK as i64);
        let poller = runtime.kernel().poller();
        let may_have_one = matches!(kind, Kind::Socket | Kind::Unknown);
        if !may_have_one || poller.is_known_endless(descriptor, wants) {
            return Some(Limit(None));
        }
        let option = if wants == Wants::OUT {
            libc::SO_SNDTIMEO
        } else {
            libc::SO_RCVTIMEO
        };
        let mut time = [0u64; 2];
        let mut length = size_of_val(&time) as u32;
        // SAFETY: writes at most the length given.
        let answer = unsafe {
            raw_syscall(
                libc::SYS_getsockopt,
                [
                    descriptor as u64,
                    libc::SOL_SOCKET as u64,
                    option as u64,
                    time.as_mut_ptr() as u64,
                    (&raw mut length) as u64,
                    0,
                ],
            )
        };
        match answer as i64 {
            0 if time == [0, 0] => {
                poller.note_endless(descriptor, wants);
                Some(Limit(None))
            }
            0 => {
                let limit = time[0] * 1_000_000_000 + time[1] * 1000;
                Some(Limit(Some(runtime.kernel().now().saturating_add(limit))))
            }
            ENOTSOCK => Some(Limit(None)),
            _ => None,
        }
    }
}
