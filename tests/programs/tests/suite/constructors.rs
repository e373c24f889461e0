//! Code that runs before main: a library's constructor that makes threads, and the program's own malloc.

use crate::{case, real};
use program_tests::case::{Case, verbatim};
use program_tests::program::Program;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The library, built with one further argument for the linker.
fn library(case: &Case, more: &str) -> Option<PathBuf> {
    case.compile_with("plugin_constructor_threads.c", &[more])
}

/// The program, linked with the library.
fn linked(case: &Case, library: &Path) -> Option<PathBuf> {
    let library = library.to_str().expect("a path in UTF-8");
    let more = ["-Wl,--no-as-needed", library];
    case.compile_with("constructor_threads.c", &more)
}

#[test]
fn threads_of_a_linked_library_are_served() {
    let name = "threads_of_a_linked_library_are_served";
    let case = case(name);
    let program = library(&case, "-g1").and_then(|library| linked(&case, &library));
    if let Some(program) = program {
        case.parity(&Program::new(program));
    }
}

#[test]
fn threads_of_a_loaded_library_are_served() {
    let name = "threads_of_a_loaded_library_are_served";
    let case = case(name);
    let library = library(&case, "-g1");
    let program = case.compile("constructor_threads.c");
    if let (Some(library), Some(program)) = (library, program) {
        case.parity(&Program::new(program).arg(library));
    }
}

/// Another object has asked to be initialized first, and the loader keeps that promise to one.
#[test]
fn threads_that_exist_before_the_runtime_leave_the_program_native() {
    let name = "threads_that_exist_before_the_runtime_leave_the_program_native";
    let case = case(name);
    let program = library(&case, "-Wl,-z,initfirst").and_then(|library| linked(&case, &library));
    let Some(program) = program.filter(|_| case.launcher().upcall().is_some()) else {
        return;
    };
    let program = Program::new(program);
    let native = case.run_native(&program);
    let launched = case.run_launched(&program, &[]);
    case.compare(1, &native, &launched, verbatim);
    let text = String::from_utf8_lossy(&launched.stderr);
    let said: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("upcall: running natively: "))
        .collect();
    assert_eq!(said.len(), 1, "{}", launched.talk());
    assert!(
        said[0].contains(" kernel threads exist already"),
        "{}",
        launched.talk()
    );
}

#[test]
fn the_programs_malloc_is_the_programs() {
    let name = "the_programs_malloc_is_the_programs";
    let Some((case, program)) = real(name, "malloc_of_its_own.c") else {
        return;
    };
    if let Some(library) = case.compile("plugin_sites.c") {
        case.parity(&Program::new(program).arg(OsString::from(library)));
    }
}
