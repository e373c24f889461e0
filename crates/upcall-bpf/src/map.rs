//! Maps of BPF, mapped into this process.

use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use libbpf_rs::libbpf_sys as sys;
use upcall_abi::Observed;

/// A type of which any bytes are a valid value, and which others write meanwhile.
///
/// # Safety
///
/// It consists of atomics.
pub unsafe trait Shared {}
// SAFETY: see `upcall_abi`.
unsafe impl Shared for Observed {}
// SAFETY: atomics.
unsafe impl<const N: usize> Shared for [std::sync::atomic::AtomicU8; N] {}
// SAFETY: atomics.
unsafe impl<const N: usize> Shared for [std::sync::atomic::AtomicU64; N] {}

/// The value of an array of one element.
pub struct Mapped<T> {
    place: NonNull<T>,
    _of: PhantomData<T>,
}

impl<T: Shared> Mapped<T> {
    /// Maps the array of this descriptor; `access` as for mmap(2).
    ///
    /// # Errors
    ///
    /// The kernel's. It refuses an array that is smaller.
    pub fn new(map: BorrowedFd<'_>, access: i32) -> io::Result<Self> {
        // SAFETY: a new mapping somewhere.
        let place = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<T>(),
                access,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let place = NonNull::new(place.cast::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapped {
            place,
            _of: PhantomData,
        })
    }

    /// What is there.
    pub fn get(&self) -> &T {
        // SAFETY: mapped as long as this lives, large enough, page-aligned; any bytes are valid.
        unsafe { self.place.as_ref() }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference to it any more.
        unsafe { libc::munmap(self.place.as_ptr().cast(), size_of::<T>()) };
    }
}

/// A new array of one element of this size that can be mapped.
///
/// # Errors
///
/// The kernel's.
pub fn create(name: &CStr, size: usize) -> io::Result<OwnedFd> {
    // SAFETY: all-zero are valid options; reads them and the name; a new descriptor, which nobody else owns.
    unsafe {
        let mut options: sys::bpf_map_create_opts = std::mem::zeroed();
        options.sz = size_of_val(&options) as _;
        options.map_flags = sys::BPF_F_MMAPABLE;
        let kind = sys::BPF_MAP_TYPE_ARRAY;
        owned(sys::bpf_map_create(
            kind,
            name.as_ptr(),
            size_of::<u32>() as u32,
            size as u32,
            1,
            &raw const options,
        ))
    }
}

/// Writes the element, and closes the map to all writers but BPF programs: it can be mapped read-only alone.
///
/// # Errors
///
/// The kernel's.
pub fn freeze_with(map: BorrowedFd<'_>, value: &[u8]) -> io::Result<()> {
    let key = 0u32;
    // SAFETY: reads the key and the value, which has the size of the map's: see the callers.
    let written = unsafe {
        sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            value.as_ptr().cast(),
            0,
        )
    };
    succeeded(written)?;
    // SAFETY: no memory involved.
    succeeded(unsafe { sys::bpf_map_freeze(map.as_raw_fd()) })
}

/// Puts this map into one of maps.
///
/// # Errors
///
/// The kernel's.
pub fn put(maps: BorrowedFd<'_>, key: u32, map: BorrowedFd<'_>) -> io::Result<()> {
    let value = map.as_raw_fd();
    // SAFETY: reads the key and the value, which have the sizes of the map's.
    let done = unsafe {
        sys::bpf_map_update_elem(
            maps.as_raw_fd(),
            (&raw const key).cast(),
            (&raw const value).cast(),
            0,
        )
    };
    succeeded(done)
}

fn succeeded(answer: i32) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Takes a map out again. It may not be there.
pub fn take(maps: BorrowedFd<'_>, key: u32) {
    // SAFETY: reads the key.
    unsafe { sys::bpf_map_delete_elem(maps.as_raw_fd(), (&raw const key).cast()) };
}

fn owned(answer: i32) -> io::Result<OwnedFd> {
    if answer < 0 {
        return Err(io::Error::from_raw_os_error(-answer));
    }
    // SAFETY: a new descriptor, as the callers say.
    Ok(unsafe { OwnedFd::from_raw_fd(answer) })
}
