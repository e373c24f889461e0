//! The rules one by one, and properties over random histories of many members.

use super::*;

const MS: u64 = 1_000_000;

fn set(processors: &[u32]) -> Set {
    let mut set = Set::default();
    for &processor in processors {
        let (word, bit) = Set::place(processor);
        set.0[word] |= bit;
    }
    set
}

fn member(id: u32, processors: &[u32], phase: Phase, beat: u64) -> Member {
    Member {
        id,
        busy: set(processors),
        phase,
        beat,
        truce: Truce::default(),
    }
}

fn on(since: u64) -> Phase {
    Phase::On { since }
}

fn waiting(since: u64) -> Phase {
    Phase::Waiting { since, offered: 0 }
}

fn says(me: &Member, others: &[Member], now: u64) -> Verdict {
    decide(me, others, now, &TIMES)
}

#[test]
fn who_is_alone_goes_on_and_stays_on() {
    let me = member(0, &[0, 1], Phase::Resting, 0);
    let verdict = says(&me, &[], 5 * MS);
    assert_eq!(verdict.phase, on(5 * MS));
    let me = member(0, &[0, 1], on(5 * MS), 0);
    let verdict = says(&me, &[], 5000 * MS);
    assert_eq!(verdict.phase, on(5 * MS));
    assert!(verdict.off.is_empty() && !verdict.wanted);
}

#[test]
fn the_second_waits_and_leaves_only_the_common_processors_alone() {
    let first = member(0, &[0, 1], on(MS), 9 * MS);
    let second = member(1, &[1, 2], Phase::Resting, 10 * MS);
    let verdict = says(&second, &[first], 10 * MS);
    assert_eq!(verdict.phase, waiting(10 * MS));
    assert_eq!(verdict.holders, 1);
    assert!(verdict.off.and(second.busy) == set(&[1]));
}

#[test]
fn one_processor_each_is_the_kernels_business() {
    let first = member(0, &[1], on(MS), 9 * MS);
    let second = member(1, &[1], Phase::Resting, 10 * MS);
    assert_eq!(says(&second, &[first], 10 * MS).phase, on(10 * MS));
    let elsewhere = member(1, &[2, 3], Phase::Resting, 10 * MS);
    assert_eq!(says(&elsewhere, &[first], 10 * MS).phase, on(10 * MS));
}

#[test]
fn a_turn_ends_after_its_time_and_only_if_somebody_waits() {
    let others = [member(1, &[0, 1], waiting(2 * MS), 0)];
    let me = member(0, &[0, 1], on(MS), 20 * MS);
    let early = says(&me, &others, 20 * MS);
    assert_eq!((early.phase, early.offers), (me.phase, 0));
    assert!(early.wanted);
    let late = says(&me, &others, 21 * MS);
    assert_eq!((late.phase, late.offers), (waiting(21 * MS), 2));
    assert_eq!(late.off, me.busy);
}

#[test]
fn who_has_nothing_to_do_gives_its_turn_away_at_once() {
    let me = member(0, &[], on(MS), 2 * MS);
    let verdict = says(&me, &[member(1, &[0, 1], waiting(MS), 0)], 2 * MS);
    assert_eq!((verdict.phase, verdict.offers), (Phase::Resting, 2));
}

#[test]
fn the_longest_waiting_is_first_and_those_beside_it_go_with_it() {
    let others = [
        member(1, &[0, 1], waiting(4 * MS), 0),
        member(2, &[0, 1], waiting(3 * MS), 0),
        member(3, &[2, 3], waiting(5 * MS), 0),
    ];
    let me = member(0, &[0, 1, 2, 3], on(MS), 30 * MS);
    assert_eq!(says(&me, &others, 30 * MS).offers, 0b1100);
}

#[test]
fn two_beside_each_other_leave_together_for_one_that_needs_both() {
    let wide = member(0, &[0, 1], waiting(2 * MS), 0);
    let left = member(1, &[0], on(MS), 25 * MS);
    let right = member(2, &[1], on(3 * MS), 25 * MS);
    let now = 22 * MS;
    assert_eq!(says(&left, &[wide, right], now).phase, left.phase);
    let now = 25 * MS;
    let verdict = says(&left, &[wide, right], now);
    assert_eq!((verdict.phase, verdict.offers), (waiting(now), 0));
    assert!(verdict.off.is_empty(), "nobody uses its processor yet");
    let left = member(1, &[0], verdict.phase, now);
    let verdict = says(&right, &[wide, left], now);
    assert_eq!((verdict.phase, verdict.offers), (waiting(now), 1));
}

#[test]
fn two_that_are_on_agree_who_stays() {
    let a = member(0, &[0, 1], on(MS), 3 * MS);
    let b = member(1, &[0, 1], on(2 * MS), 3 * MS);
    assert_eq!(says(&a, &[b], 3 * MS).phase, waiting(3 * MS));
    assert_eq!(says(&b, &[a], 3 * MS).phase, b.phase);
}

#[test]
fn silent_holders_and_those_who_take_no_offer_are_disregarded() {
    let me = member(0, &[0, 1], waiting(MS), 0);
    let holder = member(1, &[0, 1], on(MS), MS);
    let now = MS + TIMES.stale;
    assert_eq!(says(&me, &[holder], now - 1).phase, me.phase);
    assert_eq!(says(&me, &[holder], now).phase, on(now));
    let refuses = member(
        1,
        &[0, 1],
        Phase::Waiting {
            since: 0,
            offered: 2 * MS,
        },
        0,
    );
    let now = 2 * MS + TIMES.grace;
    assert_eq!(says(&me, &[refuses], now - 1).phase, me.phase);
    assert_eq!(says(&me, &[refuses], now).phase, on(now));
}

#[test]
fn nobody_waits_longer_than_the_longest_time_whatever_others_publish() {
    let me = member(0, &[0, 1], waiting(MS), 0);
    let now = MS + TIMES.longest;
    let hostile = member(1, &[0, 1], on(u64::MAX), u64::MAX);
    assert_eq!(says(&me, &[hostile], now - 1).phase, me.phase);
    let verdict = says(&me, &[hostile], now);
    assert_eq!((verdict.phase, verdict.gives_up), (Phase::Resting, true));
    assert!(verdict.off.is_empty());
}

#[test]
fn processors_beyond_the_set_fold_into_it() {
    assert_eq!(Set::place(3), Set::place(3 + Set::BITS));
    assert_eq!(set(&[0, 63, 64, 255]).len(), 4);
}

/// xorshift: the histories below replay from their seeds.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Members that decide in random order, each at least every `tick`, on the newest words of all.
struct Play {
    members: Vec<Member>,
    now: u64,
    gave_up: u32,
}

impl Play {
    fn step(&mut self, at: usize) {
        self.members[at].beat = self.now;
        let me = self.members[at];
        let verdict = decide(&me, &self.members, self.now, &TIMES);
        self.members[at].phase = verdict.phase;
        self.gave_up += u32::from(verdict.gives_up);
        assert_eq!(verdict.offers & (1 << me.id), 0);
        for other in &mut self.members {
            if verdict.offers & (1 << other.id) != 0
                && let Phase::Waiting { offered, .. } = &mut other.phase
                && *offered == 0
            {
                *offered = self.now;
            }
        }
    }

    fn is_on(&self, at: usize) -> bool {
        matches!(self.members[at].phase, Phase::On { .. })
    }

    fn pairs_of_rivals_on(&self) -> usize {
        let on: Vec<&Member> = (0..self.members.len())
            .filter(|&at| self.is_on(at))
            .map(|at| &self.members[at])
            .collect();
        on.iter()
            .map(|a| {
                on.iter()
                    .filter(|b| a.competes(b, self.now, &TIMES))
                    .count()
            })
            .sum()
    }
}

#[test]
fn random_histories_keep_rivals_apart_and_serve_everybody() {
    for seed in 1..=200u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let nr_processors = 1 + random.below(6) as u32;
        let members: Vec<Member> = (0..2 + random.below(6) as u32)
            .map(|id| {
                let busy: Vec<u32> = (0..nr_processors)
                    .filter(|_| random.below(3) != 0)
                    .collect();
                member(id, &busy, Phase::Resting, 0)
            })
            .collect();
        let nr_members = members.len();
        let mut play = Play {
            members,
            now: MS,
            gave_up: 0,
        };
        let mut last_on = vec![MS; nr_members];
        for _ in 0..600 {
            // Every member decides within each step of 4 ms, in random order.
            let first = random.below(nr_members as u64) as usize;
            for turn in 0..nr_members {
                play.now += random.below(4 * MS / nr_members as u64);
                play.step((first + turn) % nr_members);
                assert_eq!(
                    play.pairs_of_rivals_on(),
                    0,
                    "seed {seed}: {:?}",
                    play.members
                );
            }
            for (at, last) in last_on.iter_mut().enumerate() {
                if play.is_on(at) || play.members[at].busy.is_empty() {
                    *last = play.now;
                }
                // Everybody once before, twice over, and each one's late end.
                let bound = 2 * nr_members as u64 * (TIMES.turn + 8 * MS);
                assert!(
                    play.now - *last <= bound,
                    "seed {seed}: {at} starves: {:?}",
                    play.members
                );
            }
        }
        assert_eq!(play.gave_up, 0, "seed {seed}");
    }
}

#[test]
fn members_that_crossed_are_apart_after_one_round() {
    for seed in 1..=200u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let now = 100 * MS;
        let members: Vec<Member> = (0..6)
            .map(|id| {
                let phase = match random.below(3) {
                    0 => Phase::Resting,
                    1 => on(now - random.below(50 * MS)),
                    _ => waiting(now - random.below(50 * MS)),
                };
                let busy: Vec<u32> = (0..4).filter(|_| random.below(2) != 0).collect();
                member(id, &busy, phase, now)
            })
            .collect();
        let mut play = Play {
            members,
            now,
            gave_up: 0,
        };
        for _ in 0..2 {
            for at in 0..6 {
                play.now += MS;
                play.step(at);
            }
        }
        assert_eq!(
            play.pairs_of_rivals_on(),
            0,
            "seed {seed}: {:?}",
            play.members
        );
    }
}

/// As many members as this on the same two processors, one of which has made a truce until then.
fn play_with_truce(nr_members: u32, until: u64) -> Play {
    let mut members: Vec<Member> = (0..nr_members)
        .map(|id| member(id, &[0, 1], waiting(MS), MS))
        .collect();
    members[0].phase = on(MS);
    members[0].truce = Truce {
        until,
        length: TIMES.first_truce,
    };
    Play {
        members,
        now: 2 * MS,
        gave_up: 0,
    }
}

impl Play {
    /// All decide, one after the other, on what is in force.
    fn round(&mut self) {
        for at in 0..self.members.len() {
            self.now += MS;
            let agreed = truce::in_force(&self.members[at], &self.members, self.now, &TIMES);
            self.members[at].truce = agreed;
            self.step(at);
        }
    }
}

#[test]
fn programs_beside_native_ones_have_the_share_of_all_and_not_of_one() {
    let mut play = play_with_truce(8, 200 * MS);
    play.round();
    for at in 0..8 {
        assert!(play.is_on(at), "{at} waits in a truce");
        let verdict = says(&play.members[at], &play.members, play.now);
        assert!(verdict.off.is_empty() && !verdict.wanted);
    }
    // All are on at once, so no processor tells what programs without turns take.
    let verdict = says(&play.members[0], &play.members, play.now);
    assert_eq!(verdict.shared, set(&[0, 1]));
}

#[test]
fn turns_begin_anew_when_the_truce_is_over() {
    let mut play = play_with_truce(8, 200 * MS);
    play.round();
    play.now = 201 * MS;
    play.round();
    let mut served = [false; 8];
    for _ in 0..60 {
        play.round();
        assert_eq!(play.pairs_of_rivals_on(), 0, "{:?}", play.members);
        for (at, served) in served.iter_mut().enumerate() {
            *served |= play.is_on(at);
        }
    }
    assert_eq!(served, [true; 8]);
}

#[test]
fn a_truce_between_others_is_not_ours() {
    let mut play = play_with_truce(2, 200 * MS);
    for id in 2..4 {
        play.members.push(member(id, &[4, 5], waiting(MS), MS));
    }
    play.round();
    play.round();
    assert!(play.is_on(0) && play.is_on(1));
    assert_eq!(play.pairs_of_rivals_on(), 0);
    assert!(!(play.is_on(2) && play.is_on(3)), "they take turns");
}
