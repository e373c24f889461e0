//! Child processes that cannot see the guest library, because a mount or another root hides it.

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
