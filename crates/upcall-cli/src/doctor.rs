//! `upcall doctor`: what works here, and for what does not, why and what would change it.

use std::fmt::Write;
use std::io::IsTerminal;

use serde::Serialize;
use upcall_linux::probe::{self, FEATURES, Feature, Finding, Kind, Limits};

use crate::args::DoctorArgs;
use crate::refusal::Refusal;
use crate::status::{EXIT_OURS, say};

/// It does not work; 0 is that it does.
const EXIT_DOES_NOT: i32 = 1;

/// Does it, and returns the exit status.
pub fn run(args: &DoctorArgs) -> i32 {
    match &args.feature {
        Some(name) => one(name, args),
        None => all(args),
    }
}

fn one(name: &str, args: &DoctorArgs) -> i32 {
    let Some(feature) = probe::find(name) else {
        let names: Vec<&str> = FEATURES.iter().map(|feature| feature.name).collect();
        return Refusal {
            what: format!("there is no feature '{name}'"),
            checked: format!("the features are: {}", names.join(", ")),
            remedy: "upcall doctor, without a name, for all of them".into(),
            more: "upcall help doctor",
        }
        .report();
    };
    let finding = feature.probe();
    let told = if args.quiet {
        0
    } else if args.json {
        tell_json(&Single {
            v: 1,
            report: Report::of(feature, &finding),
        })
    } else {
        let mut text = String::new();
        row(&mut text, feature, &finding, &Style::for_stdout());
        say(text.as_bytes())
    };
    match (told, finding.works) {
        (0, true) => 0,
        (0, false) => EXIT_DOES_NOT,
        (failed, _) => failed,
    }
}

fn all(args: &DoctorArgs) -> i32 {
    let findings: Vec<(&Feature, Finding)> = FEATURES
        .iter()
        .map(|feature| (feature, feature.probe()))
        .collect();
    let limits = probe::limits();
    let auto = findings
        .iter()
        .find(|(feature, finding)| feature.kind == Kind::Backend && finding.works)
        .map(|(feature, _)| feature.name);
    let told = if args.json {
        let of_kind = |kind| {
            findings
                .iter()
                .filter(|(feature, _)| feature.kind == kind)
                .map(|(feature, finding)| Report::of(feature, finding))
                .collect()
        };
        tell_json(&Whole {
            v: 1,
            upcall: env!("CARGO_PKG_VERSION"),
            kernel: kernel(),
            machine: std::env::consts::ARCH,
            auto,
            backends: of_kind(Kind::Backend),
            features: of_kind(Kind::Feature),
            limits: Bounds::of(&limits),
        })
    } else {
        say(table(&findings, &limits, auto, &Style::for_stdout()).as_bytes())
    };
    match (told, auto) {
        (0, Some(_)) => 0,
        (0, None) => EXIT_DOES_NOT,
        (failed, _) => failed,
    }
}

/// The kernel's release.
fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

fn tell_json(report: &impl Serialize) -> i32 {
    match serde_json::to_string(report) {
        Ok(line) => say(format!("{line}\n").as_bytes()),
        Err(error) => {
            eprintln!("upcall: cannot write the report: {error}");
            EXIT_OURS
        }
    }
}

#[derive(Serialize)]
struct Single<'a> {
    v: u32,
    #[serde(flatten)]
    report: Report<'a>,
}

#[derive(Serialize)]
struct Whole<'a> {
    v: u32,
    upcall: &'static str,
    kernel: String,
    machine: &'static str,
    /// The backend that `auto` takes.
    auto: Option<&'static str>,
    backends: Vec<Report<'a>>,
    features: Vec<Report<'a>>,
    limits: Bounds,
}

#[derive(Serialize)]
struct Report<'a> {
    name: &'static str,
    works: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    purpose: &'static str,
    evidence: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    without: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'a str>,
}

impl<'a> Report<'a> {
    fn of(feature: &Feature, finding: &'a Finding) -> Self {
        Self {
            name: feature.name,
            works: finding.works,
            mode: finding.mode,
            purpose: feature.purpose,
            evidence: &finding.evidence,
            without: (!finding.works).then_some(feature.without),
            remedy: finding.remedy.as_deref(),
        }
    }
}

/// The limits as JSON; `null` is "no limit" or "the kernel does not say".
#[derive(Serialize)]
struct Bounds {
    processors_allowed: Vec<usize>,
    processors_online: usize,
    cpu_quota_processors: Option<f64>,
    smt: Option<bool>,
    activations: Option<u64>,
    rlimit_nproc: Option<u64>,
    cgroup_pids_max: Option<u64>,
    threads_max: Option<u64>,
    pid_max: Option<u64>,
    max_map_count: Option<u64>,
    rlimit_as_bytes: Option<u64>,
    seccomp_filter: Option<bool>,
}

impl Bounds {
    fn of(limits: &Limits) -> Self {
        Self {
            processors_allowed: limits.processors.clone(),
            processors_online: limits.online,
            cpu_quota_processors: limits.cpu_quota.as_ref().map(|quota| quota.processors),
            smt: limits.smt,
            activations: limits.activations(),
            rlimit_nproc: limits.nproc,
            cgroup_pids_max: limits.pids_max.as_ref().map(|(max, _)| *max),
            threads_max: limits.threads_max,
            pid_max: limits.pid_max,
            max_map_count: limits.max_map_count,
            rlimit_as_bytes: limits.address_space,
            seccomp_filter: limits.seccomp_filter,
        }
    }
}

/// Colours on a terminal that wants them; nothing elsewhere.
struct Style {
    good: &'static str,
    bad: &'static str,
    heading: &'static str,
    end: &'static str,
}

impl Style {
    const PLAIN: Self = Self {
        good: "",
        bad: "",
        heading: "",
        end: "",
    };

    fn for_stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if unwanted || !std::io::stdout().is_terminal() {
            return Self::PLAIN;
        }
        Self {
            good: "\x1b[32m",
            bad: "\x1b[33m",
            heading: "\x1b[1m",
            end: "\x1b[0m",
        }
    }
}

fn table(
    findings: &[(&Feature, Finding)],
    limits: &Limits,
    auto: Option<&str>,
    style: &Style,
) -> String {
    let mut text = format!(
        "upcall {} on Linux {}, {}\n",
        env!("CARGO_PKG_VERSION"),
        kernel(),
        std::env::consts::ARCH
    );
    for (kind, heading) in [(Kind::Backend, "Backends"), (Kind::Feature, "Features")] {
        heading_line(&mut text, heading, style);
        for (feature, finding) in findings.iter().filter(|(feature, _)| feature.kind == kind) {
            row(&mut text, feature, finding, style);
        }
    }
    heading_line(&mut text, "Limits", style);
    for (name, value) in limit_rows(limits) {
        line(&mut text, name, &value);
    }
    heading_line(&mut text, "Verdict", style);
    let verdict = match auto {
        Some(backend) => format!(
            "programs run on activations here, by the {backend} backend; not needed: root, \
             capabilities, ptrace (so yama's ptrace_scope does not matter), kernel modules"
        ),
        None => "no backend works here: programs cannot run on activations".into(),
    };
    let _ = writeln!(text, "  {verdict}");
    text
}

fn heading_line(text: &mut String, heading: &str, style: &Style) {
    let _ = writeln!(text, "\n{}{heading}{}", style.heading, style.end);
}

fn row(text: &mut String, feature: &Feature, finding: &Finding, style: &Style) {
    let (colour, word) = if finding.works {
        (style.good, "yes")
    } else {
        (style.bad, "no ")
    };
    let mode = finding
        .mode
        .map(|mode| format!("{mode}: "))
        .unwrap_or_default();
    let _ = writeln!(
        text,
        "  {:<22} {colour}{word}{}  {mode}{}",
        feature.name, style.end, finding.evidence
    );
    if let Some(remedy) = &finding.remedy {
        let _ = writeln!(text, "  {:<22}      without it: {}", "", feature.without);
        let _ = writeln!(text, "  {:<22}      what would change it: {remedy}", "");
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:<22} {value}");
}

fn limit_rows(limits: &Limits) -> Vec<(&'static str, String)> {
    const UNKNOWN: &str = "the kernel does not say";
    let none_or_unseen = |none: &str, seen: bool| if seen { none } else { UNKNOWN }.to_owned();
    let known =
        |value: Option<u64>| value.map_or_else(|| UNKNOWN.into(), |value| value.to_string());
    let unlimited = || "no limit".to_owned();
    vec![
        (
            "processors",
            format!(
                "{} allowed ({}) of {} online",
                limits.processors.len(),
                ranges(&limits.processors),
                limits.online
            ),
        ),
        (
            "processor quota",
            limits.cpu_quota.as_ref().map_or_else(
                || none_or_unseen("none", limits.cpu_group_seen),
                |quota| {
                    format!(
                        "{:.2} processors ({})",
                        quota.processors,
                        quota.file.display()
                    )
                },
            ),
        ),
        (
            "shared cores (SMT)",
            match limits.smt {
                Some(true) => "yes: two processors of one core share its speed".into(),
                Some(false) => "no".into(),
                None => UNKNOWN.into(),
            },
        ),
        (
            "activations",
            limits
                .activations()
                .map_or_else(|| UNKNOWN.into(), |most| format!("{most} at most")),
        ),
        (
            "  RLIMIT_NPROC",
            limits.nproc.map_or_else(unlimited, |most| most.to_string()),
        ),
        (
            "  control group pids",
            limits.pids_max.as_ref().map_or_else(
                || none_or_unseen("no limit", limits.pids_group_seen),
                |(max, file)| format!("{max} ({})", file.display()),
            ),
        ),
        ("  kernel.threads-max", known(limits.threads_max)),
        ("  kernel.pid_max", known(limits.pid_max)),
        ("vm.max_map_count", known(limits.max_map_count)),
        (
            "RLIMIT_AS",
            limits
                .address_space
                .map_or_else(unlimited, |bytes| format!("{bytes} bytes")),
        ),
        (
            "system-call filter",
            match limits.seccomp_filter {
                Some(true) => "in force (seccomp)".into(),
                Some(false) => "none".into(),
                None => UNKNOWN.into(),
            },
        ),
    ]
}

/// Ascending numbers as `0-3,8`.
fn ranges(numbers: &[usize]) -> String {
    let mut text = String::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match run {
            [one] => write!(text, "{comma}{one}"),
            [first, .., last] => write!(text, "{comma}{first}-{last}"),
            [] => Ok(()),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_shown_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(ranges(&[5]), "5");
        assert_eq!(ranges(&[0, 2, 4, 5]), "0,2,4-5");
    }

    #[test]
    fn a_limit_that_cannot_be_read_is_not_called_none() {
        let mut limits = probe::limits();
        (limits.cpu_quota, limits.cpu_group_seen) = (None, false);
        (limits.pids_max, limits.pids_group_seen) = (None, false);
        (limits.threads_max, limits.pid_max) = (None, None);
        limits.max_map_count = None;
        let unknown: Vec<&str> = limit_rows(&limits)
            .into_iter()
            .filter(|(_, value)| value == "the kernel does not say")
            .map(|(name, _)| name.trim())
            .collect();
        for name in [
            "processor quota",
            "control group pids",
            "kernel.threads-max",
            "kernel.pid_max",
            "vm.max_map_count",
        ] {
            assert!(unknown.contains(&name), "{name}: {unknown:?}");
        }
        (limits.cpu_group_seen, limits.pids_group_seen) = (true, true);
        let rows = limit_rows(&limits);
        assert!(rows.contains(&("processor quota", "none".into())));
        assert!(rows.contains(&("  control group pids", "no limit".into())));
    }

    #[test]
    fn what_does_not_work_says_why_and_what_would_change_it() {
        let feature = probe::find("sched_ext").expect("known");
        let finding = probe::Finding {
            name: feature.name,
            works: false,
            mode: None,
            evidence: "the kernel takes no scheduler".into(),
            remedy: Some("another kernel".into()),
        };
        let mut text = String::new();
        row(&mut text, feature, &finding, &Style::PLAIN);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains(&finding.evidence));
        assert!(text.contains("what would change it: another kernel"));
    }
}
