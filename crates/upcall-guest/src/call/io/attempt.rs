//! Tries a call without waiting.

use core::sync::atomic::{AtomicBool, Ordering};

use upcall_linux::poller::{Kind, Poller};

use crate::call::poll;
use crate::ground::access;
use crate::ground::entry::{Frame, NEVER, program_call, raw_syscall};
use crate::ground::state::GUEST;

use super::rest::{self, Rest};

const EAGAIN: i64 = -(libc::EAGAIN as i64);
const EPERM: i64 = -(libc::EPERM as i64);
const ENOSYS: i64 = -(libc::ENOSYS as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);
const EOPNOTSUPP: i64 = -(libc::EOPNOTSUPP as i64);
const EINPROGRESS: i64 = -(libc::EINPROGRESS as i64);
/// Flags with which a receive never waits, whatever the socket's flags are.
const NEVER_WAITS: u64 = (libc::MSG_ERRQUEUE | libc::MSG_OOB) as u64;

/// Set if a filter forbids preadv2(2) or pwritev2(2), or the kernel has none.
static CANNOT_TRY: AtomicBool = AtomicBool::new(false);

/// Set if some socket's reads wait for more than one byte (SO_RCVLOWAT), for which a try does not wait.
static COUNTS_BYTES: AtomicBool = AtomicBool::new(false);

/// Called when the program has set SO_RCVLOWAT for a socket.
pub fn counts_bytes() {
    COUNTS_BYTES.store(true, Ordering::Relaxed);
}

/// How a try ended.
pub(super) enum Attempt {
    /// The call gave this answer.
    Done(i64),
    /// The call would wait.
    WouldBlock,
    /// Only the call itself can tell.
    Unknown,
}

/// Tries the rest of a call, of which `moved` bytes are done.
pub(super) fn attempt(poller: &Poller, frame: &Frame, kind: Kind, moved: usize) -> Attempt {
    let number = frame.rax as i64;
    let events = match number {
        libc::SYS_accept | libc::SYS_accept4 => return attempt_accept(poller, frame, kind),
        number if rest::is_output(number) => libc::POLLOUT,
        _ => libc::POLLIN,
    };
    let flags = rest::flags(frame);
    // It sends an empty datagram, where a try of it does nothing.
    if number == libc::SYS_write && frame.rdx == 0 && kind == Kind::Socket {
        return Attempt::Unknown;
    }
    // One waits for all bytes, the other for a connection.
    if flags.is_some_and(|flags| flags & (rest::MSG_WAITALL | rest::MSG_FASTOPEN) != 0) {
        return Attempt::Unknown;
    }
    // The filter's answer is meant for the program.
    let tries_itself = matches!(number, libc::SYS_preadv2 | libc::SYS_pwritev2);
    let is_ours = flags.is_none() && !tries_itself;
    if is_ours && CANNOT_TRY.load(Ordering::Relaxed) {
        return attempt_polled(frame, kind, events);
    }
    let descriptor = frame.rdi as i32;
    let writes = is_ours && events == libc::POLLOUT;
    if writes && poller.is_known_to_refuse_tries(descriptor) {
        return Attempt::Unknown;
    }
    if events == libc::POLLIN && kind == Kind::Socket && COUNTS_BYTES.load(Ordering::Relaxed) {
        return attempt_polled(frame, kind, events);
    }
    let answer = try_rest(frame, kind, moved);
    match answer {
        EAGAIN if asked_not_to_wait(frame) => Attempt::Done(EAGAIN),
        EAGAIN if waits_for_receiver(frame) => Attempt::Unknown,
        EAGAIN => Attempt::WouldBlock,
        // The first bytes may make the connection (TCP_FASTOPEN_CONNECT).
        EINPROGRESS if rest::is_output(number) && !asked_not_to_wait(frame) => Attempt::WouldBlock,
        EOPNOTSUPP if writes => {
            poller.note_refused_try(descriptor);
            Attempt::Unknown
        }
        EOPNOTSUPP => match number {
            libc::SYS_read | libc::SYS_readv | libc::SYS_preadv2 => {
                attempt_polled(frame, kind, libc::POLLIN)
            }
            _ => Attempt::Unknown,
        },
        // No refused try: the file cannot be read or written at all, or not with these buffers, and the call fails at once,
        // whatever poll(2) tells. A receive may have taken data before, with no room of a valid length for the address: it is
        // not made twice.
        EINVAL if flags.is_none() => Attempt::Unknown,
        // A filter refuses the call. If the file itself refuses, the call itself will tell.
        ENOSYS | EPERM if is_ours => {
            if answer == ENOSYS || matches!(kind, Kind::Pipe | Kind::Socket) {
                CANNOT_TRY.store(true, Ordering::Relaxed);
            }
            attempt_polled(frame, kind, events)
        }
        answer => Attempt::Done(answer),
    }
}

// Not inlined: the parts of a vector would be in the frames of threads that wait.
#[inline(never)]
fn try_rest(frame: &Frame, kind: Kind, moved: usize) -> i64 {
    let mut rest = Rest::empty();
    let words = rest.words(frame, frame.rdi as i32, (kind, moved), false);
    // SAFETY: the program's own buffers, as it passed them.
    (unsafe { program_call(&words, &frame.made, &NEVER) }) as i64
}

/// What does not change from one connection to the next is asked once for each socket: poll(2) alone is asked each time, and not
/// where O_NONBLOCK is set.
fn attempt_accept(poller: &Poller, frame: &Frame, kind: Kind) -> Attempt {
    const FLAGS: u64 = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
    // The kernel refuses it at once, which poll(2) does not distinguish from a wait.
    if frame.rax as i64 == libc::SYS_accept4 && frame.r10 & !FLAGS != 0 {
        return Attempt::Unknown;
    }
    let descriptor = frame.rdi as i32;
    if poller.is_known_never_to_wait(descriptor) {
        return Attempt::Unknown;
    }
    if !poller.is_known_to_listen(descriptor) {
        // One that does not listen is refused at once, as unknown flags are.
        if asked_not_to_wait(frame) || !is_listening(descriptor) {
            return Attempt::Unknown;
        }
        poller.note_listens(descriptor);
    }
    attempt_polled(frame, kind, libc::POLLIN)
}

/// Makes the call if poll(2) tells that it will not wait. If another thread is faster the activation blocks, which is
/// harmless.
fn attempt_polled(frame: &Frame, kind: Kind, events: i16) -> Attempt {
    let descriptor = frame.rdi as i32;
    let ready = poll::is_ready(descriptor, events);
    let waits = ready == 0 && !asked_not_to_wait(frame);
    if waits && !(kind == Kind::Other && is_terminal(descriptor)) {
        Attempt::WouldBlock
    } else {
        Attempt::Unknown
    }
}

/// Returns true if the descriptor is a socket that listens.
fn is_listening(descriptor: i32) -> bool {
    let (mut listens, mut length) = (0i32, size_of::<i32>() as u32);
    // SAFETY: writes at most the length given.
    unsafe {
        let words = [
            descriptor as u64,
            libc::SOL_SOCKET as u64,
            libc::SO_ACCEPTCONN as u64,
            (&raw mut listens) as u64,
            (&raw mut length) as u64,
            0,
        ];
        raw_syscall(libc::SYS_getsockopt, words);
    }
    listens != 0
}

/// Returns true if the file is a terminal. Only the kernel knows how long a read of one waits and for how many bytes
/// (termios(3): VMIN, VTIME), and when it must stop the process (SIGTTIN).
#[inline(never)]
fn is_terminal(descriptor: i32) -> bool {
    let mut settings = [0u64; 8];
    let at = settings.as_mut_ptr() as u64;
    // SAFETY: writes less than 64 bytes.
    let answer = unsafe {
        raw_syscall(
            libc::SYS_ioctl,
            [descriptor as u64, libc::TCGETS, at, 0, 0, 0],
        )
    };
    answer == 0
}

/// Returns true if a datagram to an address waits for room in its receiver, which poll(2) and epoll(7) do not report.
fn waits_for_receiver(frame: &Frame) -> bool {
    let addressed = match frame.rax as i64 {
        libc::SYS_sendto => frame.r8 != 0,
        libc::SYS_sendmsg => access::load_u64(frame.rsi as usize).is_ok_and(|name| name != 0),
        _ => false,
    };
    addressed && poll::is_ready(frame.rdi as i32, libc::POLLOUT) != 0
}

/// Returns true if the program itself asked for a call that does not wait.
pub(super) fn asked_not_to_wait(frame: &Frame) -> bool {
    let flags = rest::flags(frame).unwrap_or(0);
    let receives = !rest::is_output(frame.rax as i64);
    let no_wait = matches!(frame.rax as i64, libc::SYS_preadv2 | libc::SYS_pwritev2)
        && frame.r9 & rest::RWF_NOWAIT != 0;
    if no_wait || flags & rest::MSG_DONTWAIT != 0 || receives && flags & NEVER_WAITS != 0 {
        return true;
    }
    let poller = GUEST.runtime().map(|runtime| runtime.kernel().poller());
    if poller.is_some_and(|poller| poller.is_known_to_wait(frame.rdi as i32)) {
        return false;
    }
    learn_flags(frame.rdi as i32)
}

/// Asks whether the descriptor has O_NONBLOCK, and remembers that.
pub(super) fn learn_flags(descriptor: i32) -> bool {
    let words = [descriptor as u64, libc::F_GETFL as u64, 0, 0, 0, 0];
    // SAFETY: asks only.
    let flags = unsafe { raw_syscall(libc::SYS_fcntl, words) };
    let asked = flags > 0 && flags as i32 & libc::O_NONBLOCK != 0;
    match GUEST.runtime().map(|runtime| runtime.kernel().poller()) {
        Some(poller) if asked => poller.note_never_waits(descriptor),
        Some(poller) => poller.note_waits(descriptor),
        None => {}
    }
    asked
}
