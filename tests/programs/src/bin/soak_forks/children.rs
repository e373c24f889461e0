//! Children of fork(2), with pieces outstanding.

use std::panic::AssertUnwindSafe;

use upcall::thread;

use crate::hangs;
use crate::random::Random;
use crate::tree::{Shape, Tree, World};

/// What a child that has joined everything ends with.
const JOINED: i32 = 77;
/// What hangs ends by a signal, as its parent does.
const HANGS_SECONDS: u32 = 250;

/// Forks between a fork of a piece and its join. The child walks a tree of its own, and joins that piece, too. Returns the value.
pub fn forks(random: &mut Random, value: u64) -> u64 {
    let tree = Tree::new(random.next(), Shape::Mixed, 12);
    let expected = tree.walk(&World::plain());
    let own = thread::current().id();
    let (child, (ran, handed)) = upcall::join(
        || fork_with(&tree, expected),
        || (thread::current().id(), value),
    );
    if child == 0 {
        end(if handed == value { JOINED } else { 3 });
    }
    let status = wait(child);
    let joined = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == JOINED;
    // The piece may have been another thread's when the process was forked: then the child says so.
    let told = ran != own && libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
    assert!(joined || told, "status {status:#x} of a child");
    handed
}

/// Returns 0 in the child, when it has walked the tree.
fn fork_with(tree: &Tree, expected: u64) -> libc::pid_t {
    // SAFETY: the child uses its own thread, and ends without what the parent's other threads may hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child > 0 {
        return child;
    }
    hangs::end_after(HANGS_SECONDS);
    // SAFETY: system calls on plain values. What the child says of a piece that another thread ran is not to be seen.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        libc::dup2(null, libc::STDERR_FILENO);
    }
    let walk = || tree.walk(&World::in_child());
    let found = std::panic::catch_unwind(AssertUnwindSafe(walk));
    match found {
        Ok(found) if found == expected => 0,
        Ok(_) => end(1),
        Err(_) => end(2),
    }
}

fn end(status: i32) -> ! {
    // SAFETY: ends the child.
    unsafe { libc::_exit(status) }
}

fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: a child of ours; writes its status.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if ended == child {
            return status;
        }
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EINTR), "{error}");
    }
}
