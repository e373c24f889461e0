//! Calls on sockets that never wait: with MSG_DONTWAIT, or with O_NONBLOCK on the socket. Event loops make hardly any others.
//!
//! Such a call is made as it stands, without the runtime. That the socket has O_NONBLOCK is a hint
//! ([`upcall_linux::poller::Poller::is_known_never_to_wait`]). If another process has cleared it meanwhile, the call blocks in
//! the kernel like a page fault. The signal by which the runtime settles that ends it, and it is served as other calls are.

use upcall_linux::{Runtime, Thread, descriptors};

use super::rest;
use crate::call::serve;
use crate::ground::entry::Frame;

/// Serves the call in `frame` if it is one on a socket that never waits. Returns false if it is not, or has to be made again.
pub fn serve_prompt(runtime: &'static Runtime, thread: &'static Thread, frame: &mut Frame) -> bool {
    let asked = rest::flags(frame).is_some_and(|flags| flags & rest::MSG_DONTWAIT != 0);
    let descriptor = frame.rdi as i32;
    if !asked && !runtime.kernel().poller().is_known_never_to_wait(descriptor) {
        return false;
    }
    if descriptors::is_ours(descriptor) {
        return false;
    }
    if !rest::is_output(frame.rax as i64) {
        runtime.end_turn();
    }
    serve::promptly(thread, frame)
}
