//! Links in documents lead somewhere, and the book has all its pages.
//!
//! A relative link names a file or a folder of the repository. A part of a document behind `#` is a heading there, as
//! forges and mdBook name it. Links to the network are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Where documents are, from the repository's root.
const FOLDERS: [&str; 4] = ["crates", "docs", "packaging", "tests"];

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    let mut wrong = Vec::new();
    for (path, document) in &documents {
        for link in &document.links {
            if let Some(why) = what_is_wrong(&documents, path, link) {
                wrong.push(format!("{}: ({link}): {why}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A page that the book's summary does not name is not in the book.
#[test]
fn the_book_has_all_its_pages() {
    let folder = Path::new("docs/book/src");
    let documents = documents();
    let is_page = |path: &&PathBuf| path.starts_with(folder) && !path.ends_with("SUMMARY.md");
    let pages: BTreeSet<PathBuf> = documents.keys().filter(is_page).cloned().collect();
    let links = &documents[&folder.join("SUMMARY.md")].links;
    let named: BTreeSet<PathBuf> = links.iter().map(|link| folder.join(link)).collect();
    assert_eq!(pages, named);
}

/// A forge shows the text of the file as it is: what mdBook alone puts in is missing there.
#[test]
fn pages_have_no_includes() {
    for path in documents().keys() {
        let text = fs::read_to_string(root().join(path)).expect("text");
        assert!(!text.contains("{{#"), "{}", path.display());
    }
}

struct Document {
    /// The names of its headings.
    headings: BTreeSet<String>,
    /// Where its links lead.
    links: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All documents, by their path from the repository's root.
fn documents() -> BTreeMap<PathBuf, Document> {
    let mut documents = BTreeMap::new();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    let mut files = entries(Path::new(""), false);
    while let Some(folder) = folders.pop() {
        files.extend(entries(&folder, false));
        folders.extend(entries(&folder, true));
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
    for file in files {
        let text = fs::read_to_string(root().join(&file)).expect("text");
        documents.insert(file, Document::of(&text));
    }
    assert!(documents.len() > 50, "{} documents", documents.len());
    documents
}

/// The files in a folder, or its folders, but for hidden ones and what a build makes.
fn entries(folder: &Path, folders: bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder");
    let entries = entries.map(|entry| entry.expect("an entry"));
    let wanted = entries.filter(|entry| {
        let name = entry.file_name();
        let is_ours = !name.as_encoded_bytes().starts_with(b".") && name != "target";
        is_ours && entry.file_type().expect("its type").is_dir() == folders
    });
    wanted.map(|entry| folder.join(entry.file_name())).collect()
}

impl Document {
    fn of(text: &str) -> Self {
        let (mut headings, mut links) = (BTreeSet::new(), Vec::new());
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    let name = name_of(&heading.take().unwrap_or_default());
                    let repeated = (1..).map(|number| format!("{name}-{number}"));
                    let names = std::iter::once(name.clone()).chain(repeated);
                    let free = names.into_iter().find(|name| !headings.contains(name));
                    headings.extend(free);
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    links.push(dest_url.into_string());
                }
                _ => {}
            }
        }
        Document { headings, links }
    }
}

/// The name by which a link finds a heading.
fn name_of(heading: &str) -> String {
    let kept = |one: &char| one.is_alphanumeric() || matches!(one, '-' | '_' | ' ');
    let letters = heading.trim().chars().filter(kept);
    let name: String = letters.flat_map(char::to_lowercase).collect();
    name.replace(' ', "-")
}

fn what_is_wrong(
    documents: &BTreeMap<PathBuf, Document>,
    from: &Path,
    link: &str,
) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, part) = link.split_once('#').unwrap_or((link, ""));
    let path = match file {
        "" => from.to_owned(),
        _ => normal(&from.parent().unwrap_or(Path::new("")).join(file)),
    };
    if !root().join(&path).exists() {
        return Some(format!("there is no {}", path.display()));
    }
    if part.is_empty() {
        return None;
    }
    let Some(document) = documents.get(&path) else {
        return Some(format!("{} is no document", path.display()));
    };
    let has_part = document.headings.contains(part);
    (!has_part).then(|| format!("{} has no heading of that name", path.display()))
}

/// Without `..`, as a forge reads it.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

#[test]
fn headings_have_the_names_of_forges() {
    for (heading, name) in [
        (
            "What is refused, or different",
            "what-is-refused-or-different",
        ),
        ("`upcall run` and C++", "upcall-run-and-c"),
        ("18. A b_c - d", "18-a-b_c---d"),
    ] {
        assert_eq!(name_of(heading), name);
    }
}
