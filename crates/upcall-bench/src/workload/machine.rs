//! `procedure_call`, `kernel_trap`: the units in which Anderson et al. 1991 count what threads cost (Table 1).
//!
//! A call of a function that returns its argument, and a system call that does next to nothing: getppid(2), which libc
//! does not remember. Danjean and Namyst 2003 have the latter in Table 2. A figure `ns` is the mean of many.

use std::hint::black_box;

use super::fork::{right, timed};
use super::{Failure, Figures, Params};

#[inline(never)]
fn same(number: u64) -> u64 {
    black_box(number)
}

pub fn procedure_call(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 1_000_000)?;
    timed(samples, operations, || {
        let sum = (0..operations as u64)
            .map(|number| same(black_box(number)))
            .sum();
        right(
            sum,
            operations as u64 * (operations as u64).saturating_sub(1) / 2,
        )
    })
}

pub fn kernel_trap(params: &Params) -> Result<Figures, Failure> {
    let samples = params.number("samples", 5)?;
    let operations = params.number("operations", 200_000)?;
    // SAFETY: no arguments, no failure.
    let ask = || unsafe { libc::syscall(libc::SYS_getppid) } as u64;
    let parent = u64::from(std::os::unix::process::parent_id());
    timed(samples, operations, || {
        let sum = (0..operations).map(|_| ask()).sum();
        right(sum, parent * operations as u64)
    })
}
