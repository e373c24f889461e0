//! Where the registry is: a file of one user and one pid namespace, which no other user can open.
//!
//! 1. Its directory is `/run/user/UID` if that is this user's alone, and else `/dev/shm`. In the latter another user can
//!    take the name first. The programs then take no turns, and `--stats` and `upcall doctor turns` say so.
//! 2. The file is checked before it is used: it must be a plain file of this user's, closed to others, of the known layout.
//!    Its pages are there before it is mapped, so a full file system is an error and not a signal.
//! 3. The last member that leaves removes the file. A member that joins at this moment finds that out
//!    ([`Attached::is_removed`]) and opens the next file. If two miss each other all the same, they take no turns with each
//!    other. Members that were killed leave the file to the next program of this user there.
//! 4. Somebody may cut the file short while it is mapped. The next access then raises SIGBUS. The handler ([`mend`]) puts
//!    private memory in the place. The member is alone in that memory, and goes on without turns.

use core::sync::atomic::AtomicBool;
use std::string::String;

use upcall_core::sync::{AtomicU64, Ordering};

use super::{MAGIC, SIZE, SLOTS, Shared, living};
use crate::sys::memory::{self, REGISTRY};
use crate::sys::procfs::Path;
use crate::sys::{self, error};

const NAME: &[u8] = b"/upcall-turns-2-";
const MODE: u32 = 0o600;
const PAGE: usize = 4096;

/// Why there is no registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The file cannot be opened or mapped: the error number.
    Open(i32),
    /// The file there is another user's, or others may use it too.
    NotOurs,
    /// The file there has another layout.
    Layout,
    /// All slots are taken by living processes.
    Full,
}

impl Trouble {
    /// In a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open(_) => "the file cannot be opened",
            Self::NotOurs => "the file is not this user's alone",
            Self::Layout => "the file has another layout",
            Self::Full => "too many programs take them",
        }
    }
}

/// Whether [`mend`] has said so.
static SAID: AtomicBool = AtomicBool::new(false);

/// A descriptor, closed when it is dropped.
pub(super) struct File(isize);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: a descriptor of ours.
        unsafe { sys!(sys::SYS_close, self.0) };
    }
}

/// A file that is mapped and still open.
pub(super) struct Attached {
    pub shared: &'static Shared,
    pub(crate) origin: Origin,
    file: File,
}

impl Attached {
    /// Whether the file has no name any more.
    pub(crate) fn is_removed(&self) -> bool {
        status(&self.file).is_ok_and(|status| status.st_nlink == 0)
    }
}

/// Opens, checks and maps the file.
pub(super) fn attach(path: Path) -> Result<Attached, Trouble> {
    // SAFETY: the path ends with a zero; a new descriptor.
    let file = unsafe {
        sys!(
            sys::SYS_openat,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_CLOEXEC,
            MODE
        )
    };
    if let Some(number) = error(file) {
        // In a sticky directory the kernel may refuse another's file at once; but where
        // nothing has that name, the directory itself is closed to this user.
        return Err(match number {
            libc::ELOOP | libc::EISDIR => Trouble::NotOurs,
            libc::EACCES if status_at(&path).is_some() => Trouble::NotOurs,
            other => Trouble::Open(other),
        });
    }
    let file = File(file);
    let status = status(&file).map_err(Trouble::Open)?;
    Ok(Attached {
        shared: map(&file, &status)?,
        origin: Origin {
            path,
            identity: identity(&status),
        },
        file,
    })
}

fn status(file: &File) -> Result<libc::stat, i32> {
    // SAFETY: all-zero is a valid stat; fstat fills it in.
    let (status, answer) = unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        let answer = sys!(libc::SYS_fstat, file.0, &raw mut status);
        (status, answer)
    };
    error(answer).map_or(Ok(status), Err)
}

/// What has that name, a symbolic link too.
fn status_at(path: &Path) -> Option<libc::stat> {
    // SAFETY: the path ends with a zero; all-zero is a valid stat, which the call fills in.
    let (status, answer) = unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        let answer = sys!(
            libc::SYS_newfstatat,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut status,
            libc::AT_SYMLINK_NOFOLLOW
        );
        (status, answer)
    };
    error(answer).is_none().then_some(status)
}

fn user() -> u32 {
    // SAFETY: asks only.
    unsafe { sys!(libc::SYS_geteuid) as u32 }
}

/// Whether it is of this type, this user's, and closed to all others.
fn is_ours(status: &libc::stat, kind: u32) -> bool {
    status.st_uid == user() && status.st_mode & libc::S_IFMT == kind && status.st_mode & 0o077 == 0
}

/// Maps an open file, once it is checked.
fn map(file: &File, status: &libc::stat) -> Result<&'static Shared, Trouble> {
    if !is_ours(status, libc::S_IFREG) {
        return Err(Trouble::NotOurs);
    }
    if status.st_size != 0 && status.st_size != SIZE as i64 {
        return Err(Trouble::Layout);
    }
    // SAFETY: sets the size, which it has or which is 0, with memory behind; a new mapping of exactly that file.
    let place = unsafe {
        if let Some(number) = error(sys!(libc::SYS_fallocate, file.0, 0, 0, SIZE)) {
            return Err(Trouble::Open(number));
        }
        sys!(
            sys::SYS_mmap,
            0,
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.0,
            0
        )
    };
    if let Some(number) = error(place) {
        return Err(Trouble::Open(number));
    }
    REGISTRY.store(place as usize, Ordering::SeqCst);
    // SAFETY: mapped for ever (but for `detach`), page-aligned, and any bytes are valid atomics. A
    // child of fork must not have it: its slot is the parent's.
    let shared = unsafe {
        sys!(sys::SYS_madvise, place, SIZE, libc::MADV_DONTFORK);
        &*(place as *const Shared)
    };
    let agreed = |word: &AtomicU64, value: u64| match word.compare_exchange(
        0,
        value,
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => true,
        Err(there) => there == value,
    };
    if agreed(&shared.magic, MAGIC) && agreed(&shared.size, SIZE as u64) {
        Ok(shared)
    } else {
        detach(shared);
        Err(Trouble::Layout)
    }
}

pub(super) fn detach(shared: &'static Shared) {
    let place = core::ptr::from_ref(shared) as usize;
    memory::let_go(place);
    // SAFETY: nobody else has a reference to a registry that was not joined.
    unsafe { sys!(sys::SYS_munmap, place, SIZE) };
}

/// The child of a fork has no mapping of the registry.
pub fn forget() {
    REGISTRY.store(0, Ordering::SeqCst);
}

/// A handler's answer to SIGBUS at `address`: true if that was an access to the registry, which has been cut
/// short, and can be made again. The process is alone in what is there now.
pub fn mend(address: usize) -> bool {
    let place = REGISTRY.load(Ordering::SeqCst);
    if place == 0 || !(place..place + SIZE.next_multiple_of(PAGE)).contains(&address) {
        return false;
    }
    // SAFETY: replaces the mapping of the registry by zeros, which are valid there.
    let answer = unsafe {
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let answer = sys!(sys::SYS_mmap, place, SIZE, access, private, -1isize, 0);
        sys!(sys::SYS_madvise, place, SIZE, libc::MADV_DONTFORK);
        answer
    };
    if error(answer).is_some() {
        return false;
    }
    if !SAID.swap(true, Ordering::Relaxed) {
        sys::say(b"upcall: the file of this user's turns was cut short; this program takes no turns any more (upcall doctor turns)\n");
    }
    true
}

/// A file as it was when it was mapped.
pub(super) struct Origin {
    path: Path,
    /// Device and inode.
    identity: (u64, u64),
}

impl Origin {
    /// Removes the file, unless another one has that name now.
    pub(super) fn remove(&self) {
        if status_at(&self.path).is_some_and(|there| identity(&there) == self.identity) {
            // SAFETY: the path ends with a zero.
            unsafe { sys!(libc::SYS_unlinkat, libc::AT_FDCWD, self.path.as_ptr(), 0) };
        }
    }
}

fn identity(status: &libc::stat) -> (u64, u64) {
    (status.st_dev, status.st_ino)
}

/// The file's path. The pid namespace, and outside of the user's own directory the user, follow the constant.
pub(super) fn name() -> Path {
    let own = Path::new().text(b"/run/user/").number(user());
    let has_own = status_at(&own).is_some_and(|status| is_ours(&status, libc::S_IFDIR));
    let mut name = if has_own {
        own.text(NAME)
    } else {
        Path::new()
            .text(b"/dev/shm")
            .text(NAME)
            .number(user())
            .text(b"-")
    };
    // "pid:[4026531836]"; without procfs all namespaces look the same, and numbers may mislead
    // about who is alive, which costs turns.
    let mut link = [0u8; 32];
    // SAFETY: writes at most the size given.
    let length = unsafe {
        sys!(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            c"/proc/self/ns/pid".as_ptr(),
            link.as_mut_ptr(),
            link.len()
        )
    };
    for byte in link.iter().take(length.max(0) as usize) {
        if byte.is_ascii_digit() {
            name = name.text(&[*byte]);
        }
    }
    name
}

/// Whether the registry can be used, and how many living processes are in it: for `doctor`.
///
/// # Errors
///
/// [`Trouble`].
pub fn look() -> Result<usize, Trouble> {
    let attached = attach(name())?;
    let living = living(attached.shared);
    detach(attached.shared);
    if living == 0 {
        attached.origin.remove();
    }
    if living < SLOTS {
        Ok(living)
    } else {
        Err(Trouble::Full)
    }
}

/// The path as text, for reports.
pub fn path() -> String {
    String::from_utf8_lossy(name().as_bytes()).into_owned()
}
