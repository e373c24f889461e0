//! Reads small files without libc, which may allocate.

use upcall_linux::descriptors;

use crate::ground::entry::raw_syscall;

/// Reads the beginning of a file whose `path` ends with a zero. Returns how many bytes it read.
pub fn read_file(directory: i32, path: &[u8], into: &mut [u8]) -> usize {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    let _opening = descriptors::opening();
    // SAFETY: reads the path, which ends with a zero, and writes no more than there is room for.
    unsafe {
        let path = path.as_ptr() as u64;
        let file = raw_syscall(libc::SYS_openat, [directory as u64, path, flags, 0, 0, 0]);
        if file < 0 {
            return 0;
        }
        let room = [into.as_mut_ptr() as u64, into.len() as u64];
        let length = raw_syscall(libc::SYS_read, [file as u64, room[0], room[1], 0, 0, 0]);
        raw_syscall(libc::SYS_close, [file as u64, 0, 0, 0, 0, 0]);
        length.max(0) as usize
    }
}
