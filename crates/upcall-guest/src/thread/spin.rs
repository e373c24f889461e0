//! libc's spin locks: a thread that holds one is in a critical section, and one that waits for one gives way.
//!
//! The preloaded library has functions of these names, which the loader finds before libc's (`build.rs`). They call libc's own
//! for all that concerns the word, so that other processes, and code that reaches libc's functions in another way, use
//! the same locks:
//!
//! 1. *To lock*: the thread enters a section and tries. If the lock is taken it leaves the section again, and looks at the word
//!    until that has changed, for a moment. Then it gives way to other threads, and tries again. It does not give its processor
//!    to other programs.
//! 2. *To try*: the same, once.
//! 3. *To unlock*: libc's function, and then the thread leaves a section, if it is in one. So a lock that was taken otherwise
//!    ends at most a section too early. A lock that somebody else opens leaves its thread in a section, for
//!    the bound of all sections (`upcall_core`'s `state/section.rs`).
//!
//! Where no thread of the runtime calls on an activation, each function is libc's: in a process without threads, in the child of a
//! fork or of vfork, on a kernel thread that is no activation, and where the program has its own value in the pseudo-register.
//! So it is on Linux before 5.9, too: to find the thread there takes a system call.
//!
//! Approach rejected: to spin as libc does, in the section or not. With one virtual processor a waiter would then spin for the
//! rest of its slice whenever a holder waits in the kernel. `docs/adr/0047-critical-sections-of-the-program.md`.
//!
//! # Upcall safety
//!
//! For the program's own code, on its stack, also in handlers.

use core::ffi::{CStr, c_int, c_void};
use core::hint::spin_loop;
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use upcall_linux::{Runtime, Thread, base};

use crate::ground::attributes::GuestAttributes;
use crate::ground::record;
use crate::ground::state::GUEST;

/// Read by nobody. The compiler gives the linker the names of what a library exports, and the linker reads them as
/// patterns: by this one it exports the names that `build.rs` gives to the functions here. A function of such a name would
/// take libc's place in every program that links the crate, too.
#[unsafe(export_name = "pthread_spin_*")]
static EXPORTED: u8 = 0;

core::arch::global_asm!(".hidden \"pthread_spin_*\"");

/// How often a waiter looks at the word before it gives way, where the holder may be running.
const LOOKS: u32 = 64;

type Function = unsafe extern "C" fn(*mut c_int) -> c_int;

/// A function of libc's.
struct Libcs {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

static LOCK: Libcs = Libcs::named(c"pthread_spin_lock");
static TRYLOCK: Libcs = Libcs::named(c"pthread_spin_trylock");
static UNLOCK: Libcs = Libcs::named(c"pthread_spin_unlock");

/// True once [`prepare`] has found that threads can be told without a system call.
static MARKS: AtomicBool = AtomicBool::new(false);

impl Libcs {
    const fn named(name: &'static CStr) -> Self {
        Libcs {
            name,
            found: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Calls it.
    ///
    /// # Safety
    ///
    /// As the function.
    #[inline(always)]
    unsafe fn call(&self, word: *mut c_int) -> c_int {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: the caller's promise.
            return unsafe { self.find_and_call(word) };
        }
        // SAFETY: the function of that name, behind this library in the order of the loader: libc's, or one that the program has
        // put before libc's. All have this type. For the call the caller's promise.
        unsafe { transmute::<*mut c_void, Function>(found)(word) }
    }

    /// Before there are threads the first call of each function comes here.
    #[cold]
    #[inline(never)]
    unsafe fn find_and_call(&self, word: *mut c_int) -> c_int {
        if self.look().is_null() {
            // Without it the lock would not be one. The program has asked for a function that is nowhere else.
            let name = self.name.to_string_lossy();
            eprintln!("upcall: the C library has no {name}, which the program calls");
            std::process::abort();
        }
        // SAFETY: the caller's promise.
        unsafe { self.call(word) }
    }

    fn look(&self) -> *mut c_void {
        // SAFETY: the calling thread's own errno; dlsym with a constant name.
        let found = unsafe {
            let errno = *libc::__errno_location();
            let found = libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr());
            *libc::__errno_location() = errno;
            found
        };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Looks for libc's functions while there is one thread: later one that looks would wait for one that is in the loader.
pub fn prepare() {
    for function in [&LOCK, &TRYLOCK, &UNLOCK] {
        function.look();
    }
    MARKS.store(base::is_writable(), Ordering::Relaxed);
}

/// Returns true if some caller may be a thread of the runtime.
#[inline(always)]
fn may_mark() -> bool {
    GUEST.runtime().is_some() && MARKS.load(Ordering::Relaxed)
}

/// Returns the calling thread, if it is one of the runtime's on an activation. Called where [`may_mark`] holds, or did.
#[inline(always)]
fn own() -> Option<(&'static Runtime, &'static Thread)> {
    let runtime = GUEST.runtime()?;
    let thread = base::program_thread()?;
    // SAFETY: the register leads to the activation.
    let is_inside = unsafe { base::is_inside() };
    let is_own = !is_inside && !thread.guest().lent.load(Ordering::Relaxed);
    is_own.then_some((runtime, thread))
}

/// Leaves a section of the calling thread. The runtime may have changed since `thread` was found: a handler may have forked.
#[inline(always)]
fn leave(thread: &'static Thread) {
    if thread.leave_section() {
        give_way();
    }
}

/// Others were to run meanwhile.
#[cold]
#[inline(never)]
fn give_way() {
    if let Some((runtime, _)) = own() {
        runtime.end_section();
    }
}

/// Tries once, in a section, which goes on if that succeeds.
///
/// # Safety
///
/// As pthread_spin_trylock(3).
#[inline(always)]
unsafe fn attempt(thread: &'static Thread, word: *mut c_int) -> c_int {
    thread.enter_section();
    // SAFETY: the caller's promise.
    let answer = unsafe { TRYLOCK.call(word) };
    if answer != 0 {
        leave(thread);
    }
    answer
}

/// The lock was taken. Waits for it.
///
/// # Safety
///
/// As pthread_spin_lock(3).
#[cold]
#[inline(never)]
unsafe fn wait(word: *mut c_int) -> c_int {
    // SAFETY: the caller's promise: a word of libc's, which changes when the lock is opened.
    let content = unsafe { AtomicI32::from_ptr(word) };
    loop {
        // In the child of a fork, which a handler may have made, it is another thread or none.
        let Some((runtime, thread)) = own() else {
            // SAFETY: the caller's promise.
            return unsafe { LOCK.call(word) };
        };
        // Before it is tried: what is there if that fails is a taken lock, or has changed.
        let seen = content.load(Ordering::Relaxed);
        // SAFETY: the caller's promise.
        let answer = unsafe { attempt(thread, word) };
        if answer != libc::EBUSY {
            return answer;
        }
        // On the only virtual processor the holder does not run meanwhile.
        let looks = if runtime.vps().len() == 1 { 0 } else { LOOKS };
        let changed = (0..looks).any(|_| {
            spin_loop();
            content.load(Ordering::Relaxed) != seen
        });
        if !changed && let Some((runtime, _)) = own() {
            runtime.yield_to_threads();
        }
    }
}

/// # Safety
///
/// As pthread_spin_lock(3).
#[inline(never)]
unsafe fn lock(word: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Some((_, thread)) = own() else {
            return LOCK.call(word);
        };
        match attempt(thread, word) {
            libc::EBUSY => wait(word),
            answer => answer,
        }
    }
}

/// # Safety
///
/// As pthread_spin_trylock(3).
#[inline(never)]
unsafe fn try_lock(word: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match own() {
            Some((_, thread)) => attempt(thread, word),
            None => TRYLOCK.call(word),
        }
    }
}

/// # Safety
///
/// As pthread_spin_unlock(3).
#[inline(never)]
unsafe fn unlock(word: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    let answer = unsafe { UNLOCK.call(word) };
    if let Some((_, thread)) = own() {
        leave(thread);
    } else if let Some(thread) = record::current_thread() {
        // It may have entered the section before it became bound to this kernel thread. It runs beside the others.
        thread.leave_section();
    }
    answer
}

/// Makes the functions that the loader finds: in a process without threads each jumps to libc's. The linker finds them by name
/// (`build.rs`). The compiler does not export them, so libraries that link the crate do not either. They are not hidden: GNU ld
/// would hide the names that `build.rs` gives them, too.
macro_rules! instead {
    ($($name:literal $own:ident $libcs:ident $marked:ident,)*) => {$(
        unsafe extern "C" fn $own(word: *mut c_int) -> c_int {
            // SAFETY: the caller's promise, which is that of the function that this one replaces.
            unsafe {
                if may_mark() {
                    $marked(word)
                } else {
                    $libcs.call(word)
                }
            }
        }

        core::arch::global_asm!(
            ".pushsection .text, \"ax\", @progbits",
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ":"),
            ".cfi_startproc",
            "jmp {own}",
            ".cfi_endproc",
            concat!(".size ", $name, ", . - ", $name),
            ".popsection",
            own = sym $own,
        );
    )*};
}

instead! {
    "upcall_own_pthread_spin_lock" own_lock LOCK lock,
    "upcall_own_pthread_spin_trylock" own_trylock TRYLOCK try_lock,
    "upcall_own_pthread_spin_unlock" own_unlock UNLOCK unlock,
}
