//! The page is well-formed, loads nothing, and has every record.

use proptest::prelude::*;
use roxmltree::{Document, ParsingOptions};

use super::page;
use crate::catalogue::WORKLOADS;
use crate::record::Record;
use crate::report::model::Report;
use crate::report::plots;
use crate::report::read::Input;
use crate::results::{End, Head, LeftOut, Note};
use crate::stats::{Summary, quantity};

fn made(files: &[&str]) -> String {
    let mut input = Input::default();
    for (number, text) in files.iter().enumerate() {
        input.add(&format!("{number}.jsonl"), text);
    }
    let report = Report::of(input);
    page(
        &report,
        &plots::headlines(&report),
        &plots::of_papers(&report),
    )
}

fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}\n{page}"))
}

/// The text of each row of each table.
fn rows(document: &Document) -> Vec<Vec<String>> {
    let of = |tag: &'static str| move |node: &roxmltree::Node| node.tag_name().name() == tag;
    let text = |node: roxmltree::Node| -> String {
        node.descendants()
            .filter(|one| one.is_text())
            .filter_map(|one| one.text())
            .collect()
    };
    let rows = document.descendants().filter(of("tr"));
    rows.map(|row| row.children().map(text).collect()).collect()
}

/// Nothing is loaded: no script, no address in an attribute or in the style that is not of the page itself.
fn loads_nothing(document: &Document, page: &str) {
    for node in document.descendants() {
        let name = node.tag_name().name();
        let loads = [
            "script", "link", "img", "iframe", "object", "embed", "image", "use", "base",
        ];
        assert!(!loads.contains(&name), "{name}");
        for attribute in node.attributes() {
            let value = attribute.value();
            assert!(
                !value.contains("://") && !value.contains("url("),
                "{name} {value}"
            );
            assert!(!attribute.name().starts_with("on"), "{name}");
            if ["href", "src"].contains(&attribute.name()) {
                assert!(value.starts_with('#'), "{name} {value}");
            }
        }
    }
    let namespace = "http://www.w3.org/2000/svg";
    let rest = page.replace(namespace, "");
    for bad in ["http://", "https://", "@import", "url("] {
        assert!(!rest.contains(bad), "{bad}");
    }
}

/// A whole run of everything, of a machine that nobody has.
fn whole_run() -> String {
    let mut text = Note::Head(Head {
        upcall: "0.1.0".into(),
        options: vec!["--rounds".into(), "2".into()],
        ..Head::default()
    })
    .line();
    for (number, workload) in WORKLOADS.iter().enumerate() {
        for variant in workload.variants {
            for (at, runtime) in variant.runtimes.iter().enumerate() {
                let value = (number % 9 * 7 + at + 1) as f64;
                let record = Record {
                    workload: workload.name.into(),
                    variant: variant.name.into(),
                    runtime: runtime.as_str().into(),
                    unit: workload.unit.into(),
                    workers: workload.workers,
                    ..Record::of(&Summary::of(&[value, value * 1.5]).unwrap())
                };
                text += &format!("\n{}", record.line());
            }
        }
    }
    let left_out = Note::LeftOut(LeftOut {
        runtime: "erlang".into(),
        why: "there is none".into(),
        ..LeftOut::default()
    });
    let end = Note::End(End::default());
    format!("{text}\n{}\n{}\n", left_out.line(), end.line())
}

#[test]
fn a_page_of_everything_is_well_formed_and_loads_nothing() {
    let page = made(&[&whole_run()]);
    let document = parsed(&page);
    loads_nothing(&document, &page);
    assert_eq!(
        page.matches("<svg ").count(),
        page.matches("<desc ").count()
    );
    for id in [
        "blocking", "faults", "pairs", "block", "creation", "gains", "speedup", "memory", "copies",
    ] {
        assert!(page.contains(&format!("<figure id=\"{id}\">")), "{id}");
    }
    for text in [
        "The runtime <code>erlang</code> is missing: there is none.",
        "upcall bench --rounds 2 null_fork",
        "published: FastThreads on scheduler activations 37.00 µs, FastThreads on Topaz threads 34.00 µs",
        "published: new FastThreads 2.45, original FastThreads 1.26, Topaz threads 1.29",
        "loses, ",
        "wins, ",
        "DOES NOT HOLD",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("cut off"));
}

#[test]
fn a_run_that_was_cut_off_is_said_to_be() {
    let whole = whole_run();
    let page = made(&[&whole[..whole.len() / 2]]);
    parsed(&page);
    assert!(page.contains("A run was cut off before its end"));
    assert!(page.contains("a part of 0.jsonl is left out"), "{page}");
}

#[test]
fn a_quick_run_is_said_to_show_nothing() {
    let head = Note::Head(Head {
        quick: true,
        ..Head::default()
    });
    let page = made(&[&format!("{}\n", head.line())]);
    parsed(&page);
    assert!(page.contains("and not how fast"));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("yield".to_owned()),
        Just("null_fork".to_owned()),
        Just("nbody_speedup".to_owned()),
        Just("never_blocks".to_owned()),
        Just("upcall".to_owned()),
        Just("nptl".to_owned()),
        "[a-z<>&\"'\\]\\[!0-9 /]{1,12}",
        any::<String>(),
    ]
}

prop_compose! {
    fn record()(workload in text(), variant in text(), runtime in text(), unit in prop_oneof![
        Just("ns".to_owned()), Just("%".to_owned()), Just("ratio".to_owned()), Just("ms".to_owned()), text(),
    ], figures in prop::collection::vec(any::<f64>().prop_filter("JSON has no others", |one| one.is_finite()), 1..4),
       workers in any::<usize>()) -> Record<'static> {
        Record {
            workload: workload.into(), variant: variant.into(), runtime: runtime.into(), unit: unit.into(), workers,
            min: figures[0], median: figures[figures.len() / 2], max: figures[figures.len() - 1], p90: figures[0], n: figures.len(),
            v: 1, ..Record::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_record_is_in_a_table(records in prop::collection::vec(record(), 1..12)) {
        let lines: String = records.iter().map(|record| record.line() + "\n").collect();
        let page = made(&[&lines]);
        let document = parsed(&page);
        let mut rows = rows(&document);
        // What the page cannot show is replaced when it is read; the same is done here.
        let mut input = Input::default();
        input.add("x", &lines);
        prop_assert!(input.complaints.is_empty(), "{:?}", input.complaints);
        let read: Vec<_> = input.runs.iter().flat_map(|run| &run.records).collect();
        prop_assert_eq!(read.len(), records.len());
        for record in read {
            let wanted = [record.min, record.median, record.max].map(|value| quantity(value, &record.unit));
            let is = |row: &Vec<String>| {
                row.len() == 8 && row[0].trim_end() == record.runtime.trim_end() && row[1..4] == wanted && row[4] == record.n.to_string()
            };
            let found = rows.iter().position(is);
            prop_assert!(found.is_some(), "{record:?}\n{page}");
            rows.remove(found.unwrap_or_default());
        }
    }

    #[test]
    fn no_file_breaks_the_page(text in any::<String>(), head in any::<String>()) {
        let head = Note::Head(Head { upcall: head, ..Head::default() }).line();
        let page = made(&[&text, &format!("{head}\n{text}")]);
        parsed(&page);
    }
}
