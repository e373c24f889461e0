//! What a load generator found: how many answers there were, and how late the late ones.

use hdrhistogram::Histogram;

use crate::child::{Failure, Figures};

/// The figures of one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// Answers a second.
    pub throughput: f64,
    /// Nineteen answers of twenty took at most this, in nanoseconds.
    pub p95: f64,
    /// The same of 99 answers of 100.
    pub p99: f64,
    pub slowest: f64,
}

impl Tail {
    /// Of `(nanoseconds, how often)`, where the generator says the throughput itself.
    pub fn of(
        throughput: f64,
        took: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<Self, Failure> {
        let mut all = Histogram::<u64>::new(3).expect("three digits are allowed");
        let mut slowest = 0;
        for (ns, count) in took {
            slowest = slowest.max(ns);
            all.record_n(ns, count)
                .map_err(|error| Failure::Failed(format!("an answer after {ns} ns: {error}")))?;
        }
        let quantile = |share| all.value_at_quantile(share) as f64;
        Self {
            throughput,
            p95: quantile(0.95),
            p99: quantile(0.99),
            slowest: slowest as f64,
        }
        .checked()
    }

    /// Of a report whose series have the names of the fields.
    pub fn of_report(figures: &Figures) -> Result<Self, Failure> {
        let one = |name: &str| figures.get(name).and_then(|values| values.first()).copied();
        let tail = || {
            Some(Self {
                throughput: one("throughput")?,
                p95: one("p95")?,
                p99: one("p99")?,
                slowest: one("slowest")?,
            })
        };
        let none = || Failure::Failed("the report of the load lacks a figure".into());
        tail().ok_or_else(none)?.checked()
    }

    /// # Errors
    ///
    /// There was no answer.
    pub fn checked(self) -> Result<Self, Failure> {
        let all = [self.throughput, self.p95, self.p99, self.slowest];
        match all.iter().all(|one| one.is_finite() && *one > 0.0) {
            true => Ok(self),
            false => Err(Failure::Failed("no request was answered".into())),
        }
    }

    /// The figures by series.
    pub fn series(&self) -> Vec<(&'static str, Vec<f64>)> {
        vec![
            ("throughput", vec![self.throughput]),
            ("p95", vec![self.p95]),
            ("p99", vec![self.p99]),
            ("slowest", vec![self.slowest]),
        ]
    }
}

/// What a load generator said in place of what it says.
pub fn unread(program: &str, said: &str) -> Failure {
    let end: Vec<_> = said.lines().rev().take(5).collect();
    let end: Vec<_> = end.into_iter().rev().collect();
    Failure::Failed(format!(
        "{program} made no report that can be read: {}",
        end.join("\n    ")
    ))
}

/// A number of milliseconds as nanoseconds.
pub fn from_ms(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_answers() {
        let took = [(1_000, 95), (2_000, 4), (9_000, 1)];
        let tail = Tail::of(10.0, took).unwrap();
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.002;
        assert!(near(tail.p95, 1_000.0) && near(tail.p99, 2_000.0));
        assert_eq!((tail.throughput, tail.slowest), (10.0, 9_000.0));
    }

    #[test]
    fn no_answers_are_no_figures() {
        assert!(Tail::of(0.0, []).is_err());
        assert!(Tail::of_report(&Figures::new()).is_err());
    }
}
