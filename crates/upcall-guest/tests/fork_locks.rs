//! The child of a fork(2) has one thread. A lock that another thread of the parent held is locked there for ever, unless the
//! child opens it (`process::forked`).

use std::fs;
use std::path::Path;

/// The text of all sources of a crate, without tests.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str());
        if name == Some("tests") || name == Some("models") {
            continue;
        }
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *text += &fs::read_to_string(&path).expect("text");
        }
    }
}

#[test]
fn every_static_spin_lock_is_opened_in_the_child_of_a_fork() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for name in ["upcall-guest", "upcall-linux", "upcall-core", "upcall"] {
        sources(&crates.join(name).join("src"), &mut text);
    }
    let name_of = |line: &str| {
        let (_, rest) = line.split_once("static ")?;
        let (name, kind) = rest.split_once(": ")?;
        kind.starts_with("SpinLock<").then(|| name.to_owned())
    };
    let locks: Vec<String> = text.lines().filter_map(name_of).collect();
    assert!(locks.len() > 4, "only {locks:?}");
    let is_left = |name: &&String| !text.contains(&format!("{name}.unlock()"));
    let left: Vec<&String> = locks.iter().filter(is_left).collect();
    assert!(left.is_empty(), "the child does not open {left:?}");
}
