//! A timeline that somebody asks for while the program runs (`upcall trace -p`): see [`upcall_abi::live`].

use core::ffi::CStr;

use upcall_core::Errno;
use upcall_linux::{Inside, Linux, live, sys};

use crate::ground::state::GUEST;
use crate::thread::{names, shell};

/// Begins to note what happens, if somebody asks. Called on the way out of the runtime, with nothing locked.
pub fn begin_if_asked(inside: &Inside) {
    if !live::is_asked() {
        return;
    }
    if let Some(directory) = live::take_ask() {
        let directory = CStr::from_bytes_until_nul(&directory).unwrap_or_default();
        live::answer(begin(inside, directory));
    }
}

fn begin(inside: &Inside, directory: &CStr) -> Result<(), Errno> {
    if sys::is_filtered() {
        return Err(Errno(libc::EPERM));
    }
    if !is_own(directory) {
        return Err(Errno(libc::EACCES));
    }
    Linux::begin_trace(inside.runtime(), directory)?;
    GUEST.identities.each(|thread| {
        if !shell::is_free(thread) {
            names::note_new(thread);
        }
        true
    });
    Ok(())
}

/// Returns true if a directory is the user's as whom the program runs, and nobody else's. Who may write to the program's page
/// may be somebody else.
fn is_own(directory: &CStr) -> bool {
    // SAFETY: an all-zero stat is valid.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the path ends with a zero; fills in a stat.
    unsafe {
        let own = sys!(libc::SYS_geteuid);
        let (here, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_NOFOLLOW);
        sys!(
            libc::SYS_newfstatat,
            here,
            directory.as_ptr(),
            &raw mut status,
            flags
        ) == 0
            && status.st_mode & (libc::S_IFMT | 0o077) == libc::S_IFDIR
            && i64::from(status.st_uid) == own as i64
    }
}
