//! Each model of what waits catches a fault.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p upcall --test models`

#[path = "../../upcall-core/tests/faults/mod.rs"]
mod faults;

use faults::Fault;

const FAULTS: &[Fault] = &[
    (
        "a_mutex_has_one_holder",
        "sync/mutex.rs",
        "self.state.fetch_or(HELD, Ordering::Acquire)",
        "self.state.fetch_or(HELD, Ordering::Relaxed)",
    ),
    (
        "a_mutex_has_one_holder",
        "sync/mutex.rs",
        "self.change(state, rest | HELD, Ordering::Acquire)",
        "self.change(state, rest | HELD, Ordering::Relaxed)",
    ),
    (
        "a_mutex_has_one_holder",
        "sync/mutex.rs",
        "self.change(state, state & !HELD, Ordering::Release)",
        "self.change(state, state & !HELD, Ordering::Relaxed)",
    ),
    (
        "a_mutex_has_one_holder",
        "sync/mutex.rs",
        "self.change(state, rest, Ordering::Release)",
        "self.change(state, rest, Ordering::Relaxed)",
    ),
    // The woken thread takes it as if nobody else waited.
    (
        "a_mutex_has_one_holder",
        "sync/mutex.rs",
        "Waited::Woken => (WOKEN, AWAITED),",
        "Waited::Woken => (WOKEN, 0),",
    ),
    // The woken thread leaves the mark that somebody was.
    (
        "a_mutex_has_one_holder",
        "sync/mutex.rs",
        "Waited::Woken => (WOKEN, AWAITED),",
        "Waited::Woken => (0, AWAITED),",
    ),
    // Nobody was there to be woken: those that come later are not.
    (
        "a_mutex_whose_waiter_gives_up",
        "sync/mutex.rs",
        "if is_awaited { WOKEN } else { FREE }",
        "WOKEN",
    ),
    // The waiter that was counted on to take the mark away has given up.
    (
        "a_mutex_whose_waiter_gives_up",
        "sync/mutex.rs",
        "                    self.state.fetch_and(!WOKEN, Ordering::Relaxed);\n",
        "",
    ),
    // The thread that has freed the lock looks at it again, after the last user perhaps.
    (
        "a_mutex_ends_with_its_last_user",
        "sync/mutex.rs",
        "if freed {\n                break;",
        "if freed {\n                self.state.load(Ordering::Relaxed);\n                break;",
    ),
    // It takes the mark away afterwards.
    (
        "a_mutex_ends_with_its_last_user",
        "sync/mutex.rs",
        "self.change(state, rest, Ordering::Release).is_ok()\n                })",
        "self.change(state, WOKEN, Ordering::Release).is_ok().then(|| self.state.fetch_and(if is_awaited { !0 } else { !WOKEN }, Ordering::Relaxed)).is_some()\n                })",
    ),
    (
        "a_notification_of_a_change",
        "sync/condvar.rs",
        "mutex.unlock();\n        let in_time",
        "let in_time",
    ),
    (
        "a_notification_of_a_change",
        "sync/condvar.rs",
        "let notified = self.notified.load(Ordering::Relaxed);\n        mutex.unlock();",
        "mutex.unlock();\n        let notified = self.notified.load(Ordering::Relaxed);",
    ),
    (
        "a_notification_of_a_change",
        "sync/condvar.rs",
        "self.waiting.fetch_add(1, Ordering::Relaxed);\n        let notified = self.notified.load(Ordering::Relaxed);\n        mutex.unlock();",
        "let notified = self.notified.load(Ordering::Relaxed);\n        mutex.unlock();\n        self.waiting.fetch_add(1, Ordering::Relaxed);",
    ),
    (
        "a_notification_of_a_change",
        "sync/condvar.rs",
        "        self.notified.fetch_add(1, Ordering::Relaxed);\n",
        "",
    ),
    (
        "all_are_notified",
        "sync/condvar.rs",
        "self.notify(u32::MAX)",
        "self.notify(0)",
    ),
    // The one that has waited alone has been moved meanwhile.
    (
        "who_is_moved_meanwhile",
        "sync/condvar.rs",
        "if (!woken || count > 1) &&",
        "if woken &&",
    ),
    // It is not counted when it is moved.
    (
        "a_permit_is_taken_once",
        "sync/semaphore.rs",
        "waiting::move_lone(&self.state, state, 2 * WAITS, key)",
        "waiting::move_lone(&self.state, state, WAITS, key)",
    ),
    // One that waits is not woken.
    (
        "a_permit_is_taken_once",
        "sync/semaphore.rs",
        "if state >= WAITS {\n",
        "if state > WAITS {\n",
    ),
    (
        "a_permit_is_taken_once",
        "sync/semaphore.rs",
        "state + 1,\n                Ordering::Release,",
        "state + 1,\n                Ordering::Relaxed,",
    ),
    (
        "a_permit_is_taken_once",
        "sync/semaphore.rs",
        "state - waits - permit,\n                Ordering::Acquire,",
        "state - waits - permit,\n                Ordering::Relaxed,",
    ),
    // A thread that gives up is counted for ever.
    (
        "a_permit_is_not_lost",
        "sync/semaphore.rs",
        "return self.take(WAITS, true);",
        "return self.take(0, true);",
    ),
    // The thread that has given a permit looks again whether somebody waits.
    (
        "a_semaphore_ends_with_its_last_user",
        "sync/semaphore.rs",
        "if state >= WAITS {\n",
        "if self.state.load(Ordering::Relaxed) >= WAITS {\n",
    ),
    (
        "a_writer_is_alone",
        "sync/rwlock_raw.rs",
        "state.fetch_sub(1, Ordering::Release)",
        "state.fetch_sub(1, Ordering::Relaxed)",
    ),
    (
        "a_writer_is_alone",
        "sync/rwlock_raw.rs",
        "state.fetch_sub(WRITER, Ordering::Release)",
        "state.fetch_sub(WRITER, Ordering::Relaxed)",
    ),
    (
        "a_writer_is_alone",
        "sync/rwlock_raw.rs",
        ".compare_exchange_weak(from, to, Ordering::Acquire",
        ".compare_exchange_weak(from, to, Ordering::Relaxed",
    ),
    // The number is read after the look at the state.
    (
        "a_writer_is_alone",
        "sync/rwlock_raw.rs",
        "if !waiting::wait(&self.writers_woken, woken, deadline)",
        "let woken = woken.max(self.writers_woken.load(Ordering::Relaxed));\n            if !waiting::wait(&self.writers_woken, woken, deadline)",
    ),
    // The gate stays shut for nobody.
    (
        "a_writer_is_alone",
        "sync/rwlock_raw.rs",
        "if state & READERS != 0 || !self.wake_writer() {",
        "self.wake_writer();\n        if state & READERS != 0 {",
    ),
    (
        "readers_let_a_writer_in",
        "sync/rwlock_raw.rs",
        "state & COUNT == 0 && state & WAITING != 0",
        "false",
    ),
    (
        "a_writer_that_gives_up_lets_readers_in",
        "sync/rwlock_raw.rs",
        "return self.give_up_writing();",
        "return self.try_write();",
    ),
    // A writer that has waited forgets the others.
    (
        "a_writer_that_has_waited",
        "sync/rwlock_raw.rs",
        "            gate = WRITERS;\n",
        "            gate |= 0;\n",
    ),
    // Nobody else is woken.
    (
        "a_writer_that_gives_up_passes",
        "sync/rwlock_raw.rs",
        "if state & WRITERS != 0 {\n            self.wake_writer();\n        }\n        true",
        "true",
    ),
    (
        "a_writer_that_becomes_a_reader",
        "sync/rwlock_raw.rs",
        "if state & WAITING != 0 {\n            self.open(state, |_| true);",
        "if state & WAITING == 0 {\n            self.open(state, |_| true);",
    ),
    (
        "a_writer_that_becomes_a_reader",
        "sync/rwlock_raw.rs",
        "state.fetch_sub(WRITER - 1, Ordering::Release)",
        "state.fetch_sub(WRITER - 1, Ordering::Relaxed)",
    ),
    (
        "a_signal_comes_with",
        "signal.rs",
        "swap(SET, Ordering::Release)",
        "swap(SET, Ordering::Relaxed)",
    ),
    (
        "a_signal_comes_with",
        "signal.rs",
        "swap(EMPTY, Ordering::Acquire)",
        "swap(EMPTY, Ordering::Relaxed)",
    ),
    // The waiting thread is not woken.
    ("a_signal_comes_with", "signal.rs", "== AWAITED", "== EMPTY"),
    // What was set before the wait is forgotten.
    (
        "a_signal_comes_with",
        "signal.rs",
        "while self.0.swap(EMPTY, Ordering::Acquire) != SET {",
        "self.0.swap(EMPTY, Ordering::Relaxed);\n        while self.0.swap(EMPTY, Ordering::Acquire) != SET {",
    ),
    // Waiting threads are not told that all is solved.
    (
        "workers_end_when",
        "workers.rs",
        "let over = state.given_up || (state.busy == 0 && state.problems.is_empty());",
        "let over = state.given_up;",
    ),
    (
        "workers_end_when",
        "workers.rs",
        "            self.0.changed.notify_all();\n",
        "",
    ),
    (
        "a_piece_is_run_by_one",
        "join/list.rs",
        "compare_exchange(piece, TAKEN, Ordering::Acquire, Ordering::Relaxed)",
        "compare_exchange(piece, TAKEN, Ordering::Relaxed, Ordering::Relaxed)",
    ),
    // Two run it.
    (
        "a_piece_is_run_by_one",
        "join/list.rs",
        "found != TAKEN",
        "found != NOTHING",
    ),
    (
        "a_piece_is_run_by_one",
        "join/piece.rs",
        ".compare_exchange(RUNS, ENDED, Ordering::Release",
        ".compare_exchange(RUNS, ENDED, Ordering::Relaxed",
    ),
    (
        "a_piece_is_run_by_one",
        "join/piece.rs",
        "while ended.load(Ordering::Acquire)",
        "while ended.load(Ordering::Relaxed)",
    ),
    // The thread that waits is not told.
    (
        "a_piece_is_run_by_one",
        "join/piece.rs",
        "            waiting::change_and_wake(ended, |_| {\n                ended.swap(ENDED, Ordering::Release);\n                true\n            });\n",
        "            ended.swap(ENDED, Ordering::Release);\n",
    ),
    // The piece is used after its end.
    (
        "a_piece_is_run_by_one",
        "join/piece.rs",
        "            waiting::change_and_wake(ended, |_| {\n                ended.swap(ENDED, Ordering::Release);\n                true\n            });\n",
        "            ended.swap(ENDED, Ordering::Release);\n            waiting::wake(ended, ended.load(Ordering::Relaxed));\n",
    ),
    // The look at `known` comes before the piece is there.
    (
        "a_piece_is_taken_where_its_thread_waits",
        "join/list.rs",
        "place.swap(piece, Ordering::SeqCst);",
        "place.store(piece, Ordering::Release);",
    ),
    (
        "a_piece_of_a_biased_list_is_taken",
        "join/list.rs",
        "            light_barrier();\n",
        "",
    ),
    // The look for pieces comes before `known` is taken away.
    (
        "a_piece_is_taken_where",
        "join/list.rs",
        "self.known.swap(known as u32, Ordering::SeqCst)",
        "self.known.swap(known as u32, Ordering::Relaxed)",
    ),
    // There is no second look.
    (
        "a_piece_is_taken_where_its_thread_waits",
        "join/pieces.rs",
        "        if list.has_piece() {\n            list.set_known(Known::Shared);\n            return false;\n        }\n",
        "",
    ),
    // Nobody looks any more, and everybody thinks so.
    (
        "a_piece_is_taken_where",
        "join/pieces.rs",
        "lists.looks = false;\n            Looked::Nothing",
        "Looked::Nothing",
    ),
    // The taker runs its piece, and nobody looks for the others.
    (
        "pieces_that_wait_for_one_another",
        "join/pieces.rs",
        "let another = lists.looks;",
        "let another = false;",
    ),
    (
        "the_pieces_of_two_threads",
        "join/pieces.rs",
        "let another = lists.looks;",
        "let another = false;",
    ),
    // A piece that is joined before a younger one ends the list for takers, and for the thread.
    (
        "pieces_are_joined_in_any_order",
        "join/list.rs",
        "return place.swap(JOINED, Ordering::Relaxed) != TAKEN;",
        "return place.swap(TAKEN, Ordering::Relaxed) != TAKEN;",
    ),
    // A list with a piece is forgotten.
    (
        "the_pieces_of_two_threads",
        "join/pieces.rs",
        "lists.known.push_back(list);\n        !std::mem",
        "lists.known.clear();\n        lists.known.push_back(list);\n        !std::mem",
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
