//! What is said about a set of samples.

/// Order statistics of a non-empty set of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The smallest sample.
    pub min: f64,
    /// The middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// Nine samples of ten are at most this (nearest rank).
    pub p90: f64,
    /// The largest sample.
    pub max: f64,
    /// 99 % of the samples are at most this, if there are a hundred.
    pub p99: Option<f64>,
    /// 99.9 % of the samples are at most this, if there are a thousand.
    pub p999: Option<f64>,
    /// How many samples there are.
    pub n: usize,
}

impl Summary {
    /// Summarises `samples`; none if there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        let rank = |per_mille: usize| sorted[(n * per_mille).div_ceil(1000) - 1];
        let p90 = rank(900);
        Some(Self {
            min,
            median,
            p90,
            max,
            p99: (n >= 100).then(|| rank(990)),
            p999: (n >= 1000).then(|| rank(999)),
            n,
        })
    }
}

/// How much larger the largest sample is than the smallest, in percent of the smallest.
pub fn spread_percent(samples: &[f64]) -> f64 {
    match Summary::of(samples) {
        Some(summary) if summary.min > 0.0 => (summary.max / summary.min - 1.0) * 100.0,
        _ => 0.0,
    }
}

/// What is missing of `reference` in `value`, in percent of `reference`.
pub fn lost_percent(reference: f64, value: f64) -> f64 {
    (1.0 - value / reference) * 100.0
}

/// A value with its unit, in three or four digits.
pub fn quantity(value: f64, unit: &str) -> String {
    match (unit, value.abs()) {
        ("ns", size) if size >= 1e6 => format!("{:.2} ms", value / 1e6),
        ("ns", size) if size >= 1e3 => format!("{:.2} µs", value / 1e3),
        ("ns", _) => format!("{value:.0} ns"),
        ("bytes", size) if size >= 1e3 => format!("{:.2} KB", value / 1e3),
        ("bytes", _) => format!("{value:.0} B"),
        ("Mops/s", _) => format!("{value:.1} Mops/s"),
        ("requests/s", _) => format!("{value:.0} requests/s"),
        ("%", _) => format!("{value:.2} %"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_summary() {
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn one_sample_is_everything() {
        let one = Summary::of(&[3.0]).unwrap();
        assert_eq!(
            one,
            Summary {
                min: 3.0,
                median: 3.0,
                p90: 3.0,
                max: 3.0,
                p99: None,
                p999: None,
                n: 1
            }
        );
    }

    #[test]
    fn an_even_number_has_the_mean_of_the_middle() {
        assert_eq!(Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
    }

    #[test]
    fn ninety_percent_is_the_nearest_rank() {
        let samples: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let summary = Summary::of(&samples).unwrap();
        assert_eq!(
            (summary.min, summary.p90, summary.max, summary.n),
            (1.0, 9.0, 10.0, 10)
        );
        assert_eq!(summary.median, 5.5);
    }

    #[test]
    fn a_thousand_samples_have_a_tail() {
        let samples: Vec<f64> = (1..=1000).map(f64::from).collect();
        let tail = |count| {
            let summary = Summary::of(&samples[..count]).unwrap();
            (summary.p99, summary.p999)
        };
        assert_eq!(tail(1000), (Some(990.0), Some(999.0)));
        assert_eq!(tail(999), (Some(990.0), None));
        assert_eq!(tail(99), (None, None));
    }

    #[test]
    fn spread_and_loss() {
        assert_eq!(spread_percent(&[2.0, 3.0, 2.5]), 50.0);
        assert_eq!(spread_percent(&[]), 0.0);
        assert_eq!(lost_percent(200.0, 150.0), 25.0);
        assert!(lost_percent(100.0, 101.0) < 0.0);
    }
}
