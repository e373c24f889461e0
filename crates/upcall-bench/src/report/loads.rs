//! Plots of servers under load: theirs under `upcall run` over natively.

use crate::catalogue::{Kind, WORKLOADS, served};
use crate::report::compare::factor;
use crate::report::draw::{Axis, Bar, Group, Plot, bars};
use crate::report::model::Report;

/// Throughput, and late answers.
pub fn plots(report: &Report) -> [Option<Plot>; 2] {
    let axis = |label| Axis {
        label,
        logarithmic: false,
        mark: Some(1.0),
        text: |value| format!("{value:.1}"),
    };
    [
        bars(
            "servers",
            "Answers of servers, for so many clients a processor",
            axis("answers a second under upcall run over natively, medians; more is better"),
            &groups(report, "throughput"),
        ),
        bars(
            "tails",
            "The 99th percentile of servers, for so many clients a processor",
            axis("99th percentile under upcall run over natively, medians; less is better"),
            &groups(report, "p99"),
        ),
    ]
}

/// A group for each server, a bar for each load.
fn groups(report: &Report, series: &str) -> Vec<Group> {
    let servers = WORKLOADS.iter().filter(|one| one.kind == Kind::Server);
    let group = |name: &str| {
        let bar = |variant: &str| {
            let table = report.newest(name, variant)?;
            let [ours, native] = ["upcall", "nptl"].map(|runtime| table.figures(runtime));
            let value = ours?.median / native?.median;
            Some(Bar {
                name: served::measured(variant)?.into(),
                value,
                text: factor(value),
            })
        };
        let shown = served::SHOWN.iter().map(|one| one.name);
        Group {
            label: name.into(),
            bars: shown
                .filter(|name| name.ends_with(series))
                .filter_map(bar)
                .collect(),
        }
    };
    servers.map(|server| group(server.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::read::Input;

    #[test]
    fn servers_are_drawn_over_native() {
        let line = |runtime: &str, median: f64| {
            format!(
                "{{\"v\":1,\"workload\":\"redis\",\"runtime\":\"{runtime}\",\"workers\":2,\"unit\":\"requests/s\",\
                 \"min\":{median},\"median\":{median},\"n\":1,\"variant\":\"4x_throughput\",\"p90\":{median},\"max\":{median}}}\n"
            )
        };
        let mut input = Input::default();
        input.add("a.jsonl", &(line("upcall", 150.0) + &line("nptl", 100.0)));
        let report = Report::of(input);
        assert_eq!(report.tables[0].command, "upcall bench redis/4x");
        let [throughput, late] = plots(&report);
        let svg = throughput.expect("a plot").svg;
        assert!(svg.contains("redis: 4x 1.50 ×"), "{svg}");
        assert!(late.is_none());
    }
}
