//! Mutants of fork and join, and of waits alone.

use crate::table::Mutant;

pub const MUTANTS: &[Mutant] = &[
    // A taker does not look again at a list that it has forgotten.
    Mutant {
        caught_by: "who_forks_has_a_taker",
        file: "join/pieces.rs",
        text: "// A piece that was forked before this its thread may have taken for known.
        if list.has_piece() {",
        instead: "if false {",
        scenario: "joins::a_list_is_not_forgotten",
    },
    // The taker that has found a piece makes no other one.
    Mutant {
        caught_by: "who_forks_has_a_taker",
        file: "join/pieces.rs",
        text: "let another = lists.looks;",
        instead: "let another = false;",
        scenario: "joins::a_half_waits_for_the_other",
    },
    // A list is known, and nobody makes a taker.
    Mutant {
        caught_by: "who_forks_has_a_taker",
        file: "join/pieces.rs",
        text: "!std::mem::replace(&mut lists.looks, true)",
        instead: "lists.looks = true;
        false",
        scenario: "joins::each_half_runs_once",
    },
    Mutant {
        caught_by: "two takers look at a time",
        file: "join/pieces.rs",
        text: "!std::mem::replace(&mut lists.looks, true)",
        instead: "lists.looks = true;
        true",
        scenario: "joins::each_half_runs_once",
    },
    // The thread does not look if its list is known.
    Mutant {
        caught_by: "who_forks_has_a_taker",
        file: "join/lazily.rs",
        text: "if !own.is_known() {",
        instead: "if false {",
        scenario: "joins::each_half_runs_once",
    },
    Mutant {
        caught_by: "who_forks_has_a_taker",
        file: "join/forked.rs",
        text: "if !own.is_known() {",
        instead: "if false {",
        scenario: "joins::forks_are_joined_in_any_order",
    },
    // The piece is in the memory only after the thread has seen that its list is known.
    Mutant {
        caught_by: "who_forks_has_a_taker",
        file: "join/list.rs",
        text: "place.swap(piece, Ordering::SeqCst);",
        instead: "place.store(piece, Ordering::Release);",
        scenario: "joins::a_list_is_not_forgotten",
    },
    // The same where the list is biased: a taker passes no barriers before it looks again.
    Mutant {
        caught_by: "who_forks_has_a_taker",
        file: "join/pieces.rs",
        text: "was_biased && !self.pass_barriers()",
        instead: "was_biased && false",
        scenario: "joins::a_list_is_not_forgotten",
    },
    // A thread calls its piece that a taker runs.
    Mutant {
        caught_by: "leaves",
        file: "join/list.rs",
        text: "found != TAKEN",
        instead: "found != TAKEN || true",
        scenario: "joins::each_half_runs_once",
    },
    // A taker takes a piece that its thread has taken back meanwhile.
    Mutant {
        caught_by: "leaves",
        file: "join/list.rs",
        text: "if place
                .compare_exchange(piece, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {",
        instead: "if place.swap(TAKEN, Ordering::SeqCst) != TAKEN {",
        scenario: "joins::each_half_runs_once",
    },
    // Takers do not see what is above a piece that was joined.
    Mutant {
        caught_by: "everybody waits for ever",
        file: "join/list.rs",
        text: "place.swap(JOINED, Ordering::Relaxed)",
        instead: "place.swap(NOTHING, Ordering::Relaxed)",
        scenario: "joins::forks_are_joined_in_any_order",
    },
    // The next piece is put above places without one.
    Mutant {
        caught_by: "everybody waits for ever",
        file: "join/list.rs",
        text: "len.store(len.load(Ordering::Relaxed) - 1, Ordering::Relaxed);",
        instead: "",
        scenario: "joins::forks_are_joined_in_any_order",
    },
    // The thread that waits for its piece is not woken.
    Mutant {
        caught_by: "everybody waits for ever",
        file: "join/piece.rs",
        text: "ended.swap(ENDED, Ordering::Release);
                true",
        instead: "ended.swap(ENDED, Ordering::Release);
                false",
        scenario: "joins::each_half_runs_once",
    },
    // A taker leaves pieces for ever to a thread that looks for their end again and again.
    Mutant {
        caught_by: "no end in sight",
        file: "join/search.rs",
        text: "turn < PATIENCE && others.are_ready()",
        instead: "others.are_ready()",
        scenario: "joins::a_half_waits_for_the_other",
    },
    // What was forked is forgotten where the thread is unwound.
    Mutant {
        caught_by: "times it was dropped",
        file: "join/lazily.rs",
        text: "            drop(unsafe { self.piece.body() });",
        instead: "",
        scenario: "joins::halves_panic",
    },
    // It is not waited for there.
    Mutant {
        caught_by: "times it was dropped",
        file: "join/lazily.rs",
        text: "            drop(unsafe { self.piece.join() });",
        instead: "",
        scenario: "joins::halves_panic",
    },
    // No taker could be made, and the list stays known.
    Mutant {
        caught_by: "everybody waits for ever",
        file: "join/pieces.rs",
        text: "for list in lists.known.drain(..) {
            list.set_known(Known::Not);",
        instead: "for list in lists.known.drain(..) {
            let _ = list;",
        scenario: "joins::takers_cannot_be_made",
    },
    // A signal that has come before the thread hangs in the word.
    Mutant {
        caught_by: "everybody waits for ever",
        file: "runtime/lone.rs",
        text: "&& (!kernel.is_interrupted(thread) || interrupt(kernel, thread) != Some(Claim::Ready))",
        instead: "",
        scenario: "alone::a_signal_ends_a_wait",
    },
    // A thread that was interrupted takes it for a permit.
    Mutant {
        caught_by: "panicked",
        file: "runtime/lone.rs",
        text: "released(thread, AGAIN);
        thread.state.store(Phase::Ready, Ordering::Relaxed);",
        instead: "released(thread, IN_WORD);
        thread.state.store(Phase::Ready, Ordering::Relaxed);",
        scenario: "alone::each_permit_is_taken_once",
    },
    // A thread that finds the word changed takes it for a permit.
    Mutant {
        caught_by: "panicked",
        file: "runtime/lone.rs",
        text: "thread.state.store(Phase::Running, Ordering::Relaxed);
        released(thread, AGAIN);",
        instead: "thread.state.store(Phase::Running, Ordering::Relaxed);
        released(thread, IN_WORD);",
        scenario: "alone::each_permit_is_taken_once",
    },
    // What was handed over wakes nobody.
    Mutant {
        caught_by: "everybody waits for ever",
        file: "runtime/lone.rs",
        text: "released(thread, IN_WORD);
        self.make_ready_on(vp, by, thread);",
        instead: "released(thread, IN_WORD);
        let _: (_, _, &Thread<K>) = (vp, by, thread);",
        scenario: "alone::a_permit_is_handed_over",
    },
    // A thread that was moved to others cannot be found there.
    Mutant {
        caught_by: "no end in sight",
        file: "runtime/futex.rs",
        text: "thread.wait_mask.store(lone::MOVED, Ordering::Relaxed);",
        instead: "",
        scenario: "alone::each_permit_is_taken_once",
    },
];
