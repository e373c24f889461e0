//! Has `upcall stacks` show all threads of this process, from outside.

use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::ptr;

use upcall_linux::sys;

use crate::ground::mask;
use crate::report::text::Text;

/// Starts the command of this path for the process `pid`, which is the caller's, with what it says on standard error. The
/// process has no child by that and is told of no end. On an activation's own stack, inside the runtime.
pub fn show_stacks(path: &CStr, pid: u32) {
    let mut number = Text::<16>::new();
    // The rest of the buffer is zeros.
    let _ = write!(number, "{pid}\0");
    let words: [*const c_char; 4] = [
        path.as_ptr(),
        c"stacks".as_ptr(),
        number.as_bytes().as_ptr().cast(),
        ptr::null(),
    ];
    let environment: [*const c_char; 1] = [ptr::null()];
    // No handler runs in the children, whose threads are this process's.
    let before = mask::change_kernel_mask(!0);
    // SAFETY: the children are copies of the process with one thread. They make calls of the kernel and nothing else, and end by
    // them. The words end with null pointers and live until then.
    unsafe {
        // Where Yama lets nobody but parents look at a process. Elsewhere an error.
        sys!(
            libc::SYS_prctl,
            libc::PR_SET_PTRACER,
            libc::PR_SET_PTRACER_ANY
        );
        // The kernel tells of the end of a child with this flag to who asks for it alone.
        let child = sys!(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            if sys!(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) == 0 {
                sys!(libc::SYS_dup3, libc::STDERR_FILENO, libc::STDOUT_FILENO, 0);
                mask::set_kernel_mask(before);
                sys!(
                    libc::SYS_execve,
                    path.as_ptr(),
                    words.as_ptr(),
                    environment.as_ptr()
                );
            }
            sys!(libc::SYS_exit_group, 127);
        }
        if child > 0 {
            sys!(libc::SYS_wait4, child, 0, libc::__WALL, 0);
        }
    }
    mask::set_kernel_mask(before);
}
