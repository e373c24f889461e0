//! What the founding papers published of the experiments that are workloads here, and of those that are none.
//!
//! Every figure is in the text of its paper. Points that only a drawing gives are not here: [`FIGURES`] says in words what
//! the paper says of the drawing. Who adds a figure names paper, table and row.

use std::fmt::Write;

use crate::stats::quantity;

/// What kind of threads a published figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// User-level threads on activations, or whatever the paper proposes in their place.
    Proposed,
    /// User-level threads without the kernel's help.
    User,
    /// Kernel threads.
    Kernel,
    /// What is none of these.
    Other,
}

use Threads::{Kernel, Other, Proposed, User};

/// A figure of one system.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub system: &'static str,
    pub threads: Threads,
    /// In the unit of its row.
    pub value: f64,
}

/// One row of a published table.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// The workload that makes the experiment here; nothing if there is none.
    pub workload: &'static str,
    pub paper: &'static str,
    /// Table and row, or section.
    pub place: &'static str,
    pub unit: &'static str,
    pub figures: &'static [Figure],
    /// In what the experiment differs from the workload; perhaps nothing.
    pub differs: &'static str,
}

impl Published {
    /// By how much the proposed threads were better than kernel threads, if the row has both.
    pub fn gain(&self) -> Option<f64> {
        let of = |threads| self.figures.iter().find(|one| one.threads == threads);
        let (ours, kernel) = (of(Proposed)?.value, of(Kernel)?.value);
        Some(match self.unit {
            "ratio" => ours / kernel,
            _ => kernel / ours,
        })
    }

    /// One line: the figures, and where they stand.
    pub fn line(&self) -> String {
        let mut text = String::new();
        for (at, one) in self.figures.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let value = quantity(one.value, self.unit);
            let _ = write!(text, "{comma}{} {value}", one.system);
        }
        let _ = write!(text, " ({}, {})", self.paper, self.place);
        if !self.differs.is_empty() {
            let _ = write!(text, "; {}", self.differs);
        }
        text
    }
}

/// A drawing of a paper, of which there are no numbers.
#[derive(Clone, Copy, Debug)]
pub struct Drawing {
    pub workload: &'static str,
    pub paper: &'static str,
    pub place: &'static str,
    /// What the paper's text says that it shows.
    pub shows: &'static str,
}

const ANDERSON: &str = "Anderson, Bershad, Lazowska, Levy 1991";
const DANJEAN_2000: &str = "Danjean, Namyst, Russell 2000";
const DANJEAN_2003: &str = "Danjean, Namyst 2003";
const MARSH: &str = "Marsh, LeBlanc, Scott, Markatos 1991";
const SIRER: &str = "Sirer, Pardyak, Bershad 1996";

const fn us(system: &'static str, threads: Threads, microseconds: f64) -> Figure {
    Figure {
        system,
        threads,
        value: microseconds * 1e3,
    }
}

const fn ms(system: &'static str, threads: Threads, milliseconds: f64) -> Figure {
    us(system, threads, milliseconds * 1e3)
}

const fn ratio(system: &'static str, threads: Threads, value: f64) -> Figure {
    Figure {
        system,
        threads,
        value,
    }
}

const fn row(
    workload: &'static str,
    (paper, place): (&'static str, &'static str),
    figures: &'static [Figure],
    differs: &'static str,
) -> Published {
    Published {
        workload,
        paper,
        place,
        unit: "ns",
        figures,
        differs,
    }
}

const NULL_FORK: &[Figure] = &[
    us("FastThreads on scheduler activations", Proposed, 37.0),
    us("FastThreads on Topaz threads", User, 34.0),
    us("Topaz threads", Kernel, 948.0),
    us("Ultrix processes", Other, 11_300.0),
];
const SIGNAL_WAIT: &[Figure] = &[
    us("FastThreads on scheduler activations", Proposed, 42.0),
    us("FastThreads on Topaz threads", User, 37.0),
    us("Topaz threads", Kernel, 441.0),
    us("Ultrix processes", Other, 1_840.0),
];
const SLIDES: &str = "the slides say neither how large the problem is nor how many threads, so only the ratio compares";
const LEVELS: &str = "the slides do not say which program it is, so only ratios compare";
const BOTH_WAYS: &str = "here the round trip is measured, which is two of these";

const BY_COPIES: &str = "critical sections known by copies of their code";
const FLAGS: &str = "theirs has a flag in place of the copies; here it is beside the word that says who is inside the runtime";
const FLAGS_BOTH_WAYS: &str = "theirs has a flag in place of the copies; here it is beside the word that says who is inside the \
                               runtime, and a round trip is two of these";

/// Rows of published tables, those with a workload first, in the catalogue's order.
pub const ROWS: &[Published] = &[
    row(
        "restart_unblocked",
        (DANJEAN_2003, "Table 2, restart of an unblocked activation"),
        &[us("restart", Proposed, 2.17)],
        "theirs begins with the system call that names the activation to restart; here it begins before the call that unblocks \
         the thread, and nobody names it",
    ),
    row(
        "interruption",
        (DANJEAN_2003, "Table 1, time lost by a preemption"),
        &[
            us("upcall", Proposed, 14.1),
            us("return", Other, 13.1),
            us("signal handler", Other, 16.5),
        ],
        "theirs does nothing in the upcall; here another thread runs and blocks",
    ),
    row(
        "procedure_call",
        (ANDERSON, "section 2.1"),
        &[us("Firefly", Other, 7.0)],
        "",
    ),
    row(
        "kernel_trap",
        (ANDERSON, "section 2.1"),
        &[us("Firefly", Other, 19.0)],
        "",
    ),
    row(
        "kernel_trap",
        (DANJEAN_2003, "Table 2, getpid"),
        &[us("Pentium 4 of 1.8 GHz", Other, 0.92)],
        "",
    ),
    row(
        "process_fork",
        (ANDERSON, "Table 1, Null Fork"),
        &[us("Ultrix processes", Other, 11_300.0)],
        "",
    ),
    row(
        "create_join",
        (ANDERSON, "Table 4, Null Fork"),
        NULL_FORK,
        "",
    ),
    row("null_fork", (ANDERSON, "Table 4, Null Fork"), NULL_FORK, ""),
    row(
        "null_fork",
        (SIRER, "Table 3, Fork-Join"),
        &[
            us("SPIN strands", Proposed, 135.0),
            us("DEC OSF Pthreads", Kernel, 1_440.0),
        ],
        "",
    ),
    row(
        "sumtime_2000",
        (DANJEAN_2003, "Table 3, sumtime(2000)"),
        &[
            ms("POSIX interface on activations", Proposed, 12.0),
            ms("PM2 interface on activations", Other, 12.0),
            ms("libpthread", Kernel, 7_215.0),
        ],
        "",
    ),
    row(
        "sumtime_2000",
        (DANJEAN_2000, "Table 1, Synchro test"),
        &[
            ms("Marcel on activations", Proposed, 0.417),
            ms("Marcel at user level", User, 0.308),
            ms("Marcel hybrid", Other, 0.435),
            ms("LinuxThreads", Kernel, 13.319),
        ],
        "the paper does not say how many numbers are summed, so only the ratio compares",
    ),
    row(
        "semaphore",
        (SIRER, "Table 3, Ping-Pong"),
        &[
            us("SPIN strands", Proposed, 95.0),
            us("DEC OSF Pthreads", Kernel, 180.0),
        ],
        "",
    ),
    row(
        "signal_wait",
        (ANDERSON, "Table 4, Signal-Wait"),
        SIGNAL_WAIT,
        BOTH_WAYS,
    ),
    row(
        "section_flags",
        (ANDERSON, "section 5.1, Null Fork"),
        &[
            us(BY_COPIES, Proposed, 37.0),
            us("marked by a flag", Other, 49.0),
        ],
        FLAGS,
    ),
    row(
        "section_flags",
        (ANDERSON, "section 5.1, Signal-Wait"),
        &[
            us(BY_COPIES, Proposed, 42.0),
            us("marked by a flag", Other, 48.0),
        ],
        FLAGS_BOTH_WAYS,
    ),
    row(
        "yield",
        (DANJEAN_2003, "Table 3, yield()"),
        &[
            us("POSIX interface on activations", Proposed, 1.01),
            us("PM2 interface on activations", Other, 0.40),
            us("libpthread", Kernel, 1.16),
        ],
        "",
    ),
    row(
        "pipe_exchange",
        (DANJEAN_2000, "Table 1, I/O test"),
        &[
            ms("Marcel on activations", Proposed, 1.300),
            ms("Marcel at user level", User, 1_959.620),
            ms("Marcel hybrid", Other, 0.761),
            ms("LinuxThreads", Kernel, 0.773),
        ],
        "theirs is a program of 100 reads, and a round trip here is two of them",
    ),
    row(
        "kernel_signal_wait",
        (
            ANDERSON,
            "section 5.2, signal and wait through the kernel, and Table 4, Signal-Wait",
        ),
        &[
            us("FastThreads on scheduler activations", Proposed, 2_400.0),
            us("Topaz threads", Kernel, 441.0),
        ],
        BOTH_WAYS,
    ),
    row(
        "process_signal_wait",
        (ANDERSON, "Table 1, Signal-Wait"),
        &[us("Ultrix processes", Other, 1_840.0)],
        BOTH_WAYS,
    ),
    row(
        "computation",
        (DANJEAN_2000, "Table 2, Computation test"),
        &[
            ms("Marcel on activations", Proposed, 3_551.0),
            ms("Marcel at user level", User, 6_932.0),
            ms("Marcel hybrid", Other, 3_807.0),
            ms("LinuxThreads", Kernel, 3_566.0),
        ],
        "theirs is on 2 processors, and the paper does not say how much is computed, so only the ratio compares",
    ),
    row(
        "gauss",
        (MARSH, "Gaussian elimination"),
        &[
            ms("user-level threads", Proposed, 22_000.0),
            ms("kernel-level threads", Kernel, 33_800.0),
        ],
        SLIDES,
    ),
    row(
        "parallel_sort",
        (MARSH, "Parallel sort"),
        &[
            ms("user-level threads", Proposed, 27_100.0),
            ms("kernel-level threads", Kernel, 44_300.0),
        ],
        SLIDES,
    ),
    row(
        "warning",
        (MARSH, "two-minute warning, multiprogramming level 1"),
        &[
            ms("enabled", Proposed, 8_580.0),
            ms("disabled", Other, 8_500.0),
        ],
        LEVELS,
    ),
    row(
        "warning",
        (MARSH, "two-minute warning, multiprogramming level 2"),
        &[
            ms("enabled", Proposed, 16_000.0),
            ms("disabled", Other, 40_100.0),
        ],
        LEVELS,
    ),
    row(
        "warning",
        (MARSH, "two-minute warning, multiprogramming level 3"),
        &[
            ms("enabled", Proposed, 23_800.0),
            ms("disabled", Other, 61_600.0),
        ],
        LEVELS,
    ),
    Published {
        unit: "ratio",
        ..row(
            "nbody_pair",
            (ANDERSON, "Table 5"),
            &[
                ratio("new FastThreads", Proposed, 2.45),
                ratio("original FastThreads", User, 1.26),
                ratio("Topaz threads", Kernel, 1.29),
            ],
            "theirs is on 6 processors, where 3 is the most that two copies can have each",
        )
    },
    row(
        "",
        (SIRER, "Table 4, CAS2Synch"),
        &[
            ms("SPIN CThreads", Proposed, 64_000.0),
            ms("DEC OSF MiniThreads", User, 309_000.0),
            ms("DEC OSF Pthreads", Kernel, 309_000.0),
        ],
        "",
    ),
];

/// Drawings whose experiment is a workload.
pub const FIGURES: &[Drawing] = &[
    Drawing {
        workload: "nbody_speedup",
        paper: ANDERSON,
        place: "Figure 2",
        shows: "with one processor all three systems are slower than the program without threads; kernel threads flatten out with \
                more than three processors; both packages of user-level threads go on to gain, up to six",
    },
    Drawing {
        workload: "nbody_memory",
        paper: ANDERSON,
        place: "Figure 3",
        shows: "user-level threads without the kernel's help slow down fastest as memory shrinks; activations and kernel threads \
                stay parallel, activations below",
    },
];

/// The rows for a workload.
pub fn of(workload: &str) -> impl Iterator<Item = &'static Published> {
    let wanted = workload.to_owned();
    ROWS.iter()
        .filter(move |row| !wanted.is_empty() && row.workload == wanted)
}

/// The rows for which there is no workload.
pub fn without_workload() -> impl Iterator<Item = &'static Published> {
    ROWS.iter().filter(|row| row.workload.is_empty())
}

/// The drawing for a workload.
pub fn drawing(workload: &str) -> Option<&'static Drawing> {
    FIGURES.iter().find(|one| one.workload == workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_figures_and_where_they_stand() {
        let line = of("yield").next().unwrap().line();
        assert_eq!(
            line,
            "POSIX interface on activations 1.01 µs, PM2 interface on activations 400 ns, libpthread 1.16 µs (Danjean, Namyst \
             2003, Table 3, yield())"
        );
        assert!(of("").next().is_none());
    }

    #[test]
    fn gains_are_against_kernel_threads() {
        let gain = |workload| of(workload).next().unwrap().gain();
        assert!((gain("null_fork").unwrap() - 948.0 / 37.0).abs() < 1e-9);
        assert!((gain("nbody_pair").unwrap() - 2.45 / 1.29).abs() < 1e-9);
        assert_eq!(gain("section_flags"), None);
    }
}
