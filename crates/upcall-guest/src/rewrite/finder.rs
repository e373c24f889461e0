//! The unwinder's search for the entry of a program counter, which asks here first.
//!
//! libgcc searches by `_Unwind_Find_FDE`, which its other functions call by way of a slot that the loader binds. That slot leads
//! here: an entry of a stub is found without a lock, and for everything else libgcc's own function is called. The other way is to
//! register a table (`cfi`). Before version 13 libgcc then takes a lock for each frame of each exception, which no fork(2)
//! resets: a child that throws would wait for ever if another thread of its parent threw.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::ffi::{c_int, c_void};

use crate::ground::memory;
use crate::rewrite::relocations::{self, Bound};
use crate::rewrite::{cfi, patch};

/// `struct dwarf_eh_bases` of libgcc's unwind-dw2-fde.h.
#[repr(C)]
struct Bases {
    text: *mut c_void,
    data: *mut c_void,
    function: *mut c_void,
}

type Find = unsafe extern "C" fn(*mut c_void, *mut Bases) -> *const u8;

/// The function whose callers ask here first; 0 if there is none.
static LIBGCCS: AtomicUsize = AtomicUsize::new(0);

/// A library of GCC's unwinder.
struct Found {
    slot: usize,
    /// The loader has made the slot's page read-only.
    is_sealed: bool,
    own: usize,
}

/// Lets the process's libgcc ask here, if there is one. Returns true if it does. Of several only the first does.
///
/// # Upcall safety
/// Takes the loader's lock: for start-up and program context.
pub fn bind() -> bool {
    let mut found: Option<Found> = None;
    // SAFETY: `visit` has the callback's signature and gets what it expects.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    let Some(Found {
        slot,
        is_sealed,
        own,
    }) = found
    else {
        return false;
    };
    // Release: before a caller finds the slot changed.
    LIBGCCS.store(own, Ordering::Release);
    // SAFETY: a word that the loader has bound, in an object that is loaded.
    let word = unsafe { &*(slot as *const AtomicUsize) };
    let here = find as *const () as usize;
    if word.load(Ordering::Relaxed) == here {
        return true;
    }
    let write = || word.store(here, Ordering::Release);
    if !is_sealed {
        write();
        return true;
    }
    let range = slot..slot + size_of::<usize>();
    memory::while_writable(&range, libc::PROT_READ, write).is_ok()
}

/// Finds the first library of GCC's unwinder that calls its function by way of a slot.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record of an object that stays loaded during the call, and the caller's word.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Option<Found>>()) };
    if !cfi::is_named(info, b"libgcc_s.so") {
        return 0;
    }
    // SAFETY: as above.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let is_sealed = |slot: usize| {
        let mut sealed = headers.iter().filter(|h| h.p_type == libc::PT_GNU_RELRO);
        sealed.any(|header| {
            let start = info.dlpi_addr as usize + header.p_vaddr as usize;
            (start..start + header.p_memsz as usize).contains(&slot)
        })
    };
    let note = |bound: Bound<'_>| {
        if let Some(own) = bound.own
            && bound.name == c"_Unwind_Find_FDE"
        {
            let (slot, is_sealed) = (bound.slot, is_sealed(bound.slot));
            *found = Some(Found {
                slot,
                is_sealed,
                own,
            });
        }
    };
    // SAFETY: as above.
    unsafe { relocations::each(info, note) };
    c_int::from(found.is_some())
}

/// Returns the entry for a program counter, or null, and where its function begins.
unsafe extern "C" fn find(pc: *mut c_void, bases: *mut Bases) -> *const u8 {
    if let Some((entry, start)) = patch::entry_of(pc as usize) {
        let nowhere = core::ptr::null_mut();
        // SAFETY: the caller's, to be filled in.
        unsafe {
            bases.write(Bases {
                text: nowhere,
                data: nowhere,
                function: start as *mut c_void,
            });
        }
        return entry;
    }
    // Acquire: pairs with `bind`.
    let libgccs = LIBGCCS.load(Ordering::Acquire);
    // SAFETY: libgcc's own function, since one of its functions has called this one.
    unsafe { core::mem::transmute::<usize, Find>(libgccs)(pc, bases) }
}
