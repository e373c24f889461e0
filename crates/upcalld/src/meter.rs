//! What a space has had of its processors in its turn.
//!
//! On a busy machine the time says little: ordinary programs may have had most of it. So what counts is how long the space has
//! *had* its processors: what it has computed, and what they have idled, since nobody else could have them. What others took of them,
//! ordinary programs or the host of a virtual machine, prolongs its turn, up to [`Turn::longest_ns`]. What it has had after its turn is
//! taken off its next one.
//!
//! A space that claims processors and sleeps has had them, therefore. Where the kernel does not say how long they idle, all of the time
//! counts as had. Pure.

use upcall_alloc::Bits;

use crate::commons::numbers;
use crate::shares::Turn;

/// A turn is not prolonged for less than its length divided by this.
const COARSE: u64 = 16;

/// For how long each processor has idled since the machine started, in nanoseconds; nothing: nobody knows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Idle(pub Vec<u64>);

impl Idle {
    /// Of these together; `None`: not known of all.
    fn of(&self, processors: Bits) -> Option<u64> {
        numbers(processors)
            .map(|number| self.0.get(number as usize).copied())
            .sum()
    }
}

/// A turn that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// When the turn began, as the division counts it.
    turn: u64,
    since_ns: u64,
    processors: Bits,
    ran_ns: u64,
    idle_ns: Option<u64>,
    /// By how much the turn is shorter, since the space has had more before.
    paid_ns: u64,
    /// What it had had when it was told to leave.
    had_ns: Option<u64>,
}

/// The state of things: the time, the space's processor time, and the idle time of all processors.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The time, in nanoseconds.
    pub now_ns: u64,
    /// The processor time that the space has had, in nanoseconds; 0: not known.
    pub ran_ns: u64,
    /// For how long processors have idled.
    pub idle: &'a Idle,
}

impl Meter {
    /// The turn that began then, on these processors, is measured from here on, and is so much shorter.
    pub fn new(turn: u64, processors: Bits, at: Reading<'_>, paid_ns: u64) -> Self {
        Meter {
            turn,
            since_ns: at.now_ns,
            processors,
            ran_ns: at.ran_ns,
            idle_ns: at.idle.of(processors),
            paid_ns,
            had_ns: None,
        }
    }

    /// Returns true if this is of the turn that began then.
    pub fn is_of(&self, turn: u64) -> bool {
        self.turn == turn
    }

    /// The space is told to leave.
    pub fn end(&mut self, at: Reading<'_>) {
        self.had_ns = Some(self.had(at));
    }

    /// Returns true if the space was told to leave.
    pub fn has_ended(&self) -> bool {
        self.had_ns.is_some()
    }

    fn elapsed(&self, at: Reading<'_>) -> u64 {
        at.now_ns.saturating_sub(self.since_ns)
    }

    /// For how long the space has had its processors, on the average.
    fn had(&self, at: Reading<'_>) -> u64 {
        let elapsed = self.elapsed(at);
        let (Some(idled), Some(idle)) = (self.idle_ns, at.idle.of(self.processors)) else {
            return elapsed;
        };
        if self.ran_ns == 0 || at.ran_ns == 0 {
            return elapsed;
        }
        let own = at.ran_ns.saturating_sub(self.ran_ns) + idle.saturating_sub(idled);
        elapsed.min(own / u64::from(self.processors.len().max(1)))
    }

    /// How much of a turn of this length it has not had.
    pub fn left(&self, turn: Turn, at: Reading<'_>) -> u64 {
        let due = turn.length_ns.saturating_sub(self.paid_ns);
        due.saturating_sub(self.had(at))
    }

    /// A turn of this length is over by the time. Returns by how much it is to be prolonged, until the space has had that long if
    /// others take as much as until now.
    pub fn missing(&self, turn: Turn, at: Reading<'_>) -> u64 {
        let due = turn.length_ns.saturating_sub(self.paid_ns);
        let (elapsed, had) = (self.elapsed(at), self.had(at));
        let missing = due.saturating_sub(had);
        if missing <= turn.length_ns / COARSE {
            return 0;
        }
        let stretched = u128::from(missing) * u128::from(elapsed) / u128::from(had.max(1));
        let left = turn.longest_ns.saturating_sub(elapsed);
        left.min(u64::try_from(stretched).unwrap_or(u64::MAX))
    }

    /// What the space has had since it was told to leave, beyond its turn, once it has left its processors.
    pub fn beyond(&self, turn: Turn, at: Reading<'_>) -> u64 {
        let due = turn.length_ns.saturating_sub(self.paid_ns);
        self.had(at)
            .saturating_sub(due.max(self.had_ns.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TURN: Turn = Turn {
        length_ns: 20 * MS,
        longest_ns: 80 * MS,
    };
    const BOTH: Bits = Bits([0b11, 0, 0, 0]);

    /// What is missing, and what is beyond, after this time, with so much processor time and idle time of both processors.
    fn after(now: u64, ran: u64, idle: u64, paid: u64) -> (u64, u64) {
        let idle = [Idle(vec![7, 7]), Idle(vec![7 + idle * MS, 7])];
        let at = |now: u64, ran: u64, idle| Reading {
            now_ns: now * MS,
            ran_ns: 1 + ran * MS,
            idle,
        };
        let meter = Meter::new(3, BOTH, at(100, 0, &idle[0]), paid * MS);
        assert!(meter.is_of(3) && !meter.is_of(4));
        let end = at(100 + now, ran, &idle[1]);
        (meter.missing(TURN, end) / MS, meter.beyond(TURN, end) / MS)
    }

    #[test]
    fn who_has_had_its_turn_is_missing_nothing() {
        assert_eq!(after(20, 40, 0, 0), (0, 0));
        assert_eq!(after(20, 38, 0, 0), (0, 0));
        assert_eq!(after(26, 52, 0, 0), (0, 6));
        assert_eq!(after(15, 30, 0, 5), (0, 0));
        assert_eq!(after(19, 38, 0, 5), (0, 4));
    }

    #[test]
    fn what_others_took_prolongs_a_turn_within_bounds() {
        assert_eq!(after(20, 20, 0, 0), (20, 0));
        assert_eq!(after(40, 40, 0, 0), (0, 0));
        assert_eq!(after(20, 4, 0, 0), (60, 0));
        assert_eq!(after(60, 12, 0, 0), (20, 0));
        assert_eq!(after(80, 16, 0, 0), (0, 0));
        assert_eq!(after(20, 0, 0, 0), (60, 0));
        assert_eq!(after(16, 16, 0, 4), (16, 0));
    }

    #[test]
    fn who_sleeps_has_had_its_processors() {
        assert_eq!(after(20, 0, 40, 0), (0, 0));
        assert_eq!(after(20, 10, 30, 0), (0, 0));
        assert_eq!(after(30, 10, 50, 0), (0, 10));
        // Half of it was others'.
        assert_eq!(after(20, 10, 10, 0), (20, 0));
    }

    #[test]
    fn what_nobody_wanted_is_not_paid_for() {
        let idle = Idle(vec![0, 0]);
        let at = |ms: u64| Reading {
            now_ns: ms * MS,
            ran_ns: 1 + 2 * ms * MS,
            idle: &idle,
        };
        let mut meter = Meter::new(0, BOTH, at(0), 0);
        assert!(!meter.has_ended());
        meter.end(at(500));
        assert!(meter.has_ended());
        assert_eq!(meter.beyond(TURN, at(503)), 3 * MS);
        let mut early = Meter::new(0, BOTH, at(0), 0);
        early.end(at(10));
        assert_eq!(early.beyond(TURN, at(15)), 0);
        assert_eq!(early.beyond(TURN, at(22)), 2 * MS);
    }

    #[test]
    fn where_nobody_knows_the_time_counts() {
        let idle = Idle(vec![0]);
        let begin = Reading {
            now_ns: 0,
            ran_ns: 1,
            idle: &idle,
        };
        let end = Reading {
            now_ns: 25 * MS,
            ..begin
        };
        let meter = Meter::new(0, BOTH, begin, 0);
        assert_eq!(
            (meter.missing(TURN, end), meter.beyond(TURN, end)),
            (0, 5 * MS)
        );
        let one = Meter::new(0, Bits([1, 0, 0, 0]), begin, 0);
        assert_ne!(one.missing(TURN, end), 0);
        let unknown = Reading { ran_ns: 0, ..end };
        assert_eq!(one.missing(TURN, unknown), 0);
    }
}
