//! Memory whose first touch of a page waits for somebody: userfaultfd, user faults only.
//!
//! `UFFD_USER_MODE_ONLY` needs no privilege on any kernel since 5.11. The structures of
//! `linux/userfaultfd.h` are written out here, since the libc crate does not have them.

use std::ffi::c_void;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::posix::read_byte;
use super::{Failure, resolver};

/// Size of a page on x86-64, in bytes.
pub const PAGE: usize = 4096;

const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xAA;
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
const UFFDIO_REGISTER: libc::c_ulong = 0xC020_AA00;
const UFFDIO_WAKE: libc::c_ulong = 0x8010_AA02;
const UFFDIO_COPY: libc::c_ulong = 0xC028_AA03;
const REGISTER_MODE_MISSING: u64 = 1;
const COPY_MODE_DONTWAKE: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copy: i64,
}

#[repr(C)]
#[derive(Default)]
struct Message {
    event: u8,
    reserved: [u8; 7],
    flags: u64,
    address: u64,
    more: u64,
}

fn ioctl<T>(fd: RawFd, request: libc::c_ulong, argument: &mut T) -> bool {
    // SAFETY: every request in this file is given the structure that the kernel defines for it,
    // valid for the call.
    unsafe { libc::ioctl(fd, request, argument as *mut T) == 0 }
}

/// The descriptor end of a region: it learns of faults and resolves them, from any process.
pub struct Resolver(OwnedFd);

impl Resolver {
    /// Takes over a descriptor that another process registered.
    pub fn from_descriptor(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The address of a page on which a thread waits now, if there is one.
    pub fn next_fault(&self) -> Option<u64> {
        let mut message = Message::default();
        let size = size_of::<Message>();
        // SAFETY: room for one message; the descriptor does not block.
        let got = unsafe { libc::read(self.fd(), (&raw mut message).cast(), size) };
        let fault = got == size as isize && message.event == EVENT_PAGEFAULT;
        fault.then_some(message.address & !(PAGE as u64 - 1))
    }

    /// Puts a page of zeroes at `address`, and wakes its thread unless `wake` is false.
    pub fn fill(&self, address: u64, wake: bool) -> bool {
        static ZEROES: [u8; PAGE] = [0; PAGE];
        let mode = if wake { 0 } else { COPY_MODE_DONTWAKE };
        let (src, len) = (ZEROES.as_ptr() as u64, PAGE as u64);
        ioctl(
            self.fd(),
            UFFDIO_COPY,
            &mut Copy {
                dst: address,
                src,
                len,
                mode,
                copy: 0,
            },
        )
    }

    /// Wakes the threads that wait for the page at `address`.
    pub fn wake(&self, address: u64) -> bool {
        ioctl(
            self.fd(),
            UFFDIO_WAKE,
            &mut Range {
                start: address,
                len: PAGE as u64,
            },
        )
    }

    /// The raw descriptor, to poll.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Pages that were not touched yet.
pub struct Region {
    base: *mut u8,
    pages: usize,
}

// SAFETY: a plain range of memory, read with volatile loads only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A region of `pages` pages and the descriptor that resolves its faults.
    pub fn new(pages: usize) -> Result<(Self, Resolver), Failure> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            let known = [ErrorKind::Unsupported, ErrorKind::PermissionDenied];
            let text = format!("userfaultfd is not available here: {error}");
            let skip = known.contains(&error.kind()) || error.raw_os_error() == Some(libc::EINVAL);
            return Err(if skip {
                Failure::Skip(text)
            } else {
                Failure::Failed(text)
            });
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        if !ioctl(
            fd.as_raw_fd(),
            UFFDIO_API,
            &mut Api {
                api: UFFD_API,
                features: 0,
                ioctls: 0,
            },
        ) {
            return Err(Failure::errno("UFFDIO_API"));
        }
        let base = map(pages * PAGE)?;
        let range = Range {
            start: base as u64,
            len: (pages * PAGE) as u64,
        };
        let mut register = Register {
            range,
            mode: REGISTER_MODE_MISSING,
            ioctls: 0,
        };
        if !ioctl(fd.as_raw_fd(), UFFDIO_REGISTER, &mut register) {
            return Err(Failure::errno("UFFDIO_REGISTER"));
        }
        Ok((Self { base, pages }, Resolver(fd)))
    }

    /// A region whose faults the helper process behind standard input resolves.
    pub fn resolved_elsewhere(pages: usize) -> Result<Self, Failure> {
        let (region, descriptor) = Self::new(pages)?;
        resolver::send_descriptor(0, descriptor.fd())?;
        if !read_byte(&0) {
            return Err(Failure::Failed(
                "the resolver of page faults went away".into(),
            ));
        }
        Ok(region)
    }

    /// The page at an address of the region.
    pub fn page_at(&self, address: u64) -> usize {
        (address as usize - self.base as usize) / PAGE
    }

    /// The address of a page.
    pub fn address_of(&self, index: usize) -> u64 {
        (self.base as usize + index * PAGE) as u64
    }

    /// Touches page `index`; false if the region has no such page.
    pub fn touch(&self, index: usize) -> bool {
        if index >= self.pages {
            return false;
        }
        // SAFETY: inside the mapping, which is never unmapped.
        unsafe { self.base.add(index * PAGE).read_volatile() };
        true
    }
}

fn map(bytes: usize) -> Result<*mut u8, Failure> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut::<c_void>(),
            bytes,
            protection,
            flags,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(Failure::errno("mmap"));
    }
    // SAFETY: the mapping made above. Huge pages would resolve many faults at once; where the
    // kernel has none the call fails and nothing is to be done.
    unsafe { libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(base.cast())
}
