//! Where decisions are kept: `upcall/sites` under `XDG_RUNTIME_DIR`, `XDG_CACHE_HOME` or `~/.cache`.
//!
//! - The directory must belong to the effective user and be writable by nobody else. So must each file.
//! - There are [`SLOTS`] places for files, of [`LONGEST`] bytes at most. An object's key says which is its own; another
//!   object that has the same place takes it over. So the directory never grows beyond 128 MiB, and is a few in practice.
//! - A file is written beside its place and renamed, so a reader finds a whole one or none.
//! - A process under a filter (seccomp(2)) writes nothing: the filter may end it for a call that the loader does not make.
//!   Reading makes the same calls as the loader.
//! - Whatever fails, no file is kept, and the object is scanned next time.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use upcall_linux::{may_be_filtered, own_files};

use super::format::{Key, LONGEST};
use crate::ground::entry::raw_syscall;

const SLOTS: u64 = 4096;
const OTHERS_WRITE: u32 = 0o022;

/// The directory, as a C string with a line's end; null if there is none.
static DIRECTORY: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Notes where the directory is. At start, before the program changes its environment.
pub fn note() {
    let Some(base) = own_files::base() else {
        return;
    };
    let directory = base.join("upcall/sites").into_os_string();
    if let Ok(directory) = CString::new(directory.as_bytes()) {
        DIRECTORY.store(directory.into_raw(), Ordering::Relaxed);
    }
}

fn directory() -> Option<&'static CStr> {
    let directory = DIRECTORY.load(Ordering::Relaxed);
    // SAFETY: null, or a string that `note` has leaked.
    (!directory.is_null()).then(|| unsafe { CStr::from_ptr(directory) })
}

/// The effective user, without a system call.
fn own_user() -> u32 {
    // SAFETY: reads the auxiliary vector.
    (unsafe { libc::getauxval(libc::AT_EUID) }) as u32
}

/// A descriptor, closed when it is dropped.
struct Open(u64);

impl Open {
    fn at(directory: u64, name: &CStr, flags: i32) -> Option<Self> {
        let flags = (flags | libc::O_CLOEXEC | libc::O_NOFOLLOW) as u64;
        let words = [directory, name.as_ptr() as u64, flags, 0, 0, 0];
        // SAFETY: a C string.
        let opened = unsafe { raw_syscall(libc::SYS_openat, words) };
        u64::try_from(opened).ok().map(Self)
    }

    /// Returns what it is, if it belongs to the user alone.
    fn own(&self) -> Option<libc::stat> {
        // SAFETY: a zeroed `stat` is valid, and the kernel fills it in.
        let (answer, data) = unsafe {
            let mut data: libc::stat = core::mem::zeroed();
            let to = (&raw mut data) as u64;
            let flags = libc::AT_EMPTY_PATH as u64;
            let words = [self.0, c"".as_ptr() as u64, to, flags, 0, 0];
            (raw_syscall(libc::SYS_newfstatat, words), data)
        };
        let is_own = answer == 0 && data.st_uid == own_user() && data.st_mode & OTHERS_WRITE == 0;
        is_own.then_some(data)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { raw_syscall(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

fn name_of(key: &Key) -> String {
    format!("{:03x}", key.slot() % SLOTS)
}

/// The directory, opened, while several files are read there one after another.
static OPENED: Mutex<Option<Open>> = Mutex::new(None);

/// Keeps the directory open for what `read` reads, so that it is opened and looked at once.
pub fn while_open<T>(read: impl FnOnce() -> T) -> T {
    let set = |directory| {
        if let Ok(mut opened) = OPENED.try_lock() {
            *opened = directory;
        }
    };
    set(open_directory());
    let answer = read();
    set(None);
    answer
}

fn open_directory() -> Option<Open> {
    let flags = libc::O_DIRECTORY | libc::O_PATH;
    let directory = Open::at(libc::AT_FDCWD as u64, directory()?, flags)?;
    directory.own()?;
    Some(directory)
}

/// Returns the bytes that are kept in the key's place, `most` of them at most.
pub fn read(key: &Key, most: usize) -> Option<Vec<u8>> {
    let opened = OPENED.try_lock().ok();
    if let Some(directory) = opened.as_ref().and_then(|opened| opened.as_ref()) {
        return read_in(directory, key, most);
    }
    drop(opened);
    read_in(&open_directory()?, key, most)
}

fn read_in(directory: &Open, key: &Key, most: usize) -> Option<Vec<u8>> {
    let name = CString::new(name_of(key)).ok()?;
    let file = Open::at(directory.0, &name, libc::O_RDONLY | libc::O_NONBLOCK)?;
    let data = file.own()?;
    let length = usize::try_from(data.st_size).ok()?;
    if data.st_mode & libc::S_IFMT != libc::S_IFREG || length > LONGEST {
        return None;
    }
    let length = length.min(most);
    let mut bytes = vec![0u8; length];
    let words = [file.0, bytes.as_mut_ptr() as u64, length as u64, 0, 0, 0];
    // SAFETY: writes into the buffer.
    let got = unsafe { raw_syscall(libc::SYS_read, words) };
    (got == length as isize).then_some(bytes)
}

/// Keeps the bytes in the key's place. Returns true if that could be done.
pub fn write(key: &Key, bytes: &[u8]) -> bool {
    bytes.len() <= LONGEST
        && !may_be_filtered()
        && directory().is_some_and(|directory| {
            let directory = Path::new(std::ffi::OsStr::from_bytes(directory.to_bytes()));
            own_files::write(&directory.join(name_of(key)), bytes).is_ok()
        })
}
