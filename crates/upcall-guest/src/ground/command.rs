//! Has `upcall stacks` show all threads of this process, from outside.

use core::ffi::{CStr, c_char};
use core::ptr;

use upcall_linux::sys;

use crate::ground::mask;
use crate::ground::text::put_number;

/// Starts the command of this path for the process `pid`, which is the caller's, with what it says on standard error. The
/// process has no child by that and is told of no end.
///
/// # Upcall safety
/// Everywhere, in signal handlers too: it makes calls of the kernel alone.
pub fn show_stacks(path: &CStr, pid: u32) {
    // Behind the number are zeros.
    let mut number = [0; 12];
    put_number(&mut number, pid);
    let words: [*const c_char; 4] = [
        path.as_ptr(),
        c"stacks".as_ptr(),
        number.as_ptr().cast(),
        ptr::null(),
    ];
    let environment: [*const c_char; 1] = [ptr::null()];
    let pair = Pair::new();
    // No handler runs in the children, whose threads are this process's.
    let before = mask::change_kernel_mask(!0);
    // SAFETY: the children are copies of the process with one thread. They make calls of the kernel and nothing else, and end by
    // them. The words end with null pointers and live until then.
    unsafe {
        // The kernel tells of the end of a child with this flag to who asks for it alone.
        let child = sys!(libc::SYS_clone, 0, 0, 0, 0, 0);
        if child == 0 {
            let reader = sys!(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
            if reader == 0 {
                if let Some(pair) = &pair {
                    sys!(libc::SYS_close, pair.parents);
                    pair.await_parent();
                }
                sys!(libc::SYS_dup3, libc::STDERR_FILENO, libc::STDOUT_FILENO, 0);
                mask::set_kernel_mask(before);
                sys!(
                    libc::SYS_execve,
                    path.as_ptr(),
                    words.as_ptr(),
                    environment.as_ptr()
                );
            } else if let Some(pair) = &pair {
                pair.tell(reader);
            }
            sys!(libc::SYS_exit_group, 127);
        }
        if child > 0 {
            if let Some(pair) = &pair {
                pair.let_in();
            }
            sys!(libc::SYS_wait4, child, 0, libc::__WALL, 0);
        }
    }
    mask::set_kernel_mask(before);
}

/// Two connected sockets. Yama lets nobody but ancestors look at a process (`kernel.yama.ptrace_scope`), unless the process
/// itself names who may: for that it must learn the number of the one that looks, which waits until then.
struct Pair {
    parents: i32,
    childrens: i32,
}

impl Pair {
    /// None where there are no descriptors: then it works where Yama is not.
    fn new() -> Option<Self> {
        let mut both = [0i32; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: writes two descriptors.
        let made = unsafe {
            sys!(
                libc::SYS_socketpair,
                libc::AF_UNIX,
                kind,
                0,
                both.as_mut_ptr()
            )
        };
        let [parents, childrens] = both;
        (made == 0).then_some(Pair { parents, childrens })
    }

    fn tell(&self, reader: isize) {
        let number = reader as u32;
        send(self.childrens, number);
    }

    fn await_parent(&self) {
        let mut number = 0u32;
        // SAFETY: writes at most four bytes. It ends with the other descriptor at the latest.
        unsafe { sys!(libc::SYS_read, self.childrens, &raw mut number, 4) };
    }

    /// Lets the one that looks look.
    fn let_in(&self) {
        let mut reader = 0u32;
        // SAFETY: writes at most four bytes; the child ends if it cannot say a number.
        unsafe {
            sys!(libc::SYS_close, self.childrens);
            if sys!(libc::SYS_read, self.parents, &raw mut reader, 4) == 4 {
                // An error where Yama is not.
                sys!(libc::SYS_prctl, libc::PR_SET_PTRACER, reader);
                send(self.parents, reader);
            }
            sys!(libc::SYS_close, self.parents);
        }
    }
}

fn send(socket: i32, number: u32) {
    let flags = libc::MSG_NOSIGNAL;
    // SAFETY: reads four bytes.
    unsafe { sys!(libc::SYS_sendto, socket, &raw const number, 4, flags, 0, 0) };
}
