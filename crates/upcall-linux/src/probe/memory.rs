//! Features of virtual memory: guard pages without mappings, and page faults that user mode serves.

use std::os::fd::AsRawFd;

use super::child::errno;
use super::{Finding, os_error};

const PAGE: usize = 4096;

/// One private anonymous page, unmapped when dropped.
struct Page(*mut libc::c_void);

impl Page {
    fn new() -> Option<Self> {
        // SAFETY: a fresh private anonymous mapping.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        (page != libc::MAP_FAILED).then_some(Self(page))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size and owned by `self`.
        unsafe { libc::munmap(self.0, PAGE) };
    }
}

/// Installs a guard on a page, and has the kernel try to read it.
#[must_use]
pub fn guard_install() -> Finding {
    const NAME: &str = "guard-install";
    const MADV_GUARD_INSTALL: i32 = 102;
    let remedy = "Linux 6.13 or later";
    let Some(page) = Page::new() else {
        return Finding::fails(NAME, format!("mmap: {}", os_error()), "free memory");
    };
    // SAFETY: advice on a page that is ours alone.
    if unsafe { libc::madvise(page.0, PAGE, MADV_GUARD_INSTALL) } != 0 {
        return Finding::fails(NAME, format!("madvise: {}", os_error()), remedy);
    }
    match kernel_reads(&page) {
        Err(libc::EFAULT) => Finding::works(NAME, "a page with a guard cannot be read any more"),
        Err(other) => Finding::fails(
            NAME,
            format!(
                "write from a guarded page: {}",
                std::io::Error::from_raw_os_error(other)
            ),
            remedy,
        ),
        Ok(()) => Finding::fails(
            NAME,
            "the advice was taken, but the page is readable",
            remedy,
        ),
    }
}

/// Lets the kernel copy a byte of the page into a pipe; a guard gives EFAULT, not a signal.
fn kernel_reads(page: &Page) -> Result<(), i32> {
    let (_reader, writer) = std::io::pipe().map_err(|_| libc::EMFILE)?;
    // SAFETY: the address is mapped; that it may not be readable is the question, and the
    // kernel answers it by an error.
    match unsafe { libc::write(writer.as_raw_fd(), page.0, 1) } {
        1 => Ok(()),
        _ => Err(errno()),
    }
}

#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioRegister {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

const UFFD_USER_MODE_ONLY: i32 = 1;
const UFFD_API: u64 = 0xAA;
const UFFDIO_API: u64 = 0xC018_AA3F;
const UFFDIO_REGISTER: u64 = 0xC020_AA00;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

/// Opens a userfaultfd for user-mode faults and registers a page with it.
#[must_use]
pub fn userfaultfd() -> Finding {
    match register_page() {
        Ok(()) => Finding::works("userfaultfd", "a page was registered for user-mode faults"),
        Err((what, error)) => Finding::fails(
            "userfaultfd",
            format!("{what}: {error}"),
            "Linux 5.11 or later built with CONFIG_USERFAULTFD, and a sandbox that allows \
             userfaultfd",
        ),
    }
}

fn register_page() -> Result<(), (&'static str, std::io::Error)> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
    // SAFETY: makes a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    if fd < 0 {
        return Err(("userfaultfd", os_error()));
    }
    let fd = i32::try_from(fd).expect("a descriptor fits");
    let registered = Page::new()
        .ok_or_else(|| ("mmap", os_error()))
        .and_then(|page| {
            let api = UffdioApi {
                api: UFFD_API,
                features: 0,
                ioctls: 0,
            };
            let register = UffdioRegister {
                start: page.0 as u64,
                len: PAGE as u64,
                mode: UFFDIO_REGISTER_MODE_MISSING,
                ioctls: 0,
            };
            // SAFETY: both structures have the layout that their request numbers say and are
            // valid for the calls; the page is not touched while registered.
            unsafe {
                if libc::ioctl(fd, UFFDIO_API, &raw const api) != 0 {
                    return Err(("UFFDIO_API", os_error()));
                }
                if libc::ioctl(fd, UFFDIO_REGISTER, &raw const register) != 0 {
                    return Err(("UFFDIO_REGISTER", os_error()));
                }
            }
            Ok(())
        });
    // SAFETY: opened above, and not used any more; the registration ends with it.
    unsafe { libc::close(fd) };
    registered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_a_guard_is_readable() {
        let page = Page::new().expect("a page");
        assert_eq!(kernel_reads(&page), Ok(()));
    }
}
