//! The thread in which a policy runs: it takes what has happened from the runtime and gives it ranks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use upcall_core::Machine;
use upcall_core::runtime::{Advice, Transition};
use upcall_guest::attributes::GuestAttributes;
use upcall_guest::{lending, shell};
use upcall_linux::{Runtime, Thread};

use super::{Id, Policy, Rank, Threads, Why};

/// When all ready threads have been held for this time, that is reported.
const LONGEST_HOLD: Duration = Duration::from_secs(1);

struct Adviser {
    runtime: &'static Runtime,
    policy: Box<dyn Policy>,
    threads: Threads,
    last: u64,
}

/// Has a policy say which thread runs first, from here on.
pub(crate) fn start(runtime: &'static Runtime, policy: Box<dyn Policy>) -> std::io::Result<()> {
    let (is_there, begins) = sync_channel(1);
    let advise = move || {
        let inside = runtime.enter();
        let becomes = inside.become_adviser();
        inside.leave();
        if becomes {
            shell::serve();
        }
        // The thread that starts it waits for that.
        let _ = is_there.send(());
        if !becomes {
            return;
        }
        let mut adviser = Adviser {
            runtime,
            policy,
            threads: Threads::default(),
            last: 0,
        };
        if catch_unwind(AssertUnwindSafe(|| adviser.advise())).is_err() {
            eprintln!("upcall: the policy has panicked; all threads are equal from here on");
        }
        let inside = runtime.enter();
        inside.dismiss_adviser();
        inside.leave();
        adviser.dismiss();
    };
    let adviser = std::thread::Builder::new().name("policy".into());
    shell::make_own(|| adviser.spawn(advise))?;
    let _ = begins.recv();
    Ok(())
}

impl Adviser {
    fn advise(&mut self) {
        let mut ticks_at = self.next_tick(self.runtime.kernel().now());
        let mut idle_since = None;
        loop {
            let deadline = [ticks_at, idle_since.map(add_hold)]
                .into_iter()
                .flatten()
                .min();
            let inside = self.runtime.enter();
            let (inside, advice) = inside.await_transition(deadline);
            inside.leave();
            let now = self.runtime.kernel().now();
            match advice {
                Advice::Thread(block, transitions) => {
                    idle_since = None;
                    for transition in transitions.iter() {
                        self.tell(block, transition);
                        self.publish();
                    }
                }
                Advice::Idle => {
                    idle_since = Some(now);
                    self.policy.idle(&mut self.threads);
                }
                Advice::Warned(moment) => {
                    let left = Duration::from_nanos(moment.saturating_sub(now));
                    self.policy.warned(&mut self.threads, left);
                }
                Advice::Nothing if idle_since.is_some_and(|since| now >= add_hold(since)) => {
                    idle_since = None;
                    self.report_held();
                }
                Advice::Nothing => {}
            }
            if ticks_at.is_some_and(|at| now >= at) {
                self.policy.tick(&mut self.threads);
                ticks_at = self.next_tick(now);
            }
            self.publish();
        }
    }

    fn next_tick(&self, now: u64) -> Option<u64> {
        let period = u64::try_from(self.policy.period()?.as_nanos()).ok()?;
        now.checked_add(period.max(1))
    }

    /// The thread's number; a new one, if it was not known.
    fn id_of(&mut self, block: &'static Thread) -> Id {
        if let Some(id) = self.id_at(block) {
            return id;
        }
        self.last += 1;
        let id = Id(self.last);
        block.guest().advised.store(id.0, Ordering::Relaxed);
        let tag = block.guest().tag.load(Ordering::Relaxed);
        self.threads.add(id, block, tag);
        id
    }

    /// The number of the thread that has this block, or had it and has ended without being told of. The word outlives the
    /// thread, and a fork: so it may name another block's.
    fn id_at(&mut self, block: &'static Thread) -> Option<Id> {
        let id = Id(block.guest().advised.load(Ordering::Relaxed));
        let known = self.threads.known(id)?;
        std::ptr::eq(known.block, block).then_some(id)
    }

    fn tell(&mut self, block: &'static Thread, transition: Transition) {
        let why = match transition {
            Transition::Ended => {
                if let Some(id) = self.id_at(block) {
                    self.policy.ended(&mut self.threads, id);
                    self.threads.remove(id);
                }
                return;
            }
            Transition::Blocked => {
                let id = self.id_of(block);
                return self.block(id);
            }
            Transition::Created => Why::Created,
            Transition::Unblocked => Why::Unblocked,
            Transition::Yielded => Why::Yielded,
            Transition::Preempted => Why::Preempted,
        };
        let id = self.id_of(block);
        if why == Why::Unblocked {
            // Its wait may have been too short to be told of.
            self.block(id);
        }
        if let Some(known) = self.threads.known(id) {
            known.is_blocked = false;
        }
        let rank = self.policy.ready(&mut self.threads, id, why);
        if let Some(known) = self.threads.known(id) {
            known.rank = rank;
            self.threads.changed.push(id);
        }
    }

    fn block(&mut self, id: Id) {
        if let Some(known) = self.threads.known(id)
            && !known.is_blocked
        {
            known.is_blocked = true;
            self.policy.blocked(&mut self.threads, id);
        }
    }

    /// What the policy has said comes into force.
    fn publish(&mut self) {
        if self.threads.changed.is_empty() {
            return;
        }
        let changed = std::mem::take(&mut self.threads.changed);
        let inside = self.runtime.enter();
        for id in &changed {
            if let Some(known) = self.threads.known(*id) {
                lending::set_own(&inside, known.block, known.rank);
            }
        }
        inside.leave();
        self.threads.changed = changed;
        self.threads.changed.clear();
    }

    fn report_held(&self) {
        let is_held = |id: &Id| {
            self.threads.rank(*id) == Some(Rank::HELD)
                && self.threads.is_blocked(*id) == Some(false)
        };
        let held = self.threads.iter().filter(is_held).count();
        if held != 0 {
            eprintln!(
                "upcall: the policy has held {held} threads for a second, and nothing else runs \
                 (Threads::set_rank lets them go on)"
            );
        }
    }

    fn dismiss(&mut self) {
        let all: Vec<Id> = self.threads.iter().collect();
        for id in all {
            self.threads.set_rank(id, Rank::COMMON);
        }
        self.publish();
    }
}

fn add_hold(since: u64) -> u64 {
    since.saturating_add(LONGEST_HOLD.as_nanos() as u64)
}
