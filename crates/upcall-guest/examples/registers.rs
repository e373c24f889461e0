//! Fills every register, makes a system call at a site of its own and compares: what the kernel
//! keeps must be kept. Prints one line for each kind of site, and what a call costs there.
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
    use std::arch::{global_asm, is_x86_feature_detected};
    use std::mem::offset_of;
    use std::time::Instant;

    const ANSWERED_BY_LIBRARY: u64 = 1_000_000;

    #[repr(C, align(64))]
    #[derive(Clone, Debug, PartialEq)]
    struct State {
        zmm: [[u64; 8]; 32],
        /// rax rdi rsi rdx r10 r8 r9 rbx rbp r12 r13 r14 r15
        general: [u64; 13],
        flags: u64,
        red_zone: [u64; 2],
        mask: u64,
        x87: [u8; 16],
    }

    // SAFETY of the assembly: each function saves the callee-saved registers that it fills and
    // puts them back; it writes only the two states and its own red zone. With its flags it
    // restores DF before it returns.
    macro_rules! probe {
        ($name:literal, load = [$($load:literal,)*], store = [$($store:literal,)*],
         site = [$($site:literal,)*]) => {
            global_asm!(
                ".pushsection .text",
                concat!(".globl ", $name),
                concat!(".type ", $name, ",@function"),
                concat!($name, ":"),
                ".cfi_startproc",
                "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
                ".cfi_def_cfa_offset 56",
                "push rsi",
                ".cfi_def_cfa_offset 64",
                "mov rcx, rdi",
                $($load,)*
                "push qword ptr [rcx + {flags}]",
                "popfq",
                "mov rax, [rcx + {red}]",
                "mov [rsp - 8], rax",
                "mov rax, [rcx + {red} + 8]",
                "mov [rsp - 128], rax",
                "mov rax, [rcx + {general}]",
                "mov rdi, [rcx + {general} + 8]",
                "mov rsi, [rcx + {general} + 16]",
                "mov rdx, [rcx + {general} + 24]",
                "mov r10, [rcx + {general} + 32]",
                "mov r8, [rcx + {general} + 40]",
                "mov r9, [rcx + {general} + 48]",
                "mov rbx, [rcx + {general} + 56]",
                "mov rbp, [rcx + {general} + 64]",
                "mov r12, [rcx + {general} + 72]",
                "mov r13, [rcx + {general} + 80]",
                "mov r14, [rcx + {general} + 88]",
                "mov r15, [rcx + {general} + 96]",
                $($site,)*
                "mov rcx, [rsp]",
                "mov r11, [rsp - 8]",
                "mov [rcx + {red}], r11",
                "mov r11, [rsp - 128]",
                "mov [rcx + {red} + 8], r11",
                "pushfq",
                "pop qword ptr [rcx + {flags}]",
                "cld",
                "mov [rcx + {general}], rax",
                "mov [rcx + {general} + 8], rdi",
                "mov [rcx + {general} + 16], rsi",
                "mov [rcx + {general} + 24], rdx",
                "mov [rcx + {general} + 32], r10",
                "mov [rcx + {general} + 40], r8",
                "mov [rcx + {general} + 48], r9",
                "mov [rcx + {general} + 56], rbx",
                "mov [rcx + {general} + 64], rbp",
                "mov [rcx + {general} + 72], r12",
                "mov [rcx + {general} + 80], r13",
                "mov [rcx + {general} + 88], r14",
                "mov [rcx + {general} + 96], r15",
                $($store,)*
                "pop rsi",
                ".cfi_def_cfa_offset 56",
                "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                concat!(".size ", $name, ", . - ", $name),
                ".popsection",
                flags = const offset_of!(State, flags),
                red = const offset_of!(State, red_zone),
                general = const offset_of!(State, general),
            );
        };
    }

    macro_rules! with_xmm {
        ($name:literal, [$($site:literal,)*]) => {
            probe!($name,
                load = [
                    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                    "movups xmm\\n, [rcx + 64 * \\n]",
                    ".endr",
                ],
                store = [
                    ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                    "movups [rcx + 64 * \\n], xmm\\n",
                    ".endr",
                ],
                site = [$($site,)*]);
        };
    }

    with_xmm!("probe_xmm", ["syscall",]);
    // A jump to the call and one right behind it: five bytes cannot be had.
    with_xmm!(
        "probe_refused",
        ["jmp 3f", "2: jmp 4f", "3:", "syscall", "4: jrcxz 2b",]
    );
    // Control reaches the call from another function only, as from a `.cold` part: a window
    // over the instruction before it would be jumped into.
    with_xmm!(
        "probe_foreign",
        [
            "jmp foreign_cold",
            "mov r15, [rcx + {general} + 96]",
            "foreign_hot:",
            "syscall",
        ]
    );
    // SAFETY of the assembly: a part of `probe_foreign`, which it jumps back to.
    global_asm!(
        ".pushsection .text",
        ".type foreign_cold,@function",
        "foreign_cold:",
        ".cfi_startproc",
        ".cfi_def_cfa_offset 64",
        "jmp foreign_hot",
        ".cfi_endproc",
        ".size foreign_cold, . - foreign_cold",
        ".popsection",
    );
    probe!(
        "probe_ymm",
        load = [
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "vmovups ymm\\n, [rcx + 64 * \\n]",
            ".endr",
            "fld tbyte ptr [rcx + 2184]",
        ],
        store = [
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
            "vmovups [rcx + 64 * \\n], ymm\\n",
            ".endr",
            "fstp tbyte ptr [rcx + 2184]",
            "vzeroupper",
        ],
        site = ["syscall",]
    );
    probe!(
        "probe_zmm",
        load = [
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
            "vmovups zmm\\n, [rcx + 64 * \\n]",
            ".endr",
            "kmovq k1, [rcx + 2176]",
        ],
        store = [
            ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
            "vmovups [rcx + 64 * \\n], zmm\\n",
            ".endr",
            "kmovq [rcx + 2176], k1",
            "vzeroupper",
        ],
        site = ["syscall",]
    );
    const _: () = assert!(offset_of!(State, mask) == 2176 && offset_of!(State, x87) == 2184);

    // SAFETY of the assembly: loops of one system call, in plain C functions.
    global_asm!(
        ".pushsection .text",
        ".macro timed name, extra",
        ".globl \\name",
        ".type \\name,@function",
        "\\name:",
        ".cfi_startproc",
        "\\extra",
        "mov rdx, rdi",
        "2: mov eax, esi",
        "mov edi, 0",
        "syscall",
        "sub rdx, 1",
        "jnz 2b",
        "ret",
        ".cfi_endproc",
        ".size \\name, . - \\name",
        ".endm",
        "timed timed_xmm, nop",
        "timed timed_wide, emms",
        ".popsection",
    );

    type Probe = unsafe extern "C" fn(*const State, *mut State);
    type Timed = unsafe extern "C" fn(u64, u64);

    unsafe extern "C" {
        fn probe_xmm(from: *const State, to: *mut State);
        fn probe_ymm(from: *const State, to: *mut State);
        fn probe_zmm(from: *const State, to: *mut State);
        fn probe_foreign(from: *const State, to: *mut State);
        fn probe_refused(from: *const State, to: *mut State);
        fn timed_xmm(times: u64, number: u64);
        fn timed_wide(times: u64, number: u64);
    }

    fn filled(number: u64, seed: u64, vector_words: usize, vectors: usize) -> State {
        let mut next = seed;
        let mut word = || {
            next = next
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            next
        };
        let mut state = State {
            zmm: [[0; 8]; 32],
            general: [0; 13],
            flags: 0,
            red_zone: [word(), word()],
            mask: 0,
            x87: [0; 16],
        };
        for register in &mut state.zmm[..vectors] {
            register[..vector_words].fill_with(&mut word);
        }
        state.general.fill_with(&mut word);
        state.general[0] = number;
        // CF PF AF ZF SF OF and DF in turn; bits 1 and 9 (interrupts) always read as one.
        state.flags = (word() >> 32) & 0xcd5 | 0x202;
        state
    }

    fn compare(name: &str, probe: Probe, number: u64, words: usize, vectors: usize) -> bool {
        let mut right = true;
        for seed in 0..200 {
            let mut before = filled(number, seed, words, vectors);
            if words > 2 && vectors == 16 {
                before.x87[..10].copy_from_slice(&[
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0xc0 | seed as u8,
                    0,
                    0x40,
                ]);
            }
            if vectors == 32 {
                before.mask = seed.wrapping_mul(0x0101_0101_0101_0101);
            }
            let mut after = before.clone();
            after.zmm = [[0; 8]; 32];
            // SAFETY: the processor has what the probe uses; both states are valid.
            unsafe { probe(&before, &mut after) };
            let mut expected = before;
            expected.general[0] = after.general[0];
            let bad_result = (after.general[0] as i64) < 0 && number != ANSWERED_BY_LIBRARY;
            if after != expected || bad_result {
                eprintln!("{name} seed {seed}:\n got {after:x?}\nwant {expected:x?}");
                right = false;
                break;
            }
        }
        println!("{name}: {}", if right { "kept" } else { "LOST" });
        right
    }

    fn time(name: &str, timed: Timed) {
        const TIMES: u64 = 200_000;
        let mut best = f64::MAX;
        for _ in 0..30 {
            let start = Instant::now();
            // SAFETY: the call has no arguments that matter.
            unsafe { timed(TIMES, ANSWERED_BY_LIBRARY) };
            best = best.min(start.elapsed().as_nanos() as f64 / TIMES as f64);
        }
        eprintln!("{name}: {best:.1} ns a call");
    }

    fn answered(probe: Probe) -> bool {
        let before = filled(ANSWERED_BY_LIBRARY, 1, 2, 16);
        let mut after = before.clone();
        // SAFETY: both states are valid; only xmm registers are used.
        unsafe { probe(&before, &mut after) };
        after.general[0] == 0
    }

    fn fork_at(probe: Probe, number: i64) -> bool {
        let mut before = filled(number as u64, 7, 2, 16);
        before.flags = 0x202;
        before.general[1..7].fill(0);
        let mut after = before.clone();
        let answered_here = answered(probe);
        // SAFETY: the child only makes calls that are safe after fork, and leaves.
        unsafe {
            probe(&before, &mut after);
            let mut expected = before.clone();
            expected.general[0] = after.general[0];
            let kept = after == expected;
            if after.general[0] == 0 {
                let again = answered(probe) == answered_here;
                libc::_exit(if kept && again { 42 } else { 1 });
            }
            let mut status = 0;
            let waited = libc::waitpid(after.general[0] as i32, &mut status, 0);
            kept && waited > 0 && libc::WEXITSTATUS(status) == 42
        }
    }

    pub fn run() -> i32 {
        let number = libc::SYS_getppid as u64;
        let mut right = compare("xmm", probe_xmm, number, 2, 16);
        right &= compare("foreign", probe_foreign, number, 2, 16);
        right &= compare("refused", probe_refused, number, 2, 16);
        if is_x86_feature_detected!("avx") {
            right &= compare("ymm", probe_ymm, number, 4, 16);
        }
        if is_x86_feature_detected!("avx512bw") {
            right &= compare("zmm", probe_zmm, number, 8, 32);
        }
        for (name, probe) in [("xmm", probe_xmm as Probe), ("refused", probe_refused)] {
            let forked = fork_at(probe, libc::SYS_fork);
            println!("fork at {name}: {}", if forked { "right" } else { "WRONG" });
            right &= forked;
        }
        eprintln!("rewritten: {}", answered(probe_xmm));
        eprintln!("trapped: {}", answered(probe_refused));
        time("xmm", timed_xmm);
        time("wide", timed_wide);
        i32::from(!right)
    }
}
