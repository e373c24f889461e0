//! The book (docs/book) shows code that is compiled, and leads nowhere that is not there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn pages() -> Vec<(PathBuf, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src");
    let mut pages = Vec::new();
    for entry in fs::read_dir(&source).expect("the book is there") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("text");
        pages.push((path, text));
    }
    assert!(pages.len() > 5, "{} pages", pages.len());
    pages
}

/// What stands between `begin` and `end`, each time.
fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(begin)
        .skip(1)
        .map(move |rest| rest.split(end).next().unwrap_or_default())
}

#[test]
fn code_of_the_book_is_in_the_examples() {
    let mut shown = 0;
    for (page, text) in pages() {
        for include in between(&text, "{{#include ", "}}") {
            let (file, anchor) = include.rsplit_once(':').expect("a file and an anchor");
            let path = page.parent().expect("a directory").join(file);
            let program = fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {include}: {error}", page.display()));
            for mark in ["ANCHOR", "ANCHOR_END"] {
                let mark = format!("// {mark}: {anchor}\n");
                assert_eq!(program.matches(&mark).count(), 1, "{include}: {mark}");
            }
            assert!(file.contains("/examples/"), "{include}: not compiled");
            shown += 1;
        }
    }
    assert!(shown > 5, "{shown} pieces of code");
}

#[test]
fn links_of_the_book_lead_somewhere() {
    for (page, text) in pages() {
        for link in between(&text, "](", ")") {
            if !link.contains("://") {
                let path = page.parent().expect("a directory").join(link);
                assert!(path.exists(), "{}: {link}", page.display());
            }
        }
    }
}

#[test]
fn every_chapter_is_in_the_summary() {
    let pages = pages();
    let name = |path: &Path| {
        let name = path.file_name().expect("a file");
        name.to_str().expect("text").to_owned()
    };
    let (summary, chapters): (Vec<_>, Vec<_>) = pages
        .iter()
        .partition(|(path, _)| name(path) == "SUMMARY.md");
    let listed: BTreeSet<String> = between(&summary[0].1, "](", ")")
        .map(str::to_owned)
        .collect();
    let there: BTreeSet<String> = chapters.iter().map(|(path, _)| name(path)).collect();
    assert_eq!(listed, there);
}
