//! The clock of the kernel's vDSO, found without libc. libc's wrapper may use thread-local storage.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::{SYS_clock_gettime, arch};

type ClockGettime = unsafe extern "C" fn(i32, *mut libc::timespec) -> i32;

static CLOCK: AtomicUsize = AtomicUsize::new(0);

/// Looks the clock up. Without a vDSO the system call serves.
pub(crate) fn detect() {
    // SAFETY: getauxval reads the auxiliary vector of the process.
    let image = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if image != 0 {
        // SAFETY: the kernel maps a complete ELF image there for the life of the process.
        let clock = unsafe { symbol(image, arch::VDSO_CLOCK) }.unwrap_or(0);
        CLOCK.store(clock, Ordering::Relaxed);
    }
}

/// From here on the system call serves, not the vDSO.
pub(crate) fn forget() {
    CLOCK.store(0, Ordering::Relaxed);
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of some clock.
pub(crate) fn clock_ns(clock: i32) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let address = CLOCK.load(Ordering::Relaxed);
    if address != 0 {
        // SAFETY: the address came from the vDSO's symbol table under that name.
        unsafe { core::mem::transmute::<usize, ClockGettime>(address)(clock, &raw mut time) };
    } else {
        // SAFETY: writes `time`.
        unsafe { sys!(SYS_clock_gettime, clock, &raw mut time) };
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// # Safety
///
/// `image` is a complete ELF64 image in memory.
unsafe fn symbol(image: usize, name: &CStr) -> Option<usize> {
    const DT_STRTAB: i64 = 5;
    const DT_SYMTAB: i64 = 6;
    const DT_HASH: i64 = 4;
    // SAFETY: header and program headers lie inside the image.
    let (headers, load) = unsafe {
        let header = &*(image as *const libc::Elf64_Ehdr);
        let headers = core::slice::from_raw_parts(
            (image + header.e_phoff as usize) as *const libc::Elf64_Phdr,
            header.e_phnum as usize,
        );
        let load = headers.iter().find(|one| one.p_type == libc::PT_LOAD)?;
        (
            headers,
            image + load.p_offset as usize - load.p_vaddr as usize,
        )
    };
    let dynamic = headers.iter().find(|one| one.p_type == libc::PT_DYNAMIC)?;
    let (mut strings, mut symbols, mut hash) = (0, 0, 0);
    let mut entry = (load + dynamic.p_vaddr as usize) as *const [i64; 2];
    loop {
        // SAFETY: the dynamic section ends with a null entry.
        let [tag, value] = unsafe { *entry };
        match tag {
            0 => break,
            DT_STRTAB => strings = load + value as usize,
            DT_SYMTAB => symbols = load + value as usize,
            DT_HASH => hash = load + value as usize,
            _ => {}
        }
        // SAFETY: not yet at the null entry.
        entry = unsafe { entry.add(1) };
    }
    if strings == 0 || symbols == 0 || hash == 0 {
        return None;
    }
    // SAFETY: the second word of DT_HASH is the number of symbols; names are NUL-terminated.
    unsafe {
        let count = *((hash + 4) as *const u32) as usize;
        let table = core::slice::from_raw_parts(symbols as *const libc::Elf64_Sym, count);
        table
            .iter()
            .find(|symbol| {
                symbol.st_shndx != 0
                    && CStr::from_ptr((strings + symbol.st_name as usize) as *const _) == name
            })
            .map(|symbol| load + symbol.st_value as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vdso_clock_is_the_systems_clock() {
        detect();
        assert_ne!(CLOCK.load(Ordering::Relaxed), 0, "no vDSO here");
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let before = monotonic_ns();
        // SAFETY: writes `time`.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        let between = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        let after = monotonic_ns();
        assert!(before <= between && between <= after);
    }
}
