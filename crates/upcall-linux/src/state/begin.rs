//! With what attributes a thread begins.

use core::sync::atomic::Ordering::Relaxed;

use upcall_core::Rank;

use crate::state::{Choice, Job, LinuxThread, UserDispatch};

impl LinuxThread {
    /// Makes these the attributes of a new thread, whatever thread had them before. The new thread has its
    /// creator's signal mask, pointers, name, timer slack and processors, and nothing else of it. Called before
    /// anybody else knows of the new thread, and before it has an id.
    pub fn begin(&self, creator: &LinuxThread) {
        // All fields by name: whoever adds one has to say how it begins.
        let LinuxThread {
            thread_pointer,
            program_base,
            tid,
            mask,
            altstack: [stack, stack_size, stack_flags],
            pending,
            shell,
            clear_tid,
            robust_list,
            agent,
            frame,
            stopped,
            lent,
            waited_for,
            suspended,
            forbidden,
            queue,
            called_back,
            bound,
            outside_tid,
            takes_part,
            seen,
            disturbed,
            cpu_ns,
            asked_urgency,
            own_rank,
            lent_rank,
            locks,
            waits_for,
            makes,
            tag,
            advised,
            job:
                Job {
                    runtime,
                    deadline,
                    period,
                    due,
                    next,
                    before,
                },
            user_dispatch:
                UserDispatch {
                    on,
                    start,
                    length,
                    selector,
                    answer,
                },
            slack,
            asked,
            name,
            choice: Choice { count, writes },
            // In no list, since the thread before has ended. Each wait writes it.
            node: _,
        } = self;
        thread_pointer.store(creator.thread_pointer.load(Relaxed), Relaxed);
        program_base.store(creator.program_base.load(Relaxed), Relaxed);
        mask.store(creator.mask.load(Relaxed), Relaxed);
        slack.inherit(&creator.slack);
        asked.inherit(Some(&creator.asked));
        for (own, creators) in name.iter().zip(&creator.name) {
            own.store(creators.load(Relaxed), Relaxed);
        }
        stack_flags.store(libc::SS_DISABLE as usize, Relaxed);
        own_rank.store(Rank::COMMON.0, Relaxed);
        lent_rank.store(u64::MAX, Relaxed);
        for number in [tid, outside_tid] {
            number.store(0, Relaxed);
        }
        for flag in [stopped, lent, suspended, takes_part, disturbed] {
            flag.store(false, Relaxed);
        }
        for word in [
            forbidden,
            seen,
            asked_urgency,
            locks,
            waits_for,
            on,
            count,
            writes,
        ] {
            word.store(0, Relaxed);
        }
        for word in [
            pending, waited_for, cpu_ns, tag, advised, runtime, deadline, period, due, next, before,
        ] {
            word.store(0, Relaxed);
        }
        for word in [
            stack,
            stack_size,
            shell,
            clear_tid,
            robust_list,
            agent,
            frame,
            queue,
            called_back,
            bound,
            makes,
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
    use core::mem::offset_of;
    use std::vec::Vec;

    /// Attributes of which each byte is this one.
    fn filled(byte: u8) -> std::boxed::Box<LinuxThread> {
        let mut one = std::boxed::Box::new(LinuxThread::default());
        // SAFETY: all are integers, flags, and pointers that nobody follows; 0 and 1 are flags.
        unsafe { core::ptr::from_mut(&mut *one).write_bytes(byte, 1) };
        one
    }

    /// What is there, without the node of a wait and the padding behind the last field, which is a flag.
    fn bytes(one: &LinuxThread) -> Vec<u8> {
        let node = offset_of!(LinuxThread, node);
        let node = node..node + size_of_val(&one.node);
        let flags = [
            offset_of!(LinuxThread, stopped),
            offset_of!(LinuxThread, lent),
            offset_of!(LinuxThread, suspended),
            offset_of!(LinuxThread, takes_part),
            offset_of!(LinuxThread, disturbed),
        ];
        let end = flags.into_iter().max().unwrap() + 1;
        let start = core::ptr::from_ref(one).cast::<u8>();
        let all = (0..end).filter(|at| !node.contains(at));
        // SAFETY: inside the value, of which every byte was written.
        all.map(|at| unsafe { start.add(at).read() }).collect()
    }

    #[test]
    fn a_thread_that_is_used_again_inherits_nothing_from_the_one_before() {
        let creator = filled(1);
        let (after_ones, fresh) = (filled(1), filled(0));
        after_ones.begin(&creator);
        fresh.begin(&creator);
        // Four bytes of padding are in `UserDispatch`.
        let (one, other) = (bytes(&after_ones), bytes(&fresh));
        let differ = one.iter().zip(&other).filter(|(a, b)| a != b).count();
        assert!(differ <= 4, "{differ} bytes are left of the thread before");
        assert_eq!(fresh.mask.load(Relaxed), creator.mask.load(Relaxed));
        assert_eq!(after_ones.pending.load(Relaxed), 0);
        assert_eq!(after_ones.tid.load(Relaxed), 0);
    }
}
