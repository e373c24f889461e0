//! A library to preload that rewrites every loaded object and passes every system call on.
//!
//! `LD_PRELOAD=target/debug/examples/libpassthrough.so ls`. With `UPCALL_LOG=sites` it says what
//! it rewrote. `UPCALL_PASSTHROUGH` chooses more: `clobber` destroys every register that a
//! handler may, `trap` also turns on Syscall User Dispatch for the sites that stay.
//!
//! System call 1000000, which the kernel has not, is answered with 0 without a kernel entry: the
//! test programs time it, and tell by it that they are under the library.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod library {
    use std::arch::{asm, is_x86_feature_detected};
    use std::sync::atomic::{AtomicU32, Ordering};

    use upcall_guest::entry::{self, Frame};
    use upcall_guest::mask;
    use upcall_guest::rewrite::kept::First;
    use upcall_guest::rewrite::patch::{Hooks, patch_all};
    use upcall_guest::rewrite::sud;

    const ANSWERED_HERE: u64 = 1_000_000;

    static VECTORS: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn plain(frame: &mut Frame) {
        if frame.rax == ANSWERED_HERE {
            frame.rax = 0;
            return;
        }
        // SAFETY: the frame comes from an entry.
        unsafe { entry::native(frame) };
    }

    unsafe extern "C" fn clobber(frame: &mut Frame) {
        // SAFETY: every register that is destroyed is declared, or one that the C convention
        // lets a callee destroy; x87 ends up empty with its default control word.
        unsafe {
            asm!("fninit", "mov {r}, 0x5a5a5a5a", "add {r}, {r}", r = out(reg) _);
            match VECTORS.load(Ordering::Relaxed) {
                512 => destroy_512(),
                256 => destroy_256(),
                _ => destroy_128(),
            }
            plain(frame);
        }
    }

    macro_rules! destroy {
        ($name:ident, $feature:literal, $with:literal, $($n:literal)*) => {
            #[target_feature(enable = $feature)]
            unsafe fn $name() {
                // SAFETY: vector registers are the caller's to save.
                unsafe { asm!($(concat!($with, $n),)* clobber_abi("C")) };
            }
        };
    }
    destroy!(destroy_128, "sse2", "pcmpeqd xmm0, xmm0; movaps xmm",
        "1, xmm0" "2, xmm0" "3, xmm0" "4, xmm0" "5, xmm0" "6, xmm0" "7, xmm0" "8, xmm0"
        "9, xmm0" "10, xmm0" "11, xmm0" "12, xmm0" "13, xmm0" "14, xmm0" "15, xmm0");
    destroy!(destroy_256, "avx", "vcmptrueps ymm0, ymm0, ymm0; vmovaps ymm", 
        "0, ymm0" "1, ymm0" "2, ymm0" "3, ymm0" "4, ymm0" "5, ymm0" "6, ymm0" "7, ymm0" "8, ymm0"
        "9, ymm0" "10, ymm0" "11, ymm0" "12, ymm0" "13, ymm0" "14, ymm0" "15, ymm0");
    destroy!(destroy_512, "avx512f,avx512bw",
        "kxnorq k1, k1, k1; vpternlogd zmm0, zmm0, zmm0, 0xff; vmovaps zmm",
        "0, zmm0" "1, zmm0" "2, zmm0" "3, zmm0" "4, zmm0" "5, zmm0" "6, zmm0" "7, zmm0" "8, zmm0"
        "9, zmm0" "10, zmm0" "11, zmm0" "12, zmm0" "13, zmm0" "14, zmm0" "15, zmm0" "16, zmm0"
        "17, zmm0" "18, zmm0" "19, zmm0" "20, zmm0" "21, zmm0" "22, zmm0" "23, zmm0" "24, zmm0"
        "25, zmm0" "26, zmm0" "27, zmm0" "28, zmm0" "29, zmm0" "30, zmm0" "31, zmm0");

    /// As `plain`, but the program cannot block SIGSYS where the tested programs try to.
    unsafe extern "C" fn trapping(frame: &mut Frame) {
        /// Handler, flags, restorer, mask: the kernel's `struct sigaction`.
        type Action = [u64; 4];
        const MASK: usize = 3;
        let program_mask = frame.rsi;
        let mut action: Action;
        let mask: u64;
        // SAFETY: the program passes what these calls ask for (a bad pointer would fault here
        // and not in the kernel, which is enough for a test); the copies outlive the call.
        unsafe {
            if program_mask != 0 {
                match frame.rax as i64 {
                    libc::SYS_rt_sigaction => {
                        action = *(program_mask as *const Action);
                        action[MASK] &= !mask::MASK_BIT;
                        frame.rsi = (&raw const action) as u64;
                    }
                    libc::SYS_rt_sigprocmask if frame.rdi != libc::SIG_UNBLOCK as u64 => {
                        mask = *(program_mask as *const u64) & !mask::MASK_BIT;
                        frame.rsi = (&raw const mask) as u64;
                    }
                    _ => {}
                }
            }
            plain(frame);
        }
        frame.rsi = program_mask;
    }

    unsafe extern "C" fn dispatch_again(_frame: &mut Frame) {
        let _ = sud::enable();
    }

    extern "C" fn start() {
        let mode = std::env::var("UPCALL_PASSTHROUGH").unwrap_or_default();
        if is_x86_feature_detected!("avx512bw") {
            VECTORS.store(512, Ordering::Relaxed);
        } else if is_x86_feature_detected!("avx") {
            VECTORS.store(256, Ordering::Relaxed);
        }
        let hooks = Hooks {
            handler: match mode.as_str() {
                "clobber" => clobber,
                "trap" => trapping,
                _ => plain,
            },
            after: if mode == "trap" {
                dispatch_again
            } else {
                entry::nothing
            },
            loader: true,
            beside: false,
            is_first: |_| true,
            first: First {
                is: |_| true,
                set: 1,
            },
        };
        // SAFETY: constructors run before the program's threads; the hooks are this library's.
        unsafe { patch_all(hooks) };
        if mode == "trap" {
            // SAFETY: no action of the program is there yet.
            let installed = unsafe { sud::install() };
            if let (Ok(()), Err(why)) = (installed, sud::enable()) {
                eprintln!("{why}");
            }
        }
    }

    #[used]
    // SAFETY: the loader calls the functions in this section once, at start.
    #[unsafe(link_section = ".init_array")]
    static START: extern "C" fn() = start;
}
