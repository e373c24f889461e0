//! The page: HTML that is well-formed XML, too, and loads nothing.

use std::time::{Duration, UNIX_EPOCH};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::bounds::Verdict as Kept;
use crate::published;
use crate::report::compare::{Better, Comparison, Verdict};
use crate::report::draw::Plot;
use crate::report::model::{self, Report, Row, Table, ours};
use crate::report::read::Run;
use crate::stats::quantity;
use crate::table::word;

const STYLE: &str = "
:root{color-scheme:light dark}
body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:.5em 0}
caption{text-align:left;font-weight:bold}
th,td{padding:.1em .7em;border-bottom:1px solid #8888;text-align:left;vertical-align:top}
td.n{text-align:right;white-space:nowrap}
tr.lost td:last-child,.lost{font-weight:bold}
.scroll{overflow-x:auto}
figure{margin:1em 0}
svg{max-width:100%;height:auto}
code{white-space:pre-wrap}
";

/// The page of a report with its plots.
pub fn page(report: &Report, headlines: &[Plot], papers: &[Plot]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (PreEscaped("<meta charset=\"utf-8\"/>"))
                (PreEscaped("<meta name=\"viewport\" content=\"width=device-width\"/>"))
                title { "Upcall: what was measured" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Upcall: what was measured" }
                (summary(report))
                h2 id="headlines" { "Headlines" }
                @for plot in headlines { (figure(plot)) }
                h2 id="losses" { "Where Upcall loses" }
                (notable(report, Verdict::Loses))
                h2 id="broken" { "Bounds that do not hold" }
                (broken(report))
                h2 id="wins" { "Where Upcall wins" }
                (notable(report, Verdict::Wins))
                h2 id="same" { "Where no difference is clear" }
                (notable(report, Verdict::Same))
                h2 id="papers" { "The papers' figures" }
                (of_papers(papers))
                h2 id="all" { "Every figure" }
                (legend())
                @for (at, table) in report.tables.iter().enumerate() {
                    @if at == 0 || report.tables[at - 1].workload != table.workload {
                        h3 { (table.workload) }
                        p { (table.about) }
                    }
                    (figures(report, table))
                }
                h2 id="runs" { "The runs" }
                @for (number, run) in (1..).zip(&report.runs) { (facts(number, run)) }
                (left_out(report))
            }
        }
    };
    page.into_string()
}

fn summary(report: &Report) -> Markup {
    let [hold, broken, unknown] = model::bounds(report);
    let count = |verdict| report.notable(verdict).len();
    let quick = |run: &Run| run.head.as_ref().is_some_and(|head| head.quick);
    let short = report.runs.iter().any(quick);
    html! {
        p {
            "The program with POSIX threads under " code { "upcall run" } " is " code { "upcall" } ", the same program as it is, on "
            "kernel threads, is " code { "nptl" } ", and programs that do the same with the crate upcall are " code { "crate" } ". "
            "All others are peers. The page loads nothing from elsewhere."
        }
        @if let Some(run) = report.runs.first() { p { (machine(run)) } }
        @if short {
            p class="lost" {
                "A run here is of " code { "--quick" } ": its samples are few, and its work is smaller than the names of workloads say. "
                "It shows that everything runs, and not how fast. Its bounds and the published figures beside it mean nothing."
            }
        }
        @if report.runs.iter().any(|run| run.end.is_none()) {
            p class="lost" { "A run was cut off before its end, or its end is not known: what it had measured is here." }
        }
        ul {
            li { "Against kernel threads and the best peer of each variant, ours lose " (count(Verdict::Loses)) " times, win "
                 (count(Verdict::Wins)) " times, and " (count(Verdict::Same)) " times no difference is clear." }
            li { "Of the bounds that should hold, " (hold) " hold, " (broken) " do not, and " (unknown) " cannot be judged." }
            @for (name, why) in model::without(report) {
                li { "The runtime " code { (name) } " is missing: " (why) "." }
            }
            @for complaint in &report.complaints { li class="lost" { (complaint) } }
        }
    }
}

/// The machine and the load, in a sentence or two.
fn machine(run: &Run) -> Markup {
    let Some(head) = &run.head else {
        return html! { "The newest run says nothing of its machine: it was not written by " code { "upcall bench -o" } "." };
    };
    let machine = &head.machine;
    let processor = match &*machine.processor {
        "" => "unknown model",
        model => model,
    };
    html! {
        "Measured " (date(machine.time)) " with Upcall " (head.upcall) " on Linux " (machine.kernel) ", " (processor) ", "
        (machine.processors) " processors of which the run could use " (head.allowed) ". "
        "The load was " (machine.load) " before"
        @if let Some(end) = &run.end {
            ", and " (end.load) " after the " (minutes(end.seconds)) " that the run took, with its own load"
            @for noise in &end.noise { "; " (noise) }
            "."
            @if !end.noise.is_empty() { " Such a machine is noisy: trust ratios and minima more than medians." }
        } @else { "." }
    }
}

fn minutes(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} seconds"),
        _ => format!("{} minutes", (seconds + 30) / 60),
    }
}

fn date(seconds: u64) -> String {
    // A file may say anything; what has no date is shown as it is.
    match seconds {
        0..253_402_300_800 => httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds)),
        _ => format!("{seconds} seconds after 1970"),
    }
}

fn figure(plot: &Plot) -> Markup {
    html! {
        figure id=(plot.id) { (PreEscaped(&plot.svg)) }
    }
}

fn notable(report: &Report, verdict: Verdict) -> Markup {
    let all = report.notable(verdict);
    html! {
        @if all.is_empty() { p { "Nowhere, in these runs." } }
        @else {
            p { "Against kernel threads, and against the best peer of each variant." }
            div class="scroll" { table {
                thead { tr { th { "what" } th { "ours" } th { "against" } th { "ours, best / median" } th { "theirs, best / median" } th { "" } } }
                tbody {
                    @for one in &all {
                        tr {
                            td { a href=(link(one.table)) { (one.table.name()) } }
                            td { code { (one.ours) } }
                            td { code { (one.theirs) } }
                            td class="n" { (pair(one.table, one.ours)) }
                            td class="n" { (pair(one.table, one.theirs)) }
                            td { (one.comparison.words()) }
                        }
                    }
                }
            } }
        }
    }
}

/// Best and median.
fn pair(table: &Table, runtime: &str) -> String {
    let Some(figures) = table.figures(runtime) else {
        return "0, as it is the measure".into();
    };
    let best = match Better::of(&table.unit) {
        Better::Higher => figures.max,
        _ => figures.min,
    };
    let [best, median] = [best, figures.median].map(|value| quantity(value, &table.unit));
    format!("{best} / {median}")
}

fn broken(report: &Report) -> Markup {
    let all = report.tables.iter().flat_map(|table| {
        let broken = |one: &&model::Judged| one.verdict == Kept::Broken;
        table
            .bounds
            .iter()
            .filter(broken)
            .map(move |one| (table, one))
    });
    let all: Vec<_> = all.collect();
    html! {
        @if all.is_empty() { p { "None, in these runs." } }
        @else {
            ul { @for (table, one) in all {
                li { a href=(link(table)) { (table.name()) } ": " code { (one.runtime) } ", " (one.bound) ", was " (pair(table, one.runtime)) " (best / median)" }
            } }
        }
    }
}

fn of_papers(papers: &[Plot]) -> Markup {
    html! {
        p {
            "The machines of the papers were of 1991 to 2003, so times do not compare, and ratios do. The published figures are "
            "beside the tables below, with paper, table and row. Of drawings the papers' texts give no numbers: there only is said "
            "what a drawing shows."
        }
        @for plot in papers { (figure(plot)) }
        ul { @for one in published::FIGURES {
            li { (one.paper) ", " (one.place) " (" code { (one.workload) } "): " (one.shows) "." }
        } }
        p { "Published experiments that " code { "upcall bench" } " does not have:" }
        ul { @for row in published::without_workload() { li { (row.line()) } } }
    }
}

fn legend() -> Markup {
    html! {
        p {
            "The last two columns say how ours fared against the row's runtime, by the medians. One wins if it is better in the "
            "median and in the best sample, by more than 5 % (of percentages: by more than a point). Where the two disagree, or "
            "less is between them, no difference is clear. Bounds are those of the version that made this page."
        }
    }
}

fn id(table: &Table) -> String {
    let part = |text: &str| -> String {
        let keep = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        text.chars().map(keep).collect()
    };
    format!(
        "{}.{}.{}.{}",
        part(&table.workload),
        part(&table.variant),
        table.workers,
        table.run + 1
    )
}

fn link(table: &Table) -> String {
    format!("#{}", id(table))
}

fn figures(report: &Report, table: &Table) -> Markup {
    let plural = if table.workers == 1 { "" } else { "s" };
    let [upcall, package] = ours();
    let has_tail = table.rows.iter().any(|row| row.figures.p99.is_some());
    html! {
        div class="scroll" { table id=(id(table)) {
            caption {
                (table.name()) "; " (table.workers) " processor" (plural) "; " (Better::of(&table.unit).words())
                @if report.runs.len() > 1 { "; run " (table.run + 1) }
            }
            thead { tr {
                th { "runtime" } th { "min" } th { "median" }
                @if has_tail { th { "p99" } th { "p99.9" } }
                th { "max" } th { "samples" } th { "× nptl, min / median" }
                th { code { (upcall) } " against it" } th { code { (package) } " against it" }
            } }
            tbody { @for row in &table.rows { (figures_row(table, row, has_tail)) } }
        } }
        ul {
            @for one in &table.bounds {
                li class=@if one.verdict == Kept::Broken { "lost" } @else { "held" } {
                    "should hold for " code { (one.runtime) } ": " (one.bound) ": " (word(one.verdict))
                }
            }
            @if let Some(lost) = &table.lost {
                li { code { (upcall) } " against the native run, which is the measure: " (lost.words()) }
            }
            @for row in &table.published { li { "published: " (row.line()) } }
            @if let Some(drawing) = table.drawing { li { (drawing.paper) ", " (drawing.place) ": " (drawing.shows) } }
            @for one in &table.missing { li { (one) } }
            li { code { (table.command) } }
        }
    }
}

fn figures_row(table: &Table, row: &Row, has_tail: bool) -> Markup {
    let figures = &row.figures;
    let value = |value| quantity(value, &table.unit);
    let mut values = vec![value(figures.min), value(figures.median)];
    if has_tail {
        let tail = [figures.p99, figures.p999].map(|tail| tail.map(value).unwrap_or_default());
        values.extend(tail);
    }
    values.push(value(figures.max));
    let words = |one: &Option<Comparison>| one.as_ref().map(Comparison::words).unwrap_or_default();
    let times = row
        .times
        .map(|(min, median)| format!("{min:.2} / {median:.2}"));
    html! {
        tr {
            td { code { (row.runtime) } @if !row.version.is_empty() { " (" (row.version) ")" } }
            @for value in values { td class="n" { (value) } }
            td class="n" { (figures.n) }
            td class="n" { (times.unwrap_or_default()) }
            @for one in &row.against { td { (words(one)) } }
        }
    }
}

fn facts(number: usize, run: &Run) -> Markup {
    html! {
        h3 { "Run " (number) ", of " code { (run.file) } }
        p { (machine(run)) }
        @if let Some(head) = &run.head {
            p { "Options: " @if head.options.is_empty() { "none" } @else { code { (head.options.join(" ")) } } ". Runtimes: "
                (head.runtimes.iter().map(|(name, version)| format!("{name} ({version})")).collect::<Vec<_>>().join(", ")) "." }
        }
    }
}

fn left_out(report: &Report) -> Markup {
    let all: Vec<_> = (1..)
        .zip(&report.runs)
        .flat_map(|(number, run)| run.left_out.iter().map(move |one| (number, one)))
        .collect();
    html! {
        h2 id="missing" { "What failed or was left out" }
        @if all.is_empty() { p { "Nothing that these files know of." } }
        ul { @for (number, one) in all {
            li class=@if one.failed { "lost" } @else { "held" } {
                "run " (number) ": " (one.workload)
                @if !one.workload.is_empty() && !one.runtime.is_empty() { " on " }
                (one.runtime) ": " @if one.failed { "failed: " } (one.why)
            }
        } }
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
