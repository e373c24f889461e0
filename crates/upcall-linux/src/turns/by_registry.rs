//! Decides with the other processes of the registry, where there is no daemon.

use core::sync::atomic::Ordering;

use upcall_core::{Activation, Kernel};

use super::rules::truce::{self, Truce};
use super::rules::{self, Member, Phase, Set};
use super::{Calls, Inner, SLACK_NS, State, bits, load};

/// A member that is on and silent for this time, in nanoseconds, may be dead: worth a look.
const SUSPECT_NS: u64 = 15_000_000;

impl State {
    /// Decides by what the registry says about this process and the others.
    pub(super) fn ask_registry<K: Kernel>(
        &self,
        inner: &mut Inner,
        current: &Activation<K>,
        now: u64,
    ) -> Calls {
        let registry = &self.registry;
        let busy = if now < inner.apart_until {
            Set::default()
        } else {
            load(&self.processors.busy)
        };
        registry.publish_busy(busy);
        let count = self.look_around(inner, now);
        let mut me = Member {
            id: registry.id(),
            busy,
            phase: inner.phase,
            beat: now,
            truce: inner.crowd.truce,
        };
        let agreed = truce::in_force(&me, &inner.room[..count], now, &self.times);
        if agreed != me.truce {
            self.make_truce(inner, &mut me, agreed, now);
        }
        let mut verdict = rules::decide(&me, &inner.room[..count], now, &self.times);
        let is_on = matches!(me.phase, Phase::On { .. });
        let mut rings = 0;
        if is_on
            && matches!(verdict.phase, Phase::Waiting { .. })
            && let Some(begun) = self.judge(&mut inner.crowd, current, busy, now)
        {
            self.make_truce(inner, &mut me, begun, now);
            verdict = rules::decide(&me, &inner.room[..count], now, &self.times);
            // All at once: each would have to run before it could wake the next one.
            rings = inner.room[..count]
                .iter()
                .filter(|other| {
                    matches!(other.phase, Phase::Waiting { .. }) && !other.busy.and(busy).is_empty()
                })
                .fold(0, |bits, other| bits | 1 << other.id);
        }
        let others = &inner.room[..count];
        if !is_on || !verdict.shared.and(busy).is_empty() {
            self.ledger.not_alone(now);
        }
        if !is_on && verdict.wanted && matches!(verdict.phase, Phase::On { .. }) {
            inner.crowd.turn_begins(&self.ledger, now);
        }
        if verdict.gives_up {
            inner.apart_until = now + self.times.apart;
        }
        if registry.me().phase != verdict.phase {
            registry.publish(verdict.phase);
        }
        if verdict.wanted && matches!(verdict.phase, Phase::On { .. }) {
            registry.want(registry.id());
        } else if registry.is_wanted() {
            registry.clear_wanted();
        }
        if let Phase::Waiting { since, .. } = inner.phase
            && !matches!(verdict.phase, Phase::Waiting { .. })
        {
            if matches!(verdict.phase, Phase::On { .. }) {
                self.turns.fetch_add(1, Ordering::Relaxed);
            }
            self.waited_ns
                .fetch_add(now.saturating_sub(since), Ordering::Relaxed);
            registry.beat(now);
        }
        inner.phase = verdict.phase;
        self.patience.store(
            SLACK_NS
                + if verdict.offers == 0 {
                    self.times.turn
                } else {
                    self.times.grace
                },
            Ordering::Relaxed,
        );
        let mut calls = Calls {
            rings,
            offers: verdict.offers,
            own: self.stop(current, verdict.off.and(busy), 0, now),
            knock: None,
        };
        for id in bits(verdict.holders) {
            registry.want(id);
        }
        // Processors that were busy and are not: a process that waits may have them before its turn.
        let before = core::mem::replace(&mut inner.busy_before, busy);
        let freed = Set(core::array::from_fn(|at| before.0[at] & !busy.0[at]));
        if !freed.is_empty() {
            for other in others {
                if verdict.offers & (1 << other.id) == 0
                    && matches!(other.phase, Phase::Waiting { .. })
                    && !other.busy.and(freed).is_empty()
                {
                    calls.rings |= 1 << other.id;
                }
            }
        }
        calls
    }

    fn make_truce(&self, inner: &mut Inner, me: &mut Member, truce: Truce, now: u64) {
        me.truce = truce;
        self.take_on(&mut inner.crowd, truce, now);
        self.registry.publish_truce(truce);
    }

    /// Reads the others, without the dead.
    fn look_around(&self, inner: &mut Inner, now: u64) -> usize {
        let count = self.registry.others(&mut inner.room);
        let mut kept = 0;
        for at in 0..count {
            let other = inner.room[at];
            let suspect = match other.phase {
                Phase::Resting => false,
                Phase::On { .. } => now.saturating_sub(other.beat) > SUSPECT_NS,
                Phase::Waiting { offered, .. } => {
                    offered != 0 && now.saturating_sub(offered) > SUSPECT_NS
                }
            };
            if !(suspect && self.registry.bury(other.id)) {
                inner.room[kept] = other;
                kept += 1;
            }
        }
        kept
    }
}
