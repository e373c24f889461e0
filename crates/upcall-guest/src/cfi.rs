//! Unwind information for stubs.
//!
//! A signal may interrupt a stub, and its handler may throw, be cancelled or take a backtrace.
//! The table made here says of each instruction of a stub: the caller is the original code at
//! the row's address, with all registers as they are. It is registered with the unwinder that
//! the process uses, if it has one (`__register_frame` of libgcc).
//!
//! The entries proper need none of this: their unwind information is in the object.

use std::ffi::{CStr, c_void};

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

/// Makes the stubs known to the process's unwinder. `None` if there is none.
///
/// # Upcall safety
/// Allocates and takes the unwinder's lock: for start-up and program context.
pub fn register(stubs: &[Stub]) -> Option<Registration> {
    let register = function(c"__register_frame").filter(|_| !stubs.is_empty())?;
    let table = Box::leak(table(stubs).into_boxed_slice());
    // SAFETY: the table is well-formed, ends with a zero and lives until `forget`.
    unsafe { register(table.as_ptr().cast()) };
    Some(Registration(table))
}

/// What the unwinder was told.
pub struct Registration(&'static mut [u8]);

impl Registration {
    /// The stubs are not executed any more.
    ///
    /// # Upcall safety
    /// As [`register`].
    pub fn forget(self) {
        if let Some(deregister) = function(c"__deregister_frame") {
            // SAFETY: it was registered once; afterwards nobody refers to it.
            unsafe {
                deregister(self.0.as_ptr().cast());
                drop(Box::from_raw(self.0));
            }
        }
    }
}

fn function(name: &CStr) -> Option<unsafe extern "C" fn(*const c_void)> {
    // SAFETY: RTLD_DEFAULT searches the loaded objects; libgcc and libunwind both export these
    // functions with this type.
    unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        (!symbol.is_null()).then(|| std::mem::transmute::<*mut c_void, _>(symbol))
    }
}
