//! In each crate, imports run downwards.
//!
//! A *room* is a module directly under a crate's root, with all modules inside. The rooms of a crate stand
//! on *floors*. A room may import rooms of lower floors. It may also import rooms of its own floor, if no
//! cycle results. The root is above all rooms: no room imports an item of it. A name that the root
//! re-exports counts as an import of the room that has the item.
//!
//! To add a crate, add a test that calls [`check`] with the crate's folder and its floors, the ground
//! first. Each room stands on exactly one floor. This prints who imports what, and where first:
//! `UPCALL_LAYERS=show cargo test -p layer-tests -- --nocapture`.
//!
//! Imports are the paths that begin with `crate::` or `super::`, in `use` or anywhere else in the code.
//! Comments, items under `#[cfg(test)]` and files outside of `src` do not count.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

use proc_macro2::{TokenStream, TokenTree};

#[test]
fn upcall() {
    check(
        "crates/upcall",
        &[
            &["critical", "deadlock", "error", "signal", "time", "waiting"],
            &["current", "io", "policy", "sync"],
            &["net", "raw", "runtime"],
            &["thread"],
            &["actor", "future", "join", "rayon", "workers"],
        ],
    );
}

#[test]
fn upcall_core() {
    check(
        "crates/upcall-core",
        &[
            &["arch", "machine", "rank", "stats", "sync"],
            &[
                "accepted",
                "edges",
                "list",
                "lock",
                "numbered",
                "slot",
                "turnstile",
                "vp_set",
            ],
            &["memory", "stack"],
            &["state"],
            &["event"],
            &["kernel"],
            &["ending", "timer"],
            &["runtime"],
        ],
    );
}

#[test]
fn upcall_guest() {
    check(
        "crates/upcall-guest",
        &[
            &["ground"],
            &["rewrite"],
            &["signal"],
            &["thread"],
            &["process"],
            &["call"],
            &["report"],
            &["start"],
        ],
    );
}

#[test]
fn upcall_linux() {
    check(
        "crates/upcall-linux",
        &[
            &["sys"],
            &["blocked", "processors", "record", "settings", "turns"],
            &["state"],
            &["activation", "poller", "probe"],
            &["kernel"],
            &["fuzzing"],
        ],
    );
}

#[test]
fn upcall_sim() {
    check(
        "crates/upcall-sim",
        &[
            &["setup"],
            &["machine"],
            &["daemon", "invariants"],
            &["kernel"],
            &["threads"],
            &["run"],
        ],
    );
}

#[test]
fn upcall_alloc() {
    check(
        "crates/upcall-alloc",
        &[
            &["gangs", "rules"],
            &["space"],
            &["order", "processors"],
            &["allocator"],
        ],
    );
}

#[test]
fn upcall_bpf() {
    check(
        "crates/upcall-bpf",
        &[
            &["ended", "map", "trouble"],
            &["object"],
            &["load", "scheduler", "without"],
        ],
    );
}

#[test]
fn upcalld() {
    check(
        "crates/upcalld",
        &[
            &[
                "commons", "groups", "lending", "packets", "shares", "trouble", "words",
            ],
            &["division", "meter", "place", "weights"],
            &["config", "house", "pages"],
            &["log", "manager", "metrics", "scheduler"],
            &["serve"],
        ],
    );
}

#[test]
fn upcall_bench() {
    check(
        "crates/upcall-bench",
        &[
            &[
                "args",
                "farewell",
                "guarded",
                "installed",
                "machine",
                "problem",
                "stats",
                "terminal",
                "workload",
            ],
            &[
                "affinity",
                "bounds",
                "builds",
                "keeper",
                "memcached_load",
                "noise",
                "published",
                "record",
                "server",
                "who",
            ],
            &["catalogue", "child", "results", "runtime"],
            &["choice", "counts"],
            &["jobs", "servers"],
            &["measure", "table"],
            &["outcome", "report"],
            &["session"],
        ],
    );
}

#[test]
fn upcall_c() {
    check(
        "crates/upcall-c",
        &[
            &[
                "answer",
                "barrier",
                "channel",
                "cond",
                "critical",
                "key",
                "mutex",
                "once",
                "rwlock",
                "semaphore",
                "time",
                "versioned",
            ],
            &["policy"],
            &["options"],
            &["thread"],
            &["fork"],
            &["layout"],
        ],
    );
}

#[test]
fn upcall_cli() {
    check(
        "crates/upcall-cli",
        &[
            &["args", "image", "live", "locate", "script", "status"],
            &["front", "program", "refusal"],
            &[
                "doctor",
                "guest_library",
                "manual",
                "ps",
                "show",
                "stacks",
                "top",
                "trace",
                "tunables",
            ],
            &["remember"],
            &["launch"],
        ],
    );
}

#[test]
fn upcall_timed() {
    check(
        "crates/upcall-timed",
        &[&["costs"], &["machine"], &["latency"], &["nbody"]],
    );
}

#[test]
fn upcall_conformance() {
    check(
        "crates/upcall-conformance",
        &[&["world"], &["scenarios", "threads"], &["sim"]],
    );
}

/// Fails if an import of the crate in `folder` runs upwards, or in a cycle on one of its `floors`.
fn check(folder: &str, floors: &[&[&str]]) {
    let found = Crate::read(&Path::new("../..").join(folder));
    let listed: BTreeSet<&str> = floors.concat().into_iter().collect();
    let rooms: BTreeSet<&str> = found.rooms.iter().map(String::as_str).collect();

    let floor = |room: &str| floors.iter().position(|rooms| rooms.contains(&room));
    let (mut upwards, mut level) = (Vec::new(), Vec::new());
    for ((from, to), place) in found.between_rooms() {
        let import = format!("{from} imports {to} ({place})");
        if env::var_os("UPCALL_LAYERS").is_some() {
            println!("{import}");
        }
        match floor(from).cmp(&floor(to)) {
            Ordering::Greater if floor(to).is_some() => {}
            Ordering::Equal => level.push((from, to, import)),
            _ => upwards.push(import),
        }
    }
    assert_eq!(
        listed, rooms,
        "{folder}: left, the rooms on the floors; right, those of the crate"
    );
    // An import of a room that imports none is in no cycle.
    while let Some(end) = level
        .iter()
        .position(|(_, to, _)| level.iter().all(|(from, ..)| from != to))
    {
        level.remove(end);
    }
    upwards.extend(
        level
            .into_iter()
            .map(|(.., import)| format!("in a cycle: {import}")),
    );
    assert!(
        upwards.is_empty(),
        "{folder}: imports that do not run downwards:\n{}",
        upwards.join("\n")
    );
}

/// What the source of a crate says of its rooms.
#[derive(Default)]
struct Crate {
    rooms: BTreeSet<String>,
    /// The names that the root takes from rooms, each with its room.
    root: BTreeMap<String, String>,
    /// A room, a name behind `crate::` in its paths, and the first place where it stands.
    imports: BTreeMap<(String, String), String>,
}

/// Where a piece of source stands.
struct Place {
    module: Vec<String>,
    file: PathBuf,
    /// The folder with the files of the modules inside.
    folder: PathBuf,
}

impl Crate {
    fn read(folder: &Path) -> Crate {
        let folder = folder.join("src");
        let files = ["lib.rs", "main.rs"].map(|name| folder.join(name));
        let file = files
            .into_iter()
            .find(|file| file.exists())
            .expect("the root of a crate");
        let mut found = Crate::default();
        found.file(&Place {
            module: Vec::new(),
            file,
            folder,
        });
        found
    }

    fn between_rooms(&self) -> BTreeMap<(&str, &str), &str> {
        let room = |name| {
            self.root
                .get(name)
                .filter(|_| !self.rooms.contains(name))
                .unwrap_or(name)
        };
        let pairs = self
            .imports
            .iter()
            .map(|((from, name), place)| ((&**from, &**room(name)), &**place));
        pairs.filter(|((from, to), _)| from != to).collect()
    }

    fn file(&mut self, place: &Place) {
        let name = place.file.display();
        let text = fs::read_to_string(&place.file).unwrap_or_else(|e| panic!("{name}: {e}"));
        self.source(
            text.parse().unwrap_or_else(|e| panic!("{name}: {e}")),
            place,
        );
    }

    fn source(&mut self, source: TokenStream, place: &Place) {
        let tokens: Vec<TokenTree> = source.into_iter().collect();
        let text: Vec<String> = tokens.iter().map(TokenTree::to_string).collect();
        let is = |at: usize, what: &str| text.get(at).is_some_and(|text| text == what);
        let mut path = None;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                // An attribute.
                TokenTree::Group(_) if at > 0 && is(at - 1, "#") => {
                    let attribute = text[at].replace([' ', '\n'], "");
                    if attribute.starts_with("[cfg(")
                        && attribute.replace("not(test", "").contains("test")
                    {
                        let end = text[at..]
                            .iter()
                            .position(|text| text == ";" || text.starts_with('{'));
                        at += end.unwrap_or(0);
                    } else if let Some(file) = attribute.strip_prefix("[path=\"") {
                        path = Some(place.file.with_file_name(file.trim_end_matches("\"]")));
                    }
                }
                TokenTree::Group(inside) => self.source(inside.stream(), place),
                TokenTree::Ident(name) if at > 0 && is(at - 1, "mod") => {
                    let module = [&place.module[..], &[name.to_string()]].concat();
                    if let [room] = &module[..] {
                        self.rooms.insert(room.clone());
                    }
                    let folder = place.folder.join(name.to_string());
                    if let Some(TokenTree::Group(inside)) = tokens.get(at + 1) {
                        self.source(
                            inside.stream(),
                            &Place {
                                module,
                                file: place.file.clone(),
                                folder,
                            },
                        );
                        at += 1;
                    } else if let Some(file) = path.take() {
                        self.file(&Place {
                            module,
                            folder: file.with_file_name(""),
                            file,
                        });
                    } else {
                        let files = [folder.with_extension("rs"), folder.join("mod.rs")];
                        let file = files
                            .into_iter()
                            .find(|file| file.exists())
                            .expect("the file of a module");
                        self.file(&Place {
                            module,
                            file,
                            folder,
                        });
                    }
                }
                TokenTree::Ident(name) if name == "use" && place.module.is_empty() => {
                    let end = at
                        + text[at..]
                            .iter()
                            .position(|text| text == ";")
                            .expect("an end");
                    let all = text[at + 1..end].join(" ");
                    let mut names = all
                        .split(|c: char| !c.is_alphanumeric() && c != '_')
                        .filter(|name| !name.is_empty());
                    let room = names
                        .find(|name| !["crate", "self"].contains(name))
                        .expect("a name");
                    self.root
                        .extend(names.map(|name| (name.to_string(), room.to_string())));
                    at = end;
                }
                TokenTree::Ident(name)
                    if ["crate", "super"].iter().any(|it| name == it) && is(at + 1, ":") =>
                {
                    let here = format!("{}:{}", place.file.display(), name.span().start().line);
                    let mut above = if name == "crate" {
                        &[]
                    } else {
                        &place.module[..]
                    };
                    at += if name == "crate" { 3 } else { 0 };
                    while is(at, "super") && is(at + 1, ":") {
                        above = above.split_last().map_or(above, |(_, above)| above);
                        at += 3;
                    }
                    let names = match (above, &tokens[at]) {
                        ([room, ..], _) => vec![room.clone()],
                        ([], TokenTree::Group(names)) => each_first(names.stream()),
                        ([], name) => vec![name.to_string()],
                    };
                    if let Some(from) = place.module.first() {
                        for name in &names {
                            self.imports
                                .entry((from.clone(), name.clone()))
                                .or_insert_with(|| here.clone());
                        }
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

/// Of `a::b, c`: a and c.
fn each_first(list: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = list.into_iter().collect();
    let parts = tokens.split(|token| token.to_string() == ",");
    parts
        .filter_map(|part| Some(part.first()?.to_string()))
        .collect()
}
