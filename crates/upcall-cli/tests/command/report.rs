//! `upcall report`: what it makes of directories, and what it leaves in them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

use crate::common::upcall;

const YIELD: &str = r#"{"v":1,"workload":"yield","runtime":"upcall","workers":1,"unit":"ns","min":40.0,"median":50.0,"n":3,"p90":60.0,"max":60.0,"version":"0.1.0"}"#;

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = place.join(format!("report-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a file");
    }

    fn report(&self) -> Output {
        let mut command = upcall();
        command.arg("report").arg(&self.0);
        command.output().expect("the command starts")
    }

    /// The names of all files.
    fn names(&self) -> Vec<String> {
        let all = fs::read_dir(&self.0).expect("a directory");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = all
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::set_permissions(&self.0, fs::Permissions::from_mode(0o700));
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn refused(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(said.starts_with("upcall report: "), "{said}");
    said
}

#[test]
fn a_page_is_made_and_nothing_else() {
    let scratch = Scratch::new("page");
    scratch.file("a.jsonl", &format!("{YIELD}\n{}", &YIELD[..50]));
    scratch.file("notes.txt", "not ours");
    scratch.file("other.jsonl", "{\"name\":\"x\"}\n");
    let output = scratch.report();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("a part of a.jsonl is left out; line 2"),
        "{said}"
    );
    assert!(said.contains("other.jsonl is left out"), "{said}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.ends_with("/report.html\n"), "{printed}");
    let names = ["a.jsonl", "notes.txt", "other.jsonl", "report.html"];
    assert_eq!(scratch.names(), names);
    let page = fs::read_to_string(scratch.0.join("report.html")).expect("the page");
    assert!(page.ends_with("</html>"), "the page is whole");
    assert!(page.contains("<code>upcall bench yield</code>"));
    assert!(page.contains("libpthread 1.16 µs"));
}

#[test]
fn directories_without_results_are_refused() {
    let scratch = Scratch::new("none");
    let said = refused(&scratch.report());
    assert!(said.contains("no file whose name ends in .jsonl"), "{said}");
    assert!(said.contains("try: upcall bench -o "), "{said}");
    scratch.file("a.jsonl", "hello\n");
    let said = refused(&scratch.report());
    assert!(said.contains("a.jsonl is left out"), "{said}");
    assert_eq!(scratch.names(), ["a.jsonl"]);
    let mut command = upcall();
    let output = command.args(["report", "/no/such/directory"]).output();
    let said = refused(&output.expect("the command starts"));
    assert!(said.contains("/no/such/directory"), "{said}");
}

#[test]
fn what_cannot_be_written_leaves_nothing() {
    let scratch = Scratch::new("in-the-way");
    scratch.file("a.jsonl", YIELD);
    fs::create_dir(scratch.0.join("report.html")).expect("a directory");
    let said = refused(&scratch.report());
    assert!(said.contains("report.html"), "{said}");
    assert_eq!(scratch.names(), ["a.jsonl", "report.html"]);
    // Root may write everywhere.
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        eprintln!("skipped: a directory that cannot be written, because this is root");
        return;
    }
    fs::remove_dir(scratch.0.join("report.html")).expect("it is empty");
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o500)).expect("a mode");
    let said = refused(&scratch.report());
    assert!(said.contains("Permission denied"), "{said}");
    assert_eq!(scratch.names(), ["a.jsonl"]);
}
