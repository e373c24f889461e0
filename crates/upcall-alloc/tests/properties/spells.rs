//! Hysteresis.

use upcall_alloc::{Rules, SpaceId, SpaceSharing, Standing};

use crate::history::{History, SLICE, histories};
use crate::mutants::{NeverLends, NoSpell};
use crate::world::{Step, World, watch};
use crate::{Verdict, breaks, holds};

/// §4.2: an idle processor waits for a short time before it may be given to others. Here: within
/// its spell it goes only to a space that would otherwise take one in use.
#[test]
fn an_idle_processor_is_kept_for_a_short_spell() {
    holds(&histories(), keeps_for_a_spell::<SpaceSharing>);
    breaks(&histories(), keeps_for_a_spell::<NoSpell>);
}

fn keeps_for_a_spell<R: Rules>(history: &History) -> Verdict {
    watch(history, |_: &World<R>, step: &Step| {
        // What the spaces have while the changes are made one after the other.
        let mut now = step.before.clone();
        for (id, space) in &mut now {
            let after = step.after.get(id);
            space.priority = after.map_or(space.priority, |space| space.priority);
        }
        let known = |id: &Option<SpaceId>| id.filter(|id| step.after.contains_key(id));
        for change in &step.changes {
            let (from, to) = (known(&change.from), known(&change.to));
            let since_ns = step.rested.get(&change.processor);
            let kept = since_ns.is_some_and(|since| since + history.spell_ns > step.now_ns);
            if let (true, Some(from), Some(to)) = (kept, from, to) {
                let held = now.get(&to).map_or(0, |space| space.held);
                let taker = Standing {
                    held,
                    ..step.after[&to]
                };
                let right = now
                    .values()
                    .any(|space| may_take(&taker, space, step.now_ns));
                if !right {
                    return Err(format!(
                        "{from:?} loses {change:?} within the spell by {step:?}"
                    ));
                }
            }
            let mut count = |id: Option<SpaceId>, by: i32| {
                if let Some(space) = id.and_then(|id| now.get_mut(&id)) {
                    space.held = space.held.saturating_add_signed(by);
                }
            };
            count(from, -1);
            count(to, 1);
            if let Some(id) = to {
                now.entry(id).or_insert(Standing {
                    held: 1,
                    ..step.after[&id]
                });
            }
        }
        Ok(())
    })
}

/// Whether a space may take a processor from another that has `other.held`, as if those were in use.
fn may_take(taker: &Standing, other: &Standing, now_ns: u64) -> bool {
    let equals = other.priority == taker.priority;
    let since_ns = other.given.ns.max(taker.lost.ns);
    let turn = since_ns + SLICE <= now_ns && other.held == taker.held + 1;
    other.held > 0
        && (other.priority < taker.priority || equals && (turn || other.held > taker.held + 1))
}

/// §4.2, the other side: the time is short. Here: while a space waits, the allocator asks to be called
/// by the end of the oldest spell, and that processor is then given away.
#[test]
fn a_spell_ends_in_time() {
    holds(&histories(), ends_in_time::<SpaceSharing>);
    breaks(&histories(), ends_in_time::<NeverLends>);
}

fn ends_in_time<R: Rules>(history: &History) -> Verdict {
    watch(history, |world: &World<R>, step: &Step| {
        let waits = step.after.values().any(|space| space.hungry());
        let Some(oldest) = world.rested().values().min().filter(|_| waits) else {
            return Ok(());
        };
        let end_ns = oldest + history.spell_ns;
        match world.allocator.next_ns() {
            Some(next_ns) if next_ns <= end_ns && next_ns > step.now_ns => Ok(()),
            next_ns => Err(format!(
                "{next_ns:?} is next, {end_ns} is due, after {step:?}"
            )),
        }
    })
}
