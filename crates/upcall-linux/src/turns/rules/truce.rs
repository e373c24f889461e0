//! Decides when turns rest, because programs that take none compute on the same processors.
//!
//! Beside such programs, all members that take turns together get the share of the one that is on. In a *truce* no member
//! waits for another, so the kernel divides the processors among all programs, as if there were no turns.
//!
//! 1. A member that is on, while others wait, adds up how long its virtual processors ran and how long they waited for
//!    their processors. At the end of its turn it knows which part of its processor time it *lost*.
//! 2. Waiting for a processor that is idle is no loss to other programs: a control group has used its quota, and the kernel
//!    holds its members back.
//! 3. A member that has lost [`Times::loss`] and [`Times::loss_of_one`] in each of its turns for a while begins a truce. It holds for all members that share processors with it,
//!    directly or through others ([`in_force`]): each publishes the end that it has seen.
//! 4. The truce ends at a time that all of them know. Turns begin anew, and the first one that ends shows if the other
//!    programs are still there. The next truce is then twice as long, up to [`Times::longest_truce`].
//!
//! A program that does not compute all the time gets what it needs from members that take turns, too: it makes no truce.
//!
//! A hostile member can begin a truce at any time, and nothing is worse then than without turns. It cannot prevent one.

use super::{Member, Times};

/// A time in which a member takes no turns. Times in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Truce {
    pub until: u64,
    /// How long it was to be when it began.
    pub length: u64,
}

impl Truce {
    /// Returns true if it is not over. One that ends later than any truce may is nonsense.
    pub(super) fn holds(self, now: u64, times: &Times) -> bool {
        now < self.until && self.until - now <= times.longest_truce
    }

    /// The truce that begins now, where this one was the last.
    pub(in crate::turns) fn next(self, now: u64, times: &Times) -> Truce {
        let since = now.saturating_sub(self.until);
        let last = self.length.clamp(times.first_truce, times.longest_truce);
        let length = if self == Truce::default() || since > times.longest_truce {
            times.first_truce
        } else if since < last {
            (2 * last).min(times.longest_truce)
        } else {
            last
        };
        Truce {
            until: now + length,
            length,
        }
    }
}

/// The truce of `me`: its own, or one of a member with which it shares processors, whichever ends last.
pub(crate) fn in_force(me: &Member, others: &[Member], now: u64, times: &Times) -> Truce {
    others
        .iter()
        .filter(|other| other.id != me.id && !other.busy.and(me.busy).is_empty())
        .map(|other| other.truce)
        .filter(|truce| truce.holds(now, times) && truce.length <= times.longest_truce)
        .fold(me.truce, |last, truce| {
            if truce.until > last.until {
                truce
            } else {
                last
            }
        })
}

/// What the virtual processors of a member had of their processors while it was on, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Account {
    pub ran: u64,
    /// Waited for a processor that was to be its own.
    pub waited: u64,
}

/// What an account says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Judgement {
    /// Too little time has passed.
    Open,
    /// The processors were its own.
    Alone,
    /// It waited for them so much of the time, in thousandths.
    Lost(u64),
}

impl Account {
    pub(crate) fn add(&mut self, other: Account) {
        self.ran = self.ran.saturating_add(other.ran);
        self.waited = self.waited.saturating_add(other.waited);
    }

    /// The same without the time in which the processors were idle: nobody took that.
    pub(crate) fn without(mut self, idle: u64) -> Account {
        self.waited = self.waited.saturating_sub(idle);
        self
    }

    /// Judges at the end of a turn on so many processors.
    pub(crate) fn judge(&self, nr_processors: u64, times: &Times) -> Judgement {
        let wanted = self.ran.saturating_add(self.waited);
        if wanted < times.turn / 2 {
            return Judgement::Open;
        }
        let lost = self.waited.saturating_mul(1000) / wanted;
        if lost >= times.loss && lost * nr_processors >= times.loss_of_one {
            Judgement::Lost(lost)
        } else {
            Judgement::Alone
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Phase, Set, TIMES};
    use super::*;

    const MS: u64 = 1_000_000;

    fn account(ran: u64, waited: u64) -> Account {
        Account {
            ran: ran * MS,
            waited: waited * MS,
        }
    }

    fn member(id: u32, processors: u64, until: u64) -> Member {
        Member {
            id,
            busy: Set([processors, 0, 0, 0]),
            phase: Phase::Resting,
            beat: 0,
            truce: Truce {
                until,
                length: TIMES.first_truce,
            },
        }
    }

    #[test]
    fn half_a_processor_lost_is_a_loss_and_a_moment_is_none() {
        assert_eq!(account(30, 10).judge(2, &TIMES), Judgement::Lost(250));
        assert_eq!(account(40, 1).judge(2, &TIMES), Judgement::Alone);
        assert_eq!(account(3, 3).judge(2, &TIMES), Judgement::Open);
        assert_eq!(account(0, 0).judge(2, &TIMES), Judgement::Open);
    }

    /// Here it takes a fifth of one processor, or of sixteen.
    #[test]
    fn a_program_that_computes_now_and_then_takes_what_it_needs_and_makes_no_truce() {
        assert_eq!(account(36, 4).judge(2, &TIMES), Judgement::Alone);
        assert_eq!(account(256, 64).judge(16, &TIMES), Judgement::Lost(200));
    }

    /// Members of as many virtual processors as there are processors, beside programs of one thread each.
    #[test]
    fn what_is_not_called_a_loss_costs_hardly_more_than_a_twentieth() {
        for (nr_processors, members, natives) in
            (1..130u32).flat_map(|n| (2..9u32).flat_map(move |k| (1..5u32).map(move |m| (n, k, m))))
        {
            if natives > nr_processors {
                continue;
            }
            let part = f64::from(natives) / f64::from(nr_processors);
            // Half of each of their processors, and with all members at once less.
            let in_turns = 1.0 - part / 2.0;
            let at_once = 1.0 - part / f64::from(members + 1);
            let account = Account {
                ran: (in_turns * 1e9) as u64,
                waited: ((1.0 - in_turns) * 1e9) as u64,
            };
            if account.judge(nr_processors.into(), &TIMES) == Judgement::Alone {
                assert!(
                    in_turns / at_once > 0.95,
                    "{nr_processors} {members} {natives}"
                );
            }
        }
    }

    #[test]
    fn a_quota_is_no_competition() {
        // Held back in a turn of two processors, which idle meanwhile.
        let held_back = account(40, 50).without(50 * MS);
        assert_eq!(held_back.judge(2, &TIMES), Judgement::Alone);
        // Both.
        let both = account(30, 70).without(50 * MS);
        assert_eq!(both.judge(2, &TIMES), Judgement::Lost(400));
    }

    #[test]
    fn truces_grow_while_the_others_stay_and_shrink_when_they_were_gone() {
        let first = Truce::default().next(MS, &TIMES);
        assert_eq!(first.length, TIMES.first_truce);
        let mut truce = first;
        for _ in 0..20 {
            let next = truce.next(truce.until + 40 * MS, &TIMES);
            assert_eq!(next.length, (2 * truce.length).min(TIMES.longest_truce));
            assert!(next.holds(next.until - 1, &TIMES) && !next.holds(next.until, &TIMES));
            truce = next;
        }
        assert_eq!(truce.length, TIMES.longest_truce);
        let later = truce.until + TIMES.longest_truce + 1;
        assert_eq!(truce.next(later, &TIMES).length, TIMES.first_truce);
        let later = first.until + first.length;
        assert_eq!(first.next(later, &TIMES).length, first.length);
    }

    #[test]
    fn a_truce_spreads_to_those_that_share_processors_and_no_further() {
        let now = 5 * MS;
        let crowded = member(0, 0b0011, 50 * MS);
        let beside = member(1, 0b0110, 0);
        let elsewhere = member(2, 0b1000, 0);
        assert_eq!(in_force(&beside, &[crowded], now, &TIMES), crowded.truce);
        assert_eq!(
            in_force(&elsewhere, &[crowded, beside], now, &TIMES),
            elsewhere.truce
        );
        // Through the one between.
        let beside = Member {
            truce: crowded.truce,
            ..beside
        };
        let last = member(3, 0b0100, 0);
        assert_eq!(
            in_force(&last, &[crowded, beside], now, &TIMES),
            crowded.truce
        );
    }

    #[test]
    fn a_truce_that_never_ends_is_none() {
        let hostile = member(0, 1, u64::MAX);
        let me = member(1, 1, 0);
        assert_eq!(in_force(&me, &[hostile], MS, &TIMES), me.truce);
        let hostile = Member {
            truce: Truce {
                until: 2 * MS,
                length: u64::MAX,
            },
            ..hostile
        };
        assert_eq!(in_force(&me, &[hostile], MS, &TIMES), me.truce);
    }
}
