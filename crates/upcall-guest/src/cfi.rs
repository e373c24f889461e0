//! Unwind information for stubs.
//!
//! A signal may interrupt a stub, and its handler may throw, be cancelled or take a backtrace.
//! The table made here says of each instruction of a stub: the caller is the original code at
//! the row's address, with all registers as they are. It is registered with the unwinder that
//! the process uses, if it has one (`__register_frame` of libgcc).
//!
//! The entries proper need none of this: their unwind information is in the object.

use std::ffi::c_void;

use crate::stub::Stub;

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

/// The `.eh_frame` bytes for `stubs`, ended by a zero length.
pub fn table(stubs: &[Stub]) -> Vec<u8> {
    let mut table = CIE.to_vec();
    for stub in stubs {
        let entry = table.len();
        table.extend_from_slice(&[0; 4]);
        let to_cie = table.len() as u32;
        table.extend_from_slice(&to_cie.to_le_bytes());
        table.extend_from_slice(&stub.range.start.to_le_bytes());
        table.extend_from_slice(&stub.range.len().to_le_bytes());
        table.push(0);
        let mut pc = stub.range.start;
        let mut skipped = 0;
        for row in &stub.rows {
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
            table.extend_from_slice(&row.original.to_le_bytes());
        }
        table.resize(table.len().next_multiple_of(8), NOP);
        let length = (table.len() - entry - 4) as u32;
        table[entry..entry + 4].copy_from_slice(&length.to_le_bytes());
    }
    table.extend_from_slice(&[0; 4]);
    table
}

/// Makes the stubs known to the process's unwinder, for good. Says whether there is one.
///
/// # Upcall safety
/// Allocates and takes the unwinder's lock: for start-up and program context.
pub fn register(stubs: &[Stub]) -> bool {
    // SAFETY: the name is a C string; RTLD_DEFAULT searches the loaded objects.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__register_frame".as_ptr()) };
    if symbol.is_null() || stubs.is_empty() {
        return false;
    }
    // SAFETY: libgcc and libunwind both export this function with this type.
    let register: unsafe extern "C" fn(*const c_void) =
        unsafe { std::mem::transmute::<*mut c_void, _>(symbol) };
    let table: &'static [u8] = table(stubs).leak();
    // SAFETY: the table is well-formed, ends with a zero and lives for ever.
    unsafe { register(table.as_ptr().cast()) };
    true
}
