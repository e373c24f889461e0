//! Real files for tools to work on: files of this machine, copied once so that they do not change
//! between two runs.

use std::fs;
use std::path::{Path, PathBuf};

/// Libraries and programs: binary content.
const BINARIES: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/bin"];
/// Documentation, headers, scripts: text content.
const TEXTS: [&str; 3] = ["/usr/include", "/usr/share/doc", "/usr/share/perl"];

/// One file of about `bytes` bytes: text and binary files of this machine, one after the other.
///
/// # Panics
///
/// When the scratch directory is not writable.
pub fn blob(scratch: &Path, bytes: usize) -> PathBuf {
    let path = scratch.join(format!("corpus-{bytes}.bin"));
    publish(&path, |fresh| {
        let mut content = Vec::with_capacity(bytes);
        for (roots, share) in [(&BINARIES[..], bytes / 2), (&TEXTS[..], bytes)] {
            walk(roots, &mut |file| {
                let read = fs::read(file).unwrap_or_default();
                content.extend(read.iter().take(share.saturating_sub(content.len())));
                content.len() < share
            });
        }
        fs::write(fresh, content).expect("the scratch directory is writable");
    });
    path
}

/// A directory of at most `count` text files of this machine, flat, with numbered names.
///
/// # Panics
///
/// When the scratch directory is not writable.
pub fn tree(scratch: &Path, count: usize) -> PathBuf {
    let path = scratch.join(format!("corpus-tree-{count}"));
    publish(&path, |fresh| {
        fs::create_dir(fresh).expect("the scratch directory is writable");
        let mut copied = 0;
        walk(&TEXTS, &mut |file| {
            let size = file.metadata().map_or(0, |meta| meta.len());
            if (1..1 << 20).contains(&size)
                && let Ok(bytes) = fs::read(file)
            {
                let shelf = fresh.join(format!("{:02}", copied % 16));
                fs::create_dir_all(&shelf).expect("the scratch directory is writable");
                fs::write(shelf.join(format!("{copied:05}.txt")), bytes)
                    .expect("the scratch directory is writable");
                copied += 1;
            }
            copied < count
        });
    });
    path
}

/// Makes `path` under another name and renames it into place, so that parallel cases and
/// interrupted runs never see half of it.
fn publish(path: &Path, make: impl FnOnce(&Path)) {
    if path.exists() {
        return;
    }
    let id = format!("{:?}", std::thread::current().id());
    let id: String = id.chars().filter(char::is_ascii_digit).collect();
    let fresh = path.with_extension(format!("new{}-{id}", std::process::id()));
    make(&fresh);
    if fs::rename(&fresh, path).is_err() {
        // Somebody else was first: a directory is not replaced.
        assert!(path.exists(), "cannot put {} into place", path.display());
        fs::remove_dir_all(&fresh).ok();
    }
}

/// Visits regular files in sorted order until `visit` returns false. Links are not followed.
fn walk(roots: &[&str], visit: &mut impl FnMut(&Path) -> bool) {
    let mut open: Vec<PathBuf> = roots.iter().rev().map(PathBuf::from).collect();
    while let Some(path) = open.pop() {
        let Ok(meta) = path.symlink_metadata() else {
            continue;
        };
        if meta.is_dir() {
            let mut inside: Vec<PathBuf> = fs::read_dir(&path)
                .into_iter()
                .flatten()
                .flatten()
                .map(|e| e.path())
                .collect();
            inside.sort_unstable_by(|one, other| other.cmp(one));
            open.extend(inside);
        } else if meta.is_file() && !visit(&path) {
            return;
        }
    }
}
