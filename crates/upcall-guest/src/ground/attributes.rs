//! What the guest keeps with each thread: [`GuestThread`], in the room that the backend leaves for it. What the backend
//! uses too is in [`LinuxThread`](upcall_linux::LinuxThread).

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};

use upcall_core::Rank;
use upcall_linux::Thread;

/// A thread's attributes.
pub trait GuestAttributes {
    /// Those of the guest.
    fn guest(&self) -> &GuestThread;
}

impl GuestAttributes for Thread {
    #[inline]
    fn guest(&self) -> &GuestThread {
        // SAFETY: only the guest uses the room, and only here. Zeros are integers and flags.
        unsafe { self.kernel.room.of() }
    }
}

/// Makes the guest's attributes those of a new thread. See [`upcall_linux::Hooks::new_thread`].
pub fn begin(thread: &Thread, creator: &Thread) {
    thread.guest().begin(creator.guest());
}

/// What a thread asked for with SCHED_DEADLINE, and the job that it is in; all in nanoseconds.
#[derive(Default)]
pub struct Job {
    /// Processor time that each job takes.
    pub runtime: AtomicU64,
    /// When a job must be done, after its release.
    pub deadline: AtomicU64,
    /// From one release to the next one. 0: the thread has asked for nothing.
    pub period: AtomicU64,
    /// When this job must be done, of CLOCK_MONOTONIC.
    pub due: AtomicU64,
    /// When the next one is released.
    pub next: AtomicU64,
    /// Processor time that the thread had had when this one began.
    pub before: AtomicU64,
}

/// The program's own Syscall User Dispatch.
#[derive(Default)]
pub struct UserDispatch {
    /// Not 0: it is on.
    pub on: AtomicU32,
    /// Where calls are let through.
    pub start: AtomicUsize,
    /// How much of that.
    pub length: AtomicUsize,
    /// Where the byte is that says what happens elsewhere, or 0.
    pub selector: AtomicUsize,
    /// Where the answer goes to a call that is not made, or 0.
    pub answer: AtomicUsize,
}

/// What the kernel would keep with a thread, were it a kernel thread, and what the guest notes of it.
#[derive(Default)]
pub struct GuestThread {
    // Identity.
    /// Its id: the number that libc and the program know.
    pub tid: AtomicI32,
    /// Its name (PR_SET_NAME), 16 bytes.
    pub name: [AtomicU64; 2],

    // Its begin and end.
    /// What runs it again when it has ended, or 0. Of a ticket: its task.
    pub shell: AtomicUsize,
    /// The shell that it is making.
    pub makes: AtomicUsize,
    /// The stack that it began on, from and to: 0 and 0 where its maker did not say.
    pub stack: [AtomicUsize; 2],
    /// Where to store 0 and wake when the thread ends (set_tid_address).
    pub clear_tid: AtomicUsize,
    /// The robust list (set_robust_list).
    pub robust_list: AtomicUsize,

    // Kernel threads of its own.
    /// The kernel thread that stands for it in the kernel, or 0.
    pub agent: AtomicUsize,
    /// The record of the kernel thread of its own that it has or is to have, or 0.
    pub bound: AtomicUsize,
    /// The id of that kernel thread once signals for the thread go there, or 0.
    pub outside_tid: AtomicI32,

    // The system call in which it is.
    /// The address of the registers at the call's site, or 0.
    pub frame: AtomicUsize,
    /// Set while a child of vfork runs on the thread's memory: its calls are not the thread's.
    pub lent: AtomicBool,
    /// The signals that sigtimedwait waits for, or that a call with a mask of its own lets through.
    pub waited_for: AtomicU64,
    /// Whether it is in a call with a mask of its own.
    pub suspended: AtomicBool,
    /// 1 when the call that it is about to make must not wait.
    pub forbidden: AtomicU32,
    /// Whether a signal of the runtime's own came since it was last cleared, which may have cut a call short.
    pub disturbed: AtomicBool,

    // Signals.
    /// The alternate signal stack: address, size, flags. Size 0 when disabled.
    pub altstack: [AtomicUsize; 3],
    /// The queue behind `pending`.
    pub queue: AtomicUsize,
    /// Where the outermost handler was called that returns into the runtime, or 0.
    pub called_back: AtomicUsize,
    /// Where a frame goes that would be put on what is not its stack, or 0: see `signal::aside`. The block's, whatever thread it has.
    pub aside: AtomicUsize,
    /// Set while the runtime's own signal has stopped it in its own code: the kernel's frame on its stack is
    /// its exact state, and what comes for it is delivered when that frame returns.
    pub stopped: AtomicBool,
    /// The signal frame that is looked at was put where a handler of the thread's begins.
    pub has_frame: AtomicBool,
    /// Whether it is in the handler by which libc has all threads take part in a change of identity.
    pub takes_part: AtomicBool,
    /// What calls the program wants to have dispatched to its own handler.
    pub user_dispatch: UserDispatch,

    // Urgency.
    /// The policy and priority that it has asked for.
    pub asked_urgency: AtomicU32,
    /// Where threads have ranks: its own.
    pub own_rank: AtomicU64,
    /// The most urgent rank lent to it (`u64::MAX`: none).
    pub lent_rank: AtomicU64,
    /// How many mutexes it holds.
    pub locks: AtomicU32,
    /// The number of the thread that holds the mutex that it waits for.
    pub waits_for: AtomicU32,
    /// The job that it is in, if it has asked for deadlines.
    pub job: Job,
    /// The number that the program gave it, for the program's own policy.
    pub tag: AtomicU64,
    /// What the layer above keeps: the number by which its policy knows the block's thread, or knew an earlier one.
    pub advised: AtomicU64,
}

impl GuestThread {
    /// Makes these the attributes of a new thread. It has its creator's name, and nothing else of it.
    fn begin(&self, creator: &GuestThread) {
        // All fields by name, so that a new one must say how it begins.
        let GuestThread {
            tid,
            name,
            shell,
            makes,
            stack: [stack_start, stack_end],
            clear_tid,
            robust_list,
            agent,
            bound,
            outside_tid,
            frame,
            lent,
            waited_for,
            suspended,
            forbidden,
            disturbed,
            altstack: [stack, stack_size, stack_flags],
            queue,
            called_back,
            aside: _,
            stopped,
            has_frame,
            takes_part,
            user_dispatch:
                UserDispatch {
                    on,
                    start,
                    length,
                    selector,
                    answer,
                },
            asked_urgency,
            own_rank,
            lent_rank,
            locks,
            waits_for,
            job:
                Job {
                    runtime,
                    deadline,
                    period,
                    due,
                    next,
                    before,
                },
            tag,
            // The policy may not have heard of the end of the thread before yet: it keeps this itself.
            advised: _,
        } = self;
        for (own, creators) in name.iter().zip(&creator.name) {
            own.store(creators.load(Relaxed), Relaxed);
        }
        stack_flags.store(libc::SS_DISABLE as usize, Relaxed);
        own_rank.store(Rank::COMMON.0, Relaxed);
        lent_rank.store(u64::MAX, Relaxed);
        for number in [tid, outside_tid] {
            number.store(0, Relaxed);
        }
        for flag in [lent, suspended, disturbed, stopped, has_frame, takes_part] {
            flag.store(false, Relaxed);
        }
        for word in [forbidden, asked_urgency, locks, waits_for, on] {
            word.store(0, Relaxed);
        }
        for word in [
            waited_for, tag, runtime, deadline, period, due, next, before,
        ] {
            word.store(0, Relaxed);
        }
        for word in [
            stack,
            stack_size,
            shell,
            makes,
            stack_start,
            stack_end,
            clear_tid,
            robust_list,
            agent,
            bound,
            frame,
            queue,
            called_back,
            start,
            length,
            selector,
            answer,
        ] {
            word.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes of which each byte is this one.
    fn filled(byte: u8) -> Box<GuestThread> {
        let mut one = Box::new(GuestThread::default());
        // SAFETY: all are integers, flags, and pointers that nobody follows; 0 and 1 are flags.
        unsafe { core::ptr::from_mut(&mut *one).write_bytes(byte, 1) };
        one
    }

    fn bytes(one: &GuestThread) -> &[u8] {
        // SAFETY: `filled` has written every byte, and nobody writes any meanwhile.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(one).cast(), size_of_val(one)) }
    }

    #[test]
    fn a_thread_that_is_used_again_inherits_nothing_from_the_one_before() {
        let creator = filled(1);
        let (after_ones, fresh) = (filled(1), filled(0));
        after_ones.begin(&creator);
        fresh.begin(&creator);
        let pairs = bytes(&after_ones).iter().zip(bytes(&fresh));
        let differ = pairs.filter(|(one, other)| one != other).count();
        // What `begin` leaves alone, which is the block's, and padding: four in `UserDispatch`, and two behind the flags.
        let expected = size_of_val(&fresh.advised) + size_of_val(&fresh.aside) + 6;
        assert_eq!(differ, expected, "bytes of the thread before");
        assert_eq!(fresh.name[0].load(Relaxed), creator.name[0].load(Relaxed));
        assert_eq!(after_ones.tid.load(Relaxed), 0);
    }
}
