//! Reading and changing the program's memory where the kernel would have answered EFAULT.
//!
//! The runtime touches words that the program names (futexes, robust lists). A bad address must end in an error, not in a
//! fault inside the runtime. So all instructions that touch such memory are here, and the handler of SIGSEGV and SIGBUS
//! continues a fault at one of them at its error exit.

use core::arch::global_asm;

use crate::ground::access;

// Each function has one instruction that may fault, and an exit that returns 1.
global_asm!(
    ".text",
    ".globl upcall_load_u32",
    ".type upcall_load_u32,@function",
    "upcall_load_u32:",
    ".cfi_startproc",
    "upcall_load_u32_at: mov eax, [rdi]",
    "mov [rsi], eax",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".globl upcall_load_u64",
    ".type upcall_load_u64,@function",
    "upcall_load_u64:",
    ".cfi_startproc",
    "upcall_load_u64_at: mov rax, [rdi]",
    "mov [rsi], rax",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".globl upcall_swap_u32",
    ".type upcall_swap_u32,@function",
    // rdi address, esi expected, edx new, rcx where to put what was there
    "upcall_swap_u32:",
    ".cfi_startproc",
    "mov eax, esi",
    "upcall_swap_u32_at: lock cmpxchg [rdi], edx",
    "mov [rcx], eax",
    "xor eax, eax",
    "ret",
    "upcall_access_fault:",
    "mov eax, 1",
    "ret",
    ".cfi_endproc",
    ".globl upcall_store_u32",
    ".type upcall_store_u32,@function",
    "upcall_store_u32:",
    ".cfi_startproc",
    "upcall_store_u32_at: xchg [rdi], esi",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".globl upcall_copy",
    ".type upcall_copy,@function",
    // rdi to, rsi from, rdx how many bytes
    "upcall_copy:",
    ".cfi_startproc",
    "mov rcx, rdx",
    "upcall_copy_at: rep movsb",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".globl upcall_access_table",
    ".pushsection .data.rel.ro,\"aw\"",
    ".balign 8",
    "upcall_access_table:",
    ".quad upcall_load_u32_at",
    ".quad upcall_load_u64_at",
    ".quad upcall_swap_u32_at",
    ".quad upcall_store_u32_at",
    ".quad upcall_copy_at",
    ".quad upcall_access_fault",
    ".popsection",
);

unsafe extern "C" {
    fn upcall_load_u32(from: usize, to: *mut u32) -> i32;
    fn upcall_load_u64(from: usize, to: *mut u64) -> i32;
    fn upcall_swap_u32(at: usize, expected: u32, new: u32, was: *mut u32) -> i32;
    fn upcall_store_u32(at: usize, value: u32) -> i32;
    fn upcall_copy(to: usize, from: usize, count: usize) -> i32;
    static upcall_access_table: [usize; 6];
}

/// The address cannot be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault;

/// Reads a word of the program.
///
/// # Errors
///
/// [`Fault`] if it is not readable.
#[inline]
pub fn load_u32(address: usize) -> Result<u32, Fault> {
    let mut value = 0;
    // SAFETY: a fault at the address is turned into the error; the target is ours.
    match unsafe { upcall_load_u32(address, &raw mut value) } {
        0 => Ok(value),
        _ => Err(Fault),
    }
}

/// Reads a double word of the program.
///
/// # Errors
///
/// [`Fault`] if it is not readable.
pub fn load_u64(address: usize) -> Result<u64, Fault> {
    let mut value = 0;
    // SAFETY: as in `load_u32`.
    match unsafe { upcall_load_u64(address, &raw mut value) } {
        0 => Ok(value),
        _ => Err(Fault),
    }
}

/// Compare-and-swap of a word of the program. Returns what was there.
///
/// # Errors
///
/// [`Fault`] if it is not writable.
pub fn swap_u32(address: usize, expected: u32, new: u32) -> Result<u32, Fault> {
    let mut was = 0;
    // SAFETY: as in `load_u32`; the program shares the word with us by passing it.
    match unsafe { upcall_swap_u32(address, expected, new, &raw mut was) } {
        0 => Ok(was),
        _ => Err(Fault),
    }
}

/// Writes a word of the program.
///
/// # Errors
///
/// [`Fault`] if it is not writable.
pub fn store_u32(address: usize, value: u32) -> Result<(), Fault> {
    // SAFETY: as in `load_u32`.
    match unsafe { upcall_store_u32(address, value) } {
        0 => Ok(()),
        _ => Err(Fault),
    }
}

/// Writes a double word of the program.
///
/// # Errors
///
/// [`Fault`] if it is not writable.
pub fn store_u64(address: usize, value: u64) -> Result<(), Fault> {
    store_u32(address, value as u32)?;
    store_u32(address + 4, (value >> 32) as u32)
}

/// Reads bytes of the program.
///
/// # Errors
///
/// [`Fault`] if they are not all readable.
pub fn load(from: usize, into: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: a fault at the program's addresses is turned into the error; the target is ours.
    match unsafe { upcall_copy(into.as_mut_ptr() as usize, from, into.len()) } {
        0 => Ok(()),
        _ => Err(Fault),
    }
}

/// Writes bytes of the program.
///
/// # Errors
///
/// [`Fault`] if they are not all writable.
pub fn store(at: usize, bytes: &[u8]) -> Result<(), Fault> {
    // SAFETY: as in `load`; the program asked for bytes there.
    match unsafe { upcall_copy(at, bytes.as_ptr() as usize, bytes.len()) } {
        0 => Ok(()),
        _ => Err(Fault),
    }
}

/// Returns where to continue after a fault at `rip`, if that is one of the instructions above.
pub fn recover(rip: usize) -> Option<usize> {
    // SAFETY: a constant table.
    let [touching @ .., exit] = unsafe { &upcall_access_table };
    touching.contains(&rip).then_some(*exit)
}

/// Returns a timespec of the program, in nanoseconds; saturates.
///
/// # Errors
///
/// `EFAULT` or `EINVAL`, positive.
pub fn nanoseconds(address: usize) -> Result<u64, i32> {
    const NS: u64 = 1_000_000_000;
    let seconds = access::load_u64(address).map_err(|_| libc::EFAULT)? as i64;
    let nanoseconds = access::load_u64(address + 8).map_err(|_| libc::EFAULT)?;
    if seconds < 0 || nanoseconds >= NS {
        return Err(libc::EINVAL);
    }
    Ok((seconds as u64)
        .saturating_mul(NS)
        .saturating_add(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_memory_is_read_and_written() {
        let mut word = 7u32;
        let address = &raw mut word as usize;
        assert_eq!(load_u32(address), Ok(7));
        assert_eq!(swap_u32(address, 7, 9), Ok(7));
        assert_eq!(store_u32(address, 11), Ok(()));
        assert_eq!(load_u32(address), Ok(11));
    }
}
