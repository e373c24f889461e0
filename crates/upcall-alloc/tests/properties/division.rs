//! Which space gets how many processors.

use std::collections::BTreeMap;

use upcall_alloc::{Priority, Rules, SpaceSharing};

use crate::history::{History, histories, without_spells};
use crate::mutants::{Coarse, Leveller, NeverLends, NeverRecalls};
use crate::world::{Standings, Step, World, watch};
use crate::{Verdict, breaks, holds};

/// §4.1: no processor idles as long as there is work. Here: while any space wants one, none is free,
/// and none rests whose spell (§4.2) is over.
#[test]
fn no_processor_idles_while_a_space_wants_one() {
    holds(&histories(), conserves_work::<SpaceSharing>);
    breaks(&histories(), conserves_work::<NeverLends>);
}

fn conserves_work<R: Rules>(history: &History) -> Verdict {
    watch(history, |world: &World<R>, step: &Step| {
        if !step.after.values().any(|space| space.hungry()) {
            return Ok(());
        }
        let over = |&&since_ns: &&u64| since_ns + history.spell_ns <= step.now_ns;
        let idle = world.free() + world.rested().values().filter(over).count();
        match idle {
            0 => Ok(()),
            _ => Err(format!("{idle} idle processors are wanted after {step:?}")),
        }
    })
}

/// §4.1: among spaces of the same priority the processors are divided evenly. Here: no space that wants more has two
/// fewer than an equal.
#[test]
fn equals_are_divided_evenly() {
    holds(&histories(), is_even::<SpaceSharing>);
    breaks(&histories(), is_even::<Coarse>);
}

fn is_even<R: Rules>(history: &History) -> Verdict {
    watch(history, |_: &World<R>, step: &Step| {
        let standings = || step.after.values().copied();
        for poor in standings().filter(|standing| standing.hungry()) {
            let mut equals = standings().filter(|rich| rich.priority == poor.priority);
            if let Some(rich) = equals.find(|rich| rich.running() > poor.running() + 1) {
                return Err(format!("{poor:?} beside {rich:?} after {step:?}"));
            }
        }
        Ok(())
    })
}

/// §4.1: what some spaces do not need of their share is divided evenly among the rest. Here: the
/// division is the one that is computed from scratch by filling up all levels at once.
#[test]
fn what_one_does_not_need_goes_to_the_others() {
    holds(&without_spells(), is_the_division::<SpaceSharing>);
    breaks(&without_spells(), is_the_division::<NeverRecalls>);
}

fn is_the_division<R: Rules>(history: &History) -> Verdict {
    watch(history, |world: &World<R>, step: &Step| {
        let expected = from_scratch(&step.after, world.processors.len());
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for standing in step.after.values() {
            let level = found.entry(standing.priority).or_default();
            level.push((standing.want, standing.running()));
        }
        for (priority, counts) in &mut found {
            counts.sort();
            let due = &expected[priority];
            // Which of the spaces that want more has one of the remainder is a matter of turns.
            let differs = counts.iter().zip(due).any(|(&(want, has), &due)| {
                let few = has < due.min(want);
                few || has > want.min(due + 1)
            });
            let [sum, sum_due] = [
                counts.iter().map(|&(_, has)| has as usize).sum(),
                due_sum(&step.after, *priority, world.processors.len()),
            ];
            if differs || sum != sum_due {
                return Err(format!(
                    "{counts:?} (want, has), due {due:?}, after {step:?}"
                ));
            }
        }
        Ok(())
    })
}

/// The whole processors that each space is due, by priority and in the order of wants: as many for
/// all as there are, no more than wanted, most important first.
fn from_scratch(standings: &Standings, processors: usize) -> BTreeMap<Priority, Vec<u32>> {
    let mut left = processors;
    let mut divisions = BTreeMap::new();
    for (priority, wants) in by_priority(standings).into_iter().rev() {
        let filled = |level: u32| {
            wants
                .iter()
                .map(|&want| want.min(level) as usize)
                .sum::<usize>()
        };
        let level = (0..=processors as u32)
            .rev()
            .find(|&level| filled(level) <= left)
            .unwrap_or(0);
        let due = wants.iter().map(|&want| want.min(level)).collect();
        divisions.insert(priority, due);
        left -= total(&wants, left);
    }
    divisions
}

/// What a level gets in all.
fn due_sum(standings: &Standings, priority: Priority, processors: usize) -> usize {
    let mut left = processors;
    for (level, wants) in by_priority(standings).into_iter().rev() {
        let got = total(&wants, left);
        if level == priority {
            return got;
        }
        left -= got;
    }
    0
}

fn total(wants: &[u32], left: usize) -> usize {
    let wanted = wants.iter().map(|&want| want as usize).sum::<usize>();
    wanted.min(left)
}

fn by_priority(standings: &Standings) -> BTreeMap<Priority, Vec<u32>> {
    let mut levels: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for space in standings.values() {
        let level = levels.entry(space.priority).or_default();
        level.push(space.want);
    }
    levels.values_mut().for_each(|wants| wants.sort());
    levels
}

/// §4.1 (and §3.2): priorities are respected; the highest ones divide the processors. Here: no space runs while a
/// space of a higher priority wants more.
#[test]
fn no_space_waits_while_a_lower_one_runs() {
    holds(&histories(), respects_priorities::<SpaceSharing>);
    breaks(&histories(), respects_priorities::<Leveller>);
}

fn respects_priorities<R: Rules>(history: &History) -> Verdict {
    watch(history, |_: &World<R>, step: &Step| {
        let standings = || step.after.values().copied();
        let highest = standings()
            .filter(|standing| standing.hungry())
            .map(|s| s.priority)
            .max();
        let runs = |low: &upcall_alloc::Standing| Some(low.priority) < highest && low.running() > 0;
        match standings().find(runs) {
            None => Ok(()),
            Some(low) => Err(format!("{low:?} while {highest:?} waits after {step:?}")),
        }
    })
}

/// §3.2: a space that has lent idle processors can count on getting them back when it needs them. Here: the call that
/// says so gives at least the even share, at once.
#[test]
fn who_lent_a_processor_has_it_back_at_once() {
    holds(&histories(), gives_back::<SpaceSharing>);
    breaks(&histories(), gives_back::<NeverRecalls>);
}

fn gives_back<R: Rules>(history: &History) -> Verdict {
    watch(history, |world: &World<R>, step: &Step| {
        let crate::history::Event::Need { space, .. } = step.event else {
            return Ok(());
        };
        let id = world.spaces[space % world.spaces.len()];
        let standing = step.after[&id];
        let higher = |other: &&upcall_alloc::Standing| other.priority > standing.priority;
        let taken: u32 = step
            .after
            .values()
            .filter(higher)
            .map(|standing| standing.held)
            .sum();
        let equals = step
            .after
            .values()
            .filter(|space| space.priority == standing.priority);
        let share = (world.processors.len() as u32 - taken) / equals.count() as u32;
        if standing.running() < share.min(standing.want) {
            return Err(format!(
                "{standing:?} gets less than its share {share} by {step:?}"
            ));
        }
        Ok(())
    })
}
