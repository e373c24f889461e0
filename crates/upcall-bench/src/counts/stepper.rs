//! One kernel thread of a program, instruction by instruction, between the program's marks.
//!
//! 1. The program runs untouched until it stops itself. That stops all its kernel threads at once: none executes an
//!    instruction of the program after it.
//! 2. Each is seized. The one that has asked for the stop is in that system call.
//! 3. It alone is stepped, until it has passed the last mark. The others stay as they are: none of them finds it
//!    stopped, takes it for blocked and runs something else. Signals do not reach it: those of its time slices come
//!    all the time, since a step takes some thousand times as long as an instruction.
//! 4. Everything is let go. The program must end well: it has checked what it did.
//!
//! The kernel may have preempted the thread in its system call, before the stop; then the runtime has given its
//! virtual processor to another kernel thread, which is stopped. The thread waits for one, or for work, instead of
//! coming to the next mark, or does so at the stop already: nothing can be counted in that process.
//!
//! A stop where the last one was is no instruction more and no other mark: it is one of a string's repetitions, or for
//! a signal, or the step has brought nothing, as it happens in virtual machines.
//!
//! So what is counted does not depend on how long it takes; the program's own clocks go on, and what it does by them
//! would show in counts that do not repeat.
//!
//! Approaches rejected: counters of the processor (virtual machines have none); valgrind (a thread that is parked in a
//! handler of a signal returns from there through a frame that was moved, which valgrind takes for corrupted); an
//! emulator of a process (its own thread is in the process, and the runtime starts where there is one); tracing from
//! the start, or the thread alone (each step would be an upcall); the simulated machine (another kernel's code under
//! the runtime's).

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::sync::mpsc;
use std::time::Duration;

use libc::{c_int, c_long, c_void, pid_t};

use super::instruction::{Kind, Known, LONGEST};
use crate::child::Failure;

/// What was counted between two marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub instructions: u64,
    /// Those of them that no other processor comes in between.
    pub locked: u64,
    /// Those of them that set the FS base, system calls for it included.
    pub fs_writes: u64,
    /// Those of them that enter the kernel.
    pub calls: u64,
}

/// The offsets of registers in what PTRACE_PEEKUSER reads.
const NUMBER: usize = offset_of!(libc::user_regs_struct, orig_rax);
const ADDRESS: usize = offset_of!(libc::user_regs_struct, rip);

/// What is counted from each mark of `command` to the next one, so many times; `None`: the thread had lost its virtual
/// processor at the stop.
///
/// # Errors
///
/// It does not do as it should, does not end in time, or cannot be traced here.
pub fn count(
    command: Command,
    times: usize,
    timeout: Duration,
) -> Result<Option<Vec<Counts>>, Failure> {
    let (tell, told) = mpsc::channel();
    let (over, is_over) = mpsc::channel::<()>();
    // A thread of its own: it waits for this program and for no other child of the process.
    std::thread::scope(|scope| {
        let counting = scope.spawn(move || {
            let counts = start(command).and_then(|(program, handle)| {
                let _ = tell.send(handle);
                count_in(program, times)
            });
            drop(over);
            counts
        });
        let late = told.recv().is_ok_and(|handle| {
            let late = is_over.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                kill(&handle);
            }
            late
        });
        let counts = counting.join();
        let counts = counts.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match counts {
            Err(_) if late => Err(Failure::Failed(format!("did not end within {timeout:?}"))),
            counts => counts,
        }
    })
}

fn kill(handle: &OwnedFd) {
    let (handle, no_info) = (handle.as_raw_fd(), null_mut::<c_void>());
    // SAFETY: no pointers that are read; what was waited for meanwhile is not found.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            handle,
            libc::SIGKILL,
            no_info,
            0,
        )
    };
}

fn start(mut command: Command) -> Result<(pid_t, OwnedFd), Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn().map_err(|error| {
        Failure::Failed(format!(
            "{}: {error}",
            command.get_program().to_string_lossy()
        ))
    })?;
    let program = child.id() as pid_t;
    // SAFETY: no pointers; the child has not been waited for.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, program, 0) };
    if handle < 0 {
        return Err(failed("pidfd_open"));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok((program, unsafe { OwnedFd::from_raw_fd(handle as RawFd) }))
}

fn count_in(program: pid_t, times: usize) -> Result<Option<Vec<Counts>>, Failure> {
    let status = wait(program, libc::WUNTRACED)?;
    if !libc::WIFSTOPPED(status) {
        return Err(ended(status));
    }
    let counts = Seized::all(program).and_then(|seized| seized.step(times));
    if !matches!(counts, Ok(Some(_))) {
        // SAFETY: no pointers; it has not been waited for.
        unsafe { libc::kill(program, libc::SIGKILL) };
        // What is traced ends for the others when its tracer has waited for it.
        while wait(-1, libc::__WNOTHREAD).is_ok() {}
        return counts;
    }
    // SAFETY: as above.
    unsafe { libc::kill(program, libc::SIGCONT) };
    let status = wait(program, 0)?;
    match libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        true => counts,
        false => Err(ended(status)),
    }
}

/// All kernel threads of a program that has stopped.
struct Seized {
    threads: Vec<pid_t>,
    /// The one that has asked for the stop, if it is there still.
    caller: Option<pid_t>,
}

impl Seized {
    fn all(program: pid_t) -> Result<Self, Failure> {
        let mut seized = Seized {
            threads: Vec::new(),
            caller: None,
        };
        let listed = std::fs::read_dir(format!("/proc/{program}/task"));
        for entry in
            listed.map_err(|error| Failure::Failed(format!("/proc/{program}/task: {error}")))?
        {
            let name = entry
                .ok()
                .and_then(|entry| entry.file_name().into_string().ok());
            let Some(thread) = name.and_then(|name| name.parse().ok()) else {
                continue;
            };
            let options = libc::PTRACE_O_EXITKILL as usize;
            if ptrace(libc::PTRACE_SEIZE, thread, 0, options) < 0 {
                let error = io::Error::last_os_error();
                let what = format!("this process may not trace its own child: {error}");
                return Err(Failure::Skipped(what));
            }
            let status = wait(thread, 0)?;
            if !libc::WIFSTOPPED(status) {
                return Err(ended(status));
            }
            seized.threads.push(thread);
            let number = register(thread, NUMBER)? as c_long;
            if [libc::SYS_tgkill, libc::SYS_rt_tgsigqueueinfo].contains(&number)
                && let Some(other) = seized.caller.replace(thread)
            {
                let what = format!("two threads have stopped the program: {other} and {thread}");
                return Err(Failure::Failed(what));
            }
        }
        Ok(seized)
    }

    /// Steps the one that has stopped the others, to so many marks and one more.
    fn step(&self, times: usize) -> Result<Option<Vec<Counts>>, Failure> {
        let Some(thread) = self.caller else {
            return Ok(None);
        };
        beside(thread);
        let mut known = Known::default();
        let mut found: Vec<Counts> = Vec::new();
        let mut last = 0;
        loop {
            let address = register(thread, ADDRESS)?;
            let kind = known.at(address, || read(thread, address))?;
            match kind {
                // Nothing was executed; a mark is no other mark.
                _ if address == last => {}
                Kind::Mark if found.len() == times => break,
                Kind::Mark => found.push(Counts::default()),
                Kind::Call if found.is_empty() && is_wait(thread)? => return Ok(None),
                _ => {
                    if let Some(counts) = found.last_mut() {
                        counts.instructions += 1;
                        counts.locked += u64::from(kind == Kind::Locked);
                        counts.calls += u64::from(kind == Kind::Call);
                        let sets_fs = match kind {
                            Kind::FsWrite => true,
                            Kind::Call => sets_fs(thread)?,
                            _ => false,
                        };
                        counts.fs_writes += u64::from(sets_fs);
                    }
                }
            }
            last = address;
            if ptrace(libc::PTRACE_SINGLESTEP, thread, 0, 0) < 0 {
                return Err(failed("ptrace(PTRACE_SINGLESTEP)"));
            }
            // Of all that are traced: one that has been killed does not end before the others are waited for.
            let status = wait(-1, libc::__WNOTHREAD)?;
            if !libc::WIFSTOPPED(status) {
                return Err(ended(status));
            }
        }
        for &thread in &self.threads {
            if ptrace(libc::PTRACE_DETACH, thread, 0, 0) < 0 {
                return Err(failed("ptrace(PTRACE_DETACH)"));
            }
        }
        Ok(Some(found))
    }
}

/// Returns true if `thread`, about to make a system call, waits in it: for another kernel thread, or for work.
fn is_wait(thread: pid_t) -> Result<bool, Failure> {
    let call = register(thread, offset_of!(libc::user_regs_struct, rax))? as c_long;
    let operation = register(thread, offset_of!(libc::user_regs_struct, rsi))? as c_int;
    Ok(match call {
        libc::SYS_futex => [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET]
            .contains(&(operation & libc::FUTEX_CMD_MASK)),
        libc::SYS_ppoll | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => true,
        _ => false,
    })
}

/// Returns true if `thread`, about to make a system call, sets its FS base by it.
fn sets_fs(thread: pid_t) -> Result<bool, Failure> {
    const ARCH_SET_FS: u64 = 0x1002;
    let call = register(thread, offset_of!(libc::user_regs_struct, rax))? as c_long;
    let request = register(thread, offset_of!(libc::user_regs_struct, rdi))?;
    Ok(call == libc::SYS_arch_prctl && request == ARCH_SET_FS)
}

/// Goes where `thread` runs: to wake each other on another processor takes ten times as long as a step.
fn beside(thread: pid_t) {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: the kernel writes the set, and reads it. Without it, everything is slower.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(thread, size, &raw mut set) == 0 {
            libc::sched_setaffinity(0, size, &raw const set);
        }
    }
}

fn ptrace(request: libc::c_uint, thread: pid_t, address: usize, data: usize) -> c_long {
    // SAFETY: a caller that passes a pointer passes one that the request may use.
    unsafe { libc::ptrace(request, thread, address, data) }
}

/// A word that a request answers as its result, in which -1 may be one.
fn word(request: libc::c_uint, thread: pid_t, place: usize) -> Result<u64, Failure> {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = 0 };
    let word = ptrace(request, thread, place, 0);
    if word == -1 && io::Error::last_os_error().raw_os_error() != Some(0) {
        return Err(failed("ptrace: reading a word"));
    }
    Ok(word as u64)
}

fn register(thread: pid_t, place: usize) -> Result<u64, Failure> {
    word(libc::PTRACE_PEEKUSER, thread, place)
}

/// The bytes there; those of the next page are zero if there is none.
fn read(thread: pid_t, address: u64) -> Result<[u8; LONGEST], Failure> {
    let first = word(libc::PTRACE_PEEKTEXT, thread, address as usize)?;
    let second = word(libc::PTRACE_PEEKTEXT, thread, address as usize + 8).unwrap_or(0);
    let mut bytes = [0; LONGEST];
    let both = [first.to_le_bytes(), second.to_le_bytes()].concat();
    bytes.copy_from_slice(&both[..LONGEST]);
    Ok(bytes)
}

fn wait(process: pid_t, options: c_int) -> Result<c_int, Failure> {
    let mut status = 0;
    loop {
        // SAFETY: writes the status.
        if unsafe { libc::waitpid(process, &raw mut status, options | libc::__WALL) } > 0 {
            return Ok(status);
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Err(failed("waitpid"));
        }
    }
}

fn failed(what: &str) -> Failure {
    Failure::Failed(format!("{what}: {}", io::Error::last_os_error()))
}

/// It has ended where it should not.
fn ended(status: c_int) -> Failure {
    use std::os::unix::process::ExitStatusExt;
    let status = std::process::ExitStatus::from_raw(status);
    Failure::Failed(format!("the program under count: {status}"))
}
