//! The guest library in what a program executes: where a mount or another root hides it, and where the list of libraries is
//! replaced.

use crate::{case, real};
use program_tests::program::Program;
use program_tests::provision;
use std::fs;
use std::path::Path;

/// An entry of the user's own, which stays.
const OTHER: &str = "libm.so.6";

/// Runs the program natively and by a copy of the command, which lies in a directory that the program hides.
fn hidden(name: &str, by_mount: bool) {
    let Some((case, program)) = real(name, "hidden_library.c") else {
        return;
    };
    if !provision::is_root() {
        provision::skip(name, "it mounts, which takes root");
        return;
    }
    let place = case.fresh("place");
    let upcall = case.launcher().upcall().expect("the real command");
    for file in ["upcall", "libupcall_guest.so"] {
        let from = upcall.parent().unwrap_or(Path::new("/")).join(file);
        fs::copy(from, place.join(file)).expect("the file can be copied");
    }
    let hidden = by_mount.then_some(&place);
    let words = |program: Program| program.env("LD_PRELOAD", OTHER).args(hidden);
    let native = case.run_native(&words(Program::new(&program)));
    let launched = Program::new(place.join("upcall"))
        .args(["run", "--"])
        .arg(&program);
    let launched = words(launched).run(&case.fresh("launched"), None);
    assert!(native.status.success(), "{}", native.talk());
    case.compare(1, &native, &launched, program_tests::case::sorted_lines);
    assert!(launched.stderr.is_empty(), "{}", launched.talk());
    let text = String::from_utf8_lossy(&launched.stdout);
    let kept = format!("in sh: {OTHER}, variable");
    assert!(text.contains(&kept), "{}", launched.talk());
}

#[test]
fn a_mount_hides_the_library() {
    hidden("a_mount_hides_the_library", true);
}

#[test]
fn another_root_hides_the_library() {
    hidden("another_root_hides_the_library", false);
}

#[test]
fn no_children_keeps_the_entries_of_the_user() {
    let case = case("no_children_keeps_the_entries_of_the_user");
    if !case.runs_upcall() {
        return;
    }
    let shell = Program::new("/bin/sh")
        .args(["-c", "echo $LD_PRELOAD; sh -c 'echo $LD_PRELOAD'"])
        .env("LD_PRELOAD", OTHER);
    let native = case.run_native(&shell);
    let launched = case.run_launched(&shell, &["--no-children"]);
    case.compare(1, &native, &launched, program_tests::case::verbatim);
}

/// A shell begins commands with lists of their own. Each says what it has, and whether it is served.
#[test]
fn a_replaced_list_gets_the_library_again() {
    let case = case("a_replaced_list_gets_the_library_again");
    if !case.runs_upcall() {
        return;
    }
    let say = "sh -c 'echo \"[$LD_PRELOAD]\" $(grep -c upcall_guest /proc/self/maps)'";
    let script = format!(
        "LD_PRELOAD={OTHER} {say}; export LD_PRELOAD={OTHER}; {say}; LD_PRELOAD= {say}; unset LD_PRELOAD; {say}"
    );
    let shell = Program::new("/bin/sh").args(["-c", &script]);
    let launched = case.run_launched(&shell, &[]);
    assert!(launched.status.success(), "{}", launched.talk());
    let text = String::from_utf8_lossy(&launched.stdout);
    let lines: Vec<(&str, bool)> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(list, count)| (list, count != "0"))
        .collect();
    let [replaced, exported, emptied, removed] = lines[..] else {
        panic!("{}", launched.talk());
    };
    for (list, is_served) in [replaced, exported] {
        let ours_first = list.strip_prefix('[').and_then(|list| list.split_once(':'));
        let is_so = ours_first.is_some_and(|(own, others)| {
            own.ends_with("/libupcall_guest.so") && others.strip_suffix(']') == Some(OTHER)
        });
        assert!(is_so && is_served, "{}", launched.talk());
    }
    assert_eq!((emptied, removed), (("[]", false), ("[]", false)));
}
