//! What must hold, and whether it does.
//!
//! A bound in microseconds was written down on one machine. On another machine it is worth what it was worth against
//! that machine's native threads, so such a bound carries the ratio too and holds if either does. A bound that is a
//! ratio already holds only as a ratio, and one on the runtime `crate` only as it is: its operations do not enter the
//! kernel, which native ones do.

use crate::args::RuntimeName;
use crate::stats::Summary;

/// Which figure a bound is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The best of all samples: for costs, which noise can only raise.
    Min,
    /// The middle of all samples: for latencies.
    Median,
    /// The worst of all samples: for what must never happen.
    Max,
}

/// How far the figure may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// At most this, in the workload's unit.
    AtMost(f64),
    /// At least this, in the workload's unit.
    AtLeast(f64),
    /// At most this many times the native figure.
    TimesNptl(f64),
    /// At least this part of the native figure.
    PartOfNptl(f64),
    /// At most this many times the figure of each of these peers that has one in the same run.
    TimesPeers(f64, &'static [RuntimeName]),
    /// At least this many times the figure of each of these peers that has one in the same run.
    AtLeastPeers(f64, &'static [RuntimeName]),
    /// At most `absolute`, or else at most `times` the native figure.
    AtMostOrTimes { absolute: f64, times: f64 },
    /// At most one time slice of our runtime; the unit is nanoseconds.
    OneSlice,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    pub runtime: RuntimeName,
    /// The figure.
    pub statistic: Statistic,
    pub limit: Limit,
}

/// The answer to whether a bound holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Holds,
    /// It does not.
    Broken,
    /// There is no figure to compare with.
    Unknown,
}

impl Bound {
    /// A bound on the minimum.
    pub const fn min(limit: Limit) -> Self {
        Self {
            runtime: RuntimeName::Upcall,
            statistic: Statistic::Min,
            limit,
        }
    }

    pub const fn median(limit: Limit) -> Self {
        Self {
            runtime: RuntimeName::Upcall,
            statistic: Statistic::Median,
            limit,
        }
    }

    /// A bound on the maximum.
    pub const fn max(limit: Limit) -> Self {
        Self {
            runtime: RuntimeName::Upcall,
            statistic: Statistic::Max,
            limit,
        }
    }

    /// The same bound on the runtime `crate`.
    pub const fn of_crate(self) -> Self {
        Self {
            runtime: RuntimeName::Crate,
            ..self
        }
    }

    fn pick(&self, figures: &Summary) -> f64 {
        match self.statistic {
            Statistic::Min => figures.min,
            Statistic::Median => figures.median,
            Statistic::Max => figures.max,
        }
    }

    /// Judges `ours` beside the figures `of` others; `slice_ns` is the time slice of our runtime.
    pub fn judge(
        &self,
        ours: &Summary,
        of: impl Fn(RuntimeName) -> Option<Summary>,
        slice_ns: f64,
    ) -> Verdict {
        let figure = self.pick(ours);
        let native = of(RuntimeName::Nptl);
        let within = |times: f64| native.map(|native| figure <= times * self.pick(&native));
        let holds = match self.limit {
            Limit::AtMost(limit) => Some(figure <= limit),
            Limit::AtLeast(limit) => Some(figure >= limit),
            Limit::OneSlice => Some(figure <= slice_ns),
            Limit::TimesNptl(times) => within(times),
            Limit::PartOfNptl(part) => native.map(|native| figure >= part * self.pick(&native)),
            Limit::TimesPeers(times, peers) => {
                all_of(peers, &|peer| Some(figure <= times * self.pick(&of(peer)?)))
            }
            Limit::AtLeastPeers(times, peers) => {
                all_of(peers, &|peer| Some(figure >= times * self.pick(&of(peer)?)))
            }
            Limit::AtMostOrTimes { absolute, .. } if figure <= absolute => Some(true),
            Limit::AtMostOrTimes { times, .. } => within(times),
        };
        match holds {
            Some(true) => Verdict::Holds,
            Some(false) => Verdict::Broken,
            None => Verdict::Unknown,
        }
    }

    /// The bound in words; `unit` is the workload's.
    pub fn describe(&self, unit: &str) -> String {
        let which = match self.statistic {
            Statistic::Min => "min",
            Statistic::Median => "median",
            Statistic::Max => "max",
        };
        let value = |value: f64| crate::stats::quantity(value, unit);
        match self.limit {
            Limit::AtMost(limit) => format!("{which} ≤ {}", value(limit)),
            Limit::AtLeast(limit) => format!("{which} ≥ {}", value(limit)),
            Limit::TimesNptl(times) => format!("{which} ≤ {times} × nptl"),
            Limit::PartOfNptl(part) => format!("{which} ≥ {part} × nptl"),
            Limit::TimesPeers(times, peers) => format!("{which} ≤ {}", each(times, peers)),
            Limit::AtLeastPeers(times, peers) => format!("{which} ≥ {}", each(times, peers)),
            Limit::OneSlice => format!("{which} ≤ one time slice"),
            Limit::AtMostOrTimes { absolute, times } => {
                format!("{which} ≤ {} or {times:.2} × nptl", value(absolute))
            }
        }
    }
}

/// Returns true if it holds for each of `peers` that has a figure; `None`: none has.
fn all_of(peers: &[RuntimeName], holds: &dyn Fn(RuntimeName) -> Option<bool>) -> Option<bool> {
    let verdicts = peers.iter().filter_map(|peer| holds(*peer));
    verdicts.reduce(|one, other| one && other)
}

/// So many times the figure of each of `peers`, in words.
fn each(times: f64, peers: &[RuntimeName]) -> String {
    let names: Vec<_> = peers.iter().map(|peer| peer.as_str()).collect();
    let names = names.join(", ");
    match times {
        1.0 => names,
        times => format!("{times} × {names}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: f64 = 5e6;

    fn judge(bound: Bound, ours: &[f64], native: &[f64]) -> Verdict {
        let native = Summary::of(native);
        let of = |name| native.filter(|_| name == RuntimeName::Nptl);
        bound.judge(&Summary::of(ours).unwrap(), of, SLICE)
    }

    #[test]
    fn a_ratio_needs_the_native_figure() {
        let bound = Bound::median(Limit::TimesNptl(1.5));
        assert_eq!(judge(bound, &[3.0], &[2.0]), Verdict::Holds);
        assert_eq!(judge(bound, &[3.1], &[2.0]), Verdict::Broken);
        assert_eq!(judge(bound, &[3.0], &[]), Verdict::Unknown);
    }

    #[test]
    fn a_part_needs_the_native_figure() {
        let bound = Bound::median(Limit::PartOfNptl(0.95));
        assert_eq!(judge(bound, &[1.9], &[2.0]), Verdict::Holds);
        assert_eq!(judge(bound, &[1.8], &[2.0]), Verdict::Broken);
        assert_eq!(judge(bound, &[1.9], &[]), Verdict::Unknown);
    }

    const PEERS: [RuntimeName; 2] = [RuntimeName::Go, RuntimeName::Tokio];

    fn judge_beside(limit: Limit, ours: f64, peers: [Option<f64>; 2]) -> Verdict {
        let of = |name| {
            let index = PEERS.iter().position(|peer| *peer == name)?;
            Summary::of(&[peers[index]?])
        };
        let bound = Bound::median(limit).of_crate();
        bound.judge(&Summary::of(&[ours]).unwrap(), of, SLICE)
    }

    #[test]
    fn every_peer_that_is_there_must_be_reached() {
        let judge = |ours, peers| judge_beside(Limit::AtLeastPeers(1.0, &PEERS), ours, peers);
        assert_eq!(judge(5.0, [Some(5.0), Some(4.0)]), Verdict::Holds);
        assert_eq!(judge(4.5, [Some(5.0), Some(4.0)]), Verdict::Broken);
        assert_eq!(judge(4.5, [None, Some(4.0)]), Verdict::Holds);
        assert_eq!(judge(4.5, [None, None]), Verdict::Unknown);
        let judge = |ours, peers| judge_beside(Limit::AtLeastPeers(1.5, &PEERS), ours, peers);
        assert_eq!(judge(6.0, [Some(3.0), Some(4.0)]), Verdict::Holds);
        assert_eq!(judge(5.9, [Some(3.0), Some(4.0)]), Verdict::Broken);
    }

    #[test]
    fn a_cost_is_held_against_every_peer_that_is_there() {
        let judge = |ours, peers| judge_beside(Limit::TimesPeers(1.0, &PEERS), ours, peers);
        assert_eq!(judge(4.0, [Some(5.0), Some(4.0)]), Verdict::Holds);
        assert_eq!(judge(4.5, [Some(5.0), Some(4.0)]), Verdict::Broken);
        assert_eq!(judge(4.5, [Some(5.0), None]), Verdict::Holds);
        assert_eq!(judge(4.5, [None, None]), Verdict::Unknown);
        let judge = |ours, peers| judge_beside(Limit::TimesPeers(0.5, &PEERS), ours, peers);
        assert_eq!(judge(2.0, [Some(5.0), Some(4.0)]), Verdict::Holds);
        assert_eq!(judge(2.1, [Some(5.0), Some(4.0)]), Verdict::Broken);
    }

    #[test]
    fn a_bound_against_peers_names_them() {
        let texts = [
            (Limit::TimesPeers(1.0, &PEERS), "min ≤ go, tokio"),
            (Limit::AtLeastPeers(1.1, &PEERS), "min ≥ 1.1 × go, tokio"),
        ];
        for (limit, text) in texts {
            assert_eq!(Bound::min(limit).describe("ns"), text);
        }
    }

    #[test]
    fn an_absolute_bound_holds_by_ratio_on_a_slower_machine() {
        let bound = Bound::min(Limit::AtMostOrTimes {
            absolute: 100.0,
            times: 0.5,
        });
        assert_eq!(judge(bound, &[99.0], &[]), Verdict::Holds);
        assert_eq!(judge(bound, &[150.0], &[300.0]), Verdict::Holds);
        assert_eq!(judge(bound, &[151.0], &[300.0]), Verdict::Broken);
        assert_eq!(judge(bound, &[150.0], &[]), Verdict::Unknown);
    }

    #[test]
    fn each_statistic_is_its_own() {
        let samples = [1.0, 2.0, 9.0];
        assert_eq!(
            judge(Bound::min(Limit::AtMost(1.0)), &samples, &[]),
            Verdict::Holds
        );
        assert_eq!(
            judge(Bound::median(Limit::AtMost(1.0)), &samples, &[]),
            Verdict::Broken
        );
        assert_eq!(
            judge(Bound::max(Limit::AtMost(8.0)), &samples, &[]),
            Verdict::Broken
        );
        assert_eq!(
            judge(Bound::median(Limit::AtLeast(2.0)), &samples, &[]),
            Verdict::Holds
        );
        assert_eq!(
            judge(Bound::max(Limit::OneSlice), &[SLICE + 1.0], &[]),
            Verdict::Broken
        );
    }
}
