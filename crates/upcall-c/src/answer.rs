//! What functions of the library return.

/// 0, or `number`.
pub(crate) fn unless(done: bool, number: libc::c_int) -> libc::c_int {
    if done { 0 } else { number }
}
