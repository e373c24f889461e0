//! What moves.

use std::collections::BTreeMap;

use upcall_alloc::{Change, ProcessorId, Rules, SpaceId, SpaceSharing};

use crate::history::{Event, History, SLICE, histories};
use crate::mutants::{NewestRestFirst, Restless, TakesTheBusy};
use crate::world::{Standings, Step, World, watch};
use crate::{Verdict, breaks, holds};

/// §3.1: each space knows which processors it has been given. Here: the changes, put together, say which space has
/// which; each processor is in one place, and changes hands at most once by a call.
#[test]
fn the_changes_tell_who_has_which_processor() {
    holds(&histories(), tells_all::<SpaceSharing>);
    // The mutant is the reader's: it misses the second of several changes.
    breaks(&histories(), tells_all_but_the_second);
}

fn tells_all<R: Rules>(history: &History) -> Verdict {
    tells::<R>(history, |_| true)
}

fn tells_all_but_the_second(history: &History) -> Verdict {
    tells::<SpaceSharing>(history, |index| index != 1)
}

fn tells<R: Rules>(history: &History, reads: fn(usize) -> bool) -> Verdict {
    let mut owners: BTreeMap<ProcessorId, SpaceId> = BTreeMap::new();
    watch(history, |world: &World<R>, step: &Step| {
        for (index, change) in step.changes.iter().enumerate() {
            let moves = step
                .changes
                .iter()
                .filter(|other| other.processor == change.processor);
            if moves.count() > 1 || change.from == change.to {
                return Err(format!("{change:?} is not the only move, by {step:?}"));
            }
            if !reads(index) {
                continue;
            }
            let had = match change.to {
                Some(space) => owners.insert(change.processor, space),
                None => owners.remove(&change.processor),
            };
            if had != change.from {
                return Err(format!("{had:?} had it before {change:?}, by {step:?}"));
            }
        }
        let held: BTreeMap<_, _> = world
            .allocator
            .spaces()
            .flat_map(|(id, space)| {
                let all = space.running().iter().chain(space.resting());
                all.map(move |&processor| (processor, id))
            })
            .collect();
        let said = world
            .processors
            .iter()
            .filter_map(|&processor| Some((processor, world.allocator.owner(processor)?)));
        if held != owners || held != said.collect() {
            return Err(format!("{held:?} is had, {owners:?} was told, by {step:?}"));
        }
        Ok(())
    })
}

/// §4.1: space-sharing reduces the number of re-allocations. Here: besides turns that are due,
/// as few processors are given as lead from the division before to any that is as even.
#[test]
fn only_what_must_move_moves() {
    holds(&histories(), moves_least::<SpaceSharing>);
    breaks(&histories(), moves_least::<Restless>);
}

fn moves_least<R: Rules>(history: &History) -> Verdict {
    watch(history, |_: &World<R>, step: &Step| {
        let gained = |id: &SpaceId| {
            step.changes
                .iter()
                .filter(|change| change.to == Some(*id))
                .count()
        };
        let lost = |id: &SpaceId| {
            let taken = |change: &&Change| change.from == Some(*id) && change.to.is_some();
            step.changes.iter().filter(taken).count()
        };
        if let Some(both) = step.after.keys().find(|id| gained(id) > 0 && lost(id) > 0) {
            return Err(format!("{both:?} both gains and loses by {step:?}"));
        }
        let given: usize = step.after.keys().map(gained).sum();
        let turns = step
            .changes
            .iter()
            .filter(|change| is_turn(step, change))
            .count();
        let needed = fewest(step);
        if given > needed + turns {
            return Err(format!(
                "{given} given, {needed} needed, {turns} turns, by {step:?}"
            ));
        }
        Ok(())
    })
}

/// Whether a change is one of a remainder between two that have had it, and not had it, for a slice.
fn is_turn(step: &Step, change: &Change) -> bool {
    let ends = |id: Option<SpaceId>| Some([step.before.get(&id?)?, step.after.get(&id?)?]);
    let (Some(from), Some(to)) = (ends(change.from), ends(change.to)) else {
        return false;
    };
    let [[from, from_after], [to, to_after]] = [from, to];
    let since_ns = from.given.ns.max(to.lost.ns);
    let equals = from_after.priority == to_after.priority;
    equals && from_after.held + 1 == to_after.held && since_ns + SLICE <= step.now_ns
}

/// How many processors must be given to spaces at least, from what they had when the event had
/// happened, to a division as even as the one after it.
fn fewest(step: &Step) -> usize {
    let waiting = waiting(&step.after);
    let (mut needed, mut remainders, mut keepers) = (0, 0, 0);
    for (id, now) in &step.after {
        let due = match waiting {
            None => now.want,
            Some((priority, _)) if now.priority > priority => now.want,
            Some((priority, running)) if now.priority == priority => now.want.min(running),
            Some(_) => 0,
        };
        let gone = |change: &&Change| change.from == Some(*id) && change.to.is_none();
        let before = step.before.get(id);
        let had = before.map_or(0, |space| space.held);
        let had = had - step.changes.iter().filter(gone).count() as u32;
        needed += due.saturating_sub(had) as usize;
        remainders += now.running().saturating_sub(due) as usize;
        let contests = waiting.is_some_and(|(priority, _)| priority == now.priority);
        keepers += usize::from(contests && had > due && now.want > due);
    }
    needed + remainders.saturating_sub(keepers)
}

/// The priority at which spaces wait, and the processors that each of them has.
fn waiting(standings: &Standings) -> Option<(upcall_alloc::Priority, u32)> {
    let hungry = standings.values().filter(|space| space.hungry());
    let first = hungry.max_by_key(|space| (space.priority, std::cmp::Reverse(space.running())))?;
    Some((first.priority, first.running()))
}

/// §3.2 (Table 3): a processor that a space reports as idle is what others get when they need one. Here: no space
/// loses a processor that it uses while any is free or rests.
#[test]
fn what_rests_is_taken_before_what_runs() {
    holds(&histories(), spares_the_busy::<SpaceSharing>);
    breaks(&histories(), spares_the_busy::<TakesTheBusy>);
}

fn spares_the_busy<R: Rules>(history: &History) -> Verdict {
    watch(history, |world: &World<R>, step: &Step| {
        // A space that gives a processor away has no use for it. A space that lost one that it used wants it back.
        let by_force = |change: &&Change| {
            let loser = change.from.and_then(|id| step.after.get(&id));
            let used = !step.rested.contains_key(&change.processor);
            used && change.to.is_some() && loser.is_some_and(|space| space.hungry())
        };
        match step.changes.iter().find(by_force) {
            Some(change) if world.free() + world.rested().len() > 0 => {
                Err(format!("{change:?} beside idle processors by {step:?}"))
            }
            _ => Ok(()),
        }
    })
}

/// §3.2: idle processors should be left where work is likely to be created soon. Here: one that no space wants stays
/// where it is, and one that has rested for longer goes before the others.
#[test]
fn idle_processors_are_left_where_work_is_likely() {
    holds(&histories(), leaves_the_likely::<SpaceSharing>);
    breaks(&histories(), leaves_the_likely::<NewestRestFirst>);
}

fn leaves_the_likely<R: Rules>(history: &History) -> Verdict {
    watch(history, |world: &World<R>, step: &Step| {
        for change in &step.changes {
            let Some(since) = step.rested.get(&change.processor) else {
                continue;
            };
            let asked_for = change.to.is_some()
                || matches!(step.event, Event::Leave { .. } | Event::Remove { .. });
            if !asked_for {
                return Err(format!("{change:?} that nobody wants by {step:?}"));
            }
            let left = world
                .rested()
                .iter()
                .find(|(processor, other)| step.rested.contains_key(processor) && *other < since);
            let by_leaving = matches!(step.event, Event::Leave { .. });
            if let Some(left) = left.filter(|_| change.to.is_some() && !by_leaving) {
                return Err(format!("{change:?} before {left:?} by {step:?}"));
            }
        }
        Ok(())
    })
}
