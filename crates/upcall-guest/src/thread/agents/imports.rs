//! Finds out if the program can have mutexes that the kernel must understand: an object of it calls libc's functions that
//! ask for a mutex that processes share, and for one that is robust or inherits priorities.
//!
//! Imports are found in the relocations, which name all symbols that the loader binds for an object. *Not done:* a program
//! that looks the functions up by dlsym(3) is not noticed.

use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::{CStr, c_int, c_void};

static SHARES: AtomicBool = AtomicBool::new(false);
static NEEDS_KERNEL: AtomicBool = AtomicBool::new(false);

const SHARING: &[u8] = b"pthread_mutexattr_setpshared";
const KERNELS: [&[u8]; 3] = [
    b"pthread_mutexattr_setrobust",
    b"pthread_mutexattr_setrobust_np",
    b"pthread_mutexattr_setprotocol",
];

/// Returns true if such calls were found.
pub fn found() -> bool {
    SHARES.load(Ordering::Relaxed) && NEEDS_KERNEL.load(Ordering::Relaxed)
}

/// Looks at every object that is loaded now.
///
/// # Upcall safety
///
/// Takes the loader's lock: for start-up and for a thread in program context.
pub fn look() {
    if !found() {
        // SAFETY: `visit` has the callback's signature.
        unsafe { libc::dl_iterate_phdr(Some(visit), core::ptr::null_mut()) };
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record of an object that stays loaded during the call.
    unsafe { look_at(&*info) };
    c_int::from(found())
}

/// What the dynamic section of an object says.
#[derive(Default)]
struct Tables {
    strings: usize,
    symbols: usize,
    /// Address and size of the two tables of relocations: of all others, and of functions.
    relocations: [(usize, usize); 2],
}

/// # Safety
///
/// The record is valid, and its object loaded.
unsafe fn look_at(info: &libc::dl_phdr_info) {
    const ENTRY: usize = 24;
    const SYMBOL: usize = 24;
    // SAFETY: the caller's promise.
    let Some(tables) = (unsafe { tables(info) }) else {
        return;
    };
    for (table, size) in tables.relocations {
        for at in (0..size).step_by(ENTRY) {
            // SAFETY: the loader has used these tables to bind the object: relocations are an address, a word whose upper
            // half is a symbol's number, and an addend; a symbol's first word is its name, the next half-word but one
            // its section, 0 for what others define; names end with a zero.
            unsafe {
                let symbol = *((table + at + 8) as *const u64) >> 32;
                if symbol == 0 {
                    continue;
                }
                let symbol = tables.symbols + symbol as usize * SYMBOL;
                let defined = *((symbol + 6) as *const u16) != 0;
                if !defined {
                    let name = tables.strings + *(symbol as *const u32) as usize;
                    note(CStr::from_ptr(name as *const _).to_bytes());
                }
            }
        }
    }
}

fn note(name: &[u8]) {
    if name == SHARING {
        SHARES.store(true, Ordering::Relaxed);
    }
    if KERNELS.contains(&name) {
        NEEDS_KERNEL.store(true, Ordering::Relaxed);
    }
}

/// # Safety
///
/// As [`look_at`].
unsafe fn tables(info: &libc::dl_phdr_info) -> Option<Tables> {
    const STRINGS: usize = 5;
    const SYMBOLS: usize = 6;
    const RELOCATIONS: usize = 7;
    const RELOCATIONS_SIZE: usize = 8;
    const OF_FUNCTIONS_SIZE: usize = 2;
    const OF_FUNCTIONS: usize = 23;
    let mut found = Tables::default();
    // SAFETY: the caller's promise; a dynamic section is pairs of words up to a null tag.
    unsafe {
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC)?;
        let base = info.dlpi_addr as usize;
        let mut entry = base.wrapping_add(dynamic.p_vaddr as usize) as *const [usize; 2];
        while (*entry)[0] != 0 {
            let [tag, value] = *entry;
            match tag {
                STRINGS => found.strings = value,
                SYMBOLS => found.symbols = value,
                RELOCATIONS => found.relocations[0].0 = value,
                RELOCATIONS_SIZE => found.relocations[0].1 = value,
                OF_FUNCTIONS => found.relocations[1].0 = value,
                OF_FUNCTIONS_SIZE => found.relocations[1].1 = value,
                _ => {}
            }
            entry = entry.add(1);
        }
        // The loader leaves its own addresses there, but for the kernel's object, which it does not bind.
        let is_bound = [found.strings, found.symbols].iter().all(|&at| at > base);
        is_bound.then_some(found)
    }
}
