//! Stops a process while it is looked at, and reads the registers of its kernel threads (ptrace(2)).
//!
//! 1. Every kernel thread is seized, and asked to stop, until no new one appears.
//! 2. Each is waited for. A signal that stops one instead is passed on at the end.
//! 3. All are let go. That also happens when this process dies: the kernel sees to it.
//!
//! To the program it is as if it had been stopped and continued (signal(7)): some system calls, epoll_wait(2) among them,
//! end with EINTR.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use super::unwind::{BP, BX, IP, Registers, SP};

/// The kernel threads of a process that stand still, until this is dropped.
pub struct Stopped {
    /// The id of each, and the signal that it gets when it goes on, or 0.
    threads: Vec<(i32, i32)>,
    pub registers: HashMap<i32, Registers>,
}

impl Stopped {
    /// # Errors
    /// This user may not trace the process, or somebody else does, or it is gone.
    pub fn all_of(pid: i32) -> io::Result<Self> {
        let mut stopped = Stopped {
            threads: Vec::new(),
            registers: HashMap::new(),
        };
        loop {
            let before = stopped.threads.len();
            for tid in tasks(pid)? {
                if stopped.threads.iter().all(|(known, _)| *known != tid) {
                    stopped.seize(pid, tid)?;
                }
            }
            if stopped.threads.len() == before {
                return Ok(stopped);
            }
        }
    }

    fn seize(&mut self, pid: i32, tid: i32) -> io::Result<()> {
        if let Err(error) = ask(libc::PTRACE_SEIZE, tid, null_mut()) {
            // A kernel thread that has ended meanwhile is none to stop.
            let is_gone = error.raw_os_error() == Some(libc::ESRCH) && tid != pid;
            return if is_gone { Ok(()) } else { Err(error) };
        }
        self.threads.push((tid, 0));
        ask(libc::PTRACE_INTERRUPT, tid, null_mut())?;
        let mut status = 0;
        // SAFETY: writes one word of ours.
        while unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) } == -1 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if !libc::WIFSTOPPED(status) {
            self.threads.pop();
            return Ok(());
        }
        if status >> 16 != libc::PTRACE_EVENT_STOP
            && let Some((_, signal)) = self.threads.last_mut()
        {
            *signal = libc::WSTOPSIG(status);
        }
        let mut found = MaybeUninit::<libc::user_regs_struct>::zeroed();
        ask(libc::PTRACE_GETREGS, tid, found.as_mut_ptr().cast())?;
        // SAFETY: integers, zeros or what the kernel has written.
        let found = unsafe { found.assume_init() };
        let mut registers = Registers::default();
        for (register, value) in [
            (IP, found.rip),
            (SP, found.rsp),
            (BP, found.rbp),
            (BX, found.rbx),
            (0, found.rax),
            (1, found.rdx),
            (2, found.rcx),
            (4, found.rsi),
            (5, found.rdi),
            (8, found.r8),
            (9, found.r9),
            (10, found.r10),
            (11, found.r11),
            (12, found.r12),
            (13, found.r13),
            (14, found.r14),
            (15, found.r15),
        ] {
            registers.0[register] = Some(value);
        }
        self.registers.insert(tid, registers);
        Ok(())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for &(tid, signal) in &self.threads {
            // It fails only if the kernel thread is gone.
            let _ = ask(
                libc::PTRACE_DETACH,
                tid,
                signal as usize as *mut libc::c_void,
            );
        }
    }
}

fn ask(what: libc::c_uint, tid: i32, data: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: the callers pass a number, or room for what they ask for.
    match unsafe { libc::ptrace(what, tid, null_mut::<libc::c_void>(), data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn tasks(pid: i32) -> io::Result<Vec<i32>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    let names = entries.map(|entry| Ok(entry?.file_name()));
    let names: io::Result<Vec<_>> = names.collect();
    let number = |name: &std::ffi::OsString| name.to_str()?.parse().ok();
    Ok(names?.iter().filter_map(number).collect())
}
