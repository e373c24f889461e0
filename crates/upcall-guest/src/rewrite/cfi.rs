//! Unwind information for stubs.
//!
//! A signal may interrupt a stub, and its handler may throw, be cancelled or take a backtrace. The table made here tells
//! for each instruction of a stub that the caller is the original code at the row's address, with all registers unchanged.
//! The process's unwinder, if it has one, looks there by itself ([`finder`]), or the table is registered with it
//! (`__register_frame`).
//!
//! The entries themselves need none of this: their unwind information is in the object.

use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

use crate::rewrite::finder;
use crate::rewrite::stub::Row;

const CIE: [u8; 24] = [
    20, 0, 0, 0, // length
    0, 0, 0, 0, // a CIE
    1, // version
    b'z', b'R', b'S', 0, // R: pointer encoding; S: program counters are exact, as in signals
    1, 0x78, 16, // code and data alignment, the column of the return address
    1, 0, // absolute pointers
    DEF_CFA, SP, 0, // the caller's stack pointer is ours
    NOP, NOP, NOP,
];
const NOP: u8 = 0;
const DEF_CFA: u8 = 0x0c;
const DEF_CFA_OFFSET: u8 = 0x0e;
const ADVANCE: u8 = 0x02;
const VAL_EXPRESSION: u8 = 0x16;
const OP_ADDR: u8 = 0x03;
const SP: u8 = 7;
const IP: u8 = 16;

/// Returns the `.eh_frame` bytes for `stubs`, which have these rows, ended by a zero length.
pub fn table(stubs: &[Range<usize>], rows: &[Row]) -> Vec<u8> {
    let mut table = Vec::with_capacity(64 + stubs.len() * 64 + rows.len() * 16);
    table.extend_from_slice(&CIE);
    for stub in stubs {
        let entry = table.len();
        table.extend_from_slice(&[0; 4]);
        let to_cie = table.len() as u32;
        table.extend_from_slice(&to_cie.to_le_bytes());
        table.extend_from_slice(&stub.start.to_le_bytes());
        table.extend_from_slice(&stub.len().to_le_bytes());
        table.push(0);
        let mut pc = stub.start;
        let mut skipped = 0;
        let first = rows.partition_point(|row| row.pc < stub.start);
        for row in rows[first..].iter().take_while(|row| row.pc < stub.end) {
            if row.pc != pc {
                table.extend_from_slice(&[ADVANCE, (row.pc - pc) as u8]);
                pc = row.pc;
            }
            if row.skipped != skipped {
                // 128 is two bytes of LEB128.
                let offset = [row.skipped & 0x7f | 0x80, row.skipped >> 7];
                table.push(DEF_CFA_OFFSET);
                table.extend_from_slice(&offset);
                skipped = row.skipped;
            }
            table.extend_from_slice(&[VAL_EXPRESSION, IP, 9, OP_ADDR]);
            table.extend_from_slice(&row.original().to_le_bytes());
        }
        table.resize(table.len().next_multiple_of(8), NOP);
        let length = (table.len() - entry - 4) as u32;
        table[entry..entry + 4].copy_from_slice(&length.to_le_bytes());
    }
    table.extend_from_slice(&[0; 4]);
    table
}

/// Returns the entry in such a table for a program counter, and where its stub begins.
///
/// # Safety
/// The table is one that [`table`] has made, from its beginning on.
pub unsafe fn entry_of(table: *const u8, pc: usize) -> Option<(*const u8, usize)> {
    // SAFETY: the first word of the CIE and of each entry is its length without that word; the table ends with 0.
    unsafe {
        let mut entry = table;
        loop {
            let length = entry.cast::<u32>().read_unaligned() as usize;
            if length == 0 {
                return None;
            }
            let [start, stub] = entry.add(8).cast::<[usize; 2]>().read_unaligned();
            if entry != table && (start..start + stub).contains(&pc) {
                return Some((entry, start));
            }
            entry = entry.add(4 + length);
        }
    }
}

/// What libgcc keeps about a table, `struct object` of its unwind-dw2-fde.h: 48 bytes, and room for more.
type Kept = [u64; 16];

/// Makes the stubs known to the process's unwinder. `None` if there is none. `place` points to the table from then on.
///
/// To register a table libgcc offers two functions: one allocates what it keeps about it by the program's `malloc`, the
/// other is given the memory. The latter is used where the unwinder has it.
///
/// # Upcall safety
/// Allocates and takes the unwinder's lock: for start-up and program context.
pub fn make_known(stubs: &[Range<usize>], rows: &[Row], place: &AtomicPtr<u8>) -> Option<Known> {
    if stubs.is_empty() {
        return None;
    }
    if finder::bind() {
        let known = Known::new(stubs, rows, None);
        // Release: pairs with the Acquire in `patch::entry_of`.
        place.store(known.table.as_ptr().cast_mut(), Ordering::Release);
        return Some(known);
    }
    let [register, with_memory] = functions([c"__register_frame", c"__register_frame_info"]);
    let register = register?;
    let mut known = Known::new(stubs, rows, Some(with_memory.map(|_| Box::default())));
    let begin = known.table.as_mut_ptr().cast::<c_void>();
    let memory = match &mut known.registered {
        Some(Some(kept)) => kept.as_mut_ptr().cast(),
        _ => core::ptr::null_mut(),
    };
    // SAFETY: both functions of libgcc have this type, where the first one ignores its second argument. The table
    // is well-formed and ends with a zero. It lives until `forget`, and so does the memory.
    unsafe { with_memory.unwrap_or(register)(begin, memory) };
    Some(known)
}

/// A table that the unwinder knows.
pub struct Known {
    table: Box<[u8]>,
    /// It was registered, perhaps with memory for what libgcc keeps about it.
    registered: Option<Option<Box<Kept>>>,
}

impl Known {
    fn new(stubs: &[Range<usize>], rows: &[Row], registered: Option<Option<Box<Kept>>>) -> Self {
        Known {
            table: table(stubs, rows).into_boxed_slice(),
            registered,
        }
    }

    /// The stubs are not executed any more, and nobody finds the table.
    ///
    /// # Upcall safety
    /// As [`make_known`].
    pub fn forget(mut self) {
        let Some(registered) = &self.registered else {
            return;
        };
        let [plain, with_memory] = functions([c"__deregister_frame", c"__deregister_frame_info"]);
        let deregister = match registered {
            Some(_) => with_memory,
            None => plain,
        };
        match deregister {
            // SAFETY: it was registered once; afterwards nobody refers to it.
            Some(deregister) => unsafe {
                deregister(self.table.as_mut_ptr().cast(), core::ptr::null_mut());
            },
            // It may be referred to.
            None => core::mem::forget(self),
        }
    }
}

type Function = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// Returns two functions of the process's unwinder. The second one is left out if it belongs to another unwinder than the
/// first.
///
/// Not asked by name where there is no unwinder: dlsym(3) describes its failure in memory of the program's `malloc`.
fn functions(names: [&CStr; 2]) -> [Option<Function>; 2] {
    // SAFETY: `is_unwinder` has the callback's signature, and needs no data.
    if unsafe { libc::dl_iterate_phdr(Some(is_unwinder), core::ptr::null_mut()) } == 0 {
        return [None, None];
    }
    let [first, second] = names.map(|name| {
        // SAFETY: RTLD_DEFAULT searches the loaded objects.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    });
    let second = second.filter(|&second| first.map(object_of) == Some(object_of(second)));
    [first, second].map(|found| {
        // SAFETY: libgcc and libunwind export the functions of these names with this type, or with fewer arguments.
        found.map(|found| unsafe { core::mem::transmute::<*mut c_void, Function>(found) })
    })
}

/// Returns 1 for a library that is an unwinder: GCC's, or LLVM's.
unsafe extern "C" fn is_unwinder(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid record.
    let info = unsafe { &*info };
    c_int::from(is_named(info, b"libgcc_s.so") || is_named(info, b"libunwind.so"))
}

/// Returns true if the name of an object's file begins so.
pub(super) fn is_named(info: &libc::dl_phdr_info, name: &[u8]) -> bool {
    if info.dlpi_name.is_null() {
        return false;
    }
    // SAFETY: the loader's name, which ends with a zero.
    let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    file.starts_with(name)
}

/// Returns where the object that holds this address begins.
fn object_of(address: *mut c_void) -> usize {
    // SAFETY: an all-zero Dl_info is valid, and dladdr fills it in.
    unsafe {
        let mut found: libc::Dl_info = core::mem::zeroed();
        libc::dladdr(address, &raw mut found);
        found.dli_fbase as usize
    }
}
