//! Features of the processor and of the kernel's per-processor interfaces.

use std::sync::atomic::{AtomicU32, Ordering};

use super::child::{self, Ended, errno};
use super::{Finding, os_error};

/// Bit of AT_HWCAP2 by which the kernel allows `wrfsbase` in user mode.
const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// Writes the FS base with `wrfsbase`, in a child.
#[must_use]
pub fn fsgsbase() -> Finding {
    const NAME: &str = "fsgsbase";
    // SAFETY: reads the auxiliary vector.
    let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
    let ended = child::run(rewrite_fs_base);
    let said = format!("AT_HWCAP2 is {hwcap2:#x}");
    if hwcap2 & HWCAP2_FSGSBASE != 0 && ended == Ended::Works {
        Finding::works("fsgsbase", format!("{said}, and wrfsbase ran in user mode"))
    } else {
        Finding::fails(
            NAME,
            format!("{said}, and wrfsbase in a child: {ended}"),
            "Linux 5.9 or later on a processor with FSGSBASE (Intel since 2012, AMD since \
             2017), without nofsgsbase on the kernel's command line",
        )
    }
}

#[cfg(target_arch = "x86_64")]
fn rewrite_fs_base() -> Result<(), i32> {
    let (before, after): (u64, u64);
    // SAFETY: writes the value just read, so thread-local storage stays where it is; where
    // the instruction is not allowed this child dies of SIGILL, as the parent expects.
    unsafe {
        std::arch::asm!(
            "rdfsbase {before}",
            "wrfsbase {before}",
            "rdfsbase {after}",
            before = out(reg) before,
            after = out(reg) after,
            options(nostack, preserves_flags),
        );
    }
    if before == after {
        Ok(())
    } else {
        Err(libc::EIO)
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn rewrite_fs_base() -> Result<(), i32> {
    Err(libc::ENOSYS)
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
/// The signature that glibc uses on x86-64, required to be the same in every registration.
const RSEQ_SIGNATURE: u32 = 0x5305_3053;

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
    (size > 0).then(|| (thread_pointer().wrapping_add_signed(offset), size.max(32)))
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the x86-64 ABI keeps the thread pointer's own value at %fs:0.
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly));
    }
    pointer
}

#[cfg(not(target_arch = "x86_64"))]
fn thread_pointer() -> usize {
    0
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
