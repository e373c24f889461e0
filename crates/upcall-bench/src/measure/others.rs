//! Programs that are not ours: servers under load, and programs that compute.

use crate::child::Failure;
use crate::jobs;
use crate::measure::{Bench, Subject};
use crate::servers::Order;

/// Figures by series.
pub type Found = Vec<(&'static str, Vec<f64>)>;

/// How long a server is loaded, in seconds.
const LOADED: u64 = 3;

/// The answers of a server to so many clients as the variant says.
pub fn server(bench: &Bench, subject: &Subject) -> Result<Found, Failure> {
    let processors = bench
        .allowed
        .last(bench.workers(subject.workload, subject.variant));
    let of = |params: &[&str]| {
        let word = params
            .iter()
            .find_map(|word| word.strip_prefix("clients="))?;
        word.parse::<usize>().ok()
    };
    let all = subject.workload.variants.iter();
    let most_times = all.filter_map(|one| of(one.params)).max().unwrap_or(1);
    let times = of(subject.variant.params)
        .ok_or_else(|| Failure::Failed("the variant has no number of clients".into()))?;
    bench.house.borrow_mut().load(&Order {
        workload: subject.workload,
        runtime: subject.runtime,
        index: subject.index,
        processors: &processors,
        times,
        most_times,
        seconds: if bench.args.quick { 1 } else { LOADED },
        timeout: bench.args.timeout,
        workload_program: &bench.runtimes.workload_program,
    })
}

/// The processor time of a program that computes.
pub fn job(bench: &Bench, subject: &Subject) -> Result<Found, Failure> {
    let workers = bench.workers(subject.workload, subject.variant);
    let time = jobs::processor_time(&jobs::Order {
        name: subject.variant.name,
        runtime: subject.runtime,
        processors: &bench.allowed.last(workers),
        timeout: bench.args.timeout,
        inputs: &bench.cache.join("inputs"),
        short: bench.args.quick,
    })?;
    Ok(vec![(subject.workload.unit, vec![time])])
}
