//! Finds processes that cannot be served from within, whatever the kernel offers, before anything is changed.
//!
//! `upcall run` checks the program's file for the same reasons. A program that links the crate, or the C library, has begun
//! already: here the process is checked.

use core::ffi::CStr;

/// Symbols of tools that own the threads of a process, and the tools.
const TOOLS: &[(&CStr, &str)] = &[
    (c"__tsan_init", "it is built with ThreadSanitizer"),
    (c"__asan_init", "it is built with AddressSanitizer"),
    (c"__hwasan_init", "it is built with HWAddressSanitizer"),
    (c"__msan_init", "it is built with MemorySanitizer"),
    (c"__lsan_do_leak_check", "it is built with LeakSanitizer"),
];

/// Returns why this process cannot be served, if it cannot.
pub fn find() -> Option<&'static str> {
    if is_static() {
        return Some("it has no dynamic linker (it is linked with -static)");
    }
    if runs_under_valgrind() {
        return Some("it runs under valgrind");
    }
    let tool = TOOLS.iter().find(|(symbol, _)| {
        // SAFETY: dlsym with a constant name.
        !unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) }.is_null()
    });
    tool.map(|&(_, what)| what)
}

/// Returns true if the program names no dynamic linker. Then libc's loader can look up neither symbols by name nor the list
/// of objects.
fn is_static() -> bool {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        names_one: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: libc passes its description of an object, and our flag.
        unsafe {
            let headers =
                core::slice::from_raw_parts((*info).dlpi_phdr, usize::from((*info).dlpi_phnum));
            *names_one.cast::<bool>() = headers
                .iter()
                .any(|header| header.p_type == libc::PT_INTERP);
        }
        // The program comes first, and is enough.
        1
    }
    let mut names_one = false;
    // SAFETY: the function reads what it is given, and writes the flag.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut names_one).cast()) };
    !names_one
}

/// Returns true if valgrind runs the process. Asks it by a sequence of instructions that it knows; a processor does nothing there.
#[cfg(target_arch = "x86_64")]
pub fn runs_under_valgrind() -> bool {
    const RUNNING_ON_VALGRIND: usize = 0x1001;
    let request = [RUNNING_ON_VALGRIND, 0, 0, 0, 0, 0];
    let answer: usize;
    // SAFETY: rotations of a register by 128 bits in all, and an exchange of one with itself; the request is read.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") request.as_ptr(),
            inout("rdx") 0usize => answer,
            options(nostack)
        );
    }
    answer != 0
}

/// Returns true if valgrind runs the process, which is not asked on this processor.
#[cfg(not(target_arch = "x86_64"))]
pub fn runs_under_valgrind() -> bool {
    false
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_ordinary_process_can_be_served() {
        assert_eq!(super::find(), None);
    }
}
