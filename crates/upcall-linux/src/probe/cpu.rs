//! Features of the processor and of the kernel's per-processor interfaces.

use std::sync::atomic::{AtomicU32, Ordering};

use super::child::{self, Ended, errno};
use super::{Finding, os_error};
use crate::arch::{self, RSEQ_SIGNATURE, base};

/// Whether the guest can rewrite the system calls of programs for this processor.
#[must_use]
pub fn processor() -> Finding {
    const NAME: &str = "processor";
    if arch::SERVES_PROGRAMS {
        Finding::works(NAME, format!("{}: programs are rewritten", arch::NAME))
    } else {
        Finding::fails(
            NAME,
            format!(
                "{}: the guest has no decoder, stubs and entry for it",
                arch::NAME
            ),
            "run on x86-64: another processor needs an `arch` folder in the guest",
        )
    }
}

/// Writes the thread pointer without a system call (`wrfsbase`), in a child.
#[must_use]
pub fn fsgsbase() -> Finding {
    const NAME: &str = "fsgsbase";
    let allowed = base::is_writable();
    let said = if allowed {
        "the kernel allows it (AT_HWCAP2)"
    } else {
        "the kernel does not allow it (AT_HWCAP2)"
    };
    let ended = child::run(rewrite_thread_pointer);
    if allowed && ended == Ended::Works {
        Finding::works(
            NAME,
            format!("{said}, and the thread pointer was written in user mode"),
        )
    } else {
        Finding::fails(
            NAME,
            format!("{said}, and writing the thread pointer in a child: {ended}"),
            "Linux 5.9 or later on a processor with FSGSBASE (Intel since 2012, AMD since \
             2017), without nofsgsbase on the kernel's command line",
        )
    }
}

/// Where the instruction is not allowed the child dies of SIGILL, as the parent expects.
fn rewrite_thread_pointer() -> Result<(), i32> {
    if base::rewrite() {
        Ok(())
    } else {
        Err(libc::EIO)
    }
}

/// The kernel's `struct rseq`, as first published (32 bytes).
#[repr(C, align(32))]
struct Rseq {
    cpu_id_start: AtomicU32,
    cpu_id: AtomicU32,
    rest: [u32; 6],
}

/// The value of `cpu_id` in an area that was never registered.
const RSEQ_UNREGISTERED: u32 = u32::MAX;

/// Registers an rseq area on a kernel thread that has none, and checks that the kernel
/// keeps its processor number.
///
/// The C library may have registered one for every thread it makes, and there can be but one
/// a thread; so the probe runs in a child that first gives the library's back.
#[must_use]
pub fn rseq() -> Finding {
    const NAME: &str = "rseq";
    let library = library_area();
    match child::run(|| register_own(library)) {
        Ended::Works => Finding::works(
            NAME,
            format!(
                "registered an area and the kernel keeps its processor number{}",
                if library.is_some() {
                    "; the C library registers its own for each thread"
                } else {
                    ""
                }
            ),
        ),
        ended => Finding::fails(
            NAME,
            format!("registering an area: {ended}"),
            "Linux 4.18 or later built with CONFIG_RSEQ, and a sandbox that allows rseq",
        ),
    }
}

/// Address and size of the area that the C library registered for the calling thread.
fn library_area() -> Option<(usize, u32)> {
    // SAFETY: looks up two data symbols that glibc 2.35 and later export as ptrdiff_t and
    // unsigned int, constant after start.
    let (offset, size) = unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
        if offset.is_null() || size.is_null() {
            return None;
        }
        (offset.cast::<isize>().read(), size.cast::<u32>().read())
    };
    // glibc says 0 where the registration failed; it registers 32 bytes at least.
    (size > 0).then(|| {
        (
            base::thread_pointer().wrapping_add_signed(offset),
            size.max(32),
        )
    })
}

fn register_own(library: Option<(usize, u32)>) -> Result<(), i32> {
    const UNREGISTER: i32 = 1;
    if let Some((address, size)) = library {
        // SAFETY: gives back, in this child alone, the area that the library registered.
        if unsafe { libc::syscall(libc::SYS_rseq, address, size, UNREGISTER, RSEQ_SIGNATURE) } != 0
        {
            return Err(errno());
        }
    }
    let area = Rseq {
        cpu_id_start: AtomicU32::new(0),
        cpu_id: AtomicU32::new(RSEQ_UNREGISTERED),
        rest: [0; 6],
    };
    // SAFETY: `area` is aligned, of the size given, and lives until it is given back below.
    if unsafe { libc::syscall(libc::SYS_rseq, &raw const area, 32, 0, RSEQ_SIGNATURE) } != 0 {
        return Err(errno());
    }
    let kept = keeps_processor(&area);
    // SAFETY: the registration made above.
    unsafe {
        libc::syscall(
            libc::SYS_rseq,
            &raw const area,
            32,
            UNREGISTER,
            RSEQ_SIGNATURE,
        )
    };
    if kept { Ok(()) } else { Err(libc::EIO) }
}

/// Whether the area's number is that of `getcpu`, between two readings of the area that
/// agree (a move in between shows as a difference and is read again).
fn keeps_processor(area: &Rseq) -> bool {
    loop {
        let before = area.cpu_id.load(Ordering::Relaxed);
        let mut processor = 0u32;
        // SAFETY: `processor` is valid for the call; the other two arguments may be null.
        let got = unsafe { libc::syscall(libc::SYS_getcpu, &raw mut processor, 0, 0) };
        let after = area.cpu_id.load(Ordering::Relaxed);
        if before == after {
            return got == 0 && before == processor;
        }
    }
}

/// Registers for and issues one private expedited barrier.
#[must_use]
pub fn membarrier() -> Finding {
    const NAME: &str = "membarrier";
    const PRIVATE_EXPEDITED: i32 = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
    for (what, command) in [
        ("registering", REGISTER_PRIVATE_EXPEDITED),
        ("the barrier", PRIVATE_EXPEDITED),
    ] {
        // SAFETY: takes no memory; registering twice, or in vain, does no harm.
        if unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } != 0 {
            return Finding::fails(
                NAME,
                format!("{what}: {}", os_error()),
                "Linux 4.14 or later built with CONFIG_MEMBARRIER, and a sandbox that allows \
                 membarrier",
            );
        }
    }
    Finding::works(
        NAME,
        "a private expedited barrier was registered and issued",
    )
}
