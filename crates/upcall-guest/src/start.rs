//! Start-up: when the library is loaded, before the program's own code; or when a program that links
//! the crate asks for it ([`embed`]).

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};

use upcall_linux::arch::RSEQ_SIGNATURE;
use upcall_linux::observe::{Probe, open_switch_ring};
use upcall_linux::probe::{StandbyMode, choose_unmeasured};
use upcall_linux::{affinity, base};

use crate::guest::{GUEST, Options, Policy};
use crate::patch::{Hooks, ObjectReport, patch_all};
use crate::{caller, dispatch, loads, obstacle, process, signal, table, threads};

/// By this name programs that link the crate find the library that `upcall run` has put before them.
#[unsafe(no_mangle)]
static UPCALL_GUEST_SERVES: AtomicBool = AtomicBool::new(false);

/// Whether this copy of the crate serves the process. In a shared library the name above may be another copy's.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Called by the loader.
extern "C" fn start() {
    if !is_preloaded() {
        return;
    }
    #[cfg(feature = "inject")]
    upcall_linux::inject::configure();
    if env::var_os("UPCALL_CHILDREN").is_some_and(|value| value == "0") {
        // The program itself is served, what it executes is not.
        // SAFETY: constructors run before the program's threads.
        unsafe { env::remove_var("LD_PRELOAD") };
    }
    // SAFETY: constructors run before the program's threads.
    unsafe { serve(Options::from_environment(), false) };
}

/// The process's system calls come to the guest from here on. `beside`: those in the object that holds
/// this crate too, but for our own.
///
/// # Safety
///
/// There is one thread, and no other guest in the process.
unsafe fn serve(options: Options, beside: bool) {
    GUEST.configure(options);
    base::detect();
    affinity::note();
    caller::prepare();
    threads::note_libc();
    unregister_rseq();
    signal::inherit_actions();
    let hooks = Hooks {
        handler: table::handler,
        after: process::after,
        loader: true,
        beside,
    };
    // SAFETY: the caller's promise; the hooks are this crate's.
    let report = unsafe { patch_all(hooks) };
    loads::watch();
    dispatch::refused(report.objects.iter().map(ObjectReport::left_alone).sum());
    // Release: pairs with the Acquire in `server`, in whatever copy of the crate.
    UPCALL_GUEST_SERVES.store(true, Ordering::Release);
    SERVES.store(true, Ordering::Release);
}

/// Why a program cannot be served from within.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotServed {
    /// What this process is.
    Process(&'static str),
    /// The process has so many kernel threads already.
    HasThreads(usize),
    /// The kernel gives no memory, descriptors or kernel threads: an error number.
    Refused(i32),
}

/// Who serves the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// The library that `upcall run` has put before the program.
    Preloaded,
    /// This copy of the crate.
    Own,
}

/// Who serves the process, if somebody does.
pub fn server() -> Option<Server> {
    // SAFETY: dlsym with a constant name; of that name there is an AtomicBool, which lives for ever.
    let first = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"UPCALL_GUEST_SERVES".as_ptr());
        found.cast::<AtomicBool>().as_ref()
    };
    // Acquire: pairs with the Release in `serve`.
    let serves = |flag: &AtomicBool| flag.load(Ordering::Acquire);
    if serves(&SERVES) {
        return Some(Server::Own);
    }
    first
        .filter(|&flag| serves(flag))
        .map(|_| Server::Preloaded)
}

/// Serves a program that links the crate, and starts the runtime: the caller is its first thread. In a
/// process that is served already nothing is done.
///
/// # Errors
///
/// [`NotServed`]. After [`NotServed::Refused`] the process is served without a runtime, and its first
/// new thread tries again.
pub fn embed(options: Options) -> Result<Server, NotServed> {
    // First: in a static program nothing can be asked by name.
    if let Some(why) = obstacle::find() {
        return Err(NotServed::Process(why));
    }
    if let Some(server) = server() {
        return Ok(server);
    }
    let threads = kernel_threads();
    if threads != 1 {
        return Err(NotServed::HasThreads(threads));
    }
    // SAFETY: there is one thread; nobody serves the process.
    unsafe { serve(options, true) };
    GUEST
        .start()
        .map(|_| Server::Own)
        .map_err(|error| NotServed::Refused(error.0))
}

/// How many kernel threads the process has; where nobody says, whether libc knows of more than one.
fn kernel_threads() -> usize {
    if let Ok(threads) = std::fs::read_dir("/proc/self/task") {
        return threads.count();
    }
    // SAFETY: dlsym with a constant name; the symbol is a char of libc's (glibc 2.32 on).
    let single = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr());
        found.cast::<u8>().as_ref()
    };
    if single.is_none_or(|single| *single == 0) {
        2
    } else {
        1
    }
}

/// Whether this code is in the library that `upcall run` preloads. Programs and libraries that link
/// the crate, its tests and examples among them, decide themselves.
fn is_preloaded() -> bool {
    // SAFETY: an all-zero Dl_info is valid; dladdr fills it in for an address of ours.
    let path = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let found = libc::dladdr(start as *const libc::c_void, &raw mut info) != 0;
        if !found || info.dli_fname.is_null() {
            return false;
        }
        std::ffi::CStr::from_ptr(info.dli_fname)
    };
    let path = path.to_string_lossy();
    path.ends_with("/libupcall_guest.so")
        || env::var("UPCALL_GUEST_LIB").is_ok_and(|named| *path == *named)
}

#[used]
// SAFETY: the loader calls the functions in this section once, at start.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

impl Options {
    /// What the variables say that `upcall run` sets, and the best that works here for the others.
    pub fn from_environment() -> Self {
        let number = |name: &str| {
            env::var(name)
                .ok()
                .and_then(|value| value.parse::<u64>().ok())
        };
        Options {
            vps: number("UPCALL_VPS").unwrap_or(0) as u32,
            stats: number("UPCALL_STATS").unwrap_or(0) != 0,
            sentinel: number("UPCALL_SENTINEL").map_or_else(
                || choose_unmeasured().mode == StandbyMode::Sentinel,
                |value| value != 0,
            ),
            probe: match env::var("UPCALL_PROBE").as_deref() {
                Ok("perf") => Probe::Perf,
                Ok("proc") => Probe::Proc,
                Ok("yields") => Probe::Yields,
                _ => best_probe(),
            },
            slice_ns: number("UPCALL_SLICE_US")
                .map_or(5_000_000, |us| us.clamp(100, 1_000_000) * 1000),
            gang: number("UPCALL_GANG").unwrap_or(1) != 0,
            policy: env::var("UPCALL_POLICY")
                .ok()
                .and_then(|name| Policy::named(&name))
                .unwrap_or(Policy::ForkedFirst),
        }
    }
}

/// The best probe that works here; see [`upcall_linux::observe`].
fn best_probe() -> Probe {
    if std::path::Path::new("/proc/self/task").exists() {
        return Probe::Proc;
    }
    // SAFETY: at no particular place.
    match unsafe { open_switch_ring(0) } {
        Ok(ring) => {
            // SAFETY: a mapping made just now and used by nobody.
            unsafe { libc::munmap(ring as *mut _, 8192) };
            Probe::Perf
        }
        Err(_) => Probe::Yields,
    }
}

/// Takes back the restartable-sequence area that libc has registered for the first thread: it
/// will run on other kernel threads (rseq(2)).
fn unregister_rseq() {
    const RSEQ_FLAG_UNREGISTER: i64 = 1;
    const REGISTRATION_FAILED: u32 = -2i32 as u32;
    // SAFETY: dlsym with constant names; the symbols are words of libc's (glibc 2.35 on).
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
        if offset.is_null() || size.is_null() || *size.cast::<u32>() == 0 {
            return;
        }
        let area = (base::thread_pointer() as isize + *offset.cast::<isize>()) as *mut u32;
        for length in [32, *size.cast::<u32>() as i64] {
            if libc::syscall(
                libc::SYS_rseq,
                area,
                length,
                RSEQ_FLAG_UNREGISTER,
                RSEQ_SIGNATURE,
            ) == 0
            {
                break;
            }
        }
        area.add(1).write_volatile(REGISTRATION_FAILED);
    }
}
