//! Does what the daemon says, while there is one.

use core::ptr;
use core::sync::atomic::Ordering;

use upcall_abi::WANTED;
use upcall_core::{Activation, Kernel, State as Word, Thread};

use super::adapting::{self, Needs};
use super::daemon::{self, Daemon, News};
use super::rules::{Phase, Set};
use super::{Calls, Inner, SLACK_NS, State, bell, load};
use crate::processors::affinity;

/// A virtual processor that is stopped while others of its process run looks for itself at least so often, in nanoseconds.
const SELDOM_NS: u64 = 500_000_000;
/// No daemon warns so long before, in nanoseconds: nonsense.
const LONGEST_LEAD_NS: u64 = 100_000_000;
/// A process that waits for one of its critical sections looks so much after the moment that the warning says, in nanoseconds.
const AFTER_WARNING_NS: u64 = 500_000;

impl State {
    /// From here on the daemon decides.
    pub(super) fn link(&self, inner: &mut Inner) {
        let Daemon::Linked(link) = &inner.daemon else {
            return;
        };
        self.registry.publish(Phase::Resting);
        self.registry.publish_busy(Set::default());
        inner.phase = Phase::Resting;
        inner.waits_since = 0;
        let (told, said) = link.pages();
        link.asks_for_share(self.share);
        link.adapts(if adapting::may().is_some() {
            self.adapts
        } else {
            0
        });
        self.told
            .store(ptr::from_ref(told).cast_mut(), Ordering::Release);
        self.said
            .store(ptr::from_ref(said).cast_mut(), Ordering::Release);
        self.change_bell(link.bell().as_ptr());
    }

    /// From here on the registry decides again.
    #[cold]
    fn unlink(&self, inner: &mut Inner) {
        self.told.store(ptr::null_mut(), Ordering::Release);
        self.said.store(ptr::null_mut(), Ordering::Release);
        self.registry.clear_wanted();
        self.change_bell(self.registry.bell());
        inner.daemon = Daemon::None;
    }

    /// Those that wait sleep on another word from here on.
    fn change_bell(&self, bell: *mut u32) {
        // First the new one: who has read the old one's value after it was rung sees that it is not the one any more.
        bell::ring(self.bell.swap(bell, Ordering::SeqCst));
    }

    /// Does what the daemon says. `None`: there is none, or none any more.
    pub(super) fn ask_daemon<K: Kernel>(
        &self,
        inner: &mut Inner,
        current: &Activation<K>,
        now: u64,
    ) -> Option<Calls> {
        let Daemon::Linked(link) = &inner.daemon else {
            return None;
        };
        let waited = now.saturating_sub(inner.waits_since);
        let keeps_waiting = inner.waits_since != 0 && waited > daemon::LONGEST_NS;
        if keeps_waiting || !link.is_alive() {
            self.unlink(inner);
            match keeps_waiting {
                true => inner.again.end(),
                false => inner.again.begin(now),
            }
            return None;
        }
        let news = link.news();
        let busy = load(&self.processors.busy);
        let vps = current.runtime().vps();
        let adapts = self.adapts != 0;
        if adapts {
            adapting::settle(vps, news.has, affinity::allowed().iter());
        }
        let leaves = !adapts && !busy.is_empty() && heeds(&mut inner.warned, current, &news, now);
        let Needs { wants, uses, waits } = match adapts {
            true => {
                let most = self.most.load(Ordering::Relaxed).min(vps.len() as u32);
                adapting::needs(vps, news.has, most, !busy.is_empty())
            }
            false => Needs {
                wants: busy,
                uses: busy.and(news.has),
                waits: leaves || !busy.and(news.has.complement()).is_empty(),
            },
        };
        let (was_stopped, is_stopped) = (inner.waits_since != 0, waits);
        if is_stopped || !news.wanted || news.lends {
            self.ledger.not_alone(now);
        }
        // One that adapts has no turns that end.
        let is_due = adapts && news.wanted && now.saturating_sub(inner.judged) >= self.times.turn;
        let mut is_crowded = false;
        match (was_stopped, is_stopped) {
            (false, stops) if stops || is_due => {
                inner.waits_since = if stops { now } else { 0 };
                inner.judged = now;
                self.warnings.fetch_add(leaves.into(), Ordering::Relaxed);
                let on = if adapts { uses } else { busy };
                let begun = match news.lends {
                    true => None,
                    false => self.judge(&mut inner.crowd, current, on, now),
                };
                if let Some(begun) = begun {
                    self.take_on(&mut inner.crowd, begun, now);
                    link.ask_for(begun);
                    is_crowded = true;
                } else if !stops {
                    inner.crowd.turn_begins(&self.ledger, now);
                }
            }
            (true, false) => {
                inner.waits_since = 0;
                self.waited_ns.fetch_add(waited, Ordering::Relaxed);
                self.turns.fetch_add(1, Ordering::Relaxed);
                self.by_daemon.fetch_add(1, Ordering::Relaxed);
                if news.wanted {
                    inner.crowd.turn_begins(&self.ledger, now);
                }
            }
            _ => {}
        }
        if news.truce.until > inner.crowd.truce.until {
            self.take_on(&mut inner.crowd, news.truce, now);
        }
        if news.wanted {
            self.registry.want(self.registry.id());
        } else if self.registry.is_wanted() {
            self.registry.clear_wanted();
        }
        // One that adapts uses no other processor, be it for a moment.
        let stopped = news.has.complement();
        let (stopped, until) = match (adapts, leaves) {
            (true, _) => (stopped, 0),
            (false, false) => (busy.and(stopped), 0),
            (false, true) => (busy, news.leaves_at),
        };
        if leaves {
            self.look_for_sections(current);
        }
        let own = self.stop(current, stopped, until, now);
        let uses = match leaves {
            true => uses.and(load(&self.processors.finishing)),
            false => uses,
        };
        let patience = if adapts && !is_stopped {
            SELDOM_NS
        } else if leaves && !uses.is_empty() {
            news.leaves_at.saturating_sub(now) + AFTER_WARNING_NS
        } else {
            SLACK_NS + self.times.turn
        };
        self.patience.store(patience, Ordering::Relaxed);
        // After those that must stop were told so.
        let may = adapting::may().unwrap_or_default();
        let is_new = link.say(wants, uses, may, news.changes);
        Some(Calls {
            own,
            knock: (is_new || is_crowded).then(|| link.knocker()),
            ..Calls::default()
        })
    }

    /// Notes which virtual processors have threads in critical sections. The current one's was noted when its slice ended.
    fn look_for_sections<K: Kernel>(&self, current: &Activation<K>) {
        for vp in current.runtime().vps() {
            let word = vp.word();
            let in_section = match word.state() {
                Word::User => word.owner().thread().is_some_and(Thread::is_in_section),
                Word::Idle | Word::Kernel => false,
                // It has noted that itself, or is about to stop.
                Word::Runtime | Word::Granted | Word::Rung => continue,
            };
            self.processors.finishes(vp.processor(), in_section);
        }
    }

    /// The daemon says that another process waits for a processor of this one.
    pub(super) fn is_wanted_by_daemon(&self) -> bool {
        // SAFETY: null, or mapped for ever.
        let told = unsafe { self.told.load(Ordering::Acquire).as_ref() };
        told.is_some_and(|told| told.wanted.load(Ordering::Relaxed) & WANTED != 0)
    }

    /// Tells the daemon, if it decides, what this process computes on. Returns true if it does.
    pub(super) fn says_that_it_computes_on(&self, busy: Set) -> bool {
        // SAFETY: null, or mapped for ever.
        let said = unsafe { self.said.load(Ordering::Acquire).as_ref() };
        if let Some(said) = said {
            daemon::store(&said.wants, busy);
        }
        said.is_some()
    }
}

/// Returns true if the process leaves its processors now because of a warning. Where the program has an adviser, that is told, and the
/// process goes on. `warned`: see [`Inner`].
fn heeds<K: Kernel>(
    warned: &mut (u64, bool),
    current: &Activation<K>,
    news: &News,
    now: u64,
) -> bool {
    let left = news.leaves_at.saturating_sub(now);
    if left == 0 || left > LONGEST_LEAD_NS {
        return false;
    }
    if warned.0 != news.leaves_at {
        let is_told = current.runtime().warn(current.vp(), news.leaves_at);
        *warned = (news.leaves_at, is_told);
    }
    !warned.1
}
