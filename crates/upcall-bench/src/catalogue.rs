//! Every workload: its variants, how it is run, and what must hold.

use crate::bounds::{Bound, Limit};
use crate::problem::Problem;

/// How a workload's figures come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The program reports samples; a variant is a set of its parameters.
    Samples,
    /// The program reports work done; a variant is how many threads block, and a sample is what
    /// is missing against the run without blockers that goes before it.
    Loss,
    /// The program reports the cost of fixed work; the figures of the native run are taken off.
    Overhead,
    /// One copy alone, then two copies at once.
    Pair,
}

/// One way to run a workload.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name; nothing if the workload has only one.
    pub name: &'static str,
    /// Parameters of the program.
    pub params: &'static [&'static str],
    /// Whether the Go peer has it.
    pub go: bool,
    /// What must hold for our runtime.
    pub bounds: &'static [Bound],
}

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it measures, in a few words.
    pub about: &'static str,
    /// The program's own name for it.
    pub program: &'static str,
    /// How many processors the program may use unless told otherwise.
    pub workers: usize,
    /// How its figures come about.
    pub kind: Kind,
    /// The unit of its figures.
    pub unit: &'static str,
    /// Its variants.
    pub variants: &'static [Variant],
}

const fn variant(
    name: &'static str,
    params: &'static [&'static str],
    bounds: &'static [Bound],
) -> Variant {
    Variant {
        name,
        params,
        go: true,
        bounds,
    }
}

const fn only_pthreads(
    name: &'static str,
    params: &'static [&'static str],
    bounds: &'static [Bound],
) -> Variant {
    Variant {
        name,
        params,
        go: false,
        bounds,
    }
}

const fn cost(name: &'static str, about: &'static str, variants: &'static [Variant]) -> Workload {
    Workload {
        name,
        about,
        program: name,
        workers: 1,
        kind: Kind::Samples,
        unit: "ns",
        variants,
    }
}

const fn loss(name: &'static str, about: &'static str, variants: &'static [Variant]) -> Workload {
    let (program, kind) = ("blockers", Kind::Loss);
    Workload {
        name,
        about,
        program,
        workers: 2,
        kind,
        unit: "%",
        variants,
    }
}

const fn pair(name: &'static str, about: &'static str, variants: &'static [Variant]) -> Workload {
    let kind = Kind::Pair;
    Workload {
        name,
        about,
        program: name,
        workers: 2,
        kind,
        unit: "ratio",
        variants,
    }
}

const fn micros(absolute: f64, native: f64) -> Limit {
    Limit::AtMostOrTimes {
        absolute: absolute * 1000.0,
        times: absolute / native,
    }
}

const BLOCK: &[Bound] = &[
    Bound::median(micros(1.6, 1.15)),
    Bound::median(Limit::TimesNptl(1.5)),
];
const FAULT: &[Bound] = &[Bound::median(Limit::TimesNptl(1.5))];
const POINTS: &[Bound] = &[Bound::median(Limit::AtMost(8000.0))];
const COMPUTE: &[Bound] = &[
    Bound::median(Limit::TimesNptl(1.2)),
    Bound::max(Limit::OneSlice),
];
const LOST: &[Bound] = &[Bound::median(Limit::AtMost(3.0))];
const PAIR: &[Bound] = &[Bound::median(Limit::AtLeast(0.5))];

/// The variants into which [`Kind::Overhead`] turns its figures.
pub const OVERHEAD: &[Variant] = &[
    only_pthreads("throughput", &[], &[Bound::min(Limit::AtMost(0.5))]),
    only_pthreads("cpu_share", &[], &[Bound::min(Limit::AtMost(0.5))]),
];

/// All workloads, in the order in which they run.
pub const WORKLOADS: &[Workload] = &[
    cost(
        "block_to_compute",
        "a thread blocks in a system call -> a ready thread computes",
        &[
            variant("nanosleep", &["how=nanosleep"], BLOCK),
            only_pthreads("nanosleep_raw", &["how=nanosleep_raw"], BLOCK),
            variant("pipe", &["how=pipe", "samples=200"], BLOCK),
        ],
    ),
    Workload {
        name: "fault_to_compute",
        about: "a thread blocks on a page fault -> a ready thread computes",
        program: "block_to_compute",
        workers: 1,
        kind: Kind::Samples,
        unit: "ns",
        variants: &[
            variant("userfaultfd", &["how=uffd"], FAULT),
            variant("file", &["how=file", "samples=100"], FAULT),
        ],
    },
    cost(
        "unblock_to_run",
        "a blocked thread can run again -> it runs, beside equals that yield or only compute",
        &[
            variant("pipe_points", &["how=pipe", "equals=points"], POINTS),
            variant("pipe_compute", &["how=pipe", "equals=compute"], COMPUTE),
            variant("flock_points", &["how=flock", "equals=points"], POINTS),
            variant("flock_compute", &["how=flock", "equals=compute"], COMPUTE),
            only_pthreads("fault_points", &["how=fault", "equals=points"], POINTS),
            only_pthreads("fault_compute", &["how=fault", "equals=compute"], COMPUTE),
        ],
    ),
    loss(
        "blockers_syscall",
        "compute lost to 1, 2 and 8 threads that block in nanosleep",
        &[
            variant("1", &[], LOST),
            variant("2", &[], LOST),
            variant("8", &[], LOST),
        ],
    ),
    loss(
        "blockers_fault",
        "compute lost to 1, 2 and 8 threads that block on page faults",
        &[
            variant("1", &["how=uffd"], LOST),
            variant("2", &["how=uffd"], LOST),
            variant("8", &["how=uffd"], LOST),
        ],
    ),
    Workload {
        name: "never_blocks",
        about: "a program that only computes: throughput and CPU time lost against native",
        program: "never_blocks",
        workers: 1,
        kind: Kind::Overhead,
        unit: "ns",
        variants: &[only_pthreads("", &[], &[])],
    },
    cost(
        "create_join",
        "pthread_create and pthread_join of a thread that does nothing",
        &[variant("", &[], &[Bound::min(micros(3.0, 11.4))])],
    ),
    cost(
        "semaphore",
        "a round trip over two semaphores",
        &[variant("", &[], &[Bound::min(micros(0.35, 2.1))])],
    ),
    cost(
        "signal_wait",
        "a round trip over a mutex and two condition variables",
        &[variant("", &[], &[Bound::min(micros(0.6, 4.1))])],
    ),
    cost(
        "yield",
        "one switch by sched_yield",
        &[variant("", &[], &[Bound::min(micros(0.12, 0.67))])],
    ),
    cost(
        "pipe_exchange",
        "a round trip of one byte over two pipes",
        &[variant("", &[], &[Bound::min(Limit::TimesNptl(1.0))])],
    ),
    pair(
        "pair_spin",
        "2 x alone / two copies at once: pthread_spin_lock",
        &[variant("", &[], PAIR)],
    ),
    pair(
        "pair_ticket",
        "2 x alone / two copies at once: ticket lock",
        &[variant("", &[], PAIR)],
    ),
    pair(
        "pair_barrier",
        "2 x alone / two copies at once: spinning barrier",
        &[variant("", &[], PAIR)],
    ),
    pair(
        "pair_openmp",
        "2 x alone / two copies at once: parallel regions of OpenMP",
        &[only_pthreads("", &[], PAIR)],
    ),
];

/// A workload with the variants of it that were asked for.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The workload.
    pub workload: &'static Workload,
    /// Some of its variants.
    pub variants: Vec<&'static Variant>,
}

/// The workloads that `names` choose, in the catalogue's order; all if there are no names.
///
/// # Errors
///
/// A [`Problem`] with the whole list for a name that is not there.
pub fn choose(names: &[String]) -> Result<Vec<Choice>, Problem> {
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let all: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        return Err(Problem::new(
            format!("there is no workload {unknown:?}"),
            format!("the workloads are {}", all.join(", ")),
            "one of these, or `upcall bench --list` for variants and bounds",
        ));
    }
    let wanted = |workload: &Workload, variant: &Variant| {
        names.is_empty()
            || names
                .iter()
                .any(|name| matches_name(name, workload, variant))
    };
    let choice = |workload: &'static Workload| {
        let all = workload.variants.iter();
        let variants: Vec<_> = all.filter(|variant| wanted(workload, variant)).collect();
        (!variants.is_empty()).then_some(Choice { workload, variants })
    };
    Ok(WORKLOADS.iter().filter_map(choice).collect())
}

fn matches_name(name: &str, workload: &Workload, variant: &Variant) -> bool {
    match name.split_once('/') {
        None => name == workload.name,
        Some((first, second)) => first == workload.name && second == variant.name,
    }
}

fn is_known(name: &str) -> bool {
    let variants = |workload: &'static Workload| {
        workload
            .variants
            .iter()
            .any(|variant| matches_name(name, workload, variant))
    };
    WORKLOADS.iter().any(variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn no_names_choose_everything() {
        assert_eq!(choose(&[]).unwrap().len(), WORKLOADS.len());
    }

    #[test]
    fn a_variant_can_be_chosen_alone() {
        let chosen = choose(&names(&["yield", "block_to_compute/pipe"])).unwrap();
        assert_eq!(chosen.len(), 2);
        assert_eq!(chosen[0].workload.name, "block_to_compute");
        assert_eq!(chosen[0].variants.len(), 1);
        assert_eq!(chosen[0].variants[0].name, "pipe");
    }

    #[test]
    fn an_unknown_name_gets_the_list() {
        for bad in ["yeild", "block_to_compute/tape", "yield/x", ""] {
            let text = choose(&names(&[bad])).unwrap_err().to_string();
            assert!(text.contains("pair_openmp"), "{bad}: {text}");
        }
    }

    #[test]
    fn names_are_unique() {
        for (i, one) in WORKLOADS.iter().enumerate() {
            assert!(
                WORKLOADS[i + 1..]
                    .iter()
                    .all(|other| other.name != one.name)
            );
            for (j, variant) in one.variants.iter().enumerate() {
                assert!(
                    one.variants[j + 1..]
                        .iter()
                        .all(|other| other.name != variant.name)
                );
            }
        }
    }
}
