//! Each model of the runtime catches a fault: a weaker order, or a look that is left out. The faults
//! are put into a copy of the crate, whose models are then run by the same command.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall-core --test models`

mod faults;

use faults::Fault;

const FAULTS: &[Fault] = &[
    (
        "lists::a_lock_has_one_holder",
        "lock.rs",
        "if test_and_set(&self.held, Ordering::Acquire) {\n            self.wait",
        "if test_and_set(&self.held, Ordering::Relaxed) {\n            self.wait",
    ),
    (
        "lists::a_lock_has_one_holder",
        "lock.rs",
        "self.lock.held.store(false, Ordering::Release)",
        "self.lock.held.store(false, Ordering::Relaxed)",
    ),
    (
        "lists::a_lock_whose_guard_was_forgotten",
        "lock.rs",
        "self.held.store(false, Ordering::Release)",
        "self.held.store(false, Ordering::Relaxed)",
    ),
    (
        "lists::a_ready_thread_is_taken_once_and",
        "state/ready.rs",
        "self.word.store(locked & !LOCKED, Ordering::Release)",
        "self.word.store(locked & !LOCKED, Ordering::Relaxed)",
    ),
    (
        "lists::a_ready_thread_is_taken_once_and",
        "state/ready.rs",
        "compare_exchange(word, locked, Ordering::SeqCst, Ordering::Relaxed)",
        "compare_exchange(word, locked, Ordering::Relaxed, Ordering::Relaxed)",
    ),
    (
        "lists::a_ready_thread_is_taken_once_where",
        "state/ready.rs",
        "        light_barrier();\n        // Acquire: what others have done in the list.",
        "        // Acquire: what others have done in the list.",
    ),
    (
        "lists::a_ready_thread_is_taken_once_where",
        "state/ready.rs",
        "while self.entered.load(Ordering::Acquire) {",
        "while false {",
    ),
    (
        "lists::a_list_is_counted",
        "state/ready.rs",
        "if word & LOCKED == 0 {\n                return Some(word);",
        "if true {\n                return Some(word);",
    ),
    (
        "lists::a_ready_thread_is_taken_once_where",
        "state/ready.rs",
        "if !kernel.pass_barriers() {\n            kernel.broken",
        "if false {\n            kernel.broken",
    ),
    (
        "lists::a_ready_thread_is_taken_once_and",
        "state/ready.rs",
        "list.push_last(thread);\n            list.pop_front()",
        "let first = list.pop_front();\n            list.push_last(thread);\n            first",
    ),
    (
        "taken::an_owner_that_falls_idle",
        "runtime/idle.rs",
        "if runtime.work_waits(vp) || !runtime.kernel.may_run(vp) {",
        "if runtime.work_waits(vp) {",
    ),
    (
        "taken::an_owner_that_falls_idle",
        "runtime/taken.rs",
        "State::Idle if self.vps.clear_idle(vp) => {",
        "State::Idle if false => {",
    ),
    (
        "taken::a_thread_that_is_put",
        "runtime/taken.rs",
        "        if !self.kernel.may_run(vp) {
            self.call_back(vp);
        }",
        "        let _ = vp;",
    ),
    (
        "taken::a_thread_that_is_put",
        "runtime/taken.rs",
        "            if vp.has_ready() && runtime.another_with_processor(vp).is_some() {
                break;
            }
",
        "",
    ),
    (
        "taken::a_list_that_was_kept",
        "runtime/taken.rs",
        "            self.look_after(vp);
            None::<()>",
        "            let _ = vp;
            None::<()>",
    ),
    (
        "lists::a_virtual_processor_that_entered_the_idle_set",
        "vp_set.rs",
        "fetch_and(!bit, Ordering::SeqCst) & bit != 0",
        "fetch_and(!bit, Ordering::SeqCst) & bit != !0",
    ),
    (
        "lists::a_set_with_a_member",
        "vp_set.rs",
        "self.count.fetch_add(1, Ordering::SeqCst);
        if self.words[word].fetch_or(bit, Ordering::SeqCst) & bit != 0 {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }",
        "if self.words[word].fetch_or(bit, Ordering::SeqCst) & bit == 0 {
            self.count.fetch_add(1, Ordering::SeqCst);
        }",
    ),
    (
        "lists::a_thread_that_is_put_where_somebody_looks",
        "runtime/schedule.rs",
        "vp.ready.if_empty(&self.kernel, || {
            self.vps.clear_ready(vp);
        });",
        "self.vps.clear_ready(vp);",
    ),
    (
        "lists::a_thread_that_is_put_where_somebody_looks",
        "runtime/schedule.rs",
        "vp.ready.push_back(&self.kernel, by, thread);
        self.vps.set_ready(vp);",
        "self.vps.set_ready(vp);
        vp.ready.push_back(&self.kernel, by, thread);",
    ),
    (
        "lists::an_activation_of_the_pool",
        "runtime/spares.rs",
        "if self.activity() != Activity::Spare {\n                return false;\n            }",
        "",
    ),
    (
        "lists::a_spare_that_is_taken_does_not_sit",
        "runtime/seat.rs",
        "runtime.spares.with_pool(&runtime.kernel, takes)",
        "takes()",
    ),
    (
        "lists::memory_is_handed_out_once",
        "list.rs",
        "self.first = object.after().get(Relaxed);",
        "",
    ),
    (
        "lists::a_stack_is_handed_out_once",
        "stack.rs",
        "free.head = unsafe { *((top - size_of::<usize>()) as *const usize) };",
        "",
    ),
    (
        "lists::every_activation_is_known",
        "runtime/activations.rs",
        "if self.known.replace_if(head, Some(activation)) {",
        "self.known.set(Some(activation), Ordering::Release);\n                if true {",
    ),
    // The key behind the bucket's lock: the store may come after the look for a signal.
    (
        "futex::a_signal_for_a_thread_that_begins_to_wait",
        "runtime/futex.rs",
        "thread.wait.set_key(key, Ordering::Relaxed);\n        let mut queue = bucket.lock(&self.kernel);\n        fence_after_locked();",
        "let mut queue = bucket.lock(&self.kernel);\n        fence_after_locked();\n        thread.wait.set_key(key, Ordering::Relaxed);",
    ),
    (
        "futex::a_signal_for_a_thread_that_begins_to_wait",
        "runtime/futex.rs",
        "        fence_after_locked();\n",
        "",
    ),
    (
        "futex::a_signal_for_a_thread_that_begins_to_wait",
        "runtime/futex.rs",
        "deadline.is_none() && !self.kernel.is_interrupted(thread)",
        "deadline.is_none()",
    ),
    (
        "futex::a_wake_up_and_a_signal",
        "runtime/futex.rs",
        "queue.remove(thread);\n            return thread.claim_in_bucket(WakeReason::Interrupted);",
        "drop(queue);\n            return thread.claim_in_bucket(WakeReason::Interrupted);",
    ),
    (
        "futex::a_thread_that_is_moved",
        "runtime/futex.rs",
        "if thread.wait.has_key(key) {\n                return Some(queue);",
        "if true {\n                return Some(queue);",
    ),
    (
        "futex::a_thread_that_is_moved",
        "runtime/futex.rs",
        "source.0.remove(thread);",
        "source.remove(thread);",
    ),
    (
        "futex::a_waiter_sees_the_word",
        "runtime/futex.rs",
        "let mut queue = bucket.lock(&self.kernel);\n        fence_after_locked();\n        let refusal = if !matches() {",
        "let matched = matches();\n        let mut queue = bucket.lock(&self.kernel);\n        fence_after_locked();\n        let refusal = if !matched {",
    ),
    (
        "futex::a_signal_for_a_thread_with_a_deadline",
        "runtime/passage.rs",
        "if self.runtime().kernel.is_interrupted(thread)\n",
        "if false\n",
    ),
    (
        "futex::an_event_noted_while_a_thread_parks",
        "runtime/passage.rs",
        "Phase::Parked,\n            Ordering::SeqCst,",
        "Phase::Parked,\n            Ordering::AcqRel,",
    ),
    (
        "futex::an_event_noted_while_a_thread_parks",
        "state/thread.rs",
        "let mut state = Phase::Parked;",
        "let mut state = self.state.load(Ordering::Acquire);",
    ),
    (
        "futex::a_wake_up_and_a_deadline",
        "state/thread.rs",
        "Phase::Parked => (Phase::Ready, Claim::Ready),",
        "Phase::Parked | Phase::Ready => (Phase::Ready, Claim::Ready),",
    ),
    (
        "futex::an_edge_that_comes",
        "edges.rs",
        ".any(|(edges, seen)| edges.seen() != seen)",
        ".any(|_| false)",
    ),
    (
        "futex::an_edge_that_comes",
        "edges.rs",
        "        // Pairs with the fence in `count`.\n        fence(Ordering::SeqCst);\n",
        "",
    ),
    (
        "ending::who_waits_for_an_end_runs",
        "ending.rs",
        "match self.change(word, OVER, Ordering::SeqCst) {",
        "match self.change(word, OVER, Ordering::Relaxed) {",
    ),
    (
        "ending::a_signal_ends_the_wait",
        "ending.rs",
        "if hangs && (!kernel.is_interrupted(thread) || !self.withdraw(thread)) {",
        "let _ = kernel;\n        if hangs {",
    ),
    (
        "ending::who_waits_for_an_end_and_is_interrupted",
        "ending.rs",
        "    if !ending.withdraw(thread) {\n        return Claim::Lost;\n    }\n",
        "    ending.withdraw(thread);\n",
    ),
    // The thread goes on while somebody looks at its word.
    (
        "lone::who_interrupts_leaves_the_word_alone",
        "runtime/lone.rs",
        "while self.pins.load(Ordering::Acquire) != 0 {",
        "while self.pins.load(Ordering::Acquire) > 9 {",
    ),
    (
        "lone::who_interrupts_leaves_the_word_alone",
        "runtime/lone.rs",
        "thread.pins.fetch_sub(1, Ordering::Release);",
        "thread.pins.fetch_sub(1, Ordering::Relaxed);",
    ),
    // Nobody looks for a signal that came while the thread was moved.
    (
        "lone::who_is_moved_into_a_bucket",
        "runtime/futex.rs",
        "if self.kernel.is_interrupted(thread) {\n            queue.remove(thread);",
        "if false {\n            queue.remove(thread);",
    ),
    (
        "lone::who_is_interrupted_runs_again_once",
        "runtime/lone.rs",
        "(!kernel.is_interrupted(thread) || interrupt(kernel, thread) != Some(Claim::Ready))",
        "{\n            let _ = kernel;\n            true\n        }",
    ),
    (
        "ending::a_result_that_nobody_wants_is_dropped_once",
        "ending.rs",
        "if word == DROPPED && !gone {\n                return Ended::Dropped;",
        "if word == DROPPED && !gone {\n                return Ended::Kept;",
    ),
    (
        "owner::an_owner_that_runs_its_thread",
        "state/vp.rs",
        "self.word.store(word.bits, Ordering::Release);",
        "self.word.store(word.bits, Ordering::Relaxed);",
    ),
    (
        "owner::an_owner_in_a_system_call",
        "state/vp.rs",
        "Ordering::SeqCst,\n                Ordering::Relaxed,\n            )\n            .is_ok()",
        "Ordering::Relaxed,\n                Ordering::Relaxed,\n            )\n            .is_ok()",
    ),
    (
        "owner::an_owner_with_the_bias",
        "state/vp.rs",
        "        light_barrier();\n        // Acquire",
        "        // Acquire",
    ),
    (
        "owner::an_owner_with_the_bias",
        "state/vp.rs",
        "let passed = kernel.pass_barriers();",
        "let passed = true;",
    ),
    (
        "owner::an_owner_with_the_bias",
        "state/vp.rs",
        "!self.unbiasing.load(Ordering::Acquire)\n            && ",
        "",
    ),
    (
        "owner::an_owner_with_the_bias",
        "state/vp.rs",
        "passed && !owner.is_inside() && self",
        "passed && self",
    ),
    (
        "owner::a_granted_processor",
        "state/vp.rs",
        "self.word.store(word.bits, Ordering::Release);",
        "self.word.store(word.bits, Ordering::Relaxed);",
    ),
    (
        "owner::an_idle_owner_goes_on",
        "runtime/idle.rs",
        "if !vp.replace(word, word.owner(), State::Rung) {\n            return false;\n        }",
        "vp.set(word.owner(), State::Rung);",
    ),
    (
        "owner::an_owner_that_was_replaced",
        "runtime/blocked.rs",
        "owner.marks.fetch_sub(1, Ordering::AcqRel);\n        self.stats",
        "owner.marks.store(0, Ordering::Release);\n        self.stats",
    ),
    (
        "owner::a_displaced_owner_that_comes_back",
        "runtime/returned.rs",
        "vp.step(self.activation(), State::Granted, State::Runtime)",
        "vp.word().is_owned_by(self.activation())",
    ),
    (
        "owner::an_owner_that_an_heir_replaces",
        "runtime/returned.rs",
        "bequest.replace_if(Some(self.activation()), None);",
        "",
    ),
    (
        "owner::an_owner_on_a_page_fault",
        "runtime/returned.rs",
        "let displaced = list.remove(self.activation());",
        "let displaced = false;",
    ),
    (
        "owner::an_owner_that_leaves",
        "runtime/preempted.rs",
        "                State::Runtime if afar => self.kernel.interrupt(owner),\n",
        "",
    ),
    (
        "precedence::a_held_thread",
        "runtime/precedence.rs",
        "if thread.rank() != Rank::HELD {",
        "if false {",
    ),
    (
        "precedence::what_happens_is_told",
        "runtime/policy.rs",
        "let claims = core::mem::take(&mut told.adviser_waits)\n            && adviser",
        "drop(told);\n        let mut told = self.policy.told.lock(&self.kernel);\n        let claims = core::mem::take(&mut told.adviser_waits)\n            && adviser.state.load(Ordering::Relaxed) == crate::state::thread::Phase::Parked\n            && adviser",
    ),
    (
        "precedence::an_adviser_whose_time_is_over",
        "runtime/policy.rs",
        "let claims = core::mem::take(&mut told.adviser_waits)\n            && adviser.claim(WakeReason::Woken) == Claim::Ready;\n        drop(told);",
        "let waits = core::mem::take(&mut told.adviser_waits);\n        drop(told);\n        let claims = waits && adviser.claim(WakeReason::Woken) == Claim::Ready;",
    ),
    (
        "precedence::a_thread_that_is_more_urgent_when_it_is_ready",
        "runtime/schedule.rs",
        "self.push_back(vp, by, thread);\n        if !self.announce(vp, thread) && vp.only_computes() {",
        "let rung = self.announce(vp, thread);\n        self.push_back(vp, by, thread);\n        if !rung && vp.only_computes() {",
    ),
    (
        "precedence::a_more_urgent_thread",
        "runtime/precedence.rs",
        "        vp.rank.store(rank.0, Ordering::SeqCst);\n        !self.is_more_urgent_ready(vp, rank)\n    }\n\n    /// A thread that was chosen",
        "        let most = !self.is_more_urgent_ready(vp, rank);\n        vp.rank.store(rank.0, Ordering::SeqCst);\n        most\n    }\n\n    /// A thread that was chosen",
    ),
    (
        "precedence::a_more_urgent_thread",
        "runtime/precedence.rs",
        "        vp.rank.store(rank.0, Ordering::SeqCst);\n        !self.is_more_urgent_ready(vp, rank)\n    }\n\n    /// A thread that was chosen",
        "        vp.rank.store(rank.0, Ordering::Release);\n        !self.is_more_urgent_ready(vp, rank)\n    }\n\n    /// A thread that was chosen",
    ),
    (
        "idle::a_thread_that_is_made_ready_while_an_owner_falls_idle",
        "runtime/idle.rs",
        "vp.has_ready() || self.vps.find_ready(vp, has_ready).is_some()",
        "let _ = has_ready;\n        vp.has_ready()",
    ),
    (
        "idle::a_thread_that_is_made_ready_while_an_owner_falls_idle",
        "runtime/schedule.rs",
        "self.push_back(vp, by, thread);\n        if !self.announce(vp, thread) && vp.only_computes() {",
        "let rung = self.announce(vp, thread);\n        self.push_back(vp, by, thread);\n        if !rung && vp.only_computes() {",
    ),
    (
        "idle::a_thread_that_is_made_ready_while_an_owner_falls_idle",
        "runtime/idle.rs",
        "self.wake.fetch_add(1, Ordering::SeqCst);\n        self.runtime().kernel.wake(self);",
        "self.runtime().kernel.wake(self);\n        self.wake.fetch_add(1, Ordering::SeqCst);",
    ),
    (
        "idle::a_thread_that_is_made_ready_while_an_owner_falls_idle",
        "runtime/idle.rs",
        "runtime.kernel.look_for_deadlock(self);\n            self.rest_as_owner(vp, || self.rest(seen));",
        "let _ = seen;\n            runtime.kernel.look_for_deadlock(self);\n            self.rest_as_owner(vp, || {\n                self.rest(self.wake.load(Ordering::SeqCst))\n            });",
    ),
    (
        "idle::a_standby_that_goes_to_sleep_notices",
        "runtime/standby.rs",
        "if !has_reason() {\n            runtime.kernel.sleep(self.activation(), seen);\n        }",
        "let _ = has_reason;\n        runtime.kernel.sleep(self.activation(), seen);",
    ),
    (
        "idle::a_standby_that_goes_to_sleep_notices",
        "runtime/standby.rs",
        "runtime.retire_standby(vp);\n        if !runtime.kernel.needs_heirs() {",
        "let reason = has_reason();\n        let has_reason = move || reason;\n        runtime.retire_standby(vp);\n        if !runtime.kernel.needs_heirs() {",
    ),
    (
        "idle::a_thread_that_is_made_ready_while_the_owner_enters_a_call",
        "runtime/schedule.rs",
        "if !rung && self.vps.any_unwatched() {",
        "if false {",
    ),
    (
        "idle::a_thread_that_is_made_ready_while_the_owner_enters_another",
        "runtime/schedule.rs",
        "if !rung && self.vps.any_unwatched() {",
        "if false {",
    ),
    (
        "idle::one_at_a_time",
        "runtime/seat.rs",
        "self.0.set(None, Ordering::SeqCst);",
        "self.0.set(None, Ordering::Relaxed);",
    ),
    (
        "idle::who_sits_in_the_poller",
        "runtime/seat.rs",
        "self.seat.0.get(Ordering::SeqCst).is_some()",
        "false",
    ),
    (
        "idle::one_at_a_time",
        "slot.rs",
        "Ordering::SeqCst,",
        "Ordering::Relaxed,",
    ),
    // The look for the mark may come before the others see that nobody is inside.
    (
        "small::what_was_changed_before",
        "turnstile.rs",
        "            fence(Ordering::SeqCst);\n",
        "",
    ),
    (
        "small::what_was_changed_before",
        "turnstile.rs",
        "            self.asked.swap(false, Ordering::SeqCst);\n            let done = act();",
        "            let done = act();\n            self.asked.swap(false, Ordering::SeqCst);",
    ),
    (
        "small::a_signal_that_a_thread_accepts",
        "accepted.rs",
        "look().inspect(opened)",
        "let _ = opened;\n            None",
    ),
    (
        "small::a_signal_that_a_thread_accepts",
        "accepted.rs",
        "look().inspect(opened)",
        "let _ = opened;\n            look()",
    ),
    (
        "small::whoever_goes_to_sleep",
        "accepted.rs",
        "signals & !before & self.open() != 0",
        "let _ = before;\n            false",
    ),
    (
        "small::whoever_goes_to_sleep",
        "accepted.rs",
        "let before = self.handled.fetch_or(signals, Ordering::SeqCst);",
        "let before = self.handled.fetch_or(signals, Ordering::AcqRel);",
    ),
];

#[test]
fn every_fault_is_in_a_text_that_is_there() {
    faults::find(env!("CARGO_MANIFEST_DIR"), FAULTS);
}

#[cfg(loom)]
#[test]
fn every_fault_is_caught_by_its_model() {
    faults::check(env!("CARGO_PKG_NAME"), env!("CARGO_MANIFEST_DIR"), FAULTS);
}
