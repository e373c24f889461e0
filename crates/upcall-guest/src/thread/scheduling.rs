//! Scheduling policies and priorities of sched(7): the sched_… calls, setpriority(2) and getpriority(2).
//!
//! With `--policy=priority` they order the threads of the program, and the kernel hears nothing of them. A thread's
//! [`Rank`] follows from what it has asked for. Real-time threads (SCHED_FIFO, SCHED_RR) come first, by their priority;
//! then all others by their nice value; then SCHED_IDLE. No thread waits while a less urgent one runs, and equals take
//! turns, also those of SCHED_FIFO, which is SCHED_RR here. This needs no privilege: threads share only the program's own
//! processors.
//!
//! Without it they are the kernel's: a thread that gets a policy or a nice value that others do not have is bound
//! ([`bound`]), if the kernel grants it. With `--policy=deadline` they are accepted and answered as for an ordinary thread,
//! and real-time policies are refused as without privilege; for SCHED_DEADLINE see [`deadlines`]. Calls about other
//! processes are always the kernel's.
//!
//! A thread that waits for a mutex with PTHREAD_PRIO_INHERIT lends its urgency to the holder ([`lending`]).
//!
//! The kernel hears of such a request when a process begins that the thread has made, or when the thread executes a
//! program. That process has what was asked for, as far as the kernel grants it ([`pass_on`]).

use core::sync::atomic::Ordering;

use upcall_core::Rank;
use upcall_linux::{Inside, Runtime, Thread};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, raw_syscall};
use crate::ground::identity::FIRST;
use crate::ground::state::GUEST;
use crate::ground::{access, record};
use crate::signal::pending;
use crate::thread::{affinity, bound, deadlines, lending};

const EFAULT: i64 = -(libc::EFAULT as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);
const EPERM: i64 = -(libc::EPERM as i64);
const ESRCH: i64 = -(libc::ESRCH as i64);
const RESET_ON_FORK: i32 = 0x4000_0000;

/// Where the fields of struct sched_attr are (sched_setattr(2)).
pub(crate) mod at {
    pub const SIZE: usize = 0;
    pub const POLICY: usize = 4;
    pub const FLAGS: usize = 8;
    pub const NICE: usize = 16;
    pub const PRIORITY: usize = 20;
    pub const RUNTIME: usize = 24;
    pub const DEADLINE: usize = 32;
    pub const PERIOD: usize = 40;
}

/// What a thread has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Request {
    /// SCHED_….
    policy: u8,
    /// From 1 to 99, for the real-time policies; else 0.
    priority: u8,
    /// From -20 to 19.
    nice: i8,
    /// Threads that it makes begin anew.
    resets: bool,
}

impl Request {
    fn of(thread: &'static Thread) -> Self {
        let [policy, priority, nice, resets] = thread
            .guest()
            .asked_urgency
            .load(Ordering::Relaxed)
            .to_le_bytes();
        Request {
            policy,
            priority,
            nice: nice as i8,
            resets: resets != 0,
        }
    }

    fn word(self) -> u32 {
        let bytes = [
            self.policy,
            self.priority,
            self.nice as u8,
            u8::from(self.resets),
        ];
        u32::from_le_bytes(bytes)
    }

    fn is_real_time(self) -> bool {
        matches!(i32::from(self.policy), libc::SCHED_FIFO | libc::SCHED_RR)
    }

    /// As sched_getscheduler(2) says it.
    fn policy_with_flag(self) -> i32 {
        i32::from(self.policy) | if self.resets { RESET_ON_FORK } else { 0 }
    }

    /// Takes on a policy and its priority, as sched_setscheduler(2) checks them.
    fn take(&mut self, policy: i32, priority: i32) -> Result<(), i64> {
        let priorities = match policy & !RESET_ON_FORK {
            libc::SCHED_FIFO | libc::SCHED_RR => 1..=99,
            libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE => 0..=0,
            libc::SCHED_DEADLINE => return Err(EPERM),
            _ => return Err(EINVAL),
        };
        if !priorities.contains(&priority) {
            return Err(EINVAL);
        }
        self.policy = (policy & !RESET_ON_FORK) as u8;
        self.priority = priority as u8;
        self.resets = policy & RESET_ON_FORK != 0;
        Ok(())
    }

    fn rank(self) -> Rank {
        /// Beyond all nice values.
        const BEYOND: u64 = 100;
        Rank(match i32::from(self.policy) {
            _ if self.is_real_time() => Rank::COMMON.0 - BEYOND - u64::from(self.priority),
            libc::SCHED_IDLE => Rank::COMMON.0 + BEYOND,
            _ => Rank::COMMON.0.wrapping_add_signed(i64::from(self.nice)),
        })
    }

    /// Returns what a thread or a process has that this one makes.
    fn inherited(self) -> Self {
        match self.resets {
            false => self,
            true if self.is_real_time() => Request::default(),
            true => Request {
                nice: self.nice.max(0),
                resets: false,
                ..self
            },
        }
    }

    /// Returns what the calling kernel thread has.
    fn of_kernel() -> Self {
        let mut has = Request::default();
        let words = [libc::PRIO_PROCESS as u64, 0, 0, 0, 0, 0];
        // SAFETY: asks only.
        let answer = unsafe { raw_syscall(libc::SYS_getpriority, words) };
        has.nice = (20 - answer as i64).clamp(-20, 19) as i8;
        let mut priority = 0i32;
        let at = (&raw mut priority) as u64;
        // SAFETY: writes one word.
        unsafe { raw_syscall(libc::SYS_sched_getparam, [0, at, 0, 0, 0, 0]) };
        // SAFETY: asks only.
        let policy = unsafe { raw_syscall(libc::SYS_sched_getscheduler, [0; 6]) };
        // One that is not known here is as if it had none.
        let _ = has.take(policy as i32, priority);
        has
    }

    /// Sets it for the calling kernel thread, as far as the kernel grants it.
    fn give_kernel(self) {
        let has = Request::of_kernel();
        if has.nice != self.nice {
            let nice = i64::from(self.nice) as u64;
            let words = [libc::PRIO_PROCESS as u64, 0, nice, 0, 0, 0];
            // SAFETY: changes the calling kernel thread only.
            unsafe { raw_syscall(libc::SYS_setpriority, words) };
        }
        if (has.policy_with_flag(), has.priority) != (self.policy_with_flag(), self.priority) {
            let priority = i32::from(self.priority);
            let at = (&raw const priority) as u64;
            let words = [0, self.policy_with_flag() as u64, at, 0, 0, 0];
            // SAFETY: as above; reads the word.
            unsafe { raw_syscall(libc::SYS_sched_setscheduler, words) };
        }
    }
}

/// Makes the call as it stands.
fn raw(frame: &Frame) -> i64 {
    // SAFETY: the program's own call, as it made it.
    (unsafe { frame.raw() }) as i64
}

/// Returns the kernel's answer in a process that has no runtime yet, or `None` if a runtime must answer: where threads are
/// ordered by such requests, it may grant what the kernel refuses.
///
/// What the kernel grants is the process's, and stays over execve(2): [`adopt_first`] finds it. It is not asked for
/// SCHED_DEADLINE where deadlines count: it would refuse threads to such a process.
pub fn before_threads(frame: &Frame) -> Option<i64> {
    let wants_deadlines = frame.rax as i64 == libc::SYS_sched_setattr
        && access::load_u32(frame.rsi as usize + at::POLICY) == Ok(libc::SCHED_DEADLINE as u32);
    if deadlines::order() && wants_deadlines {
        return None;
    }
    let answer = raw(frame);
    let may_be_granted = GUEST.orders_by_priority() || deadlines::order();
    (answer != EPERM || !may_be_granted).then_some(answer)
}

/// Returns the id that such a call names, if it is about one thread.
pub fn named(frame: &Frame) -> Option<i32> {
    match frame.rax as i64 {
        libc::SYS_setpriority | libc::SYS_getpriority => {
            is_about_one(frame).then_some(frame.rsi as i32)
        }
        _ => Some(frame.rdi as i32),
    }
}

/// Serves one of the calls, for the program's threads.
pub fn serve(runtime: &'static Runtime, thread: &'static Thread, frame: &Frame) -> i64 {
    let number = frame.rax as i64;
    let Some(who) = named(frame) else {
        return raw(frame);
    };
    let own = thread.guest().tid.load(Ordering::Relaxed);
    let id = if who == 0 { own } else { who };
    let Some(whose) = GUEST.identities.find(id) else {
        return if who >= FIRST { ESRCH } else { raw(frame) };
    };
    if number == libc::SYS_sched_setaffinity {
        return affinity::set_affinity((whose, id), frame, |call| {
            bound::change(runtime, (whose, id), &[call])
        });
    }
    if let Some(kernel_id) = record::kernel_id(whose) {
        return of_bound(frame, kernel_id);
    }
    match number {
        libc::SYS_sched_getaffinity => affinity::get_affinity(whose, frame),
        _ if GUEST.orders_by_priority() => by_priority(runtime, (whose, id), frame),
        _ if deadlines::order() => by_deadline(runtime, (whose, id), frame),
        _ => by_kernel(runtime, (whose, id), frame),
    }
}

/// Returns true if a call about priorities is about one thread.
pub fn is_about_one(frame: &Frame) -> bool {
    const IOPRIO_WHO_PROCESS: u64 = 1;
    match frame.rax as i64 {
        libc::SYS_ioprio_set | libc::SYS_ioprio_get => frame.rdi == IOPRIO_WHO_PROCESS,
        _ => frame.rdi as i32 == libc::PRIO_PROCESS as i32,
    }
}

/// Returns the call about another kernel thread: 0 is the calling one.
pub fn about(frame: &Frame, kernel_id: i32) -> Frame {
    let mut asked = frame.clone();
    match frame.rax as i64 {
        libc::SYS_getpriority | libc::SYS_setpriority => asked.rsi = kernel_id as u64,
        _ => asked.rdi = kernel_id as u64,
    }
    asked
}

/// Makes a call about a bound thread in the kernel; the runtime keeps its processors, too.
pub fn of_bound(frame: &Frame, kernel_id: i32) -> i64 {
    raw(&about(frame, kernel_id))
}

/// Serves the calls where nothing orders the threads of a program. A value that differs from that of all activations binds
/// the thread, if the kernel grants it.
fn by_kernel(runtime: &'static Runtime, whose: (&'static Thread, i32), frame: &Frame) -> i64 {
    let own = about(frame, 0);
    let is_asked = |number: i64, words: [u64; 2]| {
        // SAFETY: asks only.
        unsafe { raw_syscall(number, [words[0], words[1], 0, 0, 0, 0]) as i64 }
    };
    let policy = || is_asked(libc::SYS_sched_getscheduler, [0; 2]);
    let nice = || 20 - is_asked(libc::SYS_getpriority, [libc::PRIO_PROCESS as u64, 0]);
    let word = |offset: usize| access::load_u32(frame.rsi as usize + offset).map(i64::from);
    // Nothing is changed by setting what is there, and what cannot be read the kernel refuses.
    let same = match frame.rax as i64 {
        libc::SYS_setpriority => i64::from((frame.rdx as i32).clamp(-20, 19)) == nice(),
        libc::SYS_sched_setscheduler => match access::load_u32(frame.rdx as usize) {
            Ok(priority) => priority == 0 && i64::from(frame.rsi as i32) == policy(),
            Err(access::Fault) => true,
        },
        libc::SYS_sched_setattr => match (word(at::POLICY), word(at::FLAGS), word(at::NICE)) {
            (Ok(wanted), Ok(0), Ok(niceness)) => {
                wanted == policy() && i64::from(niceness as i32) == nice()
            }
            (Ok(_), Ok(_), Ok(_)) => false,
            _ => true,
        },
        _ => true,
    };
    match same {
        true => raw(&own),
        false => bound::change(runtime, whose, &[own.words()]),
    }
}

/// Returns true if the calling kernel thread has a policy under which no standby would run beside it: such a process
/// has no runtime, unless its policies say which thread runs first here.
pub fn is_real_time() -> bool {
    // SAFETY: asks only.
    let policy = unsafe { raw_syscall(libc::SYS_sched_getscheduler, [0; 6]) } as i32;
    let stops_others = matches!(
        policy & !RESET_ON_FORK,
        libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE
    );
    stops_others && !GUEST.orders_by_priority() && !deadlines::order()
}

/// Serves the calls where deadlines count.
fn by_deadline(runtime: &'static Runtime, whose: (&'static Thread, i32), frame: &Frame) -> i64 {
    if let Some(answer) = deadlines::serve(runtime, whose, frame) {
        return answer;
    }
    let answer = as_ordinary(frame);
    match frame.rax as i64 {
        libc::SYS_sched_setscheduler | libc::SYS_sched_setattr if answer == 0 => {
            deadlines::give_up(runtime, whose)
        }
        _ => answer,
    }
}

/// As for an ordinary thread; none changes anything.
fn as_ordinary(frame: &Frame) -> i64 {
    let allowed = |policy: i32| match policy & !RESET_ON_FORK {
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE => 0,
        libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE => EPERM,
        _ => EINVAL,
    };
    match frame.rax as i64 {
        libc::SYS_sched_setscheduler => {
            match (
                allowed(frame.rsi as i32),
                access::load_u32(frame.rdx as usize),
            ) {
                (_, Err(access::Fault)) => EFAULT,
                (0, Ok(1..)) => EINVAL,
                (answer, _) => answer,
            }
        }
        libc::SYS_sched_setattr => match access::load_u32(frame.rsi as usize + at::POLICY) {
            Ok(policy) => allowed(policy as i32),
            Err(access::Fault) => EFAULT,
        },
        libc::SYS_sched_getscheduler => i64::from(libc::SCHED_OTHER),
        libc::SYS_sched_getparam => store(frame.rsi, 0),
        libc::SYS_sched_setparam => match access::load_u32(frame.rsi as usize) {
            Ok(0) => 0,
            Ok(_) => EINVAL,
            Err(access::Fault) => EFAULT,
        },
        libc::SYS_setpriority => 0,
        _ => of_the_process(frame),
    }
}

/// sched_getattr(2) and getpriority(2): the answer comes from the first activation, which has the process's own
/// settings.
fn of_the_process(frame: &Frame) -> i64 {
    let mut asked = frame.clone();
    match frame.rax as i64 {
        libc::SYS_getpriority => asked.rsi = 0,
        _ => asked.rdi = 0,
    }
    raw(&asked)
}

fn store(at: u64, value: u32) -> i64 {
    match access::store_u32(at as usize, value) {
        Ok(()) => 0,
        Err(access::Fault) => EFAULT,
    }
}

/// Serves the calls where priorities count.
pub fn by_priority(runtime: &'static Runtime, whose: (&'static Thread, i32), frame: &Frame) -> i64 {
    let has = Request::of(whose.0);
    let word = |offset: usize| access::load_u32(frame.rsi as usize + offset).map_err(|_| EFAULT);
    let mut wants = has;
    let taken = match frame.rax as i64 {
        libc::SYS_sched_getscheduler => {
            return i64::from(has.policy_with_flag());
        }
        libc::SYS_sched_getparam => return store(frame.rsi, u32::from(has.priority)),
        // As the kernel returns it, which has no negative answers.
        libc::SYS_getpriority => return 20 - i64::from(has.nice),
        libc::SYS_sched_getattr => return get_attributes(has, frame),
        libc::SYS_setpriority => {
            wants.nice = (frame.rdx as i32).clamp(-20, 19) as i8;
            Ok(())
        }
        libc::SYS_sched_setscheduler => access::load_u32(frame.rdx as usize)
            .map_err(|_| EFAULT)
            .and_then(|priority| wants.take(frame.rsi as i32, priority as i32)),
        libc::SYS_sched_setparam => {
            word(0).and_then(|priority| wants.take(has.policy_with_flag(), priority as i32))
        }
        _ => set_attributes(&mut wants, word),
    };
    if let Err(error) = taken {
        return error;
    }
    let changed = pending::while_it_lives(runtime, whose, |inside| {
        change(inside, whose.0, wants);
    });
    if changed.is_some() { 0 } else { ESRCH }
}

/// `word` reads struct sched_attr.
fn set_attributes(
    wants: &mut Request,
    word: impl Fn(usize) -> Result<u32, i64>,
) -> Result<(), i64> {
    const FLAG_RESET_ON_FORK: u32 = 1;
    let flag = match word(at::FLAGS)? & FLAG_RESET_ON_FORK {
        0 => 0,
        _ => RESET_ON_FORK,
    };
    let nice = word(at::NICE)? as i32;
    wants.take(word(at::POLICY)? as i32 | flag, word(at::PRIORITY)? as i32)?;
    if !wants.is_real_time() {
        wants.nice = nice.clamp(-20, 19) as i8;
    }
    Ok(())
}

fn get_attributes(has: Request, frame: &Frame) -> i64 {
    let answer = of_the_process(frame);
    if answer != 0 {
        return answer;
    }
    let words = [
        (at::POLICY, u32::from(has.policy)),
        (at::FLAGS, u32::from(has.resets)),
        (at::NICE, i32::from(has.nice) as u32),
        (at::PRIORITY, u32::from(has.priority)),
    ];
    for (offset, value) in words {
        if access::store_u32(frame.rsi as usize + offset, value).is_err() {
            return EFAULT;
        }
    }
    0
}

fn change(inside: &Inside, thread: &'static Thread, wants: Request) {
    thread
        .guest()
        .asked_urgency
        .store(wants.word(), Ordering::Relaxed);
    lending::set_own(inside, thread, wants.rank());
}

/// As sched_setscheduler(2) with SCHED_RR, for a thread of the crate.
pub fn ask(inside: &Inside, thread: &'static Thread, priority: u8) {
    let mut wants = Request::of(thread);
    if GUEST.orders_by_priority() && wants.take(libc::SCHED_RR, i32::from(priority)).is_ok() {
        change(inside, thread, wants);
    }
}

/// Gives the first thread the policy, priority and nice value of the process.
pub fn adopt_first(inside: &Inside, thread: &'static Thread) {
    let own = match GUEST.orders_by_priority() {
        true => Request::of_kernel(),
        false => Request::default(),
    };
    change(inside, thread, own);
}

/// Called for a new thread, before it is ready.
pub fn inherit(inside: &Inside, (creator, thread): (Option<&'static Thread>, &'static Thread)) {
    let own = creator.map_or_else(Request::default, |creator| Request::of(creator).inherited());
    change(inside, thread, own);
}

/// Called in a process that the thread has just made: asks the kernel for what the thread has asked for.
pub fn pass_on(thread: &'static Thread) {
    if GUEST.orders_by_priority() {
        Request::of(thread).inherited().give_kernel();
    }
}

/// As [`pass_on`], for an execve(2) of the thread, by `execute`, which returns only if that fails.
pub fn executing(
    thread: Option<&'static Thread>,
    frame: &Frame,
    execute: impl FnOnce() -> i64,
) -> i64 {
    let Some(thread) = thread.filter(|_| GUEST.orders_by_priority() && may_be_executed(frame))
    else {
        return execute();
    };
    let before = Request::of_kernel();
    Request::of(thread).give_kernel();
    let answer = execute();
    before.give_kernel();
    answer
}

/// Returns true if the file of an execve(2) is there and may be executed. Asked before the kernel thread is changed for the
/// program: the kernel may refuse to change it back, and a search for a program along a path often fails first.
pub fn may_be_executed(frame: &Frame) -> bool {
    let [directory, path, flags] = match frame.rax as i64 {
        libc::SYS_execve => [libc::AT_FDCWD as u64, frame.rdi, 0],
        _ => [frame.rdi, frame.rsi, frame.r8],
    };
    let flags = flags | libc::AT_EACCESS as u64;
    let words = [directory, path, libc::X_OK as u64, flags, 0, 0];
    // SAFETY: asks only; the path is the program's own.
    let answer = unsafe { raw_syscall(libc::SYS_faccessat2, words) } as i64;
    answer == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(policy: i32, priority: i32, nice: i8) -> Request {
        let mut request = Request {
            nice,
            ..Request::default()
        };
        request.take(policy, priority).expect("valid");
        request
    }

    #[test]
    fn urgency_is_by_policy_then_priority_then_niceness() {
        let from_most_urgent = [
            of(libc::SCHED_FIFO, 99, 0),
            of(libc::SCHED_RR, 2, 19),
            of(libc::SCHED_FIFO, 1, 0),
            of(libc::SCHED_OTHER, 0, -20),
            of(libc::SCHED_OTHER, 0, -1),
            of(libc::SCHED_OTHER, 0, 0),
            of(libc::SCHED_BATCH, 0, 1),
            of(libc::SCHED_OTHER, 0, 19),
            of(libc::SCHED_IDLE, 0, -20),
        ];
        assert!(from_most_urgent.is_sorted_by_key(|one| one.rank().0));
        assert_eq!(Request::default().rank(), Rank::COMMON);
    }

    #[test]
    fn what_sched_setscheduler_refuses_is_refused_and_changes_nothing() {
        for (policy, priority, error) in [
            (libc::SCHED_FIFO, 0, EINVAL),
            (libc::SCHED_RR, 100, EINVAL),
            (libc::SCHED_OTHER, 1, EINVAL),
            (libc::SCHED_DEADLINE, 0, EPERM),
            (17, 0, EINVAL),
        ] {
            let mut request = Request::default();
            assert_eq!(request.take(policy, priority), Err(error));
            assert_eq!(request, Request::default());
        }
    }

    #[test]
    fn a_word_keeps_a_request() {
        let request = of(libc::SCHED_RR | RESET_ON_FORK, 7, -3);
        let [policy, priority, nice, resets] = request.word().to_le_bytes();
        assert_eq!((policy, priority, nice as i8, resets), (2, 7, -3, 1));
        assert_eq!(request.inherited(), Request::default());
    }

    #[test]
    fn reset_on_fork_takes_back_real_time_and_negative_niceness_only() {
        let batch = of(libc::SCHED_BATCH | RESET_ON_FORK, 0, -7).inherited();
        assert_eq!(batch, of(libc::SCHED_BATCH, 0, 0));
        let idle = of(libc::SCHED_IDLE | RESET_ON_FORK, 0, 7).inherited();
        assert_eq!(idle, of(libc::SCHED_IDLE, 0, 7));
        assert_eq!(
            of(libc::SCHED_FIFO, 9, 7).inherited(),
            of(libc::SCHED_FIFO, 9, 7)
        );
    }
}
