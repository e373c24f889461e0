//! Puts errors in the place of the answers to the runtime's own system calls. For tests, and only in builds with the
//! feature `inject`.
//!
//! `sys!`, the guest's `raw_syscall` and the start of activations ask [`answer`] before they enter the kernel. A call that
//! is answered here is not made. Only errors are given that the kernel, its limits or a container's filter can give to a
//! correct call ([`TABLE`]). A call that always succeeds (`gettid`, `rt_sigprocmask`, a wake-up) is reported as reached and
//! left alone.
//!
//! - `UPCALL_INJECT=seed=S,every=N[,skip=K][,call=NAME:NAME...][,error=NAME][,spare=NAME:NAME...]`: each call that may fail
//!   does so with a chance of 1 in N, drawn from the seed and the number of the call. The first K calls do not fail. If
//!   calls are named, only those fail; if an error is named, only with that. Spared calls never fail.
//! - `UPCALL_INJECT_LOG=FILE`: gets a line for each place that was reached (`reached FILE:LINE CALL ERRORS`), for each
//!   error (`gave FILE:LINE CALL ERROR`), and for each thread that the program is refused because the kernel has not given
//!   what it needs (`refused FILE:LINE clone`). The program sees the last kind.
//!
//! A call that the program asks for itself never fails here: the program would see an error that it does not see natively.

use core::panic::Location;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use libc::{
    EACCES, EAGAIN, EINTR, EINVAL, EMFILE, ENFILE, ENOMEM, ENOSPC, ENOSYS, EPERM, ESRCH,
    FUTEX_CMD_MASK, FUTEX_WAIT,
};

use crate::sys::{Answer, arch};

struct Call {
    number: i64,
    name: &'static [u8],
    errors: &'static [i32],
}

macro_rules! table {
    ($($(#[$where:meta])? $name:ident: $($error:ident)*;)+) => {
        /// The calls, and what each may fail with although nobody has made a mistake.
        static TABLE: &[Call] = &[$($(#[$where])? Call {
            number: libc::$name,
            name: stringify!($name).as_bytes(),
            errors: &[$($error),*],
        },)+];
    };
}

table! {
    #[cfg(target_arch = "x86_64")]
    SYS_arch_prctl: ;
    SYS_clock_gettime: ;
    SYS_clone: EAGAIN ENOMEM;
    SYS_close: ;
    SYS_epoll_create1: EMFILE ENFILE ENOMEM;
    SYS_epoll_ctl: ENOMEM ENOSPC;
    SYS_epoll_pwait: EINTR;
    SYS_eventfd2: EMFILE ENFILE ENOMEM;
    SYS_exit: ;
    SYS_exit_group: ;
    SYS_fcntl: EMFILE;
    SYS_fstat: ENOMEM;
    SYS_ftruncate: EINTR ENOSPC;
    SYS_futex: EINTR EAGAIN;
    SYS_getcpu: ;
    SYS_geteuid: ;
    SYS_getpid: ;
    SYS_getrusage: ;
    SYS_getsockopt: ENOMEM;
    SYS_gettid: ;
    SYS_getuid: ;
    SYS_kill: EPERM;
    SYS_madvise: EINVAL ENOMEM EAGAIN;
    SYS_memfd_create: ;
    SYS_membarrier: ENOMEM;
    SYS_mmap: ENOMEM EAGAIN;
    SYS_mprotect: ENOMEM;
    SYS_munmap: ENOMEM;
    SYS_nanosleep: EINTR;
    SYS_newfstatat: EACCES ENOMEM;
    SYS_openat: EINTR EMFILE ENFILE ENOMEM EACCES;
    SYS_perf_event_open: EACCES EMFILE ENOMEM ENOSYS;
    #[cfg(target_arch = "x86_64")]
    SYS_poll: EINTR ENOMEM;
    SYS_prctl: EINVAL;
    SYS_pread64: EINTR ENOMEM ESRCH;
    SYS_prlimit64: EPERM;
    SYS_pwrite64: EINTR;
    SYS_read: EINTR ENOMEM;
    SYS_readlinkat: EACCES ENOMEM;
    SYS_rt_sigaction: ;
    SYS_rt_sigpending: ;
    SYS_rt_sigprocmask: ;
    SYS_rt_sigqueueinfo: EAGAIN;
    SYS_rt_sigtimedwait: EAGAIN EINTR;
    SYS_rt_tgsigqueueinfo: EAGAIN;
    SYS_sched_getaffinity: ENOMEM;
    SYS_sched_setaffinity: EINVAL ENOMEM EPERM;
    SYS_sched_setscheduler: EPERM;
    SYS_sched_yield: ;
    SYS_sigaltstack: ;
    SYS_tgkill: ;
    SYS_timer_create: EAGAIN ENOMEM;
    SYS_timer_delete: ;
    SYS_timer_settime: ;
    SYS_timerfd_create: EMFILE ENFILE ENOMEM;
    SYS_timerfd_settime: ;
    SYS_write: EINTR EAGAIN;
}

const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;

const NAMES: &[(i32, &[u8])] = &[
    (EACCES, b"EACCES"),
    (EAGAIN, b"EAGAIN"),
    (EINTR, b"EINTR"),
    (EINVAL, b"EINVAL"),
    (EMFILE, b"EMFILE"),
    (ENFILE, b"ENFILE"),
    (ENOMEM, b"ENOMEM"),
    (ENOSPC, b"ENOSPC"),
    (ENOSYS, b"ENOSYS"),
    (EPERM, b"EPERM"),
    (ESRCH, b"ESRCH"),
];

fn name(error: i32) -> &'static [u8] {
    let found = NAMES.iter().find(|(number, _)| *number == error);
    found.map_or(b"?", |(_, name)| name)
}

/// Nothing is injected before the settings are read: the loader runs other constructors first.
static ON: AtomicBool = AtomicBool::new(false);
static SEED: AtomicU64 = AtomicU64::new(0);
static EVERY: AtomicU64 = AtomicU64::new(0);
static SKIP: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicU64 = AtomicU64::new(0);
static ONLY_CALL: AtomicPtr<libc::c_char> = AtomicPtr::new(ptr::null_mut());
static ONLY_ERROR: AtomicPtr<libc::c_char> = AtomicPtr::new(ptr::null_mut());
static SPARED: AtomicPtr<libc::c_char> = AtomicPtr::new(ptr::null_mut());
static LOG: AtomicPtr<libc::c_char> = AtomicPtr::new(ptr::null_mut());

/// The places that were reached, by hash; full, further ones are reported each time.
const PLACES: usize = 1024;
static REACHED: [AtomicPtr<Location<'static>>; PLACES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; PLACES];

/// Reads the settings. Called once, before the program's own code runs: may allocate.
pub fn configure() {
    let Ok(text) = std::env::var("UPCALL_INJECT") else {
        return;
    };
    let leak =
        |text: &str| std::ffi::CString::new(text).map_or(ptr::null_mut(), |it| it.into_raw());
    for setting in text.split(',') {
        match setting.split_once('=') {
            Some(("seed", value)) => SEED.store(value.parse().unwrap_or(0), Ordering::Relaxed),
            Some(("every", value)) => EVERY.store(value.parse().unwrap_or(0), Ordering::Relaxed),
            Some(("skip", value)) => SKIP.store(value.parse().unwrap_or(0), Ordering::Relaxed),
            Some(("call", value)) => ONLY_CALL.store(leak(value), Ordering::Relaxed),
            Some(("spare", value)) => SPARED.store(leak(value), Ordering::Relaxed),
            Some(("error", value)) => ONLY_ERROR.store(leak(value), Ordering::Relaxed),
            _ => {}
        }
    }
    if let Ok(path) = std::env::var("UPCALL_INJECT_LOG") {
        LOG.store(leak(&path), Ordering::Relaxed);
    }
    ON.store(true, Ordering::Relaxed);
}

/// The error that takes the place of this call, if one does.
///
/// # Upcall safety
///
/// Everywhere: its own system calls are made directly.
#[track_caller]
pub fn answer(number: i64, words: &[usize; 6]) -> Option<Answer> {
    if !ON.load(Ordering::Relaxed) {
        return None;
    }
    let place = Location::caller();
    let call = TABLE.iter().find(|call| call.number == number);
    let (called, errors) = call.map_or((&b"SYS_unknown"[..], &[][..]), |call| {
        (&call.name[4..], possible(call, words))
    });
    if is_new(place) {
        report(b"reached ", place, called, errors);
    }
    let every = EVERY.load(Ordering::Relaxed);
    if errors.is_empty() || every == 0 || !is_wanted(&ONLY_CALL, called) || is_spared(called) {
        return None;
    }
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let drawn = draw(number);
    if number < SKIP.load(Ordering::Relaxed) || !drawn.is_multiple_of(every) {
        return None;
    }
    let wanted = || {
        errors
            .iter()
            .filter(|&&error| is_wanted(&ONLY_ERROR, name(error)))
    };
    let count = wanted().count() as u64;
    let error = *wanted().nth(((drawn >> 32) % count.max(1)) as usize)?;
    report(b"gave ", place, called, &[error]);
    Some(-error as Answer)
}

/// The program is refused a thread.
///
/// # Upcall safety
///
/// Everywhere.
#[track_caller]
pub fn refused() {
    if ON.load(Ordering::Relaxed) {
        report(b"refused ", Location::caller(), b"clone", &[]);
    }
}

/// What depends on the words: a wake-up, F_GETFL, names, timer slack and a write to an eventfd do not fail.
fn possible(call: &Call, words: &[usize; 6]) -> &'static [i32] {
    let never = match call.number {
        libc::SYS_futex => words[1] as i32 & FUTEX_CMD_MASK != FUTEX_WAIT,
        libc::SYS_fcntl => words[1] as i32 != libc::F_DUPFD_CLOEXEC,
        libc::SYS_write => words[2] == 8,
        libc::SYS_epoll_ctl => words[1] as i32 == libc::EPOLL_CTL_DEL,
        // The kernel has room, as the address is replaced.
        libc::SYS_mmap => words[3] as i32 & libc::MAP_FIXED != 0,
        libc::SYS_prctl => words[0] != PR_SET_SYSCALL_USER_DISPATCH,
        libc::SYS_rt_sigqueueinfo => needs_no_room(words[1], words[2]),
        libc::SYS_rt_tgsigqueueinfo => needs_no_room(words[2], words[3]),
        _ => false,
    };
    if never { &[] } else { call.errors }
}

/// Without room to queue it the kernel loses what comes with a signal rather than the signal, except for
/// those that programs count: real-time signals that are not sent as kill(2) sends them (signal(7)).
fn needs_no_room(signal: usize, information: usize) -> bool {
    const FIRST_REAL_TIME: usize = 32;
    const SI_USER: i32 = 0;
    // SAFETY: the caller's siginfo_t, which the kernel would read: the code is its third word.
    signal < FIRST_REAL_TIME || unsafe { *(information as *const i32).add(2) } == SI_USER
}

fn is_wanted(only: &AtomicPtr<libc::c_char>, name: &[u8]) -> bool {
    is_among(only, name).unwrap_or(true)
}

fn is_spared(name: &[u8]) -> bool {
    is_among(&SPARED, name).unwrap_or(false)
}

/// Whether a list has the name; `None`: there is no list.
fn is_among(list: &AtomicPtr<libc::c_char>, name: &[u8]) -> Option<bool> {
    let list = list.load(Ordering::Relaxed);
    if list.is_null() {
        return None;
    }
    // SAFETY: a string that lives for ever.
    let names = unsafe { core::ffi::CStr::from_ptr(list) }.to_bytes();
    Some(names.split(|&byte| byte == b':').any(|one| one == name))
}

/// The number that belongs to this one: splitmix64.
fn draw(number: u64) -> u64 {
    let step = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut mixed = SEED.load(Ordering::Relaxed).wrapping_add(step);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn is_new(place: &'static Location<'static>) -> bool {
    let own = ptr::from_ref(place).cast_mut();
    let start = own as usize / size_of::<Location<'_>>();
    for step in 0..PLACES {
        let slot = &REACHED[(start + step) % PLACES];
        match slot.compare_exchange(ptr::null_mut(), own, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(there) if there == own => return false,
            Err(_) => {}
        }
    }
    true
}

/// One write(2) of one line to a file that is opened for it: nothing stays in the program's table.
fn report(verb: &[u8], place: &Location<'_>, call: &[u8], errors: &[i32]) {
    let path = LOG.load(Ordering::Relaxed);
    if path.is_null() {
        return;
    }
    let mut line = [0u8; 192];
    let mut used = 0;
    let mut put = |text: &[u8]| {
        let take = text.len().min(line.len() - 1 - used);
        line[used..used + take].copy_from_slice(&text[..take]);
        used += take;
    };
    let mut digits = [0u8; 10];
    let mut first = digits.len();
    let mut rest = place.line();
    while rest != 0 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    put(verb);
    put(place.file().as_bytes());
    put(b":");
    put(&digits[first..]);
    put(b" ");
    put(call);
    for error in errors {
        put(b" ");
        put(name(*error));
    }
    line[used] = b'\n';
    let flags = (libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC) as usize;
    let at = libc::AT_FDCWD as usize;
    // SAFETY: the path ends with a zero; reads the line; closes what was opened here.
    unsafe {
        let file = arch::call(libc::SYS_openat, [at, path as usize, flags, 0o600, 0, 0]);
        if file >= 0 {
            let words = [file as usize, line.as_ptr() as usize, used + 1, 0, 0, 0];
            arch::call(libc::SYS_write, words);
            arch::call(libc::SYS_close, [file as usize, 0, 0, 0, 0, 0]);
        }
    }
}
