//! With what attributes a thread begins.

use core::sync::atomic::Ordering::Relaxed;

use crate::state::{Choice, LinuxThread};

impl LinuxThread {
    /// Makes these the attributes of a new thread, whatever thread had them before. The new thread has its
    /// creator's signal mask, pointers, timer slack and processors, and nothing else of it. Called before
    /// anybody else knows of the new thread.
    pub fn begin(&self, creator: &LinuxThread) {
        // All fields by name, so that a new one must say how it begins.
        let LinuxThread {
            thread_pointer,
            program_base,
            mask,
            has_lazy_mask,
            in_critical_code,
            pending,
            seen,
            cpu_ns,
            slack,
            asked,
            choice:
                Choice {
                    count,
                    writes,
                    blocks,
                    waits,
                },
            // In no list, since the thread before has ended. Each wait writes it.
            node: _,
            // The layer above has a `begin` of its own.
            room: _,
        } = self;
        thread_pointer.store(creator.thread_pointer.load(Relaxed), Relaxed);
        program_base.store(creator.program_base.load(Relaxed), Relaxed);
        mask.store(creator.mask.load(Relaxed), Relaxed);
        has_lazy_mask.store(creator.has_lazy_mask.load(Relaxed), Relaxed);
        slack.inherit(&creator.slack);
        asked.inherit(Some(&creator.asked));
        pending.store(0, Relaxed);
        cpu_ns.store(0, Relaxed);
        for flag in [blocks, waits, in_critical_code] {
            flag.store(false, Relaxed);
        }
        for word in [seen, count, writes] {
            word.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes of which each byte is this one.
    fn filled(byte: u8) -> std::boxed::Box<LinuxThread> {
        let mut one = std::boxed::Box::new(LinuxThread::default());
        // SAFETY: all are integers, and pointers that nobody follows.
        unsafe { core::ptr::from_mut(&mut *one).write_bytes(byte, 1) };
        one
    }

    fn bytes(one: &LinuxThread) -> &[u8] {
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
        // The node and the room, which `begin` leaves alone, and 12 bytes of padding.
        let expected = size_of_val(&fresh.node) + size_of_val(&fresh.room) + 12;
        assert_eq!(differ, expected, "bytes of the thread before");
        assert_eq!(fresh.mask.load(Relaxed), creator.mask.load(Relaxed));
        assert_eq!(after_ones.pending.load(Relaxed), 0);
    }
}
