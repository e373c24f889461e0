//! Start-up: when the library is loaded, before the program's own code; or when a program that links the crate asks for it
//! ([`embed`]).
//!
//! A library's constructor may make threads (OpenBLAS does). A thread that exists before the library starts would stay a
//! kernel thread: no thread of the runtime could wake it, and its return address may lie in code that is about to be
//! rewritten. So the preloaded library asks the loader to be initialized first (`DF_1_INITFIRST`, see `build.rs`). Its
//! constructor then runs before libc's own. Three consequences:
//!
//! 1. libc does not know the environment yet. The constructor's arguments name it (`take_environment`).
//! 2. Nothing may be called that needs a constructor of libc, of libgcc or of the program's `malloc`.
//! 3. The loader keeps this promise to one object, the last one that asks for it. So the library counts the kernel threads.
//!    If there is more than one, it leaves the program unchanged, and reports that in one line.

mod ready;
mod runtime;
mod timeline;

use std::env;
use std::ffi::{CStr, CString, OsString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};

use upcall_linux::VpRange;
use upcall_linux::arch::RSEQ_SIGNATURE;
use upcall_linux::base;
use upcall_linux::limits;
use upcall_linux::observe::{Probe, open_switch_ring};
use upcall_linux::probe::{StandbyMode, choose_unmeasured, quota_files};
use upcall_linux::quota;
use upcall_linux::turns;
use upcall_linux::variables::{self, Meaningless, signal_named};

use crate::call::serve as calls;
use crate::call::table::{FIRST, is_early};
use crate::ground::entry::raw_syscall;
use crate::ground::memory::Open;
use crate::ground::state::{Backend, GUEST, Options, Policy, SLICE_NS};
use crate::ground::{arch, heap, hooks, obstacle};
use crate::process::{self, loads, preload};
use crate::rewrite::kept;
use crate::rewrite::object::{self, Role};
use crate::rewrite::patch::{self, Extent, Hooks, ObjectReport};
use crate::signal::{self, caused, dispatch};
use crate::thread::{agents, bound, deadlines, shell};

/// By this name programs that link the crate find the library that `upcall run` has put before them.
#[unsafe(no_mangle)]
static UPCALL_GUEST_SERVES: AtomicBool = AtomicBool::new(false);

/// True if this copy of the crate serves the process. In a shared library the name above may be another copy's.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Called by the loader, with what it calls every constructor with.
extern "C" fn start(_count: c_int, _arguments: *mut *mut c_char, variables: *mut *mut c_char) {
    take_environment(variables);
    if !is_preloaded(variables) {
        return;
    }
    let threads = kernel_threads();
    // What a program starts may run in an emulator. That makes the process's threads itself.
    if obstacle::runs_under_valgrind() || threads == 0 {
        return;
    }
    if threads != 1 {
        say_not_served(threads);
        return;
    }
    #[cfg(feature = "inject")]
    upcall_linux::inject::configure();
    if env::var_os("UPCALL_CHILDREN").is_some_and(|value| value == "0") {
        // The program itself is served, what it executes is not.
        // SAFETY: there is one thread; the kernel has put the variables where they can be written.
        unsafe { preload::leave(variables) };
    }
    let (mut options, probe, _) = Options::of_variables();
    match probe {
        Some(probe) => options.probe = probe,
        // Most processes never have a thread: the best one is looked for when the first comes.
        None => ready::look_for_probe(),
    }
    // SAFETY: constructors run before the program's threads.
    unsafe { serve(options, false) };
    heap::trim();
}

/// Brings the process's system calls to the library from here on. With `beside`, also those in the object that holds this
/// crate, but for our own.
///
/// # Safety
///
/// There is one thread, and no other copy of the library serves the process.
unsafe fn serve(options: Options, beside: bool) {
    hooks::set(HOOKS);
    GUEST.configure(options);
    base::detect();
    unregister_rseq();
    signal::inherit_actions(beside);
    kept::note();
    turns::daemon::note();
    let hooks = Hooks {
        handler: calls::handler,
        after: process::after,
        loader: true,
        beside,
        is_first: is_early,
        first: FIRST,
    };
    let objects = object::loaded();
    // Several things are written there, one after another.
    let code = libc::PROT_READ | libc::PROT_EXEC;
    let loader = objects.iter().filter(|o| o.role == Role::Loader);
    let loader = loader
        .flat_map(|o| &o.segments)
        .find(|s| s.is_executable())
        .and_then(|s| Open::new(s.range.clone(), s.protection));
    let open = (Open::new(arch::reserved_stub_area(), code), loader);
    // SAFETY: the caller's promise; the hooks are this crate's.
    let report = unsafe {
        patch::install(hooks, &objects);
        patch::patch_objects(&objects, Extent::First)
    };
    let left_alone = |is_done: bool| -> usize {
        let objects = report
            .objects
            .iter()
            .filter(|o| o.left.is_none() == is_done);
        objects.map(ObjectReport::left_alone).sum()
    };
    // Those that are not done are counted when they are.
    let is_watched = loads::watch(objects, &report);
    drop(open);
    if !is_watched || left_alone(false) > 0 {
        ready::make();
    }
    dispatch::refused(left_alone(true));
    // Release: pairs with the Acquire in `server`, in any copy of the crate.
    UPCALL_GUEST_SERVES.store(true, Ordering::Release);
    SERVES.store(true, Ordering::Release);
}

/// What the lower floors ask of the higher ones.
const HOOKS: hooks::Hooks = hooks::Hooks {
    make_ready: ready::make,
    start: runtime::start,
    at_exit: runtime::at_exit,
    in_child: runtime::in_child,
    tick: deadlines::tick,
    go_stopped: bound::go_stopped,
    caused: caused::take,
    call_of_agents: agents::change,
    is_in_guard: shell::is_in_guard,
    stack: shell::stack_began_on,
    has_room: shell::has_room,
    report_overflow: shell::report_overflow,
};

/// The reasons why a program cannot be served from within.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotServed {
    /// What this process is.
    Process(&'static str),
    /// The process has this many kernel threads already.
    HasThreads(usize),
    /// The kernel gives no memory, descriptors or kernel threads: an error number.
    Refused(i32),
}

/// What serves the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// The library that `upcall run` has put before the program.
    Preloaded,
    /// This copy of the crate.
    Own,
}

/// Returns what serves the process, if anything does.
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

/// Returns how many kernel threads the process has. If procfs does not tell, libc tells if there is more than one. QEMU's
/// user mode tells of none.
fn kernel_threads() -> usize {
    // Has no effect, and works for a single-threaded process only (unshare(2)): cheaper than procfs.
    // SAFETY: as it says.
    if unsafe { raw_syscall(libc::SYS_unshare, [libc::CLONE_VM as u64, 0, 0, 0, 0, 0]) } == 0 {
        return 1;
    }
    // Not by read_dir: opendir(3) allocates, and the program's malloc may not be ready.
    if let Some(threads) = std::fs::read("/proc/self/stat")
        .ok()
        .and_then(|line| threads_of(&line))
    {
        return threads;
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

/// Returns the number of threads in a line of /proc/PID/stat (proc(5)). The command's name, which may hold anything, ends
/// with the last bracket.
fn threads_of(line: &[u8]) -> Option<usize> {
    let rest = &line[line.iter().rposition(|&byte| byte == b')')? + 1..];
    let field = rest.split(|&byte| byte == b' ').nth(18)?;
    str::from_utf8(field).ok()?.parse().ok()
}

/// Gives libc the environment, if its own constructor has not run yet. That one will set the same.
fn take_environment(variables: *mut *mut c_char) {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: a constructor's third argument is the process's environment; there is one thread, or others
    // that find the variable set.
    unsafe {
        if environ.is_null() {
            environ = variables;
        }
    }
}

/// Writes one line on standard error.
fn say_not_served(threads: usize) {
    let text = format!(
        "upcall: running natively: {threads} kernel threads exist already (another object of the program \
         is initialized before libupcall_guest.so)\n"
    );
    // SAFETY: the buffer lives through the call.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// Returns true if this code is in the library that `upcall run` preloads. Programs and libraries that link the crate,
/// its tests and examples among them, decide themselves.
fn is_preloaded(variables: *const *mut c_char) -> bool {
    // SAFETY: an all-zero Dl_info is valid; dladdr fills it in for an address of ours.
    let path = unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let found = libc::dladdr(start as *const libc::c_void, &raw mut info) != 0;
        if !found || info.dli_fname.is_null() {
            return false;
        }
        CStr::from_ptr(info.dli_fname)
    };
    let name = path.to_string_lossy();
    let preloaded = name.ends_with("/libupcall_guest.so")
        || env::var("UPCALL_GUEST_LIB").is_ok_and(|named| *name == *named);
    if preloaded {
        // SAFETY: what the loader has given to the constructor.
        unsafe { preload::note(path, variables) };
    }
    preloaded
}

#[used]
// SAFETY: the loader calls the functions in this section once, at start.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = start;

impl Options {
    /// Returns what the variables say (see [`variables`]), and the best that works here for the others. The second is an
    /// invalid variable, if there is one: its default holds.
    pub fn from_environment() -> (Self, Option<Meaningless>) {
        let (mut options, probe, meaningless) = Self::of_variables();
        options.probe = probe.unwrap_or_else(best_probe);
        (options, meaningless)
    }

    /// Takes as many virtual processors as there are allowed processors, within the range.
    pub fn set_vps(&mut self, range: VpRange) {
        let allowed = limits::allowed_processors().len();
        (self.vps, self.adapts) = (range.resolve(allowed), range.adapts(allowed));
        if self.adapts != 0 {
            quota::follow(quota_files());
        }
    }

    /// The same, and the probe that is asked for by name.
    fn of_variables() -> (Self, Option<Probe>, Option<Meaningless>) {
        let mut meaningless = None;
        let mut read = |name| {
            variables::read(name).unwrap_or_else(|found| {
                meaningless = Some(found);
                None
            })
        };
        let range = read("UPCALL_VPS").and_then(|value| value.parse::<VpRange>().ok());
        let mut number = |name| read(name).and_then(|value| value.parse::<u64>().ok());
        let mut options = Options {
            vps: 0,
            adapts: 0,
            share: number("UPCALL_SHARE").unwrap_or(0) as u32,
            stats: number("UPCALL_STATS").unwrap_or(0) != 0,
            trace: None,
            command: None,
            deadlocks: number("UPCALL_DEADLOCKS").unwrap_or(0) != 0,
            stacks: 0,
            comm: number("UPCALL_COMM").unwrap_or(0) != 0,
            sentinel: number("UPCALL_SENTINEL").map_or_else(
                || choose_unmeasured().mode == StandbyMode::Sentinel,
                |value| value != 0,
            ),
            probe: Probe::Proc,
            backend: Backend::Auto,
            slice_ns: number("UPCALL_SLICE_US").map_or(SLICE_NS, |us| us * 1000),
            takes_turns: number("UPCALL_GANG").unwrap_or(1) != 0,
            policy: Policy::ForkedFirst,
        };
        if let Some(range) = range {
            options.set_vps(range);
        }
        let mut path = |name| read(name).and_then(|path| kept_path(path.into()));
        options.trace = path("UPCALL_TRACE");
        options.command = path("UPCALL_COMMAND");
        let signal = read("UPCALL_STACKS");
        options.stacks = signal.and_then(|name| signal_named(&name)).unwrap_or(0);
        let shows_threads = options.deadlocks || options.stacks != 0;
        let probe = match read("UPCALL_PROBE").as_deref() {
            Some("perf") => Some(Probe::Perf),
            Some("proc") => Some(Probe::Proc),
            Some("yields") => Some(Probe::Yields),
            _ => None,
        };
        options.backend = match read("UPCALL_BACKEND").and_then(|name| Backend::named(&name)) {
            // A probe that is named is the one that is used.
            None | Some(Backend::Auto) if probe.is_some() => Backend::Standby,
            named => named.unwrap_or(Backend::Auto),
        };
        options.policy = read("UPCALL_POLICY")
            .and_then(|name| Policy::named(&name))
            .unwrap_or(Policy::ForkedFirst);
        if shows_threads && options.command.is_none() && meaningless.is_none() {
            meaningless = Some(Meaningless {
                name: "UPCALL_COMMAND",
                value: String::new(),
                expected: "the absolute path of the command upcall, which shows threads".into(),
            });
        }
        (options, probe, meaningless)
    }
}

/// Returns a path that is kept for ever; `None`: it is no absolute one.
pub fn kept_path(path: OsString) -> Option<&'static CStr> {
    let text = CString::new(path.into_vec()).ok()?;
    text.as_bytes()
        .starts_with(b"/")
        .then(|| &*Box::leak(text.into_boxed_c_str()))
}

/// Returns the best probe that works here; see [`upcall_linux::observe`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_brackets_and_blanks_hides_no_threads() {
        let line =
            b"7 (a) 1 (b) S 1 7 7 0 -1 4194560 104 0 0 0 0 0 0 0 20 0 3 0 5291 2596864 358\n";
        assert_eq!(threads_of(line), Some(3));
        assert_eq!(threads_of(b"7 (a) S 1"), None);
        assert_eq!(threads_of(b""), None);
    }
}
