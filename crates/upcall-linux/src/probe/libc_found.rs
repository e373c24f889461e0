//! The C library of this process, which is the one that programs started here will use.

use std::ffi::CStr;

use super::Finding;

/// Names the C library that this process runs on, and where it lies.
#[must_use]
pub fn glibc() -> Finding {
    const NAME: &str = "glibc";
    // SAFETY: looks up a function by name.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"gnu_get_libc_version".as_ptr()) };
    if function.is_null() {
        return Finding::fails(
            NAME,
            "this process runs on a C library that is not glibc",
            "a system whose programs use glibc",
        );
    }
    // SAFETY: glibc's gnu_get_libc_version takes nothing and returns a static string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let version = version.to_string_lossy();
    let place = place_of(function).unwrap_or_else(|| "an unknown place".into());
    if threads_are_separate() {
        Finding::fails(
            NAME,
            format!("{version} at {place}, with its threads in a library of their own"),
            "glibc 2.34 or later, where the threads are part of libc.so.6",
        )
    } else {
        Finding::works(NAME, format!("{version} at {place}"))
    }
}

/// The file that a function lies in.
fn place_of(function: *const libc::c_void) -> Option<String> {
    // SAFETY: an all-zero Dl_info is valid and filled by dladdr, whose strings live as long
    // as the library is loaded, which is for ever.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(
            CStr::from_ptr(info.dli_fname)
                .to_string_lossy()
                .into_owned(),
        )
    }
}

/// Before glibc 2.34 `pthread_create` lies outside libc.so.6.
fn threads_are_separate() -> bool {
    // SAFETY: look-ups by name, and the file that each address lies in.
    let (create, exit) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"pthread_create".as_ptr()),
            libc::dlsym(libc::RTLD_DEFAULT, c"_exit".as_ptr()),
        )
    };
    create.is_null() || place_of(create) != place_of(exit)
}
