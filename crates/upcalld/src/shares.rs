//! How long the turns of spaces are: fair between users first, then by shares among the programs of one.
//!
//! 1. The turns of a user's spaces add up to the same for each user that has spaces which want something. Among them a user
//!    divides by shares.
//! 2. The spaces of the user with the greatest sum of shares have a slice for each share. So those of one user alone do.
//! 3. A round, in which each space has its turn, lasts for [`MOST_SLICES`] at most: no longer than a program waits before it takes
//!    the daemon for dead. Beyond that all turns shrink in proportion, down to a part of a slice ([`LEAST_PART`]).
//!
//! 4. A turn that ordinary programs take a part of may become longer, up to [`STRETCH`] times, as far as the round allows (`meter`).
//!
//! Users and spaces that want different processors are counted together. Pure.

use std::collections::BTreeMap;

/// The slices of a round, at most.
const MOST_SLICES: u64 = 80;
/// No turn is shorter than a slice divided by this: programs look at what they are told once in that time.
const LEAST_PART: u64 = 4;
/// How many times as long a turn becomes, at most.
const STRETCH: u64 = 8;

/// What a space claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Whose it is.
    pub user: u32,
    /// Its share; 0 counts as 1.
    pub share: u32,
    /// It wants processors.
    pub is_on: bool,
}

/// How long a space's turn is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn {
    /// In which it has its processors for itself, in nanoseconds.
    pub length_ns: u64,
    /// With what others take of them meanwhile, in nanoseconds.
    pub longest_ns: u64,
}

/// The turns of spaces that claim this.
pub fn turns(claims: &[Claim], slice_ns: u64) -> Vec<Turn> {
    let lengths = lengths(claims, slice_ns);
    let round = round(claims, &lengths).max(1);
    let longest = longest_round(slice_ns);
    let stretched = |length_ns: u64| {
        let bounded = (u128::from(length_ns) * longest / round) as u64;
        bounded.clamp(length_ns, length_ns.saturating_mul(STRETCH))
    };
    let turn = |&length_ns: &u64| Turn {
        length_ns,
        longest_ns: stretched(length_ns),
    };
    lengths.iter().map(turn).collect()
}

fn longest_round(slice_ns: u64) -> u128 {
    u128::from(slice_ns) * u128::from(MOST_SLICES)
}

/// How long all of those take that are on.
fn round(claims: &[Claim], turns: &[u64]) -> u128 {
    let on = turns.iter().zip(claims).filter(|(_, claim)| claim.is_on);
    on.map(|(&turn, _)| u128::from(turn)).sum()
}

fn lengths(claims: &[Claim], slice_ns: u64) -> Vec<u64> {
    let share = |claim: &Claim| u64::from(claim.share.max(1));
    let mut users: BTreeMap<u32, u64> = BTreeMap::new();
    for claim in claims.iter().filter(|claim| claim.is_on) {
        *users.entry(claim.user).or_default() += share(claim);
    }
    let most = users.values().copied().max().unwrap_or(0);
    let turn = |claim: &Claim| {
        let of_user = users.get(&claim.user).filter(|_| claim.is_on);
        of_user.map_or(slice_ns, |sum| {
            let parts = u128::from(slice_ns) * u128::from(share(claim)) * u128::from(most);
            u64::try_from(parts / u128::from(*sum)).unwrap_or(u64::MAX)
        })
    };
    let turns: Vec<u64> = claims.iter().map(turn).collect();
    let (round, longest) = (round(claims, &turns), longest_round(slice_ns));
    if round <= longest {
        return turns;
    }
    let shrunk = |turn: u64| (u128::from(turn) * longest / round) as u64;
    turns
        .into_iter()
        .map(|turn| shrunk(turn).max(slice_ns / LEAST_PART))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 20_000;

    fn of(claims: &[(u32, u32)]) -> Vec<u64> {
        let claims: Vec<Claim> = claims
            .iter()
            .map(|&(user, share)| Claim {
                user,
                share,
                is_on: true,
            })
            .collect();
        lengths(&claims, SLICE)
    }

    #[test]
    fn one_users_turns_are_its_shares() {
        assert_eq!(of(&[(7, 1), (7, 3), (7, 0)]), [SLICE, 3 * SLICE, SLICE]);
        assert_eq!(of(&[]), [0; 0]);
    }

    #[test]
    fn users_have_the_same_whatever_their_programs_are() {
        let turns = of(&[(1, 1), (1, 1), (1, 1), (2, 1)]);
        assert_eq!(turns, [SLICE, SLICE, SLICE, 3 * SLICE]);
        let turns = of(&[(1, 1), (1, 2), (2, 10), (3, 4)]);
        let sums = [turns[0] + turns[1], turns[2], turns[3]];
        assert!(
            sums.iter().all(|sum| sum.abs_diff(10 * SLICE) <= 1),
            "{sums:?}"
        );
    }

    #[test]
    fn who_wants_nothing_counts_for_nothing() {
        let claim = |user, is_on| Claim {
            user,
            share: 9,
            is_on,
        };
        let turns = lengths(&[claim(1, true), claim(1, false), claim(2, true)], SLICE);
        assert_eq!(turns, [9 * SLICE, SLICE, 9 * SLICE]);
    }

    #[test]
    fn turns_become_longer_as_far_as_the_round_allows() {
        let longest = |count: usize| {
            let claim = Claim {
                user: 1,
                share: 1,
                is_on: true,
            };
            turns(&vec![claim; count], SLICE)[0].longest_ns
        };
        assert_eq!(longest(2), 8 * SLICE);
        assert_eq!(longest(40), 2 * SLICE);
        assert_eq!(longest(80), SLICE);
        assert_eq!(longest(1000), SLICE / 4);
    }

    #[test]
    fn a_round_stays_short_and_fair() {
        let many: Vec<(u32, u32)> = (0..64).map(|_| (1, 10)).chain([(2, 1)]).collect();
        let turns = of(&many);
        let (of_one, of_other): (u64, u64) = (turns[..64].iter().sum(), turns[64]);
        assert!(of_one + of_other <= 80 * SLICE);
        assert!(
            of_one.abs_diff(of_other) * 100 <= of_other,
            "{of_one} {of_other}"
        );
        assert_eq!(of(&[(1, u32::MAX); 3])[0], 80 * SLICE / 3);
        let least = of(&[(1, 1); 1000]);
        assert!(least.iter().all(|&turn| turn == SLICE / 4));
    }
}
