//! memcpy(3) and its relatives of the preloaded library.
//!
//! The compiler calls them wherever bytes are moved, on activations too, which have no thread-local storage. A program, or
//! another preloaded library, may have functions of these names that keep something for each thread, or take a lock. So
//! `build.rs` makes the linker resolve the names to the functions here, in that library alone.

core::arch::global_asm!(
    ".macro upcall_own name",
    ".hidden upcall_own_\\name",
    ".globl upcall_own_\\name",
    ".type upcall_own_\\name, @function",
    ".p2align 4",
    "upcall_own_\\name:",
    ".endm",
    // Arguments: rdi, rsi, rdx. The answer is the first one.
    "upcall_own memcpy",
    "upcall_own memmove",
    "mov rax, rdi",
    "mov rcx, rdi",
    "sub rcx, rsi",
    "cmp rcx, rdx",
    "jb 5f",
    "mov rcx, rdx",
    "cmp rdx, 256",
    "jb 2f",
    "rep movsb",
    "ret",
    // Forwards: rcx bytes are left.
    "1: mov r8, [rsi]",
    "mov [rdi], r8",
    "add rsi, 8",
    "add rdi, 8",
    "sub rcx, 8",
    "2: cmp rcx, 8",
    "jae 1b",
    "jmp 4f",
    "3: mov r8b, [rsi]",
    "mov [rdi], r8b",
    "inc rsi",
    "inc rdi",
    "dec rcx",
    "4: test rcx, rcx",
    "jne 3b",
    "ret",
    // Backwards: what is written lies above what is read, within its length.
    "5: cmp rdx, 8",
    "jb 7f",
    "mov r8, [rsi + rdx - 8]",
    "mov [rdi + rdx - 8], r8",
    "sub rdx, 8",
    "jmp 5b",
    "6: mov r8b, [rsi + rdx - 1]",
    "mov [rdi + rdx - 1], r8b",
    "dec rdx",
    "7: test rdx, rdx",
    "jne 6b",
    "ret",
    "upcall_own memset",
    "mov r8, rdi",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "upcall_own bcmp",
    "upcall_own memcmp",
    "xor ecx, ecx",
    "1: lea r8, [rcx + 8]",
    "cmp r8, rdx",
    "ja 2f",
    "mov r9, [rdi + rcx]",
    "mov r10, [rsi + rcx]",
    "cmp r9, r10",
    "jne 4f",
    "mov rcx, r8",
    "jmp 1b",
    "2: cmp rcx, rdx",
    "jae 3f",
    "movzx eax, byte ptr [rdi + rcx]",
    "movzx r9d, byte ptr [rsi + rcx]",
    "inc rcx",
    "sub eax, r9d",
    "je 2b",
    "ret",
    "3: xor eax, eax",
    "ret",
    // The first byte in memory decides.
    "4: bswap r9",
    "bswap r10",
    "cmp r9, r10",
    "sbb eax, eax",
    "or eax, 1",
    "ret",
    "upcall_own strlen",
    "xor eax, eax",
    "1: cmp byte ptr [rdi + rax], 0",
    "je 2f",
    "inc rax",
    "jmp 1b",
    "2: ret",
    ".purgem upcall_own",
);

#[cfg(test)]
mod tests {
    use core::ffi::c_char;

    unsafe extern "C" {
        fn upcall_own_memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
        fn upcall_own_memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
        fn upcall_own_memset(to: *mut u8, value: i32, length: usize) -> *mut u8;
        fn upcall_own_memcmp(one: *const u8, other: *const u8, length: usize) -> i32;
        fn upcall_own_bcmp(one: *const u8, other: *const u8, length: usize) -> i32;
        fn upcall_own_strlen(text: *const c_char) -> usize;
    }

    const LENGTHS: [usize; 14] = [0, 1, 3, 7, 8, 9, 15, 16, 31, 255, 256, 257, 300, 600];

    fn numbered() -> Vec<u8> {
        (0..1000u32).map(|i| (i * 7 % 251) as u8 + 1).collect()
    }

    #[test]
    fn bytes_are_moved_as_by_the_standard_library_at_every_distance() {
        for length in LENGTHS {
            for from in [0, 1, 300, 333] {
                for to in (0..20).chain(295..315).chain([333, 390]) {
                    let (mut own, mut wanted) = (numbered(), numbered());
                    wanted.copy_within(from..from + length, to);
                    let bytes = own.as_mut_ptr();
                    // SAFETY: all is inside the vector.
                    let answer = unsafe {
                        let [from, to] = [from, to].map(|at| bytes.add(at));
                        upcall_own_memmove(to, from, length) == to
                    };
                    assert!(answer && own == wanted, "{length} from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_copied_and_set() {
        for length in LENGTHS {
            let from = numbered();
            let mut to = vec![0u8; 1000];
            // SAFETY: both are longer.
            unsafe {
                assert_eq!(
                    upcall_own_memcpy(to.as_mut_ptr(), from.as_ptr(), length),
                    to.as_mut_ptr()
                );
            }
            assert!(to[..length] == from[..length] && to[length..].iter().all(|&byte| byte == 0));
            // SAFETY: as above.
            unsafe {
                assert_eq!(
                    upcall_own_memset(to.as_mut_ptr(), 0x1ff, length),
                    to.as_mut_ptr()
                );
            }
            assert!(to[..length].iter().all(|&byte| byte == 0xff));
            assert!(to[length..].iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn the_first_byte_that_differs_decides() {
        for length in LENGTHS {
            let one = numbered();
            // SAFETY: both are longer.
            let compare = |other: &[u8]| unsafe {
                let [own, equal] = [upcall_own_memcmp, upcall_own_bcmp]
                    .map(|function| function(one.as_ptr(), other.as_ptr(), length));
                assert_eq!(own == 0, equal == 0);
                own.signum()
            };
            assert_eq!(compare(&one), 0, "{length}");
            for at in 0..length {
                let mut other = one.clone();
                // What follows says the opposite.
                other[at] -= 1;
                for byte in &mut other[at + 1..] {
                    *byte = 255;
                }
                assert_eq!(compare(&other), 1, "{at} of {length}");
                other[at] += 2;
                for byte in &mut other[at + 1..] {
                    *byte = 0;
                }
                assert_eq!(compare(&other), -1, "{at} of {length}");
            }
        }
    }

    #[test]
    fn a_text_ends_at_its_zero() {
        for length in LENGTHS {
            let mut text = numbered();
            text[length] = 0;
            // SAFETY: there is a zero.
            let found = unsafe { upcall_own_strlen(text.as_ptr().cast()) };
            assert_eq!(found, length);
        }
    }
}
