//! Agents: kernel threads that stand for one thread each, where the kernel must know threads by their ids. See
//! docs/adr/0004.
//!
//! The kernel releases a robust mutex that processes share when its owner's process is killed: it walks the robust list of
//! each kernel thread, and marks the words that hold that kernel thread's id. A shared mutex with priority inheritance also
//! holds the id of a kernel thread, which must take it, and free it where others wait. So in a program that can have such
//! mutexes ([`imports`]) each thread has an agent, whose id is the thread's id. The agent runs no code of the program, and
//! blocks its signals. It sleeps, except for calls that its thread leaves in its mailbox. The first thread's agent is the
//! leader of the process (`leader`).
//!
//! The mailbox is one word:
//!
//! 1. `IDLE`: the thread writes a call, and sets `ASKED`.
//! 2. `ASKED`: the agent makes the call, which may block, writes the answer, and sets `DONE`.
//! 3. `DONE`: the thread takes the answer, and sets `IDLE`. A thread whose handler has left the call with siglongjmp(3) or
//!    by cancellation does so when it needs its agent again. A mutex that the agent took meanwhile is freed.
//! 4. `CHANGING`: an idle agent makes the call that `signal::everywhere` has every kernel thread make, and is `IDLE` again.
//!
//! One agent stands for no thread: it starts kernel threads (`starter`).
//!
//! An agent ends with its thread, and no sooner, so that the kernel does what it does for a kernel thread that ends. The
//! thread waits for that if it holds robust mutexes, since the list lies in memory that libc takes back.
//!
//! *Not done:* a signal that another process sends to an agent's id by tgkill(2) does not reach the thread. An agent that
//! waits for a mutex while the process changes its identity (setuid(2)) keeps the old one.

pub mod imports;
mod leader;
mod starter;

use core::cell::Cell;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering,
};

use upcall_core::{Errno, Machine, SpinLock};
use upcall_linux::{Inside, Runtime, Thread, clone, spawn};

use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{NEVER, program_call, raw_syscall};
use crate::ground::{caller, kernel_futex, record};
use crate::signal::everywhere;
use crate::thread::robust;

pub use leader::{adopt_leader, give_way};
pub use starter::{expect_outsider, need_first_starter, need_starter, starter};

/// The memory of an agent: itself, and its stack above it.
const BLOCK: usize = 16 * 1024;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const DONE: u32 = 2;
const CHANGING: u32 = 3;

/// FUTEX_WAIT, for a word that the kernel wakes when a kernel thread ends.
const FUTEX_WAIT: u64 = 0;
const FUTEX_WAIT_PRIVATE: u64 = 128;

/// An agent. It lies at the beginning of its block, which is never unmapped.
#[repr(C, align(64))]
pub struct Agent {
    /// The kernel thread's id; the kernel clears it when the kernel thread is gone.
    tid: AtomicI32,
    /// The mailbox.
    state: AtomicU32,
    call: [AtomicU64; 7],
    answer: AtomicI64,
    /// The next one in the list of those without a thread.
    next: AtomicPtr<Agent>,
    /// The next one in the list of all.
    next_known: AtomicPtr<Agent>,
}

/// All that ever were.
static KNOWN: AtomicPtr<Agent> = AtomicPtr::new(core::ptr::null_mut());

/// The agents that have no thread, whose kernel threads have ended or are about to.
static FREE: AtomicPtr<Agent> = AtomicPtr::new(core::ptr::null_mut());
static FREE_LOCK: SpinLock<()> = SpinLock::new(());

/// True if the threads of this process have agents. It changes when the runtime starts.
static USED: AtomicBool = AtomicBool::new(false);

/// Returns true if the threads of this process have agents.
#[inline]
pub fn are_used() -> bool {
    USED.load(Ordering::Relaxed)
}

/// Called in the child of a fork: the agents are its parent's.
pub fn forget() {
    USED.store(false, Ordering::Relaxed);
    FREE.store(core::ptr::null_mut(), Ordering::Relaxed);
    KNOWN.store(core::ptr::null_mut(), Ordering::Relaxed);
    starter::forget();
    // SAFETY: the only thread of the process; the holder of the lock stayed in the parent.
    unsafe { FREE_LOCK.unlock() };
}

/// Returns the thread's agent, if it has one.
pub fn of(thread: &'static Thread) -> Option<&'static Agent> {
    let agent = thread.guest().agent.load(Ordering::Relaxed) as *const Agent;
    // SAFETY: null, or an agent, whose memory is there for ever.
    unsafe { agent.as_ref() }
}

/// Makes the agent the thread's.
pub fn appoint(thread: &'static Thread, agent: Option<&'static Agent>) {
    let address = agent.map_or(0, |agent| core::ptr::from_ref(agent) as usize);
    thread.guest().agent.store(address, Ordering::Relaxed);
}

/// Returns an agent for a new thread; `None` in programs that need none.
///
/// # Errors
///
/// The kernel's error when it gives no memory or no kernel thread.
pub fn create(inside: &Inside) -> Result<Option<&'static Agent>, Errno> {
    are_used().then(|| begin(inside.runtime())).transpose()
}

/// Starts an agent.
fn begin(runtime: &'static Runtime) -> Result<&'static Agent, Errno> {
    let agent = room(runtime)?;
    let argument = core::ptr::from_ref(agent) as usize;
    let new = clone::Start {
        stack: agent.stack_top(),
        tid: agent.tid.as_ptr() as usize,
        thread_pointer: argument,
        begin: serve,
        argument,
    };
    // SAFETY: the stack above the agent is free, since its kernel thread is gone or was never there; `serve` does
    // not return.
    let started = unsafe { spawn::start(runtime, &new, || {}) };
    started.inspect_err(|_| agent.put_back(runtime))?;
    Ok(agent)
}

/// Memory for an agent.
fn room(runtime: &'static Runtime) -> Result<&'static Agent, Errno> {
    {
        let _guard = FREE_LOCK.lock(runtime.kernel());
        // SAFETY: null, or an agent, whose memory is there for ever.
        if let Some(agent) = unsafe { FREE.load(Ordering::Relaxed).as_ref() }
            // Acquire: the kernel has cleared it after the kernel thread's last step.
            && agent.tid.load(Ordering::Acquire) == 0
        {
            FREE.store(agent.next.load(Ordering::Relaxed), Ordering::Relaxed);
            agent.state.store(IDLE, Ordering::Relaxed);
            return Ok(agent);
        }
    }
    map(runtime)
}

/// New memory for an agent: zeros are one that is idle.
fn map(runtime: &'static Runtime) -> Result<&'static Agent, Errno> {
    let memory = runtime.kernel().map(BLOCK)?;
    // SAFETY: mapped for ever, aligned to a page, and zeros are an agent.
    let agent = unsafe { memory.cast::<Agent>().as_ref() };
    let mut first = KNOWN.load(Ordering::Relaxed);
    loop {
        agent.next_known.store(first, Ordering::Relaxed);
        let address = core::ptr::from_ref(agent).cast_mut();
        // Release: pairs with the Acquire in `change`.
        let (set, get) = (Ordering::Release, Ordering::Relaxed);
        match KNOWN.compare_exchange(first, address, set, get) {
            Ok(_) => return Ok(agent),
            Err(now) => first = now,
        }
    }
}

/// Has every idle agent make the call that each kernel thread of the process must make. No kernel thread is started
/// meanwhile.
pub fn change(runtime: &'static Runtime) {
    let each = |visit: &dyn Fn(&'static Agent)| {
        let mut at = KNOWN.load(Ordering::Acquire);
        // SAFETY: null, or an agent, whose memory is there for ever.
        while let Some(agent) = unsafe { at.as_ref() } {
            visit(agent);
            at = agent.next_known.load(Ordering::Relaxed);
        }
    };
    each(&|agent| {
        // Release: pairs with the Acquire in `serve`.
        let (set, get) = (Ordering::Release, Ordering::Relaxed);
        let state = &agent.state;
        if agent.tid() != 0 && state.compare_exchange(IDLE, CHANGING, set, get).is_ok() {
            kernel_futex::wake_kernel(state.as_ptr() as usize, i32::MAX as usize, true);
        }
    });
    each(&|agent| {
        while agent.state.load(Ordering::Acquire) == CHANGING {
            runtime.kernel().yield_processor();
        }
    });
}

/// The whole life of an agent.
extern "C" fn serve(agent: usize) -> ! {
    // SAFETY: `create` and `give_way` pass an agent.
    let agent = unsafe { &*(agent as *const Agent) };
    caller::mark_outside(true);
    loop {
        // Acquire: pairs with the Release in `put` and in `change`.
        let state = agent.state.load(Ordering::Acquire);
        if state == CHANGING {
            everywhere::make_call_of_all();
            agent.state.store(IDLE, Ordering::Release);
            kernel_futex::wake_kernel(agent.state.as_ptr() as usize, i32::MAX as usize, true);
            continue;
        }
        if state != ASKED {
            kernel_futex::wait_kernel(&agent.state, state);
            continue;
        }
        let [number, words @ ..] = agent
            .call
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        let answer = match number as i64 {
            // SAFETY: an order was left here.
            libc::SYS_clone => unsafe { starter::obey(words) },
            // SAFETY: a call of the thread's that was left here for this.
            number => unsafe { raw_syscall(number, words) as i64 },
        };
        agent.answer.store(answer, Ordering::Relaxed);
        agent.state.store(DONE, Ordering::Release);
        kernel_futex::wake_kernel(agent.state.as_ptr() as usize, i32::MAX as usize, true);
    }
}

impl Agent {
    fn stack_top(&self) -> usize {
        core::ptr::from_ref(self) as usize + BLOCK
    }

    /// Returns the id of its kernel thread, which is its thread's id.
    pub fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Its kernel thread has never begun, or must end: the memory may be used again when it is gone.
    fn put_back(&'static self, runtime: &'static Runtime) {
        let _guard = FREE_LOCK.lock(runtime.kernel());
        self.next
            .store(FREE.load(Ordering::Relaxed), Ordering::Relaxed);
        FREE.store(core::ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
    }

    /// Ends an agent that nobody has used.
    fn end(&'static self, runtime: &'static Runtime) {
        self.put([libc::SYS_exit as u64, 0, 0, 0, 0, 0, 0]);
        self.put_back(runtime);
    }

    /// Leaves a call in the mailbox, which is idle, or becomes so in a moment, or holds an answer that was taken.
    fn put(&self, call: [u64; 7]) {
        for (own, word) in self.call.iter().zip(call) {
            own.store(word, Ordering::Relaxed);
        }
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state == CHANGING {
                kernel_futex::wait_kernel(&self.state, CHANGING);
                continue;
            }
            // Release: pairs with the Acquire in `serve`.
            let (set, get) = (Ordering::Release, Ordering::Relaxed);
            if self.state.compare_exchange(state, ASKED, set, get).is_ok() {
                break;
            }
        }
        kernel_futex::wake_kernel(self.state.as_ptr() as usize, i32::MAX as usize, true);
    }

    /// Has the agent make a call, and waits for the answer, outside the runtime. Handlers may run meanwhile.
    pub fn ask(&self, runtime: &'static Runtime, call: [u64; 7]) -> i64 {
        self.settle(runtime);
        self.put(call);
        let answer = self.answer(runtime);
        self.state.store(IDLE, Ordering::Relaxed);
        answer
    }

    /// Waits until the agent has made what it was asked for.
    fn answer(&self, runtime: &'static Runtime) -> i64 {
        // Acquire: pairs with the Release in `serve`.
        while self.state.load(Ordering::Acquire) == ASKED {
            let word = self.state.as_ptr() as u64;
            sleep(runtime, [word, FUTEX_WAIT_PRIVATE, ASKED.into(), 0, 0, 0]);
        }
        self.answer.load(Ordering::Relaxed)
    }

    /// Finishes a call that its thread has left.
    fn settle(&self, runtime: &'static Runtime) {
        if matches!(self.state.load(Ordering::Relaxed), IDLE | CHANGING) {
            return;
        }
        let answer = self.answer(runtime);
        let word = |at: usize| self.call[at].load(Ordering::Relaxed);
        if answer == 0 && kernel_futex::takes_pi(word(0), word(2)) {
            let number = libc::SYS_futex as u64;
            self.put([number, word(1), kernel_futex::UNLOCK_PI, 0, 0, 0, 0]);
            self.answer(runtime);
        }
        self.state.store(IDLE, Ordering::Relaxed);
    }
}

/// One wait of the calling thread in the kernel; it may end for no reason.
fn sleep(runtime: &'static Runtime, words: [u64; 6]) {
    if record::current().is_some() {
        // SAFETY: waits for a word of an agent's, which is there for ever.
        unsafe { raw_syscall(libc::SYS_futex, words) };
        return;
    }
    let [a, b, c, d, e, f] = words;
    let call = [libc::SYS_futex as u64, a, b, c, d, e, f];
    let made = Cell::new(0);
    // SAFETY: waits for a word of an agent's, which is there for ever.
    runtime.blocking(|| unsafe { program_call(&call, &made, &NEVER) });
}

/// Called when the thread has told where its robust list is. Its agent tells the kernel, whose answer this returns.
pub fn register(runtime: &'static Runtime, thread: &'static Thread, head: u64, size: u64) -> i64 {
    let number = libc::SYS_set_robust_list as u64;
    of(thread).map_or(0, |agent| {
        agent.ask(runtime, [number, head, size, 0, 0, 0, 0])
    })
}

/// Ends the calling thread's agent with it: the kernel passes on what it holds. The id is free from here on. Outside the
/// runtime.
pub fn dismiss(runtime: &'static Runtime, thread: &'static Thread, free_id: impl FnOnce()) {
    let Some(agent) = of(thread) else { return };
    agent.settle(runtime);
    let holds = robust::holds(thread);
    if leader::is_leader(agent) && !holds {
        // A process whose first kernel thread has ended has no /proc/self/fd any more.
        return;
    }
    appoint(thread, None);
    thread.guest().robust_list.store(0, Ordering::Relaxed);
    free_id();
    agent.put([libc::SYS_exit as u64, 0, 0, 0, 0, 0, 0]);
    if holds {
        loop {
            let tid = agent.tid.load(Ordering::Acquire);
            if tid == 0 {
                break;
            }
            let word = agent.tid.as_ptr() as u64;
            sleep(runtime, [word, FUTEX_WAIT, tid as u64, 0, 0, 0]);
        }
    }
    let inside = runtime.enter();
    agent.put_back(runtime);
    inside.leave();
}

/// Called if the thread was not made after all.
pub fn take_back(inside: &Inside, agent: Option<&'static Agent>) {
    if let Some(agent) = agent {
        agent.end(inside.runtime());
    }
}
