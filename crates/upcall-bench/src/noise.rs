//! Whether the machine was quiet enough to measure.
//!
//! Three witnesses, since each misses something: the spread of a fixed calculation between rounds
//! (a processor that changes its speed, or is shared below us), the time that a hypervisor stole,
//! and the time that other processes used.

use std::time::Instant;

use crate::stats::{Summary, spread_percent};
use crate::workload::posix::spin;

/// From how much on a witness is quoted, in percent.
const SPREAD: f64 = 10.0;
const STOLEN: f64 = 1.0;
const OTHERS: f64 = 5.0;

/// Ticks of all processors since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    stolen: u64,
    total: u64,
}

/// Reads the first line of `/proc/stat`.
fn ticks(stat: &str) -> Option<Ticks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Option<Vec<u64>> = line
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    let fields = fields.filter(|fields| fields.len() >= 8)?;
    // user nice system idle iowait irq softirq steal
    let busy = fields[0] + fields[1] + fields[2] + fields[5] + fields[6];
    Some(Ticks {
        busy,
        stolen: fields[7],
        total: fields[..8].iter().sum(),
    })
}

/// Ticks that this process and its ended children used.
fn own_ticks() -> u64 {
    let mut ticks = 0;
    for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        // SAFETY: `usage` is a valid place for the answer.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut usage);
            usage
        };
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        ticks += (micros(usage.ru_utime) + micros(usage.ru_stime)) / 10_000;
    }
    ticks
}

/// Watches the machine from its making on.
#[derive(Debug)]
pub struct Watch {
    before: Option<Ticks>,
    own_before: u64,
    calibrations: Vec<f64>,
}

impl Watch {
    /// Begins to watch.
    pub fn new() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Self {
            before: ticks(&stat),
            own_before: own_ticks(),
            calibrations: Vec::new(),
        }
    }

    /// Times a fixed calculation of about a millisecond: the best of three.
    pub fn calibrate(&mut self) {
        let times = [(); 3].map(|()| {
            let begin = Instant::now();
            spin(2_000_000);
            begin.elapsed().as_nanos() as f64
        });
        self.calibrations
            .extend(Summary::of(&times).map(|summary| summary.min));
    }

    /// What was noisy since the beginning, one line each.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let spread = spread_percent(&self.calibrations);
        if spread > SPREAD {
            complaints.push(format!(
                "a fixed calculation took up to {spread:.0} % longer"
            ));
        }
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        if let (Some(before), Some(after)) = (self.before, ticks(&stat)) {
            let own = own_ticks().saturating_sub(self.own_before);
            complaints.extend(shares(before, after, own));
        }
        complaints
    }
}

fn shares(before: Ticks, after: Ticks, own: u64) -> Vec<String> {
    let total = after.total.saturating_sub(before.total).max(1) as f64;
    let share = |ticks: u64| ticks as f64 / total * 100.0;
    let stolen = share(after.stolen.saturating_sub(before.stolen));
    let others = share(after.busy.saturating_sub(before.busy).saturating_sub(own));
    let mut complaints = Vec::new();
    if stolen > STOLEN {
        complaints.push(format!(
            "the hypervisor took {stolen:.1} % of the processors"
        ));
    }
    if others > OTHERS {
        complaints.push(format!(
            "other processes used {others:.0} % of the processors"
        ));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_read() {
        let read = ticks("cpu  100 1 20 900 5 2 3 40 0 0\ncpu0 1 2\n");
        assert_eq!(
            read,
            Some(Ticks {
                busy: 126,
                stolen: 40,
                total: 1071
            })
        );
        assert_eq!(ticks("cpu  1 2 3"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn what_others_take_is_told_from_what_we_take() {
        let before = Ticks::default();
        let after = Ticks {
            busy: 500,
            stolen: 30,
            total: 1000,
        };
        assert_eq!(shares(before, after, 480).len(), 1);
        let both = shares(before, after, 100);
        assert!(
            both[0].contains("3.0 %") && both[1].contains("40 %"),
            "{both:?}"
        );
        assert!(
            shares(
                before,
                Ticks {
                    busy: 500,
                    stolen: 0,
                    total: 1000
                },
                500
            )
            .is_empty()
        );
    }

    #[test]
    fn a_calculation_of_changing_length_is_a_complaint() {
        let mut watch = Watch {
            before: None,
            own_before: 0,
            calibrations: vec![100.0, 150.0],
        };
        assert!(watch.complaints()[0].contains("50 %"));
        watch.calibrations = vec![100.0, 105.0];
        assert!(
            !watch
                .complaints()
                .iter()
                .any(|line| line.contains("calculation"))
        );
    }
}
