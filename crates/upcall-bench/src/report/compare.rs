//! Which of two runtimes was better, in words that are as plain for a loss as for a win.

use crate::stats::{Summary, quantity};

/// By how much two figures must differ to be told apart: a part of them, or percentage points.
const PART: f64 = 0.05;
const POINTS: f64 = 1.0;
/// So much worse in the median is a loss, whatever the best sample says.
const MUCH_WORSE: f64 = 1.5;
/// So much later in the slowest hundredth, too.
const MUCH_LATER: f64 = 2.0;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
    /// Neither: what is wanted is a figure like the native one.
    Neither,
}

impl Better {
    /// The way of a workload's unit.
    pub fn of(unit: &str) -> Self {
        match unit {
            "ns" | "bytes" | "%" => Self::Lower,
            "ratio" | "Mops/s" | "requests/s" => Self::Higher,
            _ => Self::Neither,
        }
    }

    /// The way in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Lower => "less is better",
            Self::Higher => "more is better",
            Self::Neither => "as native is best",
        }
    }

    fn best(self, figures: &Summary) -> f64 {
        match self {
            Self::Higher => figures.max,
            _ => figures.min,
        }
    }
}

/// How one fared against another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Loses,
    Same,
    Wins,
}

/// A comparison of `ours` with others' figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub verdict: Verdict,
    /// By how much, as text: of the medians.
    pub by: String,
    /// The same for sorting: larger is a larger difference.
    pub size: f64,
}

impl Comparison {
    /// The comparison in words.
    pub fn words(&self) -> String {
        match self.verdict {
            Verdict::Loses => format!("loses, {}", self.by),
            Verdict::Wins => format!("wins, {}", self.by),
            Verdict::Same => format!("no clear difference, {}", self.by),
        }
    }
}

/// Compares; nothing where no way is better or a figure is no number to divide by. One of the two wins if it is better both
/// in the median and in the best sample: where the two disagree, the difference is not clear. But ours is told as a loss where
/// its median alone is much worse, or its slowest hundredth is much later, and wins nowhere where that is later.
pub fn compare(ours: &Summary, theirs: &Summary, unit: &str) -> Option<Comparison> {
    let better = Better::of(unit);
    if better == Better::Neither {
        return None;
    }
    if unit == "%" {
        let verdict = verdict(
            [
                theirs.median - ours.median,
                better.best(theirs) - better.best(ours),
            ]
            .map(|gain| gain / POINTS),
        );
        let size = (theirs.median - ours.median).abs();
        let by = format!("by {size:.1} points");
        return Some(Comparison { verdict, by, size });
    }
    let pairs = [
        (ours.median, theirs.median),
        (better.best(ours), better.best(theirs)),
    ];
    if pairs
        .iter()
        .any(|(ours, theirs)| !(*ours > 0.0 && *theirs > 0.0))
    {
        return None;
    }
    let times = pairs.map(|(ours, theirs)| match better {
        Better::Higher => ours / theirs,
        _ => theirs / ours,
    });
    let size = times[0].max(1.0 / times[0]);
    // A factor, and its inverse, are as far from one.
    let mut verdict = verdict(times.map(|times| times.ln() / (1.0 + PART).ln()));
    if times[0] * MUCH_WORSE <= 1.0 {
        verdict = Verdict::Loses;
    }
    let tails = ours.p99.zip(theirs.p99).filter(|_| better == Better::Lower);
    let later = tails.map_or(1.0, |(ours, theirs)| ours / theirs);
    if verdict != Verdict::Loses && later >= MUCH_LATER {
        return Some(Comparison {
            verdict: Verdict::Loses,
            by: format!(
                "in p99 {}, in the median {}",
                factor(later),
                ratio(1.0 / times[0])
            ),
            size: later,
        });
    }
    if verdict == Verdict::Wins && later > 1.0 + PART {
        verdict = Verdict::Same;
    }
    Some(Comparison {
        verdict,
        by: factor(size),
        size,
    })
}

/// By how much a figure is less or more, in words.
fn ratio(times: f64) -> String {
    match times {
        times if times > 1.0 => format!("{} more", factor(times)),
        times => format!("{} less", factor(1.0 / times)),
    }
}

fn verdict(gains: [f64; 2]) -> Verdict {
    if gains.iter().all(|gain| *gain > 1.0) {
        Verdict::Wins
    } else if gains.iter().all(|gain| *gain < -1.0) {
        Verdict::Loses
    } else {
        Verdict::Same
    }
}

/// A factor, in two or three digits.
pub fn factor(times: f64) -> String {
    match times {
        times if times >= 99.5 => format!("{times:.0} ×"),
        times if times >= 9.95 => format!("{times:.1} ×"),
        _ => format!("{times:.2} ×"),
    }
}

/// What a program under Upcall lost against its native run, where that is the figure itself.
pub fn lost(figures: &Summary) -> Comparison {
    let none = Summary {
        min: 0.0,
        median: 0.0,
        p90: 0.0,
        max: 0.0,
        p99: None,
        p999: None,
        n: figures.n,
    };
    let gains = [-figures.median, -figures.min].map(|gain| gain / 0.5);
    Comparison {
        verdict: verdict(gains),
        by: format!(
            "median {}, best against best {}",
            quantity(figures.median, "%"),
            quantity(figures.min, "%")
        ),
        size: (figures.median - none.median).abs(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[f64]) -> Summary {
        Summary::of(samples).unwrap()
    }

    fn verdict(ours: &[f64], theirs: &[f64], unit: &str) -> Verdict {
        compare(&of(ours), &of(theirs), unit).unwrap().verdict
    }

    #[test]
    fn less_time_wins_and_more_loses() {
        assert_eq!(verdict(&[50.0], &[100.0], "ns"), Verdict::Wins);
        assert_eq!(verdict(&[100.0], &[50.0], "ns"), Verdict::Loses);
        assert_eq!(verdict(&[100.0], &[103.0], "ns"), Verdict::Same);
        assert_eq!(verdict(&[50.0], &[100.0], "requests/s"), Verdict::Loses);
        assert_eq!(verdict(&[0.9], &[0.4], "ratio"), Verdict::Wins);
        let words = compare(&of(&[100.0]), &of(&[50.0]), "ns").unwrap().words();
        assert_eq!(words, "loses, 2.00 ×");
    }

    #[test]
    fn where_best_and_median_disagree_nobody_wins() {
        assert_eq!(
            verdict(&[10.0, 40.0, 40.0], &[20.0, 30.0, 30.0], "ns"),
            Verdict::Same
        );
    }

    #[test]
    fn a_median_that_is_much_worse_and_a_late_tail_are_losses() {
        let ours = [10.0, 60.0, 60.0];
        assert_eq!(verdict(&ours, &[20.0, 30.0, 30.0], "ns"), Verdict::Loses);
        let with_tail = |p99| Summary {
            p99: Some(p99),
            ..of(&[50.0])
        };
        let compared = |ours, theirs: &Summary| compare(&with_tail(ours), theirs, "ns").unwrap();
        let slower = Summary {
            p99: Some(100.0),
            ..of(&[100.0])
        };
        assert_eq!(compared(90.0, &slower).verdict, Verdict::Wins);
        assert_eq!(compared(110.0, &slower).verdict, Verdict::Same);
        let late = compared(300.0, &slower);
        assert_eq!(
            late.words(),
            "loses, in p99 3.00 ×, in the median 2.00 × less"
        );
        // More of a rate is better, and what is rare there is good.
        let rates = compare(&with_tail(300.0), &slower, "requests/s").unwrap();
        assert_eq!(rates.words(), "loses, 2.00 ×");
    }

    #[test]
    fn percentages_differ_by_points() {
        assert_eq!(verdict(&[0.2], &[40.0], "%"), Verdict::Wins);
        assert_eq!(verdict(&[-0.2], &[0.5], "%"), Verdict::Same);
        assert_eq!(verdict(&[3.0], &[-1.0], "%"), Verdict::Loses);
    }

    #[test]
    fn some_cannot_be_compared() {
        assert_eq!(compare(&of(&[1.0]), &of(&[2.0]), "ms"), None);
        assert_eq!(compare(&of(&[0.0]), &of(&[2.0]), "ns"), None);
    }

    #[test]
    fn what_is_lost_is_a_loss() {
        assert_eq!(lost(&of(&[1.6, 2.0])).verdict, Verdict::Loses);
        assert_eq!(lost(&of(&[0.1, 0.2])).verdict, Verdict::Same);
    }
}
