//! The house, with programs that do what they are told, and with others.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const TERMS: Terms = Terms {
    slice_ns: 20 * MS,
    spell_ns: MS,
    grace_ns: 30 * MS,
    longest_truce_ns: 2_000 * MS,
    patience: 3,
};

fn bits(word: u64) -> Bits {
    Bits([word, 0, 0, 0])
}

/// A space that follows what it is told, from the next look on.
fn follow(house: &mut House, id: GangId, wants: u64) {
    let told = house.told(id).unwrap();
    let said = Hints {
        changes: told.changes,
        wants: bits(wants),
        uses: bits(wants).and(told.has),
        truce: Truce::default(),
        ..Hints::default()
    };
    house.hear(id, said);
}

/// A space that says that it uses everything, whatever it is told.
fn squat(house: &mut House, id: GangId, wants: u64) {
    let changes = house.told(id).unwrap().changes;
    let said = Hints {
        changes,
        wants: bits(wants),
        uses: bits(wants),
        truce: Truce::default(),
        ..Hints::default()
    };
    house.hear(id, said);
}

fn may_run(house: &House, id: GangId, wants: u64) -> bool {
    bits(wants).without(house.told(id).unwrap().has).is_empty()
}

fn house_of(count: u64) -> House {
    let mut house = House::new(bits(0b1111), bits(0b1111), TERMS);
    for id in 0..count {
        house.join(id);
    }
    house
}

#[test]
fn a_lone_space_has_every_processor_and_no_decision_is_due() {
    let mut house = house_of(2);
    follow(&mut house, 0, 0b11);
    assert_eq!(house.settle(5 * MS), None);
    assert!(may_run(&house, 0, 0b11) && may_run(&house, 1, 0b11));
    assert!(!house.told(0).unwrap().wanted);
}

#[test]
fn a_space_gets_its_processors_when_the_other_has_left_them() {
    let mut house = house_of(2);
    follow(&mut house, 0, 0b11);
    house.settle(0);
    // It computes before it is told that it may not.
    follow(&mut house, 1, 0b11);
    assert_eq!(house.settle(MS), Some(20 * MS));
    follow(&mut house, 1, 0b11);
    assert_eq!(house.settle(MS), Some(20 * MS));
    assert!(!may_run(&house, 1, 0b11) && house.told(0).unwrap().wanted);
    // The turn is over; the first one does not know yet.
    assert_eq!(house.settle(20 * MS), Some(40 * MS));
    assert!(!may_run(&house, 0, 0b11) && !may_run(&house, 1, 0b11));
    let before = house.told(1).unwrap();
    follow(&mut house, 0, 0b11);
    house.settle(23 * MS);
    let after = house.told(1).unwrap();
    assert!(may_run(&house, 1, 0b11));
    assert_eq!(
        (after.gains, after.changes),
        (before.gains + 1, before.changes + 1)
    );
    follow(&mut house, 1, 0b11);
    assert_eq!(
        house.settle(24 * MS),
        Some(43 * MS),
        "a whole slice from there on"
    );
}

#[test]
fn nobody_waits_for_a_space_that_does_not_leave_and_it_stays_away_after_three_times() {
    let mut house = house_of(2);
    squat(&mut house, 0, 0b11);
    house.settle(0);
    follow(&mut house, 1, 0b11);
    let mut now = MS;
    for time in 1..=3 {
        // Its turn, and its end.
        let mut losses = 0;
        while !matches!(house.doing(0).unwrap().0, Doing::Away(_)) {
            squat(&mut house, 0, 0b11);
            follow(&mut house, 1, 0b11);
            now = house.settle(now).expect("somebody waits");
            house.settle(now);
            losses += 1;
            assert!(losses < 10, "it is never away");
        }
        assert!(may_run(&house, 1, 0b11), "time {time}");
        squat(&mut house, 0, 0b11);
        follow(&mut house, 1, 0b11);
        house.settle(now);
        let is_away = matches!(house.doing(0).unwrap().0, Doing::Away(_));
        assert_eq!(is_away, time == 3, "time {time}");
    }
    assert_eq!(
        house.settle(now + MS),
        None,
        "the other one has them for good"
    );
}

#[test]
fn who_does_not_come_to_its_turn_is_away_until_it_speaks() {
    let mut house = house_of(2);
    follow(&mut house, 0, 0b11);
    house.settle(0);
    for _ in 0..2 {
        follow(&mut house, 1, 0b11);
        house.settle(MS);
    }
    house.settle(20 * MS);
    follow(&mut house, 0, 0b11);
    house.settle(20 * MS);
    assert!(may_run(&house, 1, 0b11) && !may_run(&house, 0, 0b11));
    // It is stopped and says nothing; the slice ends.
    house.settle(40 * MS);
    assert!(may_run(&house, 0, 0b11));
    follow(&mut house, 0, 0b11);
    house.settle(41 * MS);
    let mut now = 41 * MS;
    while let Some(next) = house.settle(now) {
        now = next;
        follow(&mut house, 0, 0b11);
        assert!(now < 500 * MS, "it is never away");
    }
    assert!(matches!(house.doing(1).unwrap().0, Doing::Away(_)));
    assert!(may_run(&house, 0, 0b11));
    follow(&mut house, 1, 0b11);
    assert!(house.settle(now).is_some(), "it is back");
}

#[test]
fn a_truce_holds_for_all_that_are_connected_and_ends() {
    let mut house = house_of(3);
    for (id, wants) in [(0, 0b0011), (1, 0b0110), (2, 0b1100)] {
        follow(&mut house, id, wants);
    }
    house.settle(0);
    assert!(!may_run(&house, 1, 0b0110));
    let truce = Truce {
        until_ns: 250 * MS,
        length_ns: 250 * MS,
    };
    let said = Hints {
        changes: 0,
        wants: bits(0b0011),
        uses: bits(0b0011),
        truce,
        ..Hints::default()
    };
    house.hear(0, said);
    assert_eq!(house.settle(MS), Some(250 * MS));
    for (id, wants) in [(0, 0b0011), (1, 0b0110), (2, 0b1100)] {
        assert!(may_run(&house, id, wants), "{id}");
        assert_eq!(house.told(id).unwrap().truce, truce, "{id}");
    }
    house.settle(250 * MS);
    assert!(!may_run(&house, 1, 0b0110) || !may_run(&house, 0, 0b0011));
}

#[test]
fn a_truce_that_is_too_long_is_nonsense() {
    let mut house = house_of(2);
    follow(&mut house, 0, 0b11);
    house.settle(0);
    let truce = Truce {
        until_ns: u64::MAX,
        length_ns: 1,
    };
    let said = Hints {
        changes: 0,
        wants: bits(0b11),
        uses: bits(0),
        truce,
        ..Hints::default()
    };
    house.hear(1, said);
    house.settle(MS);
    assert!(!may_run(&house, 1, 0b11));
    assert_eq!(house.told(0).unwrap().truce, Truce::default());
}

/// A space that adapts and follows what it is told: it uses what it has, and wants `wants`.
fn adapt(house: &mut House, id: GangId, wants: u64, least: u32) {
    let told = house.told(id).unwrap();
    let said = Hints {
        changes: told.changes,
        wants: bits(wants),
        uses: bits(wants).and(told.has),
        truce: Truce::default(),
        adapts: least,
        share: 1,
        may: bits(0b1111),
        ..Hints::default()
    };
    house.hear(id, said);
}

fn has(house: &House, id: GangId) -> Bits {
    house.told(id).unwrap().has.and(bits(0b1111))
}

#[test]
fn two_that_adapt_have_half_of_the_machine_each_for_good() {
    let mut house = house_of(2);
    adapt(&mut house, 0, 0b1111, 1);
    house.settle(0);
    assert_eq!(has(&house, 0), bits(0b1111));
    for now in [1, 2, 3] {
        for id in [0, 1] {
            adapt(&mut house, id, 0b1111, 1);
        }
        let next = house.settle(now * MS);
        assert!(now == 1 || next.is_none(), "nothing changes any more");
    }
    let both = [has(&house, 0), has(&house, 1)];
    assert_eq!(both.map(Bits::len), [2, 2]);
    assert!(both[0].and(both[1]).is_empty());
    assert!(house.told(0).unwrap().wanted);
    house.leave(1);
    adapt(&mut house, 0, 0b1111, 1);
    house.settle(50 * MS);
    assert_eq!(has(&house, 0), bits(0b1111));
}

#[test]
fn a_processor_is_told_to_the_next_when_the_other_has_left_it() {
    let mut house = house_of(2);
    for now in 0..3 {
        adapt(&mut house, 0, 0b1111, 1);
        adapt(&mut house, 1, 0b1111, 1);
        house.settle(now);
    }
    // The first one has little to do, and lends what it does not need, after the spell.
    let mut now = MS;
    while has(&house, 1).len() < 3 {
        let first = 1 << has(&house, 0).0[0].trailing_zeros();
        adapt(&mut house, 0, first, 1);
        adapt(&mut house, 1, 0b1111, 1);
        house.settle(now);
        now += MS;
        assert!(now < 50 * MS, "it is never lent");
    }
    // It wants all again. The other one does not know yet that it has to leave one.
    adapt(&mut house, 1, 0b1111, 1);
    adapt(&mut house, 0, 0b1111, 1);
    house.settle(now);
    assert_eq!([has(&house, 0).len(), has(&house, 1).len()], [1, 2]);
    adapt(&mut house, 1, 0b1111, 1);
    house.settle(now + MS);
    assert_eq!([has(&house, 0).len(), has(&house, 1).len()], [2, 2]);
}

#[test]
fn who_needs_more_than_a_share_or_may_not_run_everywhere_takes_turns() {
    for (least, may) in [(3, 0b1111), (0, 0b1111), (1, 0b0111)] {
        let mut house = house_of(2);
        for now in 0..3 {
            adapt(&mut house, 0, 0b1111, 1);
            let told = house.told(1).unwrap();
            let said = Hints {
                changes: told.changes,
                wants: bits(0b1111),
                uses: bits(0b1111).and(told.has),
                adapts: least,
                may: bits(may),
                ..Hints::default()
            };
            house.hear(1, said);
            house.settle(now);
        }
        let counts = [has(&house, 0).len(), has(&house, 1).len()];
        assert!(
            counts == [0, 4] || counts == [4, 0],
            "{least} {may}: {counts:?}"
        );
    }
}

/// A gang beside two that adapt: each of the three has a third of the machine's time.
#[test]
fn a_gang_and_spaces_that_adapt_have_their_parts_of_the_time() {
    let mut house = house_of(3);
    let (mut now, mut had) = (0, [0; 3]);
    while now < 2_000 * MS {
        let next = house.settle(now).unwrap_or(now + MS).min(now + MS);
        adapt(&mut house, 0, 0b1111, 1);
        adapt(&mut house, 1, 0b1111, 1);
        follow(&mut house, 2, 0b1111);
        for (id, had) in had.iter_mut().enumerate() {
            *had += u64::from(has(&house, id as GangId).len()) * (next - now);
        }
        now = next;
    }
    let all: u64 = had.iter().sum();
    for had in had {
        let percent = had * 100 / all;
        assert!((30..=37).contains(&percent), "{percent} %");
    }
}

/// Shares of 1 and 3, of gangs and of spaces that would adapt: each has its part of the machine's time.
#[test]
fn spaces_have_time_as_their_shares_are() {
    for least in [0, 1] {
        let mut house = house_of(2);
        let (mut now, mut had) = (0, [0; 2]);
        while now < 2_000 * MS {
            let next = house.settle(now).unwrap_or(now + MS).min(now + MS);
            for (id, share) in [(0, 1), (1, 3)] {
                let told = house.told(id).unwrap();
                let said = Hints {
                    changes: told.changes,
                    wants: bits(0b1111),
                    uses: bits(0b1111).and(told.has),
                    adapts: least,
                    share,
                    may: bits(0b1111),
                    ..Hints::default()
                };
                house.hear(id, said);
            }
            for (id, had) in had.iter_mut().enumerate() {
                *had += u64::from(has(&house, id as GangId).len()) * (next - now);
            }
            now = next;
        }
        let percent = had[0] * 100 / (had[0] + had[1]);
        assert!((23..=27).contains(&percent), "{least}: {percent} %");
    }
}

/// Programs as they are on a busy machine: ordinary programs have four fifths of it, so that a program sees late what it is told. Each
/// has its share of the processor time all the same, and gives way within bounds.
#[test]
fn spaces_have_processor_time_as_their_shares_are() {
    for lead in [0, 5 * MS, 10 * MS] {
        on_a_busy_machine(lead);
    }
}

/// See above; programs are warned so long before, and leave if they see it.
fn on_a_busy_machine(lead: u64) {
    const RATE: u64 = 5;
    const LOOK_NS: u64 = 5 * MS;
    let mut house = house_of(2);
    house.set_lead(lead);
    let (mut ran, mut looked, mut seen) = ([1; 2], [0; 2], [0; 2]);
    let mut uses = [Bits::default(); 2];
    for step in 0..20_000 {
        // Nothing idles.
        house.set_idle(Idle(vec![0; 4]));
        for (id, share) in [(0, 1), (1, 3)] {
            let told = house.told(id as GangId).unwrap();
            let computes = u64::from(uses[id].len());
            ran[id] += computes * MS / RATE;
            // Who computes nothing is woken.
            if computes == 0 || ran[id] - looked[id] >= 2 * LOOK_NS {
                looked[id] = ran[id];
                uses[id] = match told.leaves_at_ns > step * MS {
                    true => Bits::default(),
                    false => bits(0b11).and(told.has),
                };
                seen[id] = told.changes;
            }
            let said = Hints {
                changes: seen[id],
                wants: bits(0b11),
                uses: uses[id],
                share,
                ran_ns: ran[id],
                ..Hints::default()
            };
            house.hear(id as GangId, said);
        }
        house.settle(step * MS);
    }
    let percent = ran[0] * 100 / (ran[0] + ran[1]);
    assert!((24..=26).contains(&percent), "{lead}: {percent} %: {ran:?}");
}

/// A user with three programs, and another one with one of them, which adapts: each user has half of the time.
#[test]
fn users_have_the_same_time_whatever_their_programs_are() {
    let mut house = house_of(4);
    let (mut now, mut had) = (0, [0; 4]);
    while now < 4_000 * MS {
        let next = house.settle(now).unwrap_or(now + MS).min(now + MS);
        for id in 0..4 {
            let told = house.told(id).unwrap();
            let said = Hints {
                changes: told.changes,
                wants: bits(0b1111),
                uses: bits(0b1111).and(told.has),
                adapts: u32::from(id == 3),
                may: bits(0b1111),
                user: 1000 + u32::from(id == 3),
                ..Hints::default()
            };
            house.hear(id, said);
        }
        for (id, had) in had.iter_mut().enumerate() {
            *had += u64::from(has(&house, id as GangId).len()) * (next - now);
        }
        now = next;
    }
    let all: u64 = had.iter().sum();
    let percent = had.map(|had| had * 100 / all);
    assert!((47..=53).contains(&percent[3]), "{percent:?}");
    assert!(
        percent[..3].iter().all(|part| (15..=18).contains(part)),
        "{percent:?}"
    );
}

fn in_group(house: &mut House, id: GangId, group: &str) {
    house.set_group(id, Some(group.into()));
}

#[test]
fn who_is_on_has_the_weight_of_both_until_it_has_left() {
    let mut house = house_of(2);
    for id in [0, 1] {
        in_group(&mut house, id, "/");
    }
    follow(&mut house, 0, 0b11);
    house.settle(0);
    assert_eq!(house.weight(0), None, "it is alone");
    follow(&mut house, 1, 0b11);
    house.settle(MS);
    follow(&mut house, 1, 0b11);
    house.settle(MS);
    let weights = |house: &House| [0, 1].map(|id| house.weight(id));
    let (one, two) = (Some(lending::ONE), Some(2 * lending::ONE));
    assert_eq!(weights(&house), [two, one]);
    assert!(house.told(0).unwrap().lends);
    // Its turn is over, and it does not know yet.
    house.settle(20 * MS);
    assert_eq!(weights(&house), [two, one]);
    follow(&mut house, 0, 0b11);
    house.settle(23 * MS);
    assert_eq!(weights(&house), [one, two]);
    // It does not leave within the grace: nobody lends it anything.
    squat(&mut house, 1, 0b11);
    house.settle(43 * MS);
    squat(&mut house, 1, 0b11);
    house.settle(73 * MS);
    assert_eq!(weights(&house), [None, None]);
    house.leave(1);
    house.settle(74 * MS);
    assert_eq!(house.weight(0), None);
}

/// Where weight is lent nobody has a truce, whatever a space asks for; otherwise all have.
#[test]
fn nobody_has_a_truce_where_weight_is_lent() {
    for (group, is_lent) in [("/", true), ("/other", false)] {
        let mut house = house_of(2);
        in_group(&mut house, 0, "/");
        in_group(&mut house, 1, group);
        for now in 0..3 {
            follow(&mut house, 0, 0b11);
            follow(&mut house, 1, 0b11);
            house.settle(now * MS);
        }
        let said = Hints {
            changes: house.told(0).unwrap().changes,
            wants: bits(0b11),
            uses: bits(0b11),
            truce: Truce {
                until_ns: 250 * MS,
                length_ns: 250 * MS,
            },
            ..Hints::default()
        };
        house.hear(0, said);
        house.settle(4 * MS);
        assert_eq!(house.told(0).unwrap().lends, is_lent);
        let waits = !may_run(&house, 1, 0b11);
        assert_eq!(waits, is_lent, "{group}");
    }
}

/// A space that says that it has left, and computes on: by its processor time it is found out, and nobody waits for it any more.
#[test]
fn who_computes_while_it_waits_is_left_to_the_kernel() {
    for (part, is_caught) in [(1, true), (3, true), (5, false)] {
        let mut house = house_of(2);
        let (mut now, mut ran) = (0, 1);
        while now < 1_000 * MS {
            follow(&mut house, 0, 0b11);
            let told = house.told(1).unwrap();
            let said = Hints {
                changes: told.changes,
                wants: bits(0b11),
                uses: bits(0b11).and(told.has),
                ran_ns: ran,
                ..Hints::default()
            };
            house.hear(1, said);
            house.settle(now);
            now += MS;
            ran += match may_run(&house, 1, 0b11) {
                true => 2 * MS,
                false => 2 * MS / part,
            };
        }
        let is_away = matches!(house.doing(1).unwrap().0, Doing::Away(_));
        assert_eq!(is_away, is_caught, "{part}");
        assert_eq!(may_run(&house, 0, 0b11) && is_away, is_caught);
    }
}

/// A space that does not leave, for a second. In the end it does what it is told. Its processor time is this, or grows by this.
fn late(ran_ns: u64, more_ns: u64) -> bool {
    let mut house = house_of(2);
    for step in 0..1_000 {
        let changes = house.told(0).unwrap().changes;
        let said = Hints {
            changes,
            wants: bits(0b11),
            uses: bits(0b11),
            ran_ns: ran_ns + step * more_ns,
            ..Hints::default()
        };
        house.hear(0, said);
        follow(&mut house, 1, 0b11);
        house.settle(step * MS);
    }
    for step in 1_000..1_100 {
        follow(&mut house, 0, 0b11);
        follow(&mut house, 1, 0b11);
        house.settle(step * MS);
    }
    matches!(house.doing(0).unwrap().0, Doing::Away(_))
}

#[test]
fn who_had_no_processor_itself_is_not_away_for_good() {
    assert!(!late(1, 0));
    assert!(late(1, MS));
    assert!(late(0, 0), "nobody knows");
}

/// Two spaces that compute on the same processors, the first of which is on since 0, with warnings so long before.
fn warned_house(lead: u64) -> House {
    let mut house = house_of(2);
    house.set_lead(lead);
    follow(&mut house, 0, 0b11);
    house.settle(0);
    for _ in 0..2 {
        follow(&mut house, 1, 0b11);
        house.settle(0);
    }
    house
}

/// A space that has read what it was told, and has left its processors before it must.
fn leave_early(house: &mut House, id: GangId, wants: u64) {
    let said = Hints {
        changes: house.told(id).unwrap().changes,
        wants: bits(wants),
        ..Hints::default()
    };
    house.hear(id, said);
}

fn leaves_at(house: &House, id: GangId) -> u64 {
    house.told(id).unwrap().leaves_at_ns
}

#[test]
fn who_is_about_to_lose_its_turn_is_warned() {
    let mut house = warned_house(5 * MS);
    assert_eq!(house.settle(MS), Some(15 * MS));
    assert_eq!([0, 1].map(|id| leaves_at(&house, id)), [0, 0]);
    let before = house.told(0).unwrap();
    assert_eq!(house.settle(15 * MS), Some(20 * MS));
    let after = house.told(0).unwrap();
    assert_eq!([0, 1].map(|id| leaves_at(&house, id)), [20 * MS, 0]);
    assert_eq!(
        (after.changes, after.gains, after.has),
        (before.changes + 1, before.gains, before.has),
        "it is not woken, and has its processors still"
    );
    // It does not leave: it is told as without a warning.
    follow(&mut house, 0, 0b11);
    house.settle(20 * MS);
    assert!(!may_run(&house, 0, 0b11) && leaves_at(&house, 0) == 0);
}

#[test]
fn who_leaves_at_the_warning_has_the_rest_of_its_turn_later() {
    let mut house = warned_house(5 * MS);
    house.settle(15 * MS);
    leave_early(&mut house, 0, 0b11);
    assert_eq!(house.settle(17 * MS), Some(32 * MS), "the other's warning");
    assert!(may_run(&house, 1, 0b11) && !may_run(&house, 0, 0b11));
    for now in [17, 32, 37] {
        for id in [0, 1] {
            follow(&mut house, id, 0b11);
        }
        house.settle(now * MS);
    }
    for id in [0, 1] {
        follow(&mut house, id, 0b11);
    }
    assert_eq!(house.settle(37 * MS), Some(55 * MS), "23 ms, and a warning");
    assert!(may_run(&house, 0, 0b11));
}

#[test]
fn nobody_is_warned_for_whom_nobody_waits() {
    let mut house = house_of(2);
    house.set_lead(5 * MS);
    follow(&mut house, 0, 0b11);
    for now in [0, 15, 19] {
        assert_eq!(house.settle(now * MS), None);
        assert_eq!(leaves_at(&house, 0), 0);
    }
    // One that does not compute on the same processors.
    follow(&mut house, 1, 0b1100);
    for now in [19, 34, 38] {
        assert_eq!(house.settle(now * MS), None);
        assert_eq!([0, 1].map(|id| leaves_at(&house, id)), [0, 0]);
    }
}

/// The one that waited does not compute any more: who has left is woken, and goes on.
#[test]
fn a_warning_is_withdrawn_if_nobody_waits_any_more() {
    let mut house = warned_house(5 * MS);
    house.settle(15 * MS);
    let before = house.told(0).unwrap();
    leave_early(&mut house, 0, 0b11);
    follow(&mut house, 1, 0);
    assert_eq!(house.settle(16 * MS), None);
    let after = house.told(0).unwrap();
    assert!(may_run(&house, 0, 0b11) && after.leaves_at_ns == 0);
    assert_eq!(
        (after.changes, after.gains),
        (before.changes + 1, before.gains + 1)
    );
}

#[test]
fn no_warning_is_longer_than_half_of_the_turn_and_without_a_lead_there_is_none() {
    let mut house = warned_house(100 * MS);
    assert_eq!(house.settle(MS), Some(10 * MS));
    house.settle(10 * MS);
    assert_eq!(leaves_at(&house, 0), 20 * MS);
    // The configuration was read again.
    house.set_lead(0);
    house.settle(11 * MS);
    assert_eq!(leaves_at(&house, 0), 0);
    let mut house = warned_house(0);
    assert_eq!(house.settle(MS), Some(20 * MS));
    house.settle(19 * MS);
    assert_eq!(leaves_at(&house, 0), 0);
}

/// One leaves as soon as it is warned, one shortly afterwards, one never: each has its part of the time.
#[test]
fn when_spaces_leave_makes_no_difference_to_what_they_have() {
    for shares in [[1, 1, 1], [1, 2, 3]] {
        let mut house = house_of(3);
        house.set_lead(5 * MS);
        let (mut now, mut had) = (0, [0; 3]);
        while now < 6_000 * MS {
            let next = house.settle(now).unwrap_or(now + MS).min(now + MS);
            for (id, share) in shares.into_iter().enumerate() {
                let told = house.told(id as GangId).unwrap();
                let left = told.leaves_at_ns.saturating_sub(now);
                let leaves = left != 0 && (id == 0 || id == 1 && left <= 3 * MS);
                let uses = match leaves {
                    true => Bits::default(),
                    false => bits(0b11).and(told.has),
                };
                had[id] += u64::from(uses.len()) * (next - now);
                let said = Hints {
                    changes: told.changes,
                    wants: bits(0b11),
                    uses,
                    share,
                    ..Hints::default()
                };
                house.hear(id as GangId, said);
            }
            now = next;
        }
        let (all, of) = (had.iter().sum::<u64>(), shares.iter().sum::<u32>());
        for (had, share) in had.into_iter().zip(shares) {
            let (percent, ideal) = (had * 100 / all, u64::from(share * 100 / of));
            assert!(
                percent.abs_diff(ideal) <= 3,
                "{shares:?}: {percent} of {ideal} %"
            );
        }
    }
}

fn word() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), 0..16u64, any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    /// Whatever the others say, and whenever, a space that does what it is told has its turn in time: with `n` others,
    /// each may be on for a slice and then owe for a grace.
    #[test]
    fn no_word_of_others_keeps_a_space_from_its_turn(
        steps in prop::collection::vec(
            (1..4u64, [word(), word(), word(), word()], any::<u32>(), 1..15 * MS), 1..200,
        ),
        is_busy: bool,
        lead in prop_oneof![Just(0), 1..20 * MS],
    ) {
        let mut house = house_of(4);
        house.set_lead(lead);
        let mut now = MS;
        let mut stopped_since = None;
        // On a busy machine turns are longer.
        let turn = if is_busy { 8 * TERMS.slice_ns } else { TERMS.slice_ns };
        let bound = 4 * (turn + lead + TERMS.grace_ns);
        if is_busy {
            house.set_idle(Idle(vec![0; 256]));
        }
        for (id, [wants, uses, until, length], changes, time) in steps {
            let told = house.told(id).unwrap();
            let said = Hints {
                changes: if changes % 2 == 0 { told.changes } else { changes },
                wants: Bits([wants, 0, wants, 0]),
                uses: Bits([uses; 4]),
                truce: Truce { until_ns: until, length_ns: length },
                adapts: changes % 5,
                share: 1,
                may: Bits([wants | uses; 4]),
                ran_ns: if is_busy { until } else { 0 },
                ..Hints::default()
            };
            house.hear(id, said);
            let end = now + time;
            loop {
                follow(&mut house, 0, 0b11);
                let next = house.settle(now);
                if may_run(&house, 0, 0b11) {
                    stopped_since = None;
                } else {
                    let since = *stopped_since.get_or_insert(now);
                    prop_assert!(now - since <= bound, "waits for {} ms", (now - since) / MS);
                    prop_assert!(next.is_some());
                }
                match next.filter(|&next| next < end) {
                    Some(next) => { prop_assert!(next > now); now = next; }
                    None => break,
                }
            }
            now = end;
        }
    }
}
