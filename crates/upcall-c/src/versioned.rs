//! Structures that grow with versions of the library.

use std::mem::size_of;

use libc::c_int;

/// A structure that begins with its size, of this version or another one, as this one's; null is `default`.
///
/// # Errors
///
/// EINVAL: it is no such structure. E2BIG: it says what this version does not know.
///
/// # Safety
///
/// Null, or a structure as long as it says. `T` begins with its size, and zeros are one.
pub(crate) unsafe fn versioned<T: Copy>(from: *const T, default: T) -> Result<T, c_int> {
    if from.is_null() {
        return Ok(default);
    }
    if !from.is_aligned() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let size = unsafe { from.cast::<usize>().read() };
    // Version 0.1 is the first.
    if size < size_of::<T>() {
        return Err(libc::EINVAL);
    }
    let bytes = from.cast::<u8>();
    // SAFETY: as long as it says.
    let unknown =
        unsafe { std::slice::from_raw_parts(bytes.add(size_of::<T>()), size - size_of::<T>()) };
    if unknown.iter().any(|&byte| byte != 0) {
        return Err(libc::E2BIG);
    }
    // SAFETY: as above.
    Ok(unsafe { from.read() })
}
