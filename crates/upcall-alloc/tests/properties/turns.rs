//! Remainders: the only processors that are time-sliced.
//!
//! A random history, after which nothing is said any more and only time passes.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use upcall_alloc::{Priority, Rules, SpaceId, SpaceSharing};

use crate::history::{Event, History, SLICE, of_equals};
use crate::mutants::{
    Courteous, Grudging, Hasty, LastFirst, NewestLoses, NoTurns, Restless, Ungrateful,
};
use crate::world::{Standings, Step, World, play};
use crate::{Verdict, breaks, holds};

/// Plays `history`, lets the spells end, then passes time as long as every contestant has several
/// turns. The observer sees what there is from its time on.
fn then_nothing<R: Rules>(
    history: &History,
    observe: &mut impl FnMut(&World<R>, &Step) -> Verdict,
) -> Verdict {
    let mut world = play(history, |_: &World<R>, _| Ok(()))?;
    world.play(Event::Pass { ns: SLICE }, &mut |_, _| Ok(()))?;
    let contest = Contest::of(&world.standings());
    let slices = 2 * (contest.contestants.len() as u64 + 1);
    for _ in 0..8 {
        let ns = slices * SLICE / 8;
        world.play(Event::Pass { ns }, observe)?;
    }
    Ok(())
}

/// The spaces that share the remainder.
struct Contest {
    /// What each has for good.
    share: u32,
    /// How many processors go around.
    remainder: u32,
    contestants: Vec<SpaceId>,
}

impl Contest {
    fn of(standings: &Standings) -> Self {
        let hungry = standings.values().filter(|space| space.hungry());
        let Some(share) = hungry.map(|standing| standing.running()).min() else {
            return Contest {
                share: 0,
                remainder: 0,
                contestants: Vec::new(),
            };
        };
        let wants = standings.iter().filter(|(_, space)| space.want > share);
        let contestants: Vec<_> = wants.map(|(&id, _)| id).collect();
        let extra = |id: &SpaceId| standings[id].running() - share;
        Contest {
            share,
            remainder: contestants.iter().map(extra).sum(),
            contestants,
        }
    }

    /// How long one of them waits at most.
    fn longest_wait_ns(&self) -> u64 {
        let number = self.contestants.len() as u64;
        let turns = number.div_ceil(u64::from(self.remainder)) - 1;
        turns.max(1) * SLICE
    }
}

/// §4.1: processors are time-sliced only if they are no multiple of the spaces that want them. Here: while no space
/// says anything, nothing but remainders changes hands, and each space has one, and is without, for at least a slice.
#[test]
fn nothing_moves_but_remainders_and_those_once_a_slice() {
    holds(&of_equals(), moves_slowly::<SpaceSharing>);
    breaks(&of_equals(), moves_slowly::<Restless>);
    breaks(&of_equals(), moves_slowly::<Hasty>);
}

fn moves_slowly<R: Rules>(history: &History) -> Verdict {
    let mut moved: BTreeMap<SpaceId, u64> = BTreeMap::new();
    then_nothing(history, &mut |_: &World<R>, step: &Step| {
        let contest = Contest::of(&step.before);
        if contest.remainder == 0 && !step.changes.is_empty() {
            return Err(format!("something moved without a remainder by {step:?}"));
        }
        for change in &step.changes {
            let (Some(from), Some(to)) = (change.from, change.to) else {
                return Err(format!("{change:?} is no turn, by {step:?}"));
            };
            for id in [from, to] {
                let before_ns = moved.insert(id, step.now_ns);
                if let Some(since_ns) = before_ns.filter(|since| since + SLICE > step.now_ns) {
                    return Err(format!(
                        "{id:?} is moved again since {since_ns} by {step:?}"
                    ));
                }
            }
        }
        Ok(())
    })
}

/// §4.1: the remainder is time-sliced, so that the division is even over time. Here: the processor time
/// of any two contestants, over any time, differs by no more than a slice.
#[test]
fn contestants_have_the_same_time() {
    holds(&of_equals(), takes_turns::<SpaceSharing>);
    breaks(&of_equals(), takes_turns::<NoTurns>);
    breaks(&of_equals(), takes_turns::<NewestLoses>);
}

fn takes_turns<R: Rules>(history: &History) -> Verdict {
    // For each two contestants, the least and the greatest lead of the one until now.
    let mut leads: BTreeMap<(SpaceId, SpaceId), [i64; 2]> = BTreeMap::new();
    let mut used: BTreeMap<SpaceId, i64> = BTreeMap::new();
    let mut last_ns = None;
    then_nothing(history, &mut |_: &World<R>, step: &Step| {
        let passed = step.now_ns - last_ns.unwrap_or(step.now_ns);
        last_ns = Some(step.now_ns);
        for (id, space) in &step.before {
            *used.entry(*id).or_default() += (u64::from(space.running()) * passed) as i64;
        }
        let contestants = Contest::of(&step.before).contestants;
        for (index, one) in contestants.iter().enumerate() {
            for other in &contestants[..index] {
                let lead = used[one] - used[other];
                let [least, most] = leads.entry((*one, *other)).or_insert([lead; 2]);
                (*least, *most) = (lead.min(*least), lead.max(*most));
                if *most - *least > SLICE as i64 {
                    return Err(format!(
                        "{one:?} and {other:?} are too far apart at {step:?}"
                    ));
                }
            }
        }
        Ok(())
    })
}

/// §3.2: the space that has used less is favoured, which must not shut the others out. Here: every contestant has its
/// turn after all of the others, whatever was before.
#[test]
fn everybody_has_a_turn() {
    holds(&of_equals(), reaches_all::<SpaceSharing>);
    breaks(&of_equals(), reaches_all::<LastFirst>);
}

fn reaches_all<R: Rules>(history: &History) -> Verdict {
    let mut had: BTreeMap<SpaceId, u64> = BTreeMap::new();
    then_nothing(history, &mut |_: &World<R>, step: &Step| {
        let contest = Contest::of(&step.after);
        if contest.remainder == 0 {
            return Ok(());
        }
        for id in &contest.contestants {
            let has = step.before[id].running() > contest.share;
            let since = had.entry(*id).or_insert(step.now_ns);
            if has {
                *since = step.now_ns;
            } else if *since + contest.longest_wait_ns() < step.now_ns {
                return Err(format!("{id:?} waits since {since} at {step:?}"));
            }
        }
        Ok(())
    })
}

/// §3.2: the space that uses less is favoured, so it pays to give up a processor that others need. Here: a space that
/// had no use for a remainder while all others had their turns is served within a slice, before them, even if it lends
/// processors of its share in the meantime.
#[test]
fn who_gave_up_a_turn_is_served_first() {
    holds(&of_equals(), serves_who_used_less::<SpaceSharing>);
    breaks(&of_equals(), serves_who_used_less::<Ungrateful>);
    breaks(&of_equals(), serves_who_used_less::<Grudging>);
}

fn serves_who_used_less<R: Rules>(history: &History) -> Verdict {
    let mut world = play(history, |_: &World<R>, _| Ok(()))?;
    let pass = |world: &mut World<R>, slices: u64| {
        let ns = slices * SLICE;
        world.play(Event::Pass { ns }, &mut |_, _| Ok(()))
    };
    pass(&mut world, 1)?;
    let contest = Contest::of(&world.standings());
    let Some(&modest) = contest.contestants.first() else {
        return Ok(());
    };
    let say = |world: &mut World<R>, want| {
        let answer = world.allocator.need(world.now_ns, modest, want);
        answer.expect("it is there");
    };
    say(&mut world, contest.share);
    let turns = 2 * contest.contestants.len() as u64;
    pass(&mut world, turns)?;
    say(&mut world, contest.share.saturating_sub(1));
    pass(&mut world, 1)?;
    say(&mut world, contest.share + 1);
    let mut served = contest.remainder == 0;
    let mut look = |_: &World<R>, step: &Step| {
        served |= step.before[&modest].held > contest.share;
        served |= step.after[&modest].held > contest.share;
        Ok(())
    };
    world.play(Event::Pass { ns: SLICE }, &mut look)?;
    match served {
        true => Ok(()),
        false => Err(format!(
            "{modest:?} still waits among {:?}",
            world.standings()
        )),
    }
}

/// Newcomers in a stream, some of which go again.
fn crowds() -> impl Strategy<Value = History> {
    let event = prop_oneof![
        4 => (1..3_u32).prop_map(|want| Event::Join { priority: 0, want }),
        3 => (0..64_usize).prop_map(|space| Event::Leave { space }),
        2 => (0..64_usize, 0..3_u32).prop_map(|(space, want)| Event::Need { space, want }),
        2 => (0..64_usize, 0..9_usize).prop_map(|(space, which)| Event::Idle { space, which }),
        6 => (0..SLICE * 2).prop_map(|ns| Event::Pass { ns }),
    ];
    (1..4_u32, vec(event, 100..400)).prop_map(|(processors, events)| History {
        processors,
        spell_ns: 0,
        events,
    })
}

/// §3.2, the same while others come, go, and begin and cease to want. Here: a space that wants one processor has it
/// after one turn of each of those that were there before it.
#[test]
fn newcomers_starve_nobody() {
    holds(&crowds(), keeps_the_order::<SpaceSharing>);
    breaks(&crowds(), keeps_the_order::<Courteous>);
}

fn keeps_the_order<R: Rules>(history: &History) -> Verdict {
    let (early, late) = history.events.split_at(history.events.len() / 4);
    let early = History {
        events: early.to_vec(),
        ..history.clone()
    };
    let mut world = play(&early, |_: &World<R>, _| Ok(()))?;
    let patient = world.allocator.join(world.now_ns, Priority(0));
    let answer = world.allocator.need(world.now_ns, patient, 1);
    let mut served = !answer.expect("it has joined").is_empty();
    let others = world.spaces.len() as u64;
    let turns = (others + 1).div_ceil(world.processors.len() as u64);
    let bound = (1 + turns) * SLICE;
    let end_ns = world.now_ns + bound;
    for &event in late {
        let mut look = |_: &World<R>, step: &Step| {
            served |= step.after[&patient].running() > 0;
            match served || step.now_ns <= end_ns {
                true => Ok(()),
                false => Err(format!("it waits for more than {bound} ns, at {step:?}")),
            }
        };
        world.play(event, &mut look)?;
    }
    Ok(())
}
