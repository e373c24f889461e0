//! signalfd(2): what descriptors of a process with threads give, and what becomes of those for signals that are the
//! runtime's own ([`preempt::OWN`]).
//!
//! In the kernel a descriptor gives what was sent to the process, and to the thread that reads. Whoever carries the
//! reader is another kernel thread each time. So a signal that a thread has sent itself is left to the process if a
//! descriptor may give it, all threads block it and none waits for it (`pending::leave_to_descriptors`); so is what
//! waits for the thread when it makes a descriptor. *Rejected:* the same with what others send it. It may block them in
//! a handler only, and a descriptor that another thread reads would take them away.
//!
//! A process without a runtime may have such a descriptor: the kernel serves it. When the runtime starts, the descriptor
//! loses these signals: a read would take the runtime's own away, and those of the program that wait for a thread which
//! blocks them are not found by a descriptor. A descriptor that is made later never has them.
//!
//! Only what this process itself has made is changed. What it has inherited may be another process's, too: that process
//! keeps it, and this one gets a description of its own in its place. An epoll instance that was inherited with it goes on
//! waiting for the old one.

use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use upcall_linux::{Runtime, Thread, preempt};

use crate::ground::access;
use crate::ground::entry::{Frame, pass_through, raw_syscall};
use crate::signal::{pending, settled};

const EFAULT: i64 = -(libc::EFAULT as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);

/// A descriptor with signals of the runtime's own. Of a process without a runtime, which has one thread; a child has its
/// parent's, with another process id.
struct Made {
    process: AtomicU32,
    descriptor: AtomicI32,
    set: AtomicU64,
}

/// More are made without these signals.
const MOST: usize = 16;

/// Signals that some descriptor of this process gives, or gave, if there is a runtime.
static GIVEN: AtomicU64 = AtomicU64::new(0);

/// Returns the signals that descriptors may give.
pub fn given() -> u64 {
    GIVEN.load(Ordering::Relaxed)
}

fn give(set: u64) {
    GIVEN.fetch_or(set & !preempt::OWN, Ordering::Relaxed);
}

static MADE: [Made; MOST] = [const {
    Made {
        process: AtomicU32::new(0),
        descriptor: AtomicI32::new(-1),
        set: AtomicU64::new(0),
    }
}; MOST];

/// signalfd(2) in a process without a runtime.
pub fn signalfd_alone(frame: &Frame) -> i64 {
    let set = match asked(frame) {
        Ok(set) => set,
        Err(error) => return error,
    };
    let answer = make(frame, set);
    let Ok(descriptor @ 0..) = i32::try_from(answer) else {
        return answer;
    };
    give(set);
    let process = own_process();
    let is = |made: &&Made| {
        made.process.load(Ordering::Relaxed) == process
            && made.descriptor.load(Ordering::Relaxed) == descriptor
    };
    let is_free = |made: &&Made| made.process.load(Ordering::Relaxed) != process;
    let known = MADE.iter().find(is);
    if set & preempt::OWN == 0 {
        if let Some(known) = known {
            known.process.store(0, Ordering::Relaxed);
        }
    } else if let Some(made) = known.or_else(|| MADE.iter().find(is_free)) {
        made.process.store(process, Ordering::Relaxed);
        made.descriptor.store(descriptor, Ordering::Relaxed);
        made.set.store(set, Ordering::Relaxed);
    } else {
        change(descriptor, set & !preempt::OWN);
    }
    answer
}

/// signalfd(2) in a process with a runtime.
pub fn signalfd(frame: &Frame) -> i64 {
    match asked(frame) {
        Ok(set) => {
            give(set);
            make(frame, set & !preempt::OWN)
        }
        Err(error) => error,
    }
}

/// As [`signalfd`], by a thread.
pub fn signalfd_of(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    // A signal that the reader blocks must be found there at once, if nobody opens it.
    settled::settle_for_call(runtime, thread.kernel.mask.load(Ordering::Relaxed));
    let answer = signalfd(frame);
    if pending::has_some(thread) {
        let inside = runtime.enter();
        pending::offer_to_descriptors(&inside, thread);
        inside.leave();
    }
    answer
}

/// Called when the runtime starts.
pub fn take_own_signals() {
    let process = own_process();
    for made in &MADE {
        if made.process.swap(0, Ordering::Relaxed) == process {
            let descriptor = made.descriptor.load(Ordering::Relaxed);
            let set = made.set.load(Ordering::Relaxed);
            // The number may be another file's by now, which keeps what it has.
            if shown_set(descriptor)
                .is_none_or(|shown| shown & preempt::OWN != 0 && shown & !set == 0)
            {
                change(descriptor, set & !preempt::OWN);
            }
        }
    }
    for_each_descriptor(|descriptor| {
        if is_signalfd(descriptor)
            && let Some(set) = shown_set(descriptor)
        {
            give(set);
            if set & preempt::OWN != 0 {
                replace(descriptor, set & !preempt::OWN);
            }
        }
    });
}

/// Puts a descriptor with this set in place of an inherited one.
fn replace(descriptor: i32, set: u64) {
    let number = descriptor as u64;
    // SAFETY: reads flags, and eight bytes; the new descriptor is nobody's yet.
    unsafe {
        let of_description =
            raw_syscall(libc::SYS_fcntl, [number, libc::F_GETFL as u64, 0, 0, 0, 0]);
        let of_descriptor =
            raw_syscall(libc::SYS_fcntl, [number, libc::F_GETFD as u64, 0, 0, 0, 0]);
        let flags = (of_description as i32 & libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) as u64;
        let at = (&raw const set) as u64;
        let made = raw_syscall(libc::SYS_signalfd4, [u64::MAX, at, 8, flags, 0, 0]) as i64;
        if made < 0 {
            return;
        }
        let closes = of_descriptor as i32 & libc::FD_CLOEXEC != 0;
        let flags = if closes { libc::O_CLOEXEC as u64 } else { 0 };
        raw_syscall(libc::SYS_dup3, [made as u64, number, flags, 0, 0, 0]);
        raw_syscall(libc::SYS_close, [made as u64, 0, 0, 0, 0, 0]);
    }
}

/// Calls `act` with each open descriptor. Nothing happens without procfs.
fn for_each_descriptor(mut act: impl FnMut(i32)) {
    const NAME: usize = 19;
    const LENGTH: usize = 16;
    let mut entries = [0u8; 1024];
    // SAFETY: opens, reads into the buffer and closes.
    unsafe {
        let flags = (libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
        let path = c"/proc/self/fd".as_ptr() as u64;
        let words = [libc::AT_FDCWD as u64, path, flags, 0, 0, 0];
        let directory = raw_syscall(libc::SYS_openat, words) as i64;
        if directory < 0 {
            return;
        }
        loop {
            let (at, size) = (entries.as_mut_ptr() as u64, entries.len() as u64);
            let words = [directory as u64, at, size, 0, 0, 0];
            let count = raw_syscall(libc::SYS_getdents64, words) as i64;
            let Some(mut rest) = usize::try_from(count).ok().and_then(|n| entries.get(..n)) else {
                break;
            };
            if rest.is_empty() {
                break;
            }
            while let Some(&[low, high]) = rest.get(LENGTH..LENGTH + 2) {
                let (entry, more) = rest.split_at(usize::from(u16::from_le_bytes([low, high])));
                if let Ok(name) = CStr::from_bytes_until_nul(&entry[NAME..])
                    && let Some(descriptor) = name.to_str().ok().and_then(|name| name.parse().ok())
                {
                    act(descriptor);
                }
                rest = more;
            }
        }
        raw_syscall(libc::SYS_close, [directory as u64, 0, 0, 0, 0, 0]);
    }
}

fn is_signalfd(descriptor: i32) -> bool {
    const NAME: &[u8] = b"anon_inode:[signalfd]";
    let mut room = [0; 32];
    let Some(path) = path_of(b"/proc/self/fd/", descriptor, &mut room) else {
        return false;
    };
    let mut text = [0u8; NAME.len() + 1];
    let words = [
        libc::AT_FDCWD as u64,
        path.as_ptr() as u64,
        text.as_mut_ptr() as u64,
        text.len() as u64,
        0,
        0,
    ];
    // SAFETY: reads the link into the buffer.
    let count = unsafe { raw_syscall(libc::SYS_readlinkat, words) } as i64;
    count == NAME.len() as i64 && text.starts_with(NAME)
}

/// Returns the set that the program passes.
fn asked(frame: &Frame) -> Result<u64, i64> {
    if frame.rdx != 8 {
        return Err(EINVAL);
    }
    access::load_u64(frame.rsi as usize).map_err(|access::Fault| EFAULT)
}

/// Makes the program's call with this set.
fn make(frame: &Frame, set: u64) -> i64 {
    let [number, mut words @ ..] = frame.words();
    words[1] = (&raw const set) as u64;
    // SAFETY: reads eight bytes; the rest is the program's own call.
    (unsafe { pass_through(number as i64, words) }) as i64
}

/// Gives a descriptor another set. Nothing happens if it is no signalfd any more.
fn change(descriptor: i32, set: u64) {
    let words = [descriptor as u64, (&raw const set) as u64, 8, 0, 0, 0];
    // SAFETY: reads eight bytes.
    unsafe { raw_syscall(libc::SYS_signalfd4, words) };
}

fn own_process() -> u32 {
    // SAFETY: asks only.
    (unsafe { raw_syscall(libc::SYS_getpid, [0; 6]) }) as u32
}

/// Returns the set of a signalfd, as procfs shows it. None without procfs; no signal if the descriptor is no signalfd.
fn shown_set(descriptor: i32) -> Option<u64> {
    const ROW: &[u8] = b"sigmask:\t";
    let mut room = [0; 32];
    let path = path_of(b"/proc/self/fdinfo/", descriptor, &mut room)?;
    let mut text = [0u8; 512];
    // SAFETY: opens, reads into the buffer and closes.
    let count = unsafe {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let words = [libc::AT_FDCWD as u64, path.as_ptr() as u64, flags, 0, 0, 0];
        let file = raw_syscall(libc::SYS_openat, words) as i64;
        if file < 0 {
            return None;
        }
        let (at, size) = (text.as_mut_ptr() as u64, text.len() as u64);
        let count = raw_syscall(libc::SYS_read, [file as u64, at, size, 0, 0, 0]) as i64;
        raw_syscall(libc::SYS_close, [file as u64, 0, 0, 0, 0, 0]);
        count
    };
    let text = text.get(..usize::try_from(count).ok()?)?;
    let Some(row) = text
        .split(|&byte| byte == b'\n')
        .find_map(|row| row.strip_prefix(ROW))
    else {
        return Some(0);
    };
    u64::from_str_radix(core::str::from_utf8(row).ok()?, 16).ok()
}

/// Returns the path of a descriptor's entry in a folder of procfs.
fn path_of<'a>(folder: &[u8], descriptor: i32, room: &'a mut [u8; 32]) -> Option<&'a CStr> {
    let mut digits = [0; 10];
    let mut first = digits.len();
    let mut rest = descriptor as u32;
    while rest != 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let (start, name) = room.split_at_mut(folder.len());
    start.copy_from_slice(folder);
    name[..digits.len() - first].copy_from_slice(&digits[first..]);
    CStr::from_bytes_until_nul(room).ok()
}
