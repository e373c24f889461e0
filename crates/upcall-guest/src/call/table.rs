//! The table of system calls: one row a call, and in it what happens for each kind of caller.
//!
//! | column | the caller is | `None`, or no entry, means |
//! |---|---|---|
//! | `alone` | the only thread of a process without a runtime | the kernel serves the call |
//! | `child` | an outside kernel thread, or a child of vfork(2) on borrowed memory | the kernel serves the call |
//! | `helper` | a helper of libc's; asked before `child` | see `child` |
//! | `bound` | a bound thread ([`crate::thread::bound`]) | the kernel serves the call |
//! | `thread` | a thread on an activation | the kernel serves the call; if it blocks, the activation is replaced |
//! | `at_once` | a thread on an activation; asked before `thread` | see `thread` |
//!
//! A row may be *early*: its calls must be seen before there is a thread. Their sites are rewritten at start, all others
//! when the process is made ready for threads ([`ready`](crate::start)). What `alone` does only while dispatch is on, or
//! for descriptors of the runtime's, makes no row early: by then the process is ready.
//!
//! A call that `at_once` serves is never made again. Any other call that was interrupted is made again where the kernel
//! would have done so ([`crate::call::again`]). A call without a row is served by the kernel for every caller.

use core::sync::atomic::Ordering;

use upcall_core::Errno;
use upcall_linux::poller::prepared;
use upcall_linux::{Runtime, Thread, descriptors, kernel_slices};

use crate::call::credentials::{self, LSM_SET_SELF_ATTR};
use crate::call::of_bound::{self, to_thread};
use crate::call::{
    attributes, capabilities, futex_calls, helpers, ids, io, kill, poll, procfs, segments, serve,
    time, uring, wait,
};
use crate::ground::attributes::GuestAttributes;
use crate::ground::entry::{Frame, mode};
use crate::ground::hooks::{self, hooks};
use crate::ground::state::GUEST;
use crate::ground::{access, mask};
use crate::process::{self, loads};
use crate::rewrite::kept::First;
use crate::signal::{self, alone, carried, dispatch, everywhere, timers, user_dispatch};
use crate::thread::lifetime::{self, Request};
use crate::thread::{affinity, bound, deadlines, kept_stacks, names, scheduling};

/// The answer. What `None` means stands in the column's row above.
type Answer = Option<i64>;
type Alone = fn(&mut Frame) -> Answer;
type Helper = fn(&'static Runtime, &mut Frame) -> Answer;
type Bound = fn(&'static Thread, &mut Frame) -> Answer;
type Served = fn(&'static Runtime, &'static Thread, &mut Frame) -> Answer;
/// Returns true if it has served the call.
type AtOnce = fn(&'static Runtime, &'static Thread, &mut Frame) -> bool;

/// What happens when one of some calls is made. The columns are those of the module's table.
pub struct Row {
    calls: &'static [i64],
    /// See the table.
    pub alone: Alone,
    /// See the table.
    pub child: Alone,
    /// See the table.
    pub helper: Helper,
    /// See the table.
    pub bound: Bound,
    /// See the table.
    pub thread: Served,
    /// See the table.
    pub at_once: Option<AtOnce>,
    /// The thread's mask may be lazy meanwhile ([`signal::end_lazy_mask`]): the call looks at no mask, does not wait, and
    /// hands none on.
    pub ignores_mask: bool,
    /// See the table.
    is_early: bool,
}

const fn row(calls: &'static [i64]) -> Row {
    Row {
        calls,
        alone: |_| None,
        child: |_| None,
        helper: |_, _| None,
        bound: |_, _| None,
        thread: |_, _, _| None,
        at_once: None,
        ignores_mask: false,
        is_early: false,
    }
}

impl Row {
    /// What must be seen before there is a thread.
    const fn alone(self, alone: Alone) -> Row {
        Row {
            alone,
            is_early: true,
            ..self
        }
    }

    /// What needs to be done only in a process that is ready for threads: while dispatch is on, or with descriptors of
    /// the runtime's.
    const fn alone_ready(self, alone: Alone) -> Row {
        Row { alone, ..self }
    }

    const fn child(self, child: Alone) -> Row {
        Row { child, ..self }
    }

    const fn helper(self, helper: Helper) -> Row {
        Row { helper, ..self }
    }

    const fn bound(self, bound: Bound) -> Row {
        Row { bound, ..self }
    }

    const fn thread(self, thread: Served) -> Row {
        Row { thread, ..self }
    }

    const fn ignores_mask(self) -> Row {
        Row {
            ignores_mask: true,
            ..self
        }
    }

    const fn at_once(self, at_once: AtOnce) -> Row {
        Row {
            at_once: Some(at_once),
            ..self
        }
    }
}

#[inline]
pub fn row_of(number: u64) -> &'static Row {
    let index = INDEX.get(number as usize).copied().unwrap_or(0);
    &ROWS[usize::from(index)]
}

/// Returns true if a call with this number, `None` where it is not known, must be seen before there is a thread.
pub fn is_early(number: Option<u32>) -> bool {
    // Nothing is done for it where the kernel's answer is the program's.
    let as_it_is = Some(libc::SYS_sched_getaffinity as u32);
    if number == as_it_is && !affinity::is_cut() {
        return false;
    }
    (FIRST.is)(number)
}

/// The calls of early rows, whatever the settings are.
pub const FIRST: First = First {
    is: |number| number.is_none_or(|number| row_of(number.into()).is_early),
    set: {
        // FNV-1a.
        let (mut set, mut at) = (0x811c_9dc5u32, 0);
        while at < ROWS.len() {
            let mut next = 0;
            while ROWS[at].is_early && next < ROWS[at].calls.len() {
                set = (set ^ ROWS[at].calls[next] as u32).wrapping_mul(0x0100_0193);
                next += 1;
            }
            at += 1;
        }
        set
    },
};

/// The numbers of calls are below this.
const NUMBERS: usize = 512;

/// The index of each call's row in the table. Row 0 is for all calls that have none.
static INDEX: [u8; NUMBERS] = {
    let mut index = [0u8; NUMBERS];
    let mut at = 1;
    while at < ROWS.len() {
        let calls = ROWS[at].calls;
        let mut next = 0;
        while next < calls.len() {
            let number = calls[next] as usize;
            assert!(index[number] == 0, "two rows for one call");
            index[number] = at as u8;
            next += 1;
        }
        at += 1;
    }
    index
};

/// The ioctl that sets or clears O_NONBLOCK.
pub const FIONBIO: u64 = 0x5421;
/// The request by which a child asks to be traced.
const PTRACE_TRACEME: u64 = 0;
const ENOSYS: i64 = -(libc::ENOSYS as i64);
const EBADF: i64 = -(libc::EBADF as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);
const EPERM: i64 = -(libc::EPERM as i64);

const MSEAL: i64 = 462;
const FUTEX_WAKE: i64 = 454;
const FUTEX_WAIT: i64 = 455;
const FUTEX_REQUEUE: i64 = 456;

static ROWS: &[Row] = &[
    row(&[]),
    // Threads and processes. exit(2) of any thread that is not bound is served before this table is asked.
    row(&[libc::SYS_exit]).bound(|thread, frame| bound::exit(thread, frame.rdi)),
    row(&[
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_fork,
        libc::SYS_vfork,
    ])
    .alone(create_alone)
    .helper(|_, frame| {
        process::create_outside(frame);
        Some(frame.rax as i64)
    })
    .bound(|_, frame| {
        process::create_outside(frame);
        Some(frame.rax as i64)
    })
    .at_once(|_, thread, frame| {
        signal::forget_left(thread, frame.rsp as usize);
        serve::in_call(thread, frame, |frame| create(Some(thread), frame));
        true
    })
    .ignores_mask(),
    row(&[libc::SYS_execve, libc::SYS_execveat])
        .alone(|frame| Some(process::exec(frame)))
        .child(|frame| Some(process::exec(frame)))
        .bound(|_, frame| Some(process::exec(frame)))
        .thread(|_, _, frame| Some(process::exec(frame))),
    row(&[libc::SYS_exit_group])
        .bound(|_, _| {
            GUEST.report();
            None
        })
        .thread(|_, _, frame| {
            GUEST.report();
            quick(frame)
        }),
    row(&[libc::SYS_wait4, libc::SYS_waitid])
        .bound(|_, frame| wait::of_bound(frame))
        .thread(|runtime, thread, frame| Some(wait::of_thread(runtime, thread, frame))),
    row(&[libc::SYS_ptrace])
        .alone_ready(|frame| {
            if frame.rdi == PTRACE_TRACEME {
                if dispatch::is_on() {
                    dispatch::end();
                }
                signal::give_defaults_back();
            }
            None
        })
        .thread(|runtime, _, frame| Some(everywhere::trace(runtime, frame))),
    // What the kernel keeps with a thread.
    row(&[libc::SYS_gettid])
        .bound(|thread, _| Some(id(thread)))
        .thread(|_, thread, _| Some(id(thread)))
        .ignores_mask(),
    row(&[libc::SYS_set_tid_address])
        .bound(|thread, frame| Some(set_tid_address(thread, frame)))
        .thread(|_, thread, frame| Some(set_tid_address(thread, frame)))
        .ignores_mask(),
    row(&[libc::SYS_set_robust_list])
        .bound(|thread, frame| {
            let runtime = GUEST.runtime()?;
            Some(attributes::set_robust_list(runtime, thread, frame))
        })
        .thread(|runtime, thread, frame| Some(attributes::set_robust_list(runtime, thread, frame)))
        .ignores_mask(),
    row(&[libc::SYS_get_robust_list])
        .bound(|thread, frame| Some(attributes::get_robust_list(thread, frame)))
        .thread(|_, thread, frame| Some(attributes::get_robust_list(thread, frame))),
    row(&[libc::SYS_rseq])
        .alone(|frame| Some(attributes::rseq(frame)))
        .bound(|_, frame| Some(attributes::rseq(frame)))
        .thread(|_, _, frame| Some(attributes::rseq(frame)))
        .ignores_mask(),
    row(&[libc::SYS_prctl])
        .alone(|frame| {
            if user_dispatch::is_request(frame) {
                user_dispatch::begin(frame);
                return Some(frame.rax as i64);
            }
            make_ready_for_prctl(frame.rdi as i32);
            if frame.rdi as i32 == libc::PR_SET_SECCOMP {
                prepared::open();
            }
            None
        })
        // The runtime uses the kernel's Syscall User Dispatch itself.
        .child(|frame| user_dispatch::is_request(frame).then_some(EINVAL))
        .bound(|thread, frame| {
            if installs_filter(frame) {
                expect_filter(false);
            }
            attributes::prctl_of_bound(thread, frame)
        })
        .thread(|runtime, thread, frame| {
            if installs_filter(frame) {
                expect_filter(true);
            }
            Some(if user_dispatch::is_request(frame) {
                user_dispatch::set(thread, frame)
            } else {
                attributes::prctl(runtime, thread, frame)
            })
        }),
    row(&[libc::SYS_arch_prctl])
        // The register holds a mark of the runtime's.
        .child(|frame| asks_for_gs(frame).then(|| segments::answer(frame, 0)))
        .bound(|thread, frame| is_about_gs(frame).then(|| segments::arch_prctl(thread, frame)))
        .thread(|runtime, thread, frame| {
            own_change(runtime, thread, frame).or_else(|| Some(segments::arch_prctl(thread, frame)))
        }),
    row(&[libc::SYS_pkey_alloc])
        .alone(|frame| Some(segments::allocate_key(frame)))
        .child(|frame| Some(segments::allocate_key(frame)))
        .bound(|_, frame| Some(segments::allocate_key(frame)))
        .thread(|_, _, frame| Some(segments::allocate_key(frame))),
    // Identity, and other attributes that a thread changes for itself alone.
    row(&[
        libc::SYS_setuid,
        libc::SYS_setgid,
        libc::SYS_setreuid,
        libc::SYS_setregid,
        libc::SYS_setresuid,
        libc::SYS_setresgid,
        libc::SYS_setgroups,
    ])
    .helper(|_, frame| credentials::is_for_all(frame).then(|| credentials::of_helper(frame)))
    .bound(|thread, frame| {
        credentials::is_for_all(frame).then(|| credentials::of_bound(thread, frame))
    })
    .thread(|runtime, thread, frame| {
        if credentials::is_for_all(frame) {
            Some(credentials::change(runtime, thread, frame))
        } else {
            own_change(runtime, thread, frame)
        }
    }),
    row(&[
        libc::SYS_landlock_restrict_self,
        libc::SYS_setns,
        LSM_SET_SELF_ATTR,
    ])
    .alone(made_ready)
    .thread(own_change),
    row(&[
        libc::SYS_setfsuid,
        libc::SYS_setfsgid,
        libc::SYS_set_mempolicy,
        libc::SYS_personality,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_ioperm,
        libc::SYS_iopl,
    ])
    .thread(own_change),
    row(&[libc::SYS_capset])
        .bound(|thread, frame| capabilities::serve(thread, frame))
        .thread(|runtime, thread, frame| Some(capabilities::set(runtime, thread, frame))),
    row(&[libc::SYS_capget])
        .bound(|thread, frame| capabilities::serve(thread, frame))
        .thread(|_, thread, frame| capabilities::serve(thread, frame)),
    // Other files, or sealed memory, with which the code could not be rewritten any more. No right is needed for that: a
    // process may drop any.
    row(&[
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_setrlimit,
        MSEAL,
    ])
    .alone(made_ready),
    row(&[libc::SYS_unshare])
        .alone(made_ready)
        .bound(|thread, frame| {
            let unshares = bound::unshares_descriptors(&frame.words());
            unshares.then(|| own_descriptors(thread, of_bound::raw(frame)))
        })
        .thread(own_change),
    row(&[libc::SYS_seccomp])
        .alone(|frame| {
            const SECCOMP_GET_ACTION_AVAIL: u64 = 2;
            if frame.rdi < SECCOMP_GET_ACTION_AVAIL {
                (hooks().make_ready)();
                prepared::open();
            }
            None
        })
        .bound(|_, _| {
            expect_filter(false);
            None
        })
        .thread(|runtime, thread, frame| {
            expect_filter(true);
            own_change(runtime, thread, frame)
        }),
    row(&[libc::SYS_perf_event_open])
        .bound(|thread, frame| {
            credentials::is_change(frame).then_some(())?;
            to_thread(thread, frame, frame.rsi as i32, 1)
        })
        .thread(own_change),
    // Scheduling.
    row(&[libc::SYS_sched_setscheduler, libc::SYS_sched_setattr])
        .alone(|frame| scheduling::before_threads(frame).or_else(|| with_runtime(frame, EPERM)))
        .helper(helpers::about_thread)
        .bound(|thread, frame| to_thread(thread, frame, frame.rdi as i32, 0))
        .thread(|runtime, thread, frame| Some(scheduling::serve(runtime, thread, frame))),
    row(&[libc::SYS_sched_getaffinity])
        .alone(|frame| affinity::before_threads(frame))
        .helper(helpers::about_thread)
        .bound(|thread, frame| to_thread(thread, frame, frame.rdi as i32, 0))
        .thread(|runtime, thread, frame| Some(scheduling::serve(runtime, thread, frame))),
    row(&[
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_getscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_getparam,
        libc::SYS_sched_getattr,
    ])
    .helper(helpers::about_thread)
    .bound(|thread, frame| to_thread(thread, frame, frame.rdi as i32, 0))
    .thread(|runtime, thread, frame| Some(scheduling::serve(runtime, thread, frame))),
    row(&[libc::SYS_setpriority, libc::SYS_getpriority])
        .helper(helpers::about_thread)
        .bound(|thread, frame| {
            scheduling::is_about_one(frame).then_some(())?;
            to_thread(thread, frame, frame.rsi as i32, 1)
        })
        .thread(|runtime, thread, frame| Some(scheduling::serve(runtime, thread, frame))),
    row(&[libc::SYS_sched_yield])
        .thread(|runtime, thread, frame| Some(deadlines::end_job(runtime, thread, frame)))
        .at_once(|runtime, thread, frame| {
            let gives_way = !deadlines::has(thread);
            if gives_way {
                serve::in_call(thread, frame, |frame| {
                    runtime.yield_now();
                    frame.rax = 0;
                });
            }
            gives_way
        }),
    // Calls that take the id of a process or thread.
    row(&[libc::SYS_ioprio_get, libc::SYS_ioprio_set])
        .helper(|_, frame| Some(ids::serve_outside(frame)))
        .bound(|thread, frame| {
            if scheduling::is_about_one(frame) {
                to_thread(thread, frame, frame.rsi as i32, 1)
            } else {
                Some(ids::serve_outside(frame))
            }
        })
        .thread(|runtime, thread, frame| {
            let changes = frame.rax as i64 == libc::SYS_ioprio_set;
            let changed = changes
                .then(|| own_change(runtime, thread, frame))
                .flatten();
            changed.or_else(|| Some(ids::serve(runtime, frame)))
        }),
    row(&[libc::SYS_sched_rr_get_interval])
        .helper(|_, frame| Some(ids::serve_outside(frame)))
        .bound(|thread, frame| {
            let id = frame.rdi as i32;
            if i64::from(id) == self::id(thread) {
                to_thread(thread, frame, id, 0)
            } else {
                Some(ids::serve_outside(frame))
            }
        })
        .thread(|runtime, _, frame| Some(ids::serve(runtime, frame))),
    row(&[libc::SYS_prlimit64])
        .alone(|frame| {
            if limits_memory(frame) {
                (hooks().make_ready)();
            }
            None
        })
        .helper(|_, frame| Some(ids::serve_outside(frame)))
        .bound(|_, frame| Some(ids::serve_outside(frame)))
        .thread(|runtime, _, frame| Some(ids::serve(runtime, frame))),
    row(&[
        libc::SYS_getpgid,
        libc::SYS_setpgid,
        libc::SYS_getsid,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_migrate_pages,
        libc::SYS_move_pages,
        libc::SYS_kcmp,
    ])
    .helper(|_, frame| Some(ids::serve_outside(frame)))
    .bound(|_, frame| Some(ids::serve_outside(frame)))
    .thread(|runtime, _, frame| Some(ids::serve(runtime, frame))),
    // Signals.
    row(&[libc::SYS_rt_sigaction])
        .alone(|frame| Some(signal::sigaction(frame)))
        .helper(|_, frame| Some(signal::sigaction(frame)))
        .bound(|_, frame| Some(signal::sigaction(frame)))
        .thread(|runtime, thread, frame| Some(signal::sigaction_of_thread(runtime, thread, frame))),
    row(&[libc::SYS_rt_sigprocmask])
        .alone_ready(|frame| dispatch::is_on().then(|| alone::sigprocmask(frame)))
        .helper(|_, frame| {
            let answer = of_bound::raw(frame);
            // Unblocks the signals again. In between, no dispatched call must be made.
            mask::set_kernel_mask(dispatch::blockable(mask::kernel_mask()));
            Some(answer)
        })
        .bound(|thread, frame| Some(signal::sigprocmask_of_bound(thread, frame)))
        .thread(|runtime, thread, frame| {
            let by_libc = lifetime::is_libcs_call(frame.rip as usize);
            Some(signal::sigprocmask(runtime, thread, frame, by_libc))
        })
        .ignores_mask(),
    row(&[libc::SYS_rt_sigpending])
        .alone_ready(|frame| dispatch::is_on().then(|| alone::sigpending(frame)))
        .thread(|runtime, thread, frame| Some(attributes::sigpending(runtime, thread, frame))),
    row(&[libc::SYS_sigaltstack])
        .alone_ready(|frame| dispatch::is_on().then(|| signal::altstack::call_of_kernel(frame)))
        .thread(|runtime, thread, frame| {
            Some(signal::altstack::sigaltstack(runtime, thread, frame))
        }),
    row(&[libc::SYS_rt_sigreturn]).at_once(|_, _, frame| {
        frame.mode = mode::AT_SITE;
        true
    }),
    row(&[libc::SYS_rt_sigsuspend])
        .alone_ready(wait_alone)
        .thread(|runtime, thread, frame| {
            Some(signal::with_mask(
                runtime,
                thread,
                frame,
                frame.rdi as usize,
            ))
        }),
    row(&[libc::SYS_rt_sigtimedwait])
        .alone_ready(wait_alone)
        .thread(|runtime, thread, frame| Some(signal::sigtimedwait(runtime, thread, frame))),
    row(&[libc::SYS_signalfd, libc::SYS_signalfd4])
        .alone(|frame| Some(signal::descriptors::signalfd_alone(frame)))
        .helper(|_, frame| Some(signal::descriptors::signalfd(frame)))
        .bound(|_, frame| Some(signal::descriptors::signalfd(frame)))
        .thread(|runtime, thread, frame| {
            Some(signal::descriptors::signalfd_of(runtime, thread, frame))
        }),
    row(&[libc::SYS_tgkill])
        .alone(|frame| carried::send(frame))
        .helper(|runtime, frame| Some(tgkill(runtime, frame)))
        .bound(|thread, frame| {
            carried::send(frame).or_else(|| to_thread(thread, frame, frame.rsi as i32, 1))
        })
        .thread(|runtime, _, frame| Some(tgkill(runtime, frame))),
    row(&[libc::SYS_tkill])
        .helper(|runtime, frame| Some(tkill(runtime, frame)))
        .bound(|thread, frame| to_thread(thread, frame, frame.rdi as i32, 0))
        .thread(|runtime, _, frame| Some(tkill(runtime, frame))),
    row(&[libc::SYS_rt_tgsigqueueinfo])
        .alone(|frame| carried::send(frame))
        .helper(|runtime, frame| Some(attributes::queue_signal(runtime, frame)))
        .bound(|thread, frame| {
            carried::send(frame).or_else(|| to_thread(thread, frame, frame.rsi as i32, 1))
        })
        .thread(|runtime, _, frame| Some(attributes::queue_signal(runtime, frame))),
    row(&[libc::SYS_kill])
        .helper(|_, frame| Some(ids::serve_outside(frame)))
        .bound(|_, frame| Some(ids::serve_outside(frame)))
        .thread(|runtime, thread, frame| Some(kill::kill(runtime, thread, frame))),
    row(&[libc::SYS_rt_sigqueueinfo])
        .helper(|_, frame| Some(ids::serve_outside(frame)))
        .bound(|_, frame| Some(ids::serve_outside(frame)))
        .thread(|runtime, thread, frame| Some(kill::queue(runtime, thread, frame))),
    row(&[libc::SYS_pidfd_send_signal]).thread(|runtime, thread, frame| {
        kill::send_by_descriptor(runtime, thread, frame).or_else(|| quick(frame))
    }),
    // Waiting for words.
    row(&[libc::SYS_futex])
        .child(|frame| {
            futex_calls::outside(frame);
            Some(frame.rax as i64)
        })
        .bound(|thread, frame| Some(futex_calls::of_bound(thread, frame)))
        .thread(|runtime, _, frame| {
            futex_calls::serve(runtime, frame).or_else(|| Some(futex_calls::shared(runtime, frame)))
        })
        .at_once(|runtime, thread, frame| {
            let wakes = futex_calls::is_wake(frame);
            if wakes {
                serve::in_call(thread, frame, |frame| {
                    frame.rax = futex_calls::serve_wake(runtime, frame) as u64;
                });
            }
            wakes
        }),
    // Wake-ups at user level would not reach a thread that waits in the kernel.
    row(&[libc::SYS_futex_waitv, FUTEX_WAKE, FUTEX_WAIT, FUTEX_REQUEUE])
        .bound(|_, _| Some(ENOSYS))
        .thread(|_, _, _| Some(ENOSYS)),
    // Time.
    row(&[libc::SYS_nanosleep])
        .thread(|runtime, thread, frame| Some(time::nanosleep(runtime, thread, frame))),
    row(&[libc::SYS_clock_nanosleep])
        .bound(|thread, frame| time::sleep_of_bound(thread, frame))
        .thread(|runtime, thread, frame| Some(time::clock_nanosleep(runtime, thread, frame))),
    row(&[libc::SYS_clock_gettime])
        .helper(|_, frame| time::clock_gettime(None, frame))
        .bound(|thread, frame| time::clock_of_bound(thread, frame))
        .thread(|_, thread, frame| {
            time::clock_gettime(Some(thread), frame).or_else(|| quick(frame))
        }),
    row(&[libc::SYS_clock_getres])
        .helper(|_, frame| time::clock_getres(None, frame))
        .bound(|thread, frame| time::clock_getres(Some(thread), frame))
        .thread(|_, thread, frame| {
            time::clock_getres(Some(thread), frame).or_else(|| quick(frame))
        }),
    row(&[libc::SYS_getrusage])
        .bound(|thread, frame| Some(time::usage_of_bound(thread, frame)))
        .thread(|_, thread, frame| Some(time::getrusage(thread, frame))),
    row(&[libc::SYS_timer_create])
        .bound(|thread, frame| {
            if time::is_clock_of_other(thread, frame) {
                bound::visit(thread, |runtime| time::create_timer(runtime, thread, frame))
            } else {
                Some(time::create_timer_of_bound(thread, frame))
            }
        })
        .thread(|runtime, thread, frame| Some(time::create_timer(runtime, thread, frame))),
    row(&[libc::SYS_timer_settime])
        .helper(|_, frame| Some(timers::set_by(frame, of_bound::call)))
        .bound(|_, frame| Some(timers::set_by(frame, of_bound::call)))
        .thread(|_, _, frame| Some(timers::set_by(frame, of_bound::call))),
    row(&[libc::SYS_timer_getoverrun])
        .helper(|_, frame| timers::overruns(frame))
        .bound(|_, frame| timers::overruns(frame))
        .thread(|_, _, frame| timers::overruns(frame).or_else(|| quick(frame))),
    row(&[libc::SYS_timer_delete])
        .bound(|_, frame| {
            timers::delete(frame);
            None
        })
        .thread(|_, _, frame| {
            timers::delete(frame);
            quick(frame)
        }),
    // Waiting for descriptors.
    row(&[libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait])
        .thread(|runtime, thread, frame| Some(poll::serve(runtime, thread, frame)))
        .at_once(poll::serve_prompt),
    row(&[
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
    ])
    .alone_ready(wait_alone)
    .thread(|runtime, thread, frame| Some(poll::serve(runtime, thread, frame)))
    .at_once(poll::serve_prompt),
    row(&[libc::SYS_epoll_ctl])
        .bound(of_poller)
        .thread(|runtime, _, frame| Some(poll::control(runtime, frame))),
    row(&[signal::IO_PGETEVENTS])
        .thread(|runtime, thread, frame| Some(signal::get_events(runtime, thread, frame))),
    row(&[libc::SYS_io_uring_setup])
        .alone(|frame| {
            if uring::is_for_one(frame) {
                with_runtime(frame, EINVAL)
            } else {
                Some(uring::setup(frame))
            }
        })
        .bound(|_, frame| (!uring::is_for_one(frame)).then(|| uring::setup(frame)))
        .thread(|runtime, thread, frame| {
            own_change(runtime, thread, frame).or_else(|| Some(uring::setup(frame)))
        }),
    row(&[libc::SYS_io_uring_register])
        .alone(|frame| {
            uring::is_for_one(frame).then_some(())?;
            with_runtime(frame, EINVAL)
        })
        .thread(own_change),
    row(&[libc::SYS_io_uring_enter])
        .alone(|_| {
            uring::enter();
            None
        })
        .bound(|_, _| {
            uring::enter();
            None
        })
        .thread(|runtime, thread, frame| {
            uring::enter();
            Some(uring::wait(runtime, thread, frame))
        }),
    // Moving bytes: the call is tried without waiting; else the thread parks on the poller.
    row(&[libc::SYS_read])
        .bound(|_, frame| Some(procfs::counts::read(frame, of_bound::raw(frame))))
        .thread(transfer)
        .at_once(io::serve_prompt),
    row(&[
        libc::SYS_write,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_preadv2,
        libc::SYS_pwritev2,
        libc::SYS_recvfrom,
        libc::SYS_sendto,
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_accept,
        libc::SYS_accept4,
    ])
    .thread(transfer)
    .at_once(io::serve_prompt),
    row(&[libc::SYS_pread64])
        .bound(|_, frame| Some(procfs::counts::read(frame, of_bound::raw(frame))))
        .thread(|runtime, _, frame| Some(procfs::counts::read(frame, blocking(runtime, frame)))),
    row(&[libc::SYS_sendmmsg]).thread(|runtime, _, frame| Some(io::send_many(runtime, frame))),
    row(&[libc::SYS_recvmmsg]).thread(|runtime, _, frame| Some(io::receive_many(runtime, frame))),
    row(&[libc::SYS_sendfile]).thread(|runtime, _, frame| Some(io::send_file(runtime, frame))),
    row(&[libc::SYS_fallocate]).thread(|runtime, _, frame| Some(io::allocate(runtime, frame))),
    row(&[libc::SYS_getrandom]).thread(|runtime, _, frame| {
        if frame.rsi > io::NEVER_SHORT {
            Some(io::fill(runtime, frame))
        } else {
            quick(frame)
        }
    }),
    // Descriptors, and what the poller knows of them.
    row(&[libc::SYS_open, libc::SYS_openat])
        .helper(|runtime, frame| names::open(runtime, frame))
        .bound(|_, frame| names::open(GUEST.runtime()?, frame))
        .thread(|runtime, _, frame| {
            descriptors::wait_for_openings();
            names::open(runtime, frame)
        }),
    row(&[libc::SYS_close])
        .alone_ready(|frame| is_ours(frame).then_some(EBADF))
        .helper(helpers::close)
        .bound(of_poller)
        .thread(|runtime, _, frame| Some(attributes::close(runtime, frame))),
    row(&[libc::SYS_dup2, libc::SYS_dup3])
        .alone_ready(|frame| is_ours(frame).then_some(EBADF))
        .helper(helpers::duplicate)
        .bound(of_poller)
        .thread(|runtime, _, frame| Some(attributes::duplicate(runtime, frame))),
    row(&[libc::SYS_close_range])
        .alone_ready(|frame| Some(attributes::close_ranges(frame)))
        .helper(|runtime, frame| Some(helpers::close_range(runtime, frame)))
        .bound(|thread, frame| {
            if frame.rdx & credentials::CLOSE_RANGE_UNSHARE != 0 {
                Some(own_descriptors(thread, attributes::close_ranges(frame)))
            } else if bound::has_descriptors(thread) {
                Some(attributes::close_ranges(frame))
            } else {
                of_poller(thread, frame)
            }
        })
        .thread(|runtime, thread, frame| {
            own_change(runtime, thread, frame)
                .or_else(|| Some(attributes::close_range(runtime, frame)))
        }),
    row(&[libc::SYS_fcntl])
        .helper(helpers::change_flags)
        .bound(|_, frame| {
            if frame.rsi as i32 == ids::F_SETOWN_EX {
                Some(ids::set_owner(frame))
            } else if ids::names_owner(frame) {
                Some(ids::name_owner(frame))
            } else {
                helpers::change_flags(GUEST.runtime()?, frame)
            }
        })
        .thread(|runtime, _, frame| match frame.rsi as i32 {
            libc::F_SETFL => Some(change_flags(runtime, frame)),
            ids::F_SETOWN_EX => Some(ids::set_owner(frame)),
            command if ids::takes_ownership(command) => {
                Some(ids::own_by_process(frame, || blocking(runtime, frame)))
            }
            _ => ids::names_owner(frame).then(|| ids::name_owner(frame)),
        }),
    row(&[libc::SYS_ioctl])
        .helper(helpers::change_flags)
        .bound(|_, frame| {
            if ids::names_owner(frame) {
                Some(ids::name_owner(frame))
            } else {
                helpers::change_flags(GUEST.runtime()?, frame)
            }
        })
        .thread(|runtime, _, frame| {
            if ids::names_owner(frame) {
                Some(ids::name_owner(frame))
            } else {
                (frame.rsi == FIONBIO).then(|| change_flags(runtime, frame))
            }
        }),
    row(&[libc::SYS_setsockopt])
        .alone(|frame| {
            poll::note_option(frame);
            None
        })
        .helper(helpers::change_flags)
        .bound(|_, frame| helpers::change_flags(GUEST.runtime()?, frame))
        .thread(|runtime, _, frame| Some(poll::set_option(runtime, frame))),
    // What procfs tells about the program's threads.
    row(&[libc::SYS_getdents, libc::SYS_getdents64])
        .bound(|_, frame| procfs::entries(frame))
        .thread(|_, _, frame| procfs::entries(frame)),
    row(&[
        libc::SYS_stat,
        libc::SYS_lstat,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_statx,
    ])
    .bound(|_, frame| {
        let answer = of_bound::raw(names::asked(frame).as_ref().unwrap_or(frame));
        procfs::count_links(frame, answer);
        Some(answer)
    })
    .thread(|runtime, _, frame| {
        let answer = blocking(runtime, names::asked(frame).as_ref().unwrap_or(frame));
        procfs::count_links(frame, answer);
        Some(answer)
    }),
    row(&[libc::SYS_access, libc::SYS_faccessat, libc::SYS_faccessat2])
        .bound(|_, frame| Some(of_bound::raw(&names::asked(frame)?)))
        .thread(|runtime, _, frame| Some(blocking(runtime, &names::asked(frame)?))),
    // Code that is mapped while the program runs.
    row(&[libc::SYS_mmap, libc::SYS_mprotect])
        .alone(map)
        .bound(|_, frame| map(frame))
        .thread(|_, _, frame| map(frame).or_else(|| quick(frame)))
        .ignores_mask(),
    row(&[libc::SYS_pkey_mprotect, libc::SYS_shmat])
        .alone(map)
        .bound(|_, frame| map(frame))
        .thread(|_, _, frame| map(frame)),
    row(&[libc::SYS_munmap])
        .alone(|frame| Some(loads::unmap(frame)))
        .bound(|_, frame| Some(loads::unmap(frame)))
        .thread(|_, _, frame| {
            kept_stacks::unmapped(frame.rdi as usize, frame.rsi as usize);
            Some(loads::unmap(frame))
        })
        .ignores_mask(),
    row(&[libc::SYS_madvise])
        .thread(|_, thread, frame| {
            if kept_stacks::keeps(thread, frame) {
                Some(0)
            } else {
                quick(frame)
            }
        })
        .ignores_mask(),
    // These do not wait for anything.
    row(&[
        libc::SYS_getpid,
        libc::SYS_getppid,
        libc::SYS_getuid,
        libc::SYS_geteuid,
        libc::SYS_getgid,
        libc::SYS_getegid,
        libc::SYS_brk,
        libc::SYS_mremap,
        libc::SYS_lseek,
        libc::SYS_gettimeofday,
        libc::SYS_time,
        libc::SYS_getcpu,
        libc::SYS_uname,
    ])
    .thread(|_, _, frame| quick(frame))
    .ignores_mask(),
];

/// Makes a call that does not wait, on the thread's activation.
fn quick(frame: &Frame) -> Answer {
    Some(of_bound::raw(frame))
}

/// Makes the call. If it blocks, the activation is replaced.
fn blocking(runtime: &'static Runtime, frame: &Frame) -> i64 {
    runtime.blocking(|| of_bound::raw(frame))
}

/// Serves clone, clone3, fork and vfork of a process with one thread.
// Beside what else a fork runs (ADR 32).
#[unsafe(link_section = ".text.forks")]
fn create_alone(frame: &mut Frame) -> Answer {
    create(None, frame);
    Some(frame.rax as i64)
}

/// Serves clone, clone3, fork and vfork, for a thread or for the only one of a process.
// Beside what else a fork runs (ADR 32).
#[unsafe(link_section = ".text.forks")]
fn create(thread: Option<&'static Thread>, frame: &mut Frame) {
    match Request::of(frame) {
        Some(request) if request.is_thread() => lifetime::create(frame, &request, thread),
        _ => {
            signal::pass_mask_on(thread);
            process::create(frame, thread);
        }
    }
}

/// Starts the runtime, and serves the call there. Returns `refused` if the runtime does not start.
fn with_runtime(frame: &mut Frame, refused: i64) -> Answer {
    match GUEST.start() {
        Ok(runtime) => {
            serve::dispatch(runtime, frame);
            Some(frame.rax as i64)
        }
        Err(Errno(_)) => Some(refused),
    }
}

/// Makes the process ready for threads, while that is possible.
fn made_ready(_: &mut Frame) -> Answer {
    (hooks().make_ready)();
    None
}

/// Returns true if a prlimit64 may leave no room for what makes the process ready. Programs that ask for all that they can
/// get, without a limit, are not made ready for it.
fn limits_memory(frame: &Frame) -> bool {
    frame.rdx != 0
        && matches!(frame.rsi as u32, libc::RLIMIT_AS | libc::RLIMIT_DATA)
        && access::load_u64(frame.rdx as usize) != Ok(libc::RLIM_INFINITY)
}

/// As [`made_ready`], for the prctl(2) that need it.
fn make_ready_for_prctl(option: i32) {
    const PR_SET_MDWE: i32 = 65;
    if matches!(
        option,
        libc::PR_SET_SECCOMP
            | libc::PR_SET_DUMPABLE
            | libc::PR_SET_MM
            | libc::PR_SET_TSC
            | PR_SET_MDWE
    ) {
        (hooks().make_ready)();
    }
}

/// Returns true if this prctl(2) installs a filter.
fn installs_filter(frame: &Frame) -> bool {
    frame.rdi as i32 == libc::PR_SET_SECCOMP
}

/// A filter may be installed, which perhaps ends the process for a call that it does not make natively. Called by an activation, or
/// not.
fn expect_filter(is_activation: bool) {
    kernel_slices::leave_as_they_are();
    let Some(runtime) = GUEST.runtime() else {
        return;
    };
    hooks::barriers_end();
    let inside = is_activation.then(|| runtime.enter());
    runtime.forbid_barriers();
    if let Some(inside) = inside {
        inside.leave();
    }
    runtime.kernel().expect_filter();
}

fn id(thread: &'static Thread) -> i64 {
    i64::from(thread.guest().tid.load(Ordering::Relaxed))
}

fn set_tid_address(thread: &'static Thread, frame: &Frame) -> i64 {
    let address = frame.rdi as usize;
    thread.guest().clear_tid.store(address, Ordering::Relaxed);
    id(thread)
}

fn tgkill(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let (process, id) = (frame.rdi as i32, frame.rsi as i32);
    attributes::kill_thread(runtime, frame, id, frame.rdx as i32, Some(process))
}

fn tkill(runtime: &'static Runtime, frame: &Frame) -> i64 {
    attributes::kill_thread(runtime, frame, frame.rdi as i32, frame.rsi as i32, None)
}

/// Serves a change that a thread makes for itself alone.
fn own_change(runtime: &'static Runtime, thread: &'static Thread, frame: &mut Frame) -> Answer {
    credentials::is_change(frame).then(|| credentials::change_own(runtime, thread, frame))
}

fn is_about_gs(frame: &Frame) -> bool {
    asks_for_gs(frame) || frame.rdi as i32 == segments::ARCH_SET_GS
}

fn asks_for_gs(frame: &Frame) -> bool {
    frame.rdi as i32 == segments::ARCH_GET_GS
}

/// Serves a wait with a signal mask, in a process without a runtime.
fn wait_alone(frame: &mut Frame) -> Answer {
    dispatch::is_on().then(|| alone::wait(frame)).flatten()
}

fn transfer(runtime: &'static Runtime, _: &'static Thread, frame: &mut Frame) -> Answer {
    Some(if descriptors::is_ours(frame.rdi as i32) {
        EBADF
    } else {
        io::serve(runtime, frame)
    })
}

/// Returns true if close, dup2 or dup3 names a descriptor of the runtime's own.
fn is_ours(frame: &Frame) -> bool {
    descriptors::is_ours(frame.rdi as i32)
        || frame.rax as i64 != libc::SYS_close && descriptors::is_ours(frame.rsi as i32)
}

/// Serves a bound thread's call that changes what the poller knows of descriptors.
fn of_poller(thread: &'static Thread, frame: &mut Frame) -> Answer {
    let closes =
        frame.rax as i64 != libc::SYS_epoll_ctl && frame.rax as i64 != libc::SYS_close_range;
    if closes && is_ours(frame) {
        return Some(EBADF);
    }
    if bound::has_descriptors(thread) {
        return None;
    }
    bound::visit(thread, |runtime| serve::once_more(runtime, thread, frame))
}

/// Notes that a bound thread's call has given it a table of descriptors of its own. Returns the call's answer.
fn own_descriptors(thread: &'static Thread, answer: i64) -> i64 {
    if answer == 0 {
        bound::has_got_descriptors(thread);
    }
    answer
}

/// Serves a thread's call that changes a description's flags.
fn change_flags(runtime: &'static Runtime, frame: &Frame) -> i64 {
    let answer = blocking(runtime, frame);
    runtime.kernel().poller().flags_change();
    answer
}

/// Makes an mmap, mprotect, pkey_mprotect or shmat that asks for executable memory; else `None`.
fn map(frame: &mut Frame) -> Answer {
    loads::is_executable(frame).then(|| loads::map(frame))
}
