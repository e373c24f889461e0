//! Preempts the runtime at any instruction, by the trap flag, on processors that have one.
//!
//! A vessel that is resumed may be *armed* with a number of instructions. Each instruction then ends in SIGTRAP. The handler
//! counts down. At zero it goes back to the machine from the middle of the runtime, as a kernel's timer interrupt would.
//! Only vessels inside the runtime and outside of the simulated kernel are stepped: the test's own code and the allocator
//! are not made to be interrupted.

use std::cell::Cell;

use crate::machine::Machine;

thread_local! {
    /// The machine whose vessels are stepped, and how many instructions are left.
    static STEPPED: Cell<(*const Machine, u64)> = const { Cell::new((std::ptr::null(), 0)) };
}

/// From here on the running vessel is stepped, for so many instructions.
#[cfg(target_arch = "x86_64")]
pub(super) fn arm(machine: &Machine, instructions: u64) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: a valid action; the handler saves and restores everything by the signal frame.
        // Not deferred: other vessels are stepped while one waits inside of its handler.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = trapped as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            assert_eq!(
                libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()),
                0
            );
        }
    });
    STEPPED.set((machine, instructions));
    // SAFETY: sets the trap flag, which the handler takes away again.
    unsafe {
        std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
    }
}

/// Not on this processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn arm(_machine: &Machine, _instructions: u64) {}

/// No vessel is stepped any more.
pub(super) fn disarm() {
    STEPPED.set((std::ptr::null(), 0));
}

#[cfg(target_arch = "x86_64")]
extern "C" fn trapped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    const TRAP_FLAG: i64 = 0x100;
    // SAFETY: the kernel's frame.
    let flags = unsafe { &mut (*context).uc_mcontext.gregs[libc::REG_EFL as usize] };
    let (machine, left) = STEPPED.get();
    // SAFETY: null, or the machine of the run that is under way.
    let Some(machine) = (unsafe { machine.as_ref() }) else {
        *flags &= !TRAP_FLAG;
        return;
    };
    if machine.is_quiet() {
        *flags &= !TRAP_FLAG;
        disarm();
        return;
    }
    if left > 0 {
        STEPPED.set((machine, left - 1));
        return;
    }
    let next = machine.preempt();
    STEPPED.set((machine, next));
}
