//! The book (docs/book) shows code that is compiled. Links of the book and of other documents lead to files that exist,
//! and so do the paths that ARCHITECTURE.md names.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn pages() -> Vec<(PathBuf, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src");
    let mut pages = Vec::new();
    for entry in fs::read_dir(&source).expect("the book is there") {
        let path = entry.expect("an entry").path();
        if path.extension() != Some("md".as_ref()) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        pages.push((path, text));
    }
    assert!(pages.len() > 5, "{} pages", pages.len());
    pages
}

fn between<'a>(text: &'a str, begin: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(begin)
        .skip(1)
        .map(move |rest| rest.split(end).next().unwrap_or_default())
}

/// Code that a reader of the plain page sees, too. Before it stands where it is from: a file, and the name between
/// `ANCHOR` and `ANCHOR_END` there.
#[test]
fn code_of_the_book_is_in_the_examples() {
    let mut shown = 0;
    for (page, text) in pages() {
        for part in between(&text, "<!-- crates/", "\n```\n") {
            let page = page.display();
            let (from, code) = part.split_once(" -->\n```rust\n").expect("a block of code");
            let (file, anchor) = from.split_once(": ").expect("a file and an anchor");
            let program = fs::read_to_string(root().join("crates").join(file))
                .unwrap_or_else(|error| panic!("{page}: {from}: {error}"));
            let [begin, end] =
                ["ANCHOR", "ANCHOR_END"].map(|mark| format!("// {mark}: {anchor}\n"));
            for mark in [&begin, &end] {
                assert_eq!(program.matches(mark).count(), 1, "{from}: {mark}");
            }
            let there = between(&program, &begin, &end).next();
            assert_eq!(there, Some(format!("{code}\n").as_str()), "{page}: {from}");
            assert!(file.contains("/examples/"), "{from}: not compiled");
            shown += 1;
        }
        // Only one program would show what is included.
        assert!(!text.contains("{{#"), "{}", page.display());
    }
    assert!(shown > 5, "{shown} pieces of code");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents outside of the book.
fn documents() -> Vec<PathBuf> {
    let mut documents = Vec::new();
    let mut directories = vec![root(), root().join("docs"), root().join("docs/adr")];
    for group in ["crates", "tests"] {
        for entry in fs::read_dir(root().join(group)).expect("a directory") {
            let path = entry.expect("an entry").path();
            directories.extend(path.is_dir().then_some(path));
        }
    }
    for directory in directories {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    documents
}

/// The names by which a link leads to the headings of a page: small letters, digits, and hyphens for spaces.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = |letter: &char| letter.is_alphanumeric() || "-_ ".contains(*letter);
            let letters = heading.chars().filter(kept);
            letters
                .map(|letter| if letter == ' ' { '-' } else { letter })
                .collect()
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut followed = 0;
    let book = pages().into_iter().map(|(page, _)| page);
    for page in documents().into_iter().chain(book) {
        let text = fs::read_to_string(&page).expect("text");
        for link in between(&text, "](", ")") {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().expect("a directory").join(file),
            };
            assert!(target.exists(), "{}: {link}", page.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).expect("text");
                assert!(
                    anchors(&text).contains(anchor),
                    "{}: {link}",
                    page.display()
                );
            }
            followed += 1;
        }
    }
    assert!(followed > 100, "{followed} links");
}

#[test]
fn paths_in_the_architecture_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("text");
    // The folder of the table that follows.
    let mut folder = root();
    let mut checked = 0;
    // What stands between two of these signs is every second piece.
    for name in text.split('`').skip(1).step_by(2) {
        if name.starts_with('/') || !(name.ends_with(".rs") || name.contains('/')) {
            continue;
        }
        let below_crates = root().join("crates").join(name);
        if name.ends_with("/src") {
            folder.clone_from(&below_crates);
        }
        let places = [below_crates, root().join(name), folder.join(name)];
        assert!(places.iter().any(|path| path.exists()), "{name}");
        checked += 1;
    }
    assert!(checked > 40, "{checked} paths");
}

#[test]
fn the_architecture_is_short() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("text");
    let words = text.split_whitespace().count();
    assert!(words <= 1500, "{words} words");
}

#[test]
fn every_decision_is_in_the_index() {
    let index = fs::read_to_string(root().join("docs/adr/README.md")).expect("text");
    for page in documents() {
        let name = page.file_name().and_then(|name| name.to_str());
        let name = name.expect("text");
        if name.starts_with("00") {
            assert!(index.contains(&format!("({name})")), "{name}");
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
