//! Programs that are not ours: servers under load, and programs that compute.

use super::{Kind, Variant, Workload, only_pthreads};
use crate::args::RuntimeName;
use crate::bounds::{Bound, Limit};

const fn server(name: &'static str, about: &'static str) -> Workload {
    Workload {
        name,
        about,
        program: name,
        workers: 2,
        kind: Kind::Server,
        unit: "requests/s",
        variants: LOADS,
    }
}

/// So many clients for each processor.
const LOADS: &[Variant] = &[
    only_pthreads("1x", &["clients=1"], &[]),
    only_pthreads("4x", &["clients=4"], &[]),
    only_pthreads("16x", &["clients=16"], &[]),
];

/// Throughput as natively, and answers that are hardly later.
const THROUGHPUT: &[Bound] = &[Bound::median(Limit::PartOfNptl(1.0))];
const LATE: &[Bound] = &[Bound::median(Limit::TimesNptl(1.1))];
const SLOWEST: &[Bound] = &[Bound::median(Limit::TimesNptl(1.5))];

const fn figure(name: &'static str, bounds: &'static [Bound]) -> Variant {
    only_pthreads(name, &[], bounds)
}

/// The figures of each load: LOAD_SERIES.
pub const SHOWN: &[Variant] = &[
    figure("1x_throughput", THROUGHPUT),
    figure("1x_p95", LATE),
    figure("1x_p99", LATE),
    figure("1x_slowest", SLOWEST),
    figure("4x_throughput", THROUGHPUT),
    figure("4x_p95", LATE),
    figure("4x_p99", LATE),
    figure("4x_slowest", SLOWEST),
    figure("16x_throughput", THROUGHPUT),
    figure("16x_p95", LATE),
    figure("16x_p99", LATE),
    figure("16x_slowest", SLOWEST),
];

/// The figures that are shown of a load, each with its series and its unit.
pub fn shown(
    load: &Variant,
) -> impl Iterator<Item = (&'static Variant, &'static str, &'static str)> {
    let load = load.name;
    SHOWN.iter().filter_map(move |one| {
        let (of, series) = one.name.split_once('_')?;
        let unit = match series {
            "throughput" => "requests/s",
            _ => "ns",
        };
        (of == load).then_some((one, series, unit))
    })
}

/// The load that a figure is of.
pub fn measured(figure: &str) -> Option<&str> {
    figure.split_once('_').map(|(load, _)| load)
}

pub const MARIADB: Workload = server(
    "mariadb",
    "mariadbd under sysbench's oltp_read_write, so many clients for each processor",
);
pub const POSTGRES: Workload = server(
    "postgres",
    "PostgreSQL under pgbench, so many clients for each processor",
);
pub const REDIS: Workload = server(
    "redis",
    "redis with two threads for input and output, under redis-benchmark, so many clients for each processor",
);
pub const MEMCACHED: Workload = server(
    "memcached",
    "memcached with four threads, nine values got for one set, so many clients for each processor",
);
pub const NGINX: Workload = server(
    "nginx",
    "nginx with a pool of threads that read files, under wrk, so many clients for each processor",
);
pub const APACHE: Workload = server(
    "apache",
    "Apache with two processes of threads (event), under wrk, so many clients for each processor",
);

/// Programs whose processor time is counted, a variant each.
const fn job(name: &'static str, about: &'static str, variants: &'static [Variant]) -> Workload {
    Workload {
        name,
        about,
        program: name,
        workers: 2,
        kind: Kind::Job,
        unit: "ns",
        variants,
    }
}

/// As little more as can be told from noise.
const TIME: &[Bound] = &[Bound::median(Limit::TimesNptl(1.02))];

pub const PROCESSOR_TIME: Workload = job(
    "processor_time",
    "processor time of compressors, coders and a build with make",
    &[
        only_pthreads("xz", &[], TIME),
        only_pthreads("zstd", &[], TIME),
        only_pthreads("pigz", &[], TIME),
        only_pthreads("x264", &[], TIME),
        only_pthreads("dav1d", &[], TIME),
        // Most of it is processes that begin and end, which has workloads of its own.
        only_pthreads("build", &[], &[]),
    ],
);

/// Operations for each second of processor time: at least nine tenths as many.
const OPERATIONS: &[Bound] = &[Bound::median(Limit::TimesNptl(1.11))];

pub const STRESSORS: Workload = job(
    "stressors",
    "processor time of stress-ng's processes that begin and end",
    &[
        only_pthreads("fork", &[], OPERATIONS),
        only_pthreads("abort", &[], OPERATIONS),
        only_pthreads("alternate_stack", &[], OPERATIONS),
        only_pthreads("zombie", &[], OPERATIONS),
    ],
);

/// What a timeline may take of a program's throughput.
const TRACED: &[Bound] = &[Bound::min(Limit::AtMost(3.0))];

pub const TRACE_COST: Workload = Workload {
    name: "trace_cost",
    about: "throughput lost to upcall trace: of a server, of threads that compute; of nothing but creations, and switches",
    program: "trace_cost",
    workers: 2,
    kind: Kind::Traced,
    unit: "%",
    variants: &[
        Variant {
            runtimes: &[RuntimeName::Upcall],
            ..only_pthreads("memcached", &["clients=4"], TRACED)
        },
        Variant {
            workers: Some(2),
            ..ours("computation", &["n=1000", "samples=3"], TRACED)
        },
        ours("null_fork", &["samples=3", "operations=20000"], &[]),
        ours("yield", &["samples=3", "operations=50000"], &[]),
    ],
};

/// What our two runtimes have.
const fn ours(
    name: &'static str,
    params: &'static [&'static str],
    bounds: &'static [Bound],
) -> Variant {
    Variant {
        workers: Some(1),
        runtimes: &[RuntimeName::Upcall, RuntimeName::Crate],
        ..only_pthreads(name, params, bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_has_its_figures() {
        let all: Vec<_> = LOADS.iter().flat_map(shown).collect();
        assert_eq!(all.len(), SHOWN.len());
        assert!(LOADS.iter().all(|load| shown(load).count() == 4));
        assert_eq!(measured("16x_p99"), Some("16x"));
        assert_eq!(measured("pipe"), None);
    }
}
