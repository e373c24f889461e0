//! One case: a program run natively and launched, in fresh directories, and compared.

use crate::launcher::Launcher;
use crate::program::{Outcome, Program};
use crate::{provision, source};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// How often each case runs launched: `UPCALL_TEST_REPEAT`, once unless set.
pub fn repeats() -> usize {
    std::env::var("UPCALL_TEST_REPEAT").ok().map_or(1, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("UPCALL_TEST_REPEAT={text}: want a number"))
    })
}

/// Puts bytes into an order that does not depend on scheduling before they are compared.
pub type Canonical = fn(&[u8]) -> Vec<u8>;

/// Bytes as they are.
pub fn verbatim(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

/// The lines in sorted order, for programs that print results as their threads finish.
pub fn sorted_lines(bytes: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    lines.sort_unstable();
    lines.concat()
}

/// A named case with its own directory, removed when the case passes.
#[derive(Debug)]
pub struct Case {
    name: String,
    scratch: PathBuf,
    dir: PathBuf,
    launcher: &'static Launcher,
}

impl Case {
    /// A case in Cargo's scratch directory for integration tests.
    ///
    /// # Panics
    ///
    /// When its directory cannot be made.
    pub fn new(name: &str, scratch: &Path) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // Two cases of one process may have the same name.
        let (pid, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let dir = scratch.join("cases").join(format!("{name}-{pid}-{number}"));
        fs::create_dir_all(&dir).expect("the scratch directory is writable");
        Case {
            name: name.to_owned(),
            scratch: scratch.to_owned(),
            dir,
            launcher: Launcher::chosen(scratch),
        }
    }

    /// The case's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Cargo's scratch directory, shared by all cases.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// What stands in front of the program in launched runs.
    pub fn launcher(&self) -> &'static Launcher {
        self.launcher
    }

    /// Returns true if the launcher is `upcall run`. Otherwise it says aloud that the case is skipped.
    pub fn runs_upcall(&self) -> bool {
        let real = self.launcher.upcall().is_some();
        if !real {
            provision::skip(&self.name, "the launcher is no `upcall run`");
        }
        real
    }

    /// Compiles a test program and returns the executable's path. Where there is no compiler, it says aloud
    /// that the case is skipped.
    ///
    /// # Panics
    ///
    /// When no source has that name, or it does not compile.
    pub fn compile(&self, file: &str) -> Option<PathBuf> {
        self.compile_with(file, &[])
    }

    /// As [`Case::compile`], with further arguments for the compiler.
    ///
    /// # Panics
    ///
    /// As [`Case::compile`].
    pub fn compile_with(&self, file: &str, more: &[&str]) -> Option<PathBuf> {
        source::compile(&self.name, &self.scratch, file, more)
    }

    /// Runs the program natively, in a fresh directory.
    ///
    /// # Panics
    ///
    /// When the process cannot be started or hangs.
    pub fn run_native(&self, program: &Program) -> Outcome {
        program.run(&self.fresh("native"), None)
    }

    /// Runs the program launched, in a fresh directory, with further options of `upcall run`.
    ///
    /// # Panics
    ///
    /// When the process cannot be started or hangs, or the launcher has no such options.
    pub fn run_launched(&self, program: &Program, options: &[&str]) -> Outcome {
        let launcher = options
            .iter()
            .fold(self.launcher.clone(), |launcher, option| {
                launcher.with(option)
            });
        program.run(&self.fresh("launched"), Some(&launcher))
    }

    /// A fresh empty directory of this case.
    ///
    /// # Panics
    ///
    /// When it cannot be made.
    pub fn fresh(&self, label: &str) -> PathBuf {
        let dir = self.dir.join(label);
        if dir.exists() {
            fs::remove_dir_all(&dir).expect("the case's own directory can be removed");
        }
        fs::create_dir_all(&dir).expect("the scratch directory is writable");
        dir
    }

    /// The directory of the native run, until the next one.
    pub fn native_dir(&self) -> PathBuf {
        self.dir.join("native")
    }

    /// Runs the program natively and launched and compares; returns the native outcome.
    ///
    /// # Panics
    ///
    /// When anything differs.
    pub fn parity(&self, program: &Program) -> Outcome {
        self.parity_of(program, verbatim, |_| (), |_| ())
    }

    /// As [`Case::parity`], with stdout put into canonical form before it is compared, the
    /// directory of each run prepared by `prepare`, and the native run judged by `accept` first:
    /// two runs that fail alike are no success.
    ///
    /// # Panics
    ///
    /// When anything differs.
    pub fn parity_of(
        &self,
        program: &Program,
        canonical: Canonical,
        prepare: impl Fn(&Path),
        accept: impl Fn(&Outcome),
    ) -> Outcome {
        let dir = self.fresh("native");
        prepare(&dir);
        let native = program.run(&dir, None);
        accept(&native);
        let files = files_of(&dir);
        for turn in 1..=repeats() {
            let dir = self.fresh("launched");
            prepare(&dir);
            let launched = program.run(&dir, Some(self.launcher));
            self.compare(turn, &native, &launched, canonical);
            let produced = files_of(&dir);
            for name in files.keys().chain(produced.keys()) {
                let same = files.get(name) == produced.get(name);
                assert!(
                    same,
                    "{}: run {turn}: file {name} differs: native {}, launched {}; kept in {}",
                    self.name,
                    size(files.get(name)),
                    size(produced.get(name)),
                    self.dir.display(),
                );
            }
        }
        native
    }

    /// Compares exit status and stdout of two runs.
    ///
    /// # Panics
    ///
    /// When they differ.
    pub fn compare(&self, turn: usize, native: &Outcome, launched: &Outcome, canonical: Canonical) {
        let same_end = native.status.code() == launched.status.code()
            && native.status.signal() == launched.status.signal();
        assert!(
            same_end,
            "{}: run {turn}: native {}, launched {}\n{}",
            self.name,
            native.ending(),
            launched.ending(),
            launched.talk(),
        );
        let (expected, found) = (canonical(&native.stdout), canonical(&launched.stdout));
        assert!(
            expected == found,
            "{}: run {turn}: stdout differs at byte {} (native {} bytes, launched {})\n\
             === native\n{}\n=== launched\n{}",
            self.name,
            expected
                .iter()
                .zip(&found)
                .take_while(|(one, other)| one == other)
                .count(),
            expected.len(),
            found.len(),
            native.talk(),
            launched.talk(),
        );
    }

    /// Runs a test program: its native run must say nothing but `ok`, and the launched run the same.
    ///
    /// # Panics
    ///
    /// When the native run fails or anything differs.
    pub fn verdicts(&self, program: &Program) {
        self.parity_of(program, verbatim, |_| (), |native| self.all_ok(native));
    }

    /// Runs a tool that must succeed, and in the same way launched; returns the native outcome.
    ///
    /// # Panics
    ///
    /// When the native run fails or anything differs.
    pub fn succeeds(
        &self,
        program: &Program,
        canonical: Canonical,
        prepare: impl Fn(&Path),
    ) -> Outcome {
        self.parity_of(program, canonical, prepare, |native| {
            let (ending, talk) = (native.ending(), native.talk());
            assert!(
                native.status.success(),
                "{}: the native run fails: {ending}\n{talk}",
                self.name
            );
        })
    }

    fn all_ok(&self, native: &Outcome) {
        let text = String::from_utf8_lossy(&native.stdout);
        let fine = !text.is_empty() && text.lines().all(|line| line.starts_with("ok "));
        assert!(
            fine && native.status.success(),
            "{}: the native run itself fails: {}\n{}",
            self.name,
            native.ending(),
            native.talk(),
        );
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        // After a failure the directory is evidence.
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.dir).ok();
        }
    }
}

fn size(file: Option<&Vec<u8>>) -> String {
    file.map_or("absent".into(), |bytes| format!("{} bytes", bytes.len()))
}

/// Every regular file below `dir`, by relative path.
///
/// # Panics
///
/// When one cannot be read.
pub fn files_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).expect("the case's own directory is readable") {
            let path = entry.expect("the case's own directory is readable").path();
            let kind = path
                .symlink_metadata()
                .expect("a file of the case has a type")
                .file_type();
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                let name = path
                    .strip_prefix(dir)
                    .expect("it lies below")
                    .display()
                    .to_string();
                files.insert(
                    name,
                    fs::read(&path).expect("a file of the case is readable"),
                );
            }
        }
    }
    files
}
