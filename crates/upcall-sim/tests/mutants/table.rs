//! The table of mutants.

use crate::scratch::Scratch;

/// A change of the runtime that some invariant catches.
pub struct Mutant {
    /// The invariant that catches it, or what the report says; and the mutant's name.
    pub caught_by: &'static str,
    /// In `crates/upcall-core/src`, or in the room `join` of the crate.
    pub file: &'static str,
    pub text: &'static str,
    pub instead: &'static str,
    pub scenario: &'static str,
}

impl Mutant {
    pub fn path(&self) -> String {
        let of = if self.file.starts_with("join/") {
            "upcall"
        } else {
            "upcall-core"
        };
        format!("crates/{of}/src/{}", self.file)
    }

    pub fn apply(&self, scratch: &Scratch) {
        scratch.replace(&self.path(), self.text, self.instead);
    }
}

/// A change of the futex, which its model catches.
const fn of_futex(text: &'static str, instead: &'static str) -> Mutant {
    Mutant {
        caught_by: "unlike futex(2)",
        file: "runtime/futex.rs",
        text,
        instead,
        scenario: "futexes::as_the_kernel_does",
    }
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        caught_by: "one_activation_runs_on_each_processor",
        file: "runtime/returned.rs",
        text: "let displaced = list.remove(self.activation());",
        instead: "let displaced = false;",
        scenario: "blocking_calls",
    },
    Mutant {
        caught_by: "a_lock_holder_is_continued_first",
        file: "state/vp.rs",
        text: "passed && !owner.is_inside() && self",
        instead: "passed && self",
        scenario: "descriptors",
    },
    Mutant {
        caught_by: "a lock is taken outside of the runtime",
        file: "runtime/passage.rs",
        text: "if vp.has_had_enough(now) {",
        instead: "if vp.has_had_enough(now) {
                vp.ready.age(&self.kernel, By::Owner, now);",
        scenario: "turns_end",
    },
    Mutant {
        caught_by: "a_thread_is_on_one_activation",
        file: "runtime/preempted.rs",
        text: "if fetched.is_none() && !advised && !runtime.gives_way(vp, Some(thread)) {
            return Some(thread);",
        instead: "if fetched.is_none() && !advised && !runtime.gives_way(vp, Some(thread)) {
            vp.ready.push_back(&runtime.kernel, By::Owner, thread);
            return Some(thread);",
        scenario: "blocking_calls",
    },
    Mutant {
        caught_by: "a_lock_holder_is_continued_first",
        file: "runtime/returned.rs",
        text: "State::Granted | State::Runtime => return false,",
        instead: "State::Granted => return false,
                State::Runtime => {
                    if vp.replace(word, self.activation(), State::Runtime) {
                        return true;
                    }
                }",
        scenario: "blocking_calls",
    },
    Mutant {
        caught_by: "a_stopped_thread_is_resumed_by_the_runtime",
        file: "runtime/returned.rs",
        text: "runtime.stats.displaced.add();
        runtime.kernel.interrupt(owner);",
        instead: "runtime.stats.displaced.add();",
        scenario: "blocking_calls",
    },
    Mutant {
        caught_by: "no_processor_idles_while_a_thread_is_ready",
        file: "runtime/standby.rs",
        text: "if runtime.kernel.is_blocked(word.owner(), cheap_doubt) {",
        instead: "if cheap_doubt && runtime.kernel.is_blocked(word.owner(), cheap_doubt) {",
        scenario: "page_faults",
    },
    Mutant {
        caught_by: "no_processor_idles_while_a_thread_is_ready",
        file: "runtime/schedule.rs",
        text: "vp.ready.push_back(&self.kernel, by, thread);
        self.vps.set_ready(vp);",
        instead: "vp.ready.push_back(&self.kernel, by, thread);",
        scenario: "create_and_join",
    },
    Mutant {
        caught_by: "no_wake_up_is_lost_or_doubled",
        file: "runtime/futex.rs",
        text: "woken += usize::from(claim != Claim::Lost);",
        instead: "woken += 1;",
        scenario: "futexes::timeouts",
    },
    Mutant {
        caught_by: "no_event_is_lost",
        file: "runtime/passage.rs",
        text: "return self.runtime().make_ready_first(vp, thread, false);
                }
                self.make_ready(thread);",
        instead: "return self.runtime().make_ready_first(vp, thread, false);
                }",
        scenario: "descriptors",
    },
    Mutant {
        caught_by: "somebody_waits_for_events",
        file: "runtime/seat.rs",
        text: "return runtime.seat.take(me);",
        instead: "return false;",
        scenario: "sleepers_beside_a_call",
    },
    Mutant {
        caught_by: "who_is_absent_is_blocked",
        file: "runtime/blocked.rs",
        text: "owner.marks.fetch_sub(1, Ordering::AcqRel);
        self.stats.absent.down();",
        instead: "owner.marks.fetch_sub(1, Ordering::AcqRel);",
        scenario: "blocking_calls",
    },
    Mutant {
        caught_by: "activations_are_bounded",
        file: "runtime/spares.rs",
        text: "self.take_pooled(vp)
            .or_else(|| self.spawn_activation(vp, false))",
        instead: "self.spawn_activation(vp, false).inspect(|spare| spare.stay())",
        scenario: "blocking_calls",
    },
    Mutant {
        caught_by: "superfluous_activations_end",
        file: "runtime/idle.rs",
        text: "if self.stays() {
                            // Another one, in its place.
                            runtime.end_surplus();
                        }",
        instead: "if self.stays() {}",
        scenario: "page_faults",
    },
    Mutant {
        caught_by: "no_thread_is_lost",
        file: "runtime/idle.rs",
        text: "self.stats.rung.add();
        word.owner().notify();",
        instead: "self.stats.rung.add();",
        scenario: "descriptors",
    },
    Mutant {
        caught_by: "a_taken_processor_is_given_up",
        file: "runtime/passage.rs",
        text: "inside = inside.park_to_choose();",
        instead: "inside = inside.park_ready();",
        scenario: "together::two_programs_and_another",
    },
    Mutant {
        caught_by: "threads_take_turns",
        file: "state/ready.rs",
        text: "self.put(kernel, by, thread, Phase::Ready, |list| {
            list.push_last(thread)
        });",
        instead: "self.put(kernel, by, thread, Phase::Ready, |list| {
            list.push_front(thread)
        });",
        scenario: "create_and_join",
    },
    Mutant {
        caught_by: "no_thread_waits_for_a_processor_that_was_taken",
        file: "runtime/taken.rs",
        text: "others.filter(|other| self.kernel.may_run(other))",
        instead: "others.filter(|_| false)",
        scenario: "processors::a_program_goes_on_with_one_processor",
    },
    Mutant {
        caught_by: "panicked",
        file: "runtime/taken.rs",
        text: "self.push_back(to, By::Others, thread);
            self.announce(to, thread);",
        instead: "self.push_front(to, By::Others, thread);
            self.announce(to, thread);",
        scenario: "processors::the_list_of_a_taken_processor_keeps_its_order",
    },
    // It came when no virtual processor had its processor.
    Mutant {
        caught_by: "no_thread_waits_for_a_processor_that_was_taken",
        file: "runtime/taken.rs",
        text: "if vp.has_ready() && runtime.another_with_processor(vp).is_some() {",
        instead: "if false {",
        scenario: "processors::the_first_processor_that_is_back_serves_all",
    },
    // A thread that is blocked in the kernel, or parked, looks like one that computes; the other way round.
    Mutant {
        caught_by: "panicked",
        file: "state/thread.rs",
        text: ".is_some_and(|one| !one.vp().word().is_owned_by(one)),",
        instead: ".is_none(),",
        scenario: "who_waits_is_seen",
    },
    Mutant {
        caught_by: "panicked",
        file: "state/thread.rs",
        text: "Phase::Parking | Phase::Parked | Phase::Queued => true,",
        instead: "Phase::Parking | Phase::Parked | Phase::Queued => false,",
        scenario: "who_waits_is_seen",
    },
    Mutant {
        caught_by: "panicked",
        file: "state/thread.rs",
        text: "| Phase::ClaimedInterrupted => false,",
        instead: "| Phase::ClaimedInterrupted => true,",
        scenario: "who_waits_is_seen",
    },
    // A virtual processor that is never idle takes nothing from a fuller one.
    Mutant {
        caught_by: "panicked",
        file: "runtime/preempted.rs",
        text: "let may_take = are_equals",
        instead: "let may_take = false && are_equals",
        scenario: "processors::the_fuller_gives_threads",
    },
    Mutant {
        caught_by: "no_processor_idles_while_a_thread_is_ready",
        file: "runtime/taken.rs",
        text: "            if runtime.work_waits(vp) {
                runtime.announce_ready(vp);
            }
",
        instead: "",
        scenario: "processors::who_is_rung_and_loses_its_processor_passes_the_call_on",
    },
    Mutant {
        caught_by: "no_thread_waits_while_a_less_urgent_one_runs",
        file: "runtime/schedule.rs",
        text: "if !self.announce(vp, thread) && vp.only_computes() {",
        instead: "if !self.announce_ready(vp) && vp.only_computes() {",
        scenario: "priorities::the_urgent_are_woken",
    },
    Mutant {
        caught_by: "no_thread_waits_while_a_less_urgent_one_runs",
        file: "runtime/precedence.rs",
        text: "if self.is_ranked() {
            self.announce(vp, thread);
        }",
        instead: "self.announce_ready(vp);",
        scenario: "priorities::the_urgent_come_back",
    },
    Mutant {
        caught_by: "no_thread_waits_while_a_less_urgent_one_runs",
        file: "runtime/precedence.rs",
        text: "self.preempt_for(vp, first);",
        instead: "let _ = first;",
        scenario: "priorities::the_urgent_are_woken_together",
    },
    Mutant {
        caught_by: "panicked",
        file: "runtime/futex.rs",
        text: "let by_rank = self.is_ranked() && count < ALL;",
        instead: "let by_rank = false;",
        scenario: "priorities::the_most_urgent_is_woken_first",
    },
    // The adviser is ready, and nobody gives way to it.
    Mutant {
        caught_by: "no_thread_waits_while_a_less_urgent_one_runs",
        file: "runtime/policy.rs",
        text: "self.make_ready_on(vp, By::Others, adviser);",
        instead: "self.push_back(vp, By::Others, adviser);
            self.announce_ready(vp);",
        scenario: "policies::a_policy_ranks_threads",
    },
    Mutant {
        caught_by: "the_adviser_runs_first",
        file: "runtime/policy.rs",
        text: "runtime.policy.answers.store(answers + 1, Ordering::Relaxed);
        thread.rank.store(ADVISER.0, Ordering::SeqCst);",
        instead: "runtime.policy.answers.store(answers + 1, Ordering::Relaxed);",
        scenario: "policies::groups_take_turns",
    },
    Mutant {
        caught_by: "no end in sight",
        file: "runtime/policy.rs",
        text: "adviser.rank.store(LATE.0, Ordering::SeqCst);",
        instead: "",
        scenario: "policies::a_policy_that_loops_runs_last",
    },
    // The timeline is not told that an activation was stopped with its thread.
    Mutant {
        caught_by: "the_timeline_adds_up",
        file: "runtime/returned.rs",
        text: "runtime.trace(What::Displaced, vp, owner.thread());",
        instead: "",
        scenario: "blocking_calls",
    },
    Mutant {
        caught_by: "the_adviser_knows_who_waits",
        file: "runtime/returned.rs",
        text: "runtime.vps.clear_idle(vp);
                        owner.tell_of_absent(vp);",
        instead: "runtime.vps.clear_idle(vp);",
        scenario: "policies::a_policy_ranks_threads",
    },
    // It is told that one that waits again is ready.
    Mutant {
        caught_by: "the_adviser_knows_who_waits",
        file: "runtime/policy.rs",
        text: "Blocked if has(Unblocked as u32 | stops) => before | WAITS,",
        instead: "",
        scenario: "policies::a_policy_ranks_threads",
    },
    // Of one that has ended.
    Mutant {
        caught_by: "transitions_make_sense",
        file: "runtime/policy.rs",
        text: "Ended => Ended as u32,",
        instead: "Ended => before | Ended as u32,",
        scenario: "policies::a_policy_ranks_threads",
    },
    // What has another rank again stays where it is.
    Mutant {
        caught_by: "who_is_kept_back_is_held",
        file: "runtime/precedence.rs",
        text: "Phase::Held => self.release_held(thread),",
        instead: "Phase::Held => {}",
        scenario: "policies::groups_take_turns",
    },
    // It is ready, and nobody is called for it.
    Mutant {
        caught_by: "no_processor_idles_while_a_thread_is_ready",
        file: "runtime/precedence.rs",
        text: "runtime.push_back(near, By::Others, thread);
            runtime.announce(near, thread);",
        instead: "runtime.push_back(near, By::Others, thread);",
        scenario: "policies::groups_take_turns",
    },
    // One that was stopped, and held meanwhile, goes on as it was granted the processor again.
    Mutant {
        caught_by: "a_held_thread_does_not_run",
        file: "runtime/precedence.rs",
        text: "|| rank == Rank::HELD || runtime.is_more",
        instead: "|| runtime.is_more",
        scenario: "policies::who_is_held_stops",
    },
    // Nobody lets a thread go that is held.
    Mutant {
        caught_by: "everybody waits for ever",
        file: "runtime/precedence.rs",
        text: "vp.idle_told.store(false, Ordering::Relaxed);
                    continue;",
        instead: "continue;",
        scenario: "policies::who_is_held_runs_when_nothing_else_does",
    },
    Mutant {
        caught_by: "another one was made later",
        file: "state/ready.rs",
        text: "match self.forked.pop_last() {",
        instead: "match self.forked.pop_first() {",
        scenario: "policies::forked_threads_run_last_made_first",
    },
    Mutant {
        caught_by: "who comes back does not run",
        file: "runtime/returned.rs",
        text: "&& displaced == 0",
        instead: "&& displaced < 2",
        scenario: "who_comes_back_runs",
    },
    // Who comes back to an idle virtual processor relies on a standby that sleeps, or has left.
    Mutant {
        caught_by: "no_processor_idles_while_a_thread_is_ready",
        file: "runtime/returned.rs",
        text: "if runtime.vps.any_unwatched() {
                runtime.look_around(vp);
            }
            if !runtime.kernel.may_run(vp) {",
        instead: "if !runtime.kernel.may_run(vp) {",
        scenario: "processors::a_page_fault_when_a_processor_is_back",
    },
    // The standby does not look once more when others can see that it sleeps.
    Mutant {
        caught_by: "no_thread_is_lost",
        file: "runtime/standby.rs",
        text: "self.sleep_unless(vp, seen, || runtime.has_reason(vp));",
        instead: "self.sleep_unless(vp, seen, || false);",
        scenario: "made_before_a_page_fault",
    },
    // Nobody asks the owner to choose again.
    Mutant {
        caught_by: "who was waited for does not run",
        file: "runtime/seat.rs",
        text: "runtime.choose_again(here, !core::ptr::eq(here, vp));",
        instead: "let _ = here;",
        scenario: "who_was_waited_for_runs",
    },
    Mutant {
        caught_by: "who_comes_back_is_on_its_processor",
        file: "runtime/returned.rs",
        text: "runtime.kernel.bind(self.activation());
        if granted {",
        instead: "if granted {",
        scenario: "processors::virtual_processors_move",
    },
    // Only who was absent follows its virtual processor.
    Mutant {
        caught_by: "who_comes_back_is_on_its_processor",
        file: "runtime/returned.rs",
        text: "runtime.kernel.bind(self.activation());
        if granted {",
        instead: "if !displaced {
            runtime.kernel.bind(self.activation());
        }
        if granted {",
        scenario: "processors::virtual_processors_move",
    },
    // Who was rung while it sat in the poller, and has a thread from there, still counts as idle.
    Mutant {
        caught_by: "a_processor_with_a_thread_is_not_idle",
        file: "runtime/returned.rs",
        text: "runtime.vps.clear_idle(vp);
                        runtime.ends_rest(vp);",
        instead: "runtime.vps.clear_idle(vp);
                        if word.state() == State::Idle {
                            runtime.ends_rest(vp);
                        }",
        scenario: "turns_end",
    },
    // Who fails to replace an owner takes away the mark of the one that has replaced it.
    Mutant {
        caught_by: "a_stopped_thread_is_resumed_by_the_runtime",
        file: "runtime/blocked.rs",
        text: "owner.marks.fetch_sub(1, Ordering::AcqRel);
        self.stats.absent.down();
        false",
        instead: "owner.marks.store(0, Ordering::SeqCst);
        self.stats.absent.down();
        false",
        scenario: "page_faults",
    },
    // Nobody asks for a standby again that the kernel has refused.
    Mutant {
        caught_by: "no_thread_is_lost",
        file: "runtime/schedule.rs",
        text: "runtime.call_standby(vp);
            if runtime.vps.any_idle() {
                runtime.ring(vp.index());",
        instead: "if runtime.vps.any_idle() {
                runtime.ring(vp.index());",
        scenario: "the_kernel_gives_threads_again",
    },
    // Who comes back goes before one that waits in a section.
    Mutant {
        caught_by: "a_thread_in_a_critical_section_is_continued_first",
        file: "state/ready.rs",
        text: "Rank::COMMON if !ranked => self.ranked.push_back(thread, Rank::SECTION),",
        instead: "",
        scenario: "sections::nobody_spins_for_a_holder_that_is_stopped",
    },
    // Who comes back and becomes the owner does not look who waits in a section.
    Mutant {
        caught_by: "a_thread_in_a_critical_section_is_continued_first",
        file: "runtime/returned.rs",
        text: "!self.is_in_section() && vp.ready.begins_with_section(&runtime.kernel)",
        instead: "false",
        scenario: "sections::nobody_spins_for_a_holder_that_is_stopped",
    },
    // Who stays in a section keeps the processor.
    Mutant {
        caught_by: "panicked",
        file: "state/section.rs",
        text: "&& self.overdue.load(Ordering::Relaxed) <= ASKED + MOST_SLICES",
        instead: "",
        scenario: "sections::a_section_without_an_end_does_not_keep_the_processor",
    },
    // Who is warned is stopped in its section.
    Mutant {
        caught_by: "panicked",
        file: "runtime/precedence.rs",
        text: "return !finishes;",
        instead: "return true;",
        scenario: "sections::who_is_warned_leaves_its_section_first",
    },
    // It keeps its processor when it has left the section.
    Mutant {
        caught_by: "panicked",
        file: "runtime/precedence.rs",
        text: "return !finishes;",
        instead: "return false;",
        scenario: "sections::who_is_warned_leaves_its_section_first",
    },
    // It gives way at the end of its slice only.
    Mutant {
        caught_by: "panicked",
        file: "state/section.rs",
        text: "left == 0 && self.overdue.load(Ordering::Relaxed) != 0",
        instead: "false",
        scenario: "sections::who_leaves_a_section_gives_way",
    },
    // The alarm has rung, and is not set for the next deadline.
    Mutant {
        caught_by: "everybody waits for ever",
        file: "timer.rs",
        text: "if heap.alarm <= now || next < heap.alarm {",
        instead: "if next < heap.alarm {",
        scenario: "sleepers_beside_a_call",
    },
    // It waits for an alarm that rings at once.
    Mutant {
        caught_by: "panicked",
        file: "runtime/futex.rs",
        text: "deadline <= self.kernel.now()",
        instead: "deadline < self.kernel.now() >> 1",
        scenario: "futexes::a_deadline_that_has_passed_sets_no_alarm",
    },
    // FUTEX_WAIT_BITSET: bits that are not common wake, too.
    of_futex(
        "&& thread.wait_mask.load(Ordering::Relaxed) & mask != 0",
        "&& (mask != 0 || thread.wait_mask.load(Ordering::Relaxed) != 0)",
    ),
    of_futex("while woken < count {", "while woken <= count {"),
    // FUTEX_WAKE_OP.
    of_futex("if also {", "if also || second > first {"),
    of_futex(
        "queue, other, second, u32::MAX)",
        "queue, other, first, u32::MAX)",
    ),
    of_futex(
        "&mut one, key, first, u32::MAX)",
        "&mut one, other, first, u32::MAX)",
    ),
    // FUTEX_CMP_REQUEUE.
    of_futex(
        "if !matches() {
            return None;
        }",
        "let _ = matches();",
    ),
    of_futex("while moved < requeue", "while moved <= requeue"),
    of_futex("moved += 1;", "moved += usize::from(from != to);"),
    of_futex(
        "if from != to {",
        "if from != to && target.is_some() && moved < 2 {",
    ),
    of_futex("thread.wait.set_key(to, Ordering::Release);", ""),
    // A signal counts as a wake-up.
    of_futex(
        "return thread.claim_in_bucket(WakeReason::Interrupted);",
        "return thread.claim_in_bucket(WakeReason::Woken);",
    ),
];
