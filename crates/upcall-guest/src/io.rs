//! Reading, writing and accepting: a thread that would wait for a pollable descriptor parks on the
//! poller; everything else blocks its activation, which is replaced.
//!
//! The file description's flags are not touched, since other processes share them: whether a call
//! would block is learned from `RWF_NOWAIT` (pipes since Linux 6.4, sockets), `MSG_DONTWAIT` or poll(2). What cannot
//! be learned is not a problem: the call is made, and if it blocks, that is an upcall.

use upcall_linux::poller::{Direction, Kind, Readiness};
use upcall_linux::{Runtime, gs};

use crate::entry::{Frame, NEVER, program_call, raw_syscall};
use crate::guest::GUEST;

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
        return block(runtime, frame, 0);
    }
    let answer = transfer(runtime, frame, kind);
    if kind == Kind::Pipe && answer > 0 && is_stream_write(frame) {
        runtime.kernel().poller().written(runtime, descriptor);
    }
    answer
}

fn transfer(runtime: &'static Runtime, frame: &Frame, kind: Kind) -> i64 {
    let descriptor = frame.rdi as i32;
    let direction = direction(frame.rax as i64);
    let mut moved = 0;
    loop {
        let answer = match attempt(frame, moved) {
            Attempt::Done(answer) => answer,
            Attempt::WouldBlock if prefers_blocking(runtime) => {
                return block(runtime, frame, moved);
            }
            Attempt::WouldBlock => match wait(runtime, descriptor, direction, kind) {
                Wait::Again => continue,
                Wait::Ended(answer) => answer,
                Wait::Block => return block(runtime, frame, moved),
            },
            Attempt::Unknown => return block(runtime, frame, moved),
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

fn prefers_blocking(runtime: &'static Runtime) -> bool {
    // A hint, from whatever activation this is at the moment.
    // SAFETY: on an activation.
    runtime.prefers_blocking(unsafe { gs::current() })
}

fn block(runtime: &'static Runtime, frame: &Frame, moved: usize) -> i64 {
    if moved == 0 {
        // SAFETY: the program's own call.
        return runtime.blocking(|| unsafe { frame.raw() }) as i64;
    }
    let rest = [
        frame.rdi,
        frame.rsi + moved as u64,
        frame.rdx - moved as u64,
        0,
        0,
        0,
    ];
    // SAFETY: the rest of the program's own write.
    let more = runtime.blocking(|| unsafe { raw_syscall(libc::SYS_write, rest) }) as i64;
    moved as i64 + more.max(0)
}

fn direction(number: i64) -> Direction {
    match number {
        libc::SYS_write | libc::SYS_sendto | libc::SYS_sendmsg => Direction::Out,
        _ => Direction::In,
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
    if answer == -i64::from(libc::EOPNOTSUPP) || answer == -i64::from(libc::EINVAL) {
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
    let mut one = libc::pollfd {
        fd: frame.rdi as i32,
        events,
        revents: 0,
    };
    // SAFETY: reads and writes one pollfd.
    let ready = unsafe { raw_syscall(libc::SYS_poll, [(&raw mut one) as u64, 1, 0, 0, 0, 0]) };
    if ready == 0 && !asked_not_to_wait(frame) {
        Attempt::WouldBlock
    } else {
        Attempt::Unknown
    }
}

/// Whether the program itself asked for a call that does not wait, or for one that waits for a
/// limited time, which is left to the kernel.
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
}

fn wait(runtime: &'static Runtime, descriptor: i32, direction: Direction, kind: Kind) -> Wait {
    if kind == Kind::Socket && has_timeout(descriptor, direction) {
        return Wait::Block;
    }
    match runtime
        .kernel()
        .poller()
        .wait(runtime, descriptor, direction, None)
    {
        Readiness::Try => Wait::Again,
        Readiness::Interrupted => Wait::Ended(EINTR),
        Readiness::TimedOut => Wait::Ended(EAGAIN),
        Readiness::NotPollable => Wait::Block,
    }
}

/// Whether a socket has SO_RCVTIMEO or SO_SNDTIMEO.
fn has_timeout(descriptor: i32, direction: Direction) -> bool {
    let option = match direction {
        Direction::In => libc::SO_RCVTIMEO,
        Direction::Out => libc::SO_SNDTIMEO,
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
    answer == 0 && time != [0, 0]
}
