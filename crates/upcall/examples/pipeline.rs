//! A pipeline: a thread for each stage, with channels of a few places between them. Each stage may block, and nobody runs
//! far ahead of the slowest one.
//!
//! `cargo run --release -p upcall --example pipeline -- DIRECTORY`: the lines of its files, the longest last

use std::collections::BTreeMap;
use std::path::PathBuf;

use upcall::sync::mpsc::{Receiver, sync_channel};
use upcall::thread;

/// Starts a stage, which sends what it makes of what it receives, and ends with what it receives from.
fn stage<A, B, I>(from: Receiver<A>, make: impl Fn(A) -> I + Send + 'static) -> Receiver<B>
where
    A: Send + 'static,
    B: Send + 'static,
    I: IntoIterator<Item = B>,
{
    let (to, result) = sync_channel(8);
    thread::spawn(move || {
        for one in from.iter().flat_map(make) {
            // Nobody wants more of it.
            if to.send(one).is_err() {
                break;
            }
        }
    });
    result
}

fn main() {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let (first, directories) = sync_channel(1);
    first
        .send(PathBuf::from(directory))
        .expect("there is a place");
    drop(first);
    let files = stage(directories, |directory| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
    });
    // What cannot be read, and is no text, has no lines.
    let texts = stage(files, std::fs::read_to_string);
    let lengths = stage(texts, |text: String| {
        text.lines()
            .map(|line| line.chars().count())
            .collect::<Vec<_>>()
    });
    let mut counts = BTreeMap::new();
    for length in lengths {
        *counts.entry(length / 10 * 10).or_insert(0u64) += 1;
    }
    for (length, count) in counts {
        println!("{length:4} characters or some more: {count} lines");
    }
}
