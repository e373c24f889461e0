//! Every workload: its variants, how it is run, and what must hold.

pub mod served;

use crate::args::RuntimeName;
use crate::bounds::{Bound, Limit};
use crate::who::{
    NBODY, PEER_SERVERS, PEERS_THAT_JOIN, PEERS_WITH_PIPES, SERVERS, SURPASSED_SERVERS, THAT_FORK,
    THAT_JOIN, THAT_REACT, THAT_WAIT, WITH_CONDITIONS, WITH_LIBC, WITH_PIPES,
};

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
    /// So many copies beside so many native programs; a variant says how many. The figure is the processor time that the
    /// copies got.
    Share,
    /// So many copies at once, whose mean time is taken; the program reports what it takes without threads too, when
    /// it is alone.
    Speedup(usize),
    /// So many copies at once under a daemon that warns before a turn ends, or does not; a variant says both. The figure is their mean time.
    Warning,
    /// A server, by the name of the program, under load: throughput and late answers.
    Server,
    /// Programs that are not ours, one a variant: their processor time.
    Job,
    /// Other workloads, each a variant, without a timeline and with one; a sample is what is missing with it.
    Traced,
}

/// One way to run a workload.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name; nothing if the workload has only one.
    pub name: &'static str,
    /// Parameters of the program.
    pub params: &'static [&'static str],
    pub runtimes: &'static [RuntimeName],
    /// How many processors it may use, if that is not what the workload says.
    pub workers: Option<usize>,
    /// What must hold for our runtimes.
    pub bounds: &'static [Bound],
}

impl Variant {
    /// Returns true if `runtime` has a program for it. Another build of ours has what this one has.
    pub fn runs_on(&self, runtime: RuntimeName) -> bool {
        let program = match runtime {
            RuntimeName::Before => RuntimeName::Upcall,
            other => other,
        };
        self.runtimes.contains(&program)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub name: &'static str,
    /// What it measures, in a few words.
    pub about: &'static str,
    /// The program's own name for it.
    pub program: &'static str,
    /// How many processors the program may use unless told otherwise.
    pub workers: usize,
    /// How its figures come about.
    pub kind: Kind,
    pub unit: &'static str,
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
        runtimes: &[RuntimeName::Upcall, RuntimeName::Nptl, RuntimeName::Go],
        workers: None,
        bounds,
    }
}

const fn only_pthreads(
    name: &'static str,
    params: &'static [&'static str],
    bounds: &'static [Bound],
) -> Variant {
    Variant {
        runtimes: &[RuntimeName::Upcall, RuntimeName::Nptl],
        ..variant(name, params, bounds)
    }
}

/// What needs libc, for both of our runtimes and the native one.
const fn with_libc(name: &'static str, params: &'static [&'static str]) -> Variant {
    Variant {
        runtimes: WITH_LIBC,
        ..variant(name, params, &[])
    }
}

/// What only the crate has.
const fn of_crate(name: &'static str, params: &'static [&'static str]) -> Variant {
    Variant {
        runtimes: &[RuntimeName::Crate],
        ..variant(name, params, &[])
    }
}

/// An application on so many processors, in the manner of its paper.
const fn application(
    name: &'static str,
    processors: usize,
    params: &'static [&'static str],
) -> Variant {
    Variant {
        workers: Some(processors),
        ..nbody(name, params)
    }
}

/// The N-body problem.
const fn nbody(name: &'static str, params: &'static [&'static str]) -> Variant {
    Variant {
        runtimes: NBODY,
        ..variant(name, params, &[])
    }
}

/// The same on so many processors.
const fn nbody_on(name: &'static str, processors: usize) -> Variant {
    application(name, processors, &[])
}

/// So many threads that have so many percent of the processor.
const fn reactivity(name: &'static str, params: &'static [&'static str]) -> Variant {
    Variant {
        runtimes: THAT_REACT,
        ..variant(name, params, &[])
    }
}

/// One that needs nothing but threads.
const fn threads(
    name: &'static str,
    params: &'static [&'static str],
    bounds: &'static [Bound],
) -> Variant {
    Variant {
        runtimes: THAT_WAIT,
        ..variant(name, params, bounds)
    }
}

/// The same work on one processor and on two.
const fn one_and_two(
    params: &'static [&'static str],
    bounds: [&'static [Bound]; 2],
) -> [Variant; 2] {
    let one = Variant {
        workers: Some(1),
        runtimes: &RuntimeName::ALL,
        ..threads("1", params, bounds[0])
    };
    let two = Variant {
        workers: Some(2),
        runtimes: &RuntimeName::ALL,
        ..threads("2", params, bounds[1])
    };
    [one, two]
}

/// The same for those that need no thread for each half.
const fn joined_on_one_and_two(
    params: &'static [&'static str],
    bounds: [&'static [Bound]; 2],
) -> [Variant; 2] {
    let [one, two] = one_and_two(params, bounds);
    let runtimes = THAT_JOIN;
    [Variant { runtimes, ..one }, Variant { runtimes, ..two }]
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

/// A cost of the runtime `crate`, in nanoseconds.
const fn crate_at_most(ns: f64) -> Bound {
    Bound::min(Limit::AtMost(ns)).of_crate()
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
/// Who waits without giving way waits for the end of time slices, here and natively.
const CROWDED: &[Bound] = &[Bound::median(Limit::TimesNptl(1.2))];
/// Which threads run at the same time is chance; none waits for it for long.
const TOGETHER: &[Bound] = &[Bound::max(Limit::AtMost(1e9))];
const LOST: &[Bound] = &[Bound::median(Limit::AtMost(3.0))];
/// Neither the copies nor the native programs beside them get less than natively.
const SHARE: &[Bound] = &[
    Bound::median(Limit::PartOfNptl(0.95)),
    Bound::median(Limit::TimesNptl(1.1)),
];
/// A join is not dearer than one that promises less.
const AS_RAYON: Bound = Bound::min(Limit::TimesPeers(1.0, PEERS_THAT_JOIN)).of_crate();
const PIPES: &[Bound] = &[
    Bound::min(Limit::TimesNptl(0.8)),
    Bound::min(Limit::TimesPeers(1.0, PEERS_WITH_PIPES)),
    Bound::min(Limit::TimesNptl(0.8)).of_crate(),
    Bound::min(Limit::TimesPeers(1.0, PEERS_WITH_PIPES)).of_crate(),
    crate_at_most(1900.0),
];
const HTTP: &[Bound] = &[
    Bound::median(Limit::AtLeastPeers(1.0, PEER_SERVERS)).of_crate(),
    Bound::median(Limit::AtLeastPeers(1.1, SURPASSED_SERVERS)).of_crate(),
];
/// Two threads that spin for each other's critical sections, marked where a package has such.
const SPINNING: &[&str] = &["threads=2", "marks=1", "operations=60000"];
const PAIR: &[Bound] = &[Bound::median(Limit::AtLeast(0.5))];

/// The variants into which [`Kind::Overhead`] turns its figures.
pub const OVERHEAD: &[Variant] = &[
    only_pthreads("throughput", &[], &[Bound::min(Limit::AtMost(0.5))]),
    only_pthreads("cpu_share", &[], &[Bound::min(Limit::AtMost(0.5))]),
];

/// What takes minutes, or a million threads: left out of a brief run.
pub const LONG: &[&str] = &[
    "fib_30",
    "sumtime_100000",
    "blocked_create/1000000",
    "blocked_rss/1000000",
    "idle_connections/100000",
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
    Workload {
        program: "unblock_to_run",
        ..cost(
            "restart_unblocked",
            "a blocked thread can run again -> it runs, beside 9 that are ready and yield or only compute",
            &[
                only_pthreads(
                    "pipe_points",
                    &["how=pipe", "equals=points", "others=8"],
                    POINTS,
                ),
                only_pthreads(
                    "flock_points",
                    &["how=flock", "equals=points", "others=8"],
                    POINTS,
                ),
                only_pthreads(
                    "fault_points",
                    &["how=fault", "equals=points", "others=8"],
                    POINTS,
                ),
                // A kernel thread waits for the slices of all others.
                only_pthreads(
                    "pipe_compute",
                    &[
                        "how=pipe",
                        "equals=compute",
                        "others=8",
                        "samples=50",
                        "warm_up=5",
                    ],
                    CROWDED,
                ),
                only_pthreads(
                    "flock_compute",
                    &[
                        "how=flock",
                        "equals=compute",
                        "others=8",
                        "samples=50",
                        "warm_up=5",
                    ],
                    CROWDED,
                ),
                only_pthreads(
                    "fault_compute",
                    &[
                        "how=fault",
                        "equals=compute",
                        "others=8",
                        "samples=50",
                        "warm_up=5",
                    ],
                    CROWDED,
                ),
            ],
        )
    },
    cost(
        "reactivity",
        "an event from another process -> the thread that waits for it runs; so many others have so many percent of \
         the processor",
        &[
            reactivity("1_at_0", &["threads=1", "load=0"]),
            reactivity("100_at_0", &["threads=100", "load=0"]),
            reactivity("1000_at_0", &["threads=1000", "load=0"]),
            reactivity("1_at_50", &["threads=1", "load=50"]),
            reactivity("100_at_50", &["threads=100", "load=50"]),
            reactivity("1000_at_50", &["threads=1000", "load=50"]),
            reactivity("1_at_100", &["threads=1", "load=100"]),
            reactivity("100_at_100", &["threads=100", "load=100"]),
            reactivity("1000_at_100", &["threads=1000", "load=100"]),
            with_libc("100_at_50_epoll", &["threads=100", "load=50", "wait=epoll"]),
            with_libc(
                "100_at_100_epoll",
                &["threads=100", "load=100", "wait=epoll"],
            ),
        ],
    ),
    cost(
        "interruption",
        "what a thread that computes loses to the kernel: it goes back, runs a signal handler, wakes another thread",
        &[
            with_libc("return", &["how=return"]),
            with_libc("signal", &["how=signal"]),
            with_libc("upcall", &["how=upcall"]),
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
        "procedure_call",
        "a call of a function that does nothing",
        &[with_libc("", &[])],
    ),
    cost(
        "kernel_trap",
        "a system call that does nothing: getppid",
        &[with_libc("", &[])],
    ),
    cost(
        "process_fork",
        "a process that does nothing, forked and waited for",
        &[with_libc("", &[])],
    ),
    cost(
        "create_join",
        "pthread_create and pthread_join of a thread that does nothing",
        &[variant("", &[], &[Bound::min(micros(1.8, 20.0))])],
    ),
    cost(
        "start",
        "another program, from its start to its end: alone, as a child, as a child with a thread",
        &[
            only_pthreads("alone", &["how=alone"], &[]),
            only_pthreads("child", &["what=nothing"], &[]),
            only_pthreads("thread", &["what=thread"], &[]),
        ],
    ),
    cost(
        "null_fork",
        "a thread that returns its argument: created, run and joined",
        &[Variant {
            runtimes: THAT_FORK,
            ..threads(
                "",
                &[],
                &[Bound::min(micros(1.8, 20.0)), crate_at_most(60.0)],
            )
        }],
    ),
    cost(
        "fork_batch",
        "one of 1000 such threads, all created, then joined",
        &[Variant {
            runtimes: THAT_FORK,
            ..threads(
                "",
                &[],
                &[Bound::min(micros(3.0, 45.0)), crate_at_most(55.0)],
            )
        }],
    ),
    Workload {
        program: "fib",
        ..cost(
            "fib_30",
            "Fibonacci's number 30, a thread for one of the summands of each call",
            &one_and_two(
                &["n=30"],
                [&[crate_at_most(75e6)], &[crate_at_most(37.5e6)]],
            ),
        )
    },
    Workload {
        program: "sumtime",
        ..cost(
            "sumtime_2000",
            "the sum of 1 to 2000 by a binary tree of threads",
            &one_and_two(
                &["n=2000"],
                [&[crate_at_most(0.18e6)], &[crate_at_most(0.09e6)]],
            ),
        )
    },
    Workload {
        program: "sumtime",
        ..cost(
            "sumtime_100000",
            "the sum of 1 to 100,000 by a binary tree of threads",
            &one_and_two(
                &["n=100000"],
                [&[crate_at_most(9e6)], &[crate_at_most(4.5e6)]],
            ),
        )
    },
    cost(
        "join_null",
        "two halves that return their arguments, joined",
        &joined_on_one_and_two(&[], [&[crate_at_most(10.0)], &[]]),
    ),
    Workload {
        program: "fib_join",
        ..cost(
            "fib_30_join",
            "Fibonacci's number 30, the two summands of each call joined",
            &joined_on_one_and_two(
                &["n=30", "samples=3"],
                [
                    &[crate_at_most(19e6), AS_RAYON],
                    &[crate_at_most(9.5e6), AS_RAYON],
                ],
            ),
        )
    },
    Workload {
        program: "sumtime_join",
        ..cost(
            "sumtime_100000_join",
            "the sum of 1 to 100,000, the two halves of each range joined",
            &joined_on_one_and_two(
                &["n=100000", "samples=5"],
                [&[crate_at_most(3e6)], &[crate_at_most(1.6e6)]],
            ),
        )
    },
    Workload {
        program: "blocked",
        ..cost(
            "blocked_create",
            "one of so many threads that all wait for one semaphore: created, run and waiting",
            &[
                threads("30000", &["threads=30000"], &[]),
                threads("1000000", &["threads=1000000"], &[crate_at_most(2200.0)]),
            ],
        )
    },
    Workload {
        program: "blocked",
        unit: "bytes",
        ..cost(
            "blocked_rss",
            "resident memory of one of so many threads that all wait for one semaphore",
            &[
                threads("30000", &["threads=30000"], &[]),
                threads("1000000", &["threads=1000000"], &[crate_at_most(4600.0)]),
            ],
        )
    },
    cost(
        "semaphore",
        "a round trip over two semaphores",
        &[threads(
            "",
            &[],
            &[Bound::min(micros(0.22, 2.1)), crate_at_most(90.0)],
        )],
    ),
    cost(
        "signal_wait",
        "a round trip over a mutex and two condition variables",
        &[Variant {
            runtimes: WITH_CONDITIONS,
            ..threads(
                "",
                &[],
                &[Bound::min(micros(0.25, 4.1)), crate_at_most(85.0)],
            )
        }],
    ),
    cost(
        "kernel_signal_wait",
        "a round trip over two semaphores in memory that processes could share: through the kernel",
        &[with_libc("", &["between=threads"])],
    ),
    Workload {
        program: "kernel_signal_wait",
        ..cost(
            "process_signal_wait",
            "the same between two processes",
            &[with_libc("", &["between=processes"])],
        )
    },
    Workload {
        workers: 2,
        unit: "Mops/s",
        ..cost(
            "mutex_64",
            "critical sections of 64 threads in a microsecond",
            &[threads(
                "",
                &[],
                &[Bound::median(Limit::AtLeast(100.0)).of_crate()],
            )],
        )
    },
    Workload {
        workers: 2,
        unit: "Mops/s",
        ..cost(
            "critical_sections",
            "how often 4 threads hold a lock for which they spin, in a microsecond; marked as a critical section, by its code, and not",
            &[
                of_crate("marked", &["marks=1"]),
                of_crate("code", &["marks=2"]),
                with_libc("unmarked", &[]),
            ],
        )
    },
    cost(
        "section_flags",
        "null fork and signal-wait as they are, and with a flag around each of the package's critical sections",
        &[
            of_crate("null_fork", &["operation=null_fork"]),
            of_crate("null_fork_flagged", &["operation=null_fork", "flags=1"]),
            of_crate("signal_wait", &["operation=signal_wait"]),
            of_crate("signal_wait_flagged", &["operation=signal_wait", "flags=1"]),
        ],
    ),
    cost(
        "yield",
        "one switch by sched_yield",
        &[threads(
            "",
            &[],
            &[Bound::min(micros(0.12, 0.67)), crate_at_most(25.0)],
        )],
    ),
    cost(
        "pipe_exchange",
        "a round trip of one byte over two pipes",
        &[Variant {
            runtimes: WITH_PIPES,
            ..threads("", &[], PIPES)
        }],
    ),
    Workload {
        workers: 2,
        unit: "requests/s",
        ..cost(
            "http",
            "answers of a web server, a thread for each of wrk's 64 connections",
            &[Variant {
                runtimes: SERVERS,
                ..threads("", &["connections=64"], HTTP)
            }],
        )
    },
    Workload {
        workers: 2,
        unit: "bytes",
        ..cost(
            "idle_connections",
            "resident memory of one of so many idle connections, a thread for each",
            &[
                Variant {
                    runtimes: SERVERS,
                    ..threads("10000", &["connections=10000"], &[crate_at_most(6144.0)])
                },
                Variant {
                    runtimes: SERVERS,
                    ..threads("100000", &["connections=100000"], &[crate_at_most(6144.0)])
                },
            ],
        )
    },
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
    cost(
        "spin_barrier",
        "a round of so many threads at a spinning barrier, on one processor",
        &[
            only_pthreads("2", &["threads=2"], CROWDED),
            only_pthreads("4", &["threads=4", "samples=100"], CROWDED),
        ],
    ),
    Workload {
        workers: 2,
        ..cost(
            "spin_ring",
            "so many pairs of threads, each with 50,000 numbers through a ring for which both spin",
            &[
                only_pthreads("2", &["pairs=2"], TOGETHER),
                only_pthreads("3", &["pairs=3"], TOGETHER),
            ],
        )
    },
    Workload {
        name: "share",
        about: "processor time of so many programs of two threads beside so many native ones of one",
        program: "share",
        workers: 2,
        kind: Kind::Share,
        unit: "ms",
        variants: &[
            only_pthreads("2_beside_1", &[], SHARE),
            only_pthreads("2_beside_2", &[], SHARE),
            only_pthreads("2_beside_4", &[], SHARE),
            only_pthreads("3_beside_2", &[], SHARE),
            only_pthreads("8_beside_1", &[], SHARE),
            only_pthreads("8_beside_2", &[], SHARE),
            only_pthreads("8_beside_4", &[], SHARE),
        ],
    },
    cost(
        "computation",
        "the sum of 1 to 1000 by a binary tree of threads that compute (Danjean, Namyst, Russell 2000)",
        &[
            application("1", 1, &["n=1000"]),
            application("2", 2, &["n=1000"]),
        ],
    ),
    cost(
        "gauss",
        "256 linear equations by elimination, a thread for 8 rows of each pivot (Marsh et al. 1991)",
        &[application("1", 1, &[]), application("2", 2, &[])],
    ),
    cost(
        "parallel_sort",
        "200,000 numbers sorted by merging, a thread for one half of each range (Marsh et al. 1991)",
        &[application("1", 1, &[]), application("2", 2, &[])],
    ),
    Workload {
        name: "warning",
        about: "1, 2 and 3 copies of two threads that spin for a lock, the warning before a turn ends off and on (Marsh et al. 1991)",
        program: "critical_sections",
        workers: 2,
        kind: Kind::Warning,
        unit: "ns",
        variants: &[
            with_libc("1_off", SPINNING),
            with_libc("1_on", SPINNING),
            with_libc("2_off", SPINNING),
            with_libc("2_on", SPINNING),
            with_libc("3_off", SPINNING),
            with_libc("3_on", SPINNING),
        ],
    },
    served::MARIADB,
    served::POSTGRES,
    served::REDIS,
    served::MEMCACHED,
    served::NGINX,
    served::APACHE,
    served::PROCESSOR_TIME,
    served::STRESSORS,
    served::TRACE_COST,
    Workload {
        name: "nbody_speedup",
        about: "N-body against the same without threads (Figure 2 of 1991)",
        program: "nbody",
        workers: 1,
        kind: Kind::Speedup(1),
        unit: "ratio",
        variants: &[
            nbody_on("1", 1),
            nbody_on("2", 2),
            nbody_on("3", 3),
            nbody_on("4", 4),
            nbody_on("5", 5),
            nbody_on("6", 6),
        ],
    },
    Workload {
        name: "nbody_memory",
        about: "N-body with part of its memory, in percent (Figure 3 of 1991)",
        program: "nbody",
        workers: 2,
        kind: Kind::Samples,
        unit: "ns",
        variants: &[
            // The 50 ms of 1991 were a small part of some seconds of computing. Today's processors compute the same in
            // milliseconds, so a miss takes what one of today's disks does.
            nbody("100", &["memory=100", "miss_us=300", "steps=4"]),
            nbody("90", &["memory=90", "miss_us=300", "steps=4"]),
            nbody("80", &["memory=80", "miss_us=300", "steps=4"]),
            nbody("70", &["memory=70", "miss_us=300", "steps=4"]),
            nbody("60", &["memory=60", "miss_us=300", "steps=4"]),
            nbody("50", &["memory=50", "miss_us=300", "steps=4"]),
            nbody("40", &["memory=40", "miss_us=300", "steps=4"]),
        ],
    },
    Workload {
        name: "nbody_pair",
        about: "two copies of N-body at once, each against the same without threads (Table 5 of 1991)",
        program: "nbody",
        workers: 2,
        kind: Kind::Speedup(2),
        unit: "ratio",
        variants: &[nbody("", &[])],
    },
];
