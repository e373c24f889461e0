//! The symbols that the loader binds for an object, as its relocations name them.

use std::ffi::CStr;

/// A relocation that names a symbol.
pub struct Bound<'a> {
    /// Where the loader writes the symbol's address.
    pub slot: usize,
    /// The symbol's name.
    pub name: &'a CStr,
    /// The object's own definition of it. The loader may have bound another one.
    pub own: Option<usize>,
}

/// What the dynamic section of an object says.
#[derive(Default)]
struct Tables {
    strings: usize,
    symbols: usize,
    /// Address and size of the two tables of relocations: of all others, and of functions.
    relocations: [(usize, usize); 2],
}

/// Calls `visit` for each relocation of an object that names a symbol.
///
/// # Safety
///
/// The record is valid, and its object loaded.
pub unsafe fn each(info: &libc::dl_phdr_info, mut visit: impl FnMut(Bound<'_>)) {
    const ENTRY: usize = 24;
    const SYMBOL: usize = 24;
    let base = info.dlpi_addr as usize;
    // SAFETY: the caller's promise.
    let Some(tables) = (unsafe { tables(info) }) else {
        return;
    };
    for (table, size) in tables.relocations {
        for at in (0..size).step_by(ENTRY) {
            // SAFETY: the loader has used these tables to bind the object: relocations are an address, a word whose upper
            // half is a symbol's number, and an addend; a symbol's first word is its name, the next half-word but one
            // its section, 0 for what others define, the next word its value; names end with a zero.
            let bound = unsafe {
                let [offset, number] = *((table + at) as *const [usize; 2]);
                let number = number >> 32;
                if number == 0 {
                    continue;
                }
                let symbol = tables.symbols + number * SYMBOL;
                let is_own = *((symbol + 6) as *const u16) != 0;
                let value = *((symbol + 8) as *const usize);
                let name = tables.strings + *(symbol as *const u32) as usize;
                Bound {
                    slot: base.wrapping_add(offset),
                    name: CStr::from_ptr(name as *const _),
                    own: is_own.then(|| base.wrapping_add(value)),
                }
            };
            visit(bound);
        }
    }
}

/// # Safety
///
/// As [`each`].
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
