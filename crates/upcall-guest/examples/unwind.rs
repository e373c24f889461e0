//! Steps one instruction at a time through a system call and takes a backtrace at each: from
//! every instruction on the way the caller must be found.
//!
//! Run it plain or under the `passthrough` library; the tests do both.

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn main() {}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn main() {
    std::process::exit(program::run());
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod program {
    use std::arch::global_asm;
    use std::ffi::c_void;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const TRAP_FLAG: usize = 0x100;

    // SAFETY of the assembly: a C function that keeps its callee-saved register and sets the
    // trap flag around one system call, with and without a frame of its own on the stack.
    global_asm!(
        ".pushsection .text",
        ".globl stepped",
        ".type stepped,@function",
        "stepped:",
        ".cfi_startproc",
        "push rbx",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbx, -16",
        "mov rbx, 0x1234",
        "pushfq",
        ".cfi_adjust_cfa_offset 8",
        "or qword ptr [rsp], {trap}",
        "popfq",
        ".cfi_adjust_cfa_offset -8",
        "mov eax, edi",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        "lea rdx, [rsp + 16]",
        "syscall",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "nop",
        "pushfq",
        ".cfi_adjust_cfa_offset 8",
        "and qword ptr [rsp], {no_trap}",
        "popfq",
        ".cfi_adjust_cfa_offset -8",
        "pop rbx",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        ".size stepped, . - stepped",
        ".popsection",
        trap = const TRAP_FLAG,
        no_trap = const !(TRAP_FLAG as i32),
    );

    #[repr(C)]
    struct Context(c_void);

    unsafe extern "C" {
        fn stepped(number: u64) -> isize;
        fn _Unwind_Backtrace(
            each: unsafe extern "C" fn(*mut Context, *mut c_void) -> i32,
            data: *mut c_void,
        ) -> i32;
        fn _Unwind_GetIP(context: *mut Context) -> usize;
        fn _Unwind_GetGR(context: *mut Context, register: i32) -> usize;
        fn _Unwind_FindEnclosingFunction(pc: *mut c_void) -> *mut c_void;
    }

    static STEPS: AtomicUsize = AtomicUsize::new(0);
    static ELSEWHERE: AtomicUsize = AtomicUsize::new(0);
    static LOST: AtomicUsize = AtomicUsize::new(0);
    static WRONG: AtomicUsize = AtomicUsize::new(0);

    #[derive(Default)]
    struct Seen {
        callee: bool,
        caller: bool,
        frames: usize,
    }

    unsafe extern "C" fn each(context: *mut Context, data: *mut c_void) -> i32 {
        // SAFETY: our own record, and the unwinder's context.
        unsafe {
            let seen = &mut *data.cast::<Seen>();
            seen.frames += 1;
            let pc = _Unwind_GetIP(context);
            let inside = pc.saturating_sub(1) as *mut c_void;
            let function = _Unwind_FindEnclosingFunction(inside) as usize;
            if function == stepped as *const () as usize {
                seen.callee = true;
                // Before its first instructions are done rbx is the caller's.
                let early = pc < function + 12;
                if !early && pc < function + 40 && _Unwind_GetGR(context, 3) != 0x1234 {
                    WRONG.fetch_add(1, Ordering::Relaxed);
                }
            }
            seen.caller |= function == call as *const () as usize;
        }
        0
    }

    unsafe extern "C" fn on_step(
        _signal: i32,
        _info: *mut libc::siginfo_t,
        context: *mut libc::ucontext_t,
    ) {
        let mut seen = Seen::default();
        // SAFETY: the kernel's context; the backtrace runs on this stack.
        let pc = unsafe {
            _Unwind_Backtrace(each, (&raw mut seen).cast());
            (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as usize
        };
        let start = stepped as *const () as usize;
        STEPS.fetch_add(1, Ordering::Relaxed);
        if !(start..start + 64).contains(&pc) {
            ELSEWHERE.fetch_add(1, Ordering::Relaxed);
        }
        if !(seen.callee && seen.caller) {
            LOST.fetch_add(1, Ordering::Relaxed);
            eprintln!("lost at {pc:#x} after {} frames", seen.frames);
        }
    }

    #[inline(never)]
    extern "C" fn call(number: u64) -> isize {
        // SAFETY: the call has no arguments.
        let result = unsafe { stepped(number) };
        std::hint::black_box(result)
    }

    pub fn run() -> i32 {
        // SAFETY: a handler for a signal that only `stepped` raises.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_step as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut());
        }
        let process = call(libc::SYS_getpid as u64);
        let number = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        let right = process == std::process::id() as isize
            && number(&STEPS) > 0
            && number(&LOST) == 0
            && number(&WRONG) == 0;
        eprintln!(
            "{} steps, {} of them outside the function, {} lost, {} with a wrong register",
            number(&STEPS),
            number(&ELSEWHERE),
            number(&LOST),
            number(&WRONG),
        );
        println!("{}", if right { "every caller found" } else { "WRONG" });
        i32::from(!right)
    }
}
