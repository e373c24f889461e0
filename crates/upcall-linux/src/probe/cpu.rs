//! Features of the processor and of how the kernel lets programs use it.

use super::child::{self, Ended};
use super::{Finding, os_error};
use crate::state::base;
use crate::sys::arch;

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

/// Registers for and issues one barrier that makes each processor of the process fetch its instructions anew.
#[must_use]
pub fn membarrier() -> Finding {
    const NAME: &str = "membarrier";
    const SYNC_CORE: i32 = 1 << 5;
    const REGISTER_SYNC_CORE: i32 = 1 << 6;
    for (what, command) in [
        ("registering", REGISTER_SYNC_CORE),
        ("the barrier", SYNC_CORE),
    ] {
        // SAFETY: takes no memory; registering twice, or in vain, does no harm.
        if unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } != 0 {
            return Finding::fails(
                NAME,
                format!("{what}: {}", os_error()),
                "Linux 4.16 or later built with CONFIG_MEMBARRIER, and a sandbox that allows \
                 membarrier",
            );
        }
    }
    Finding::works(NAME, "a barrier for instructions was registered and issued")
}
