//! What functions of the library return.

/// 0, or `number`.
pub(crate) fn unless(done: bool, number: libc::c_int) -> libc::c_int {
    if done { 0 } else { number }
}

/// Calls what may touch errno, which is afterwards what it was.
#[inline]
pub fn keeping_errno<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: the calling thread's, wherever that runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    let result = call();
    // SAFETY: as above.
    unsafe { errno.write(before) };
    result
}
