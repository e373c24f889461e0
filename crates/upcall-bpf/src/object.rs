//! What loading and using an object takes, whichever it is.

use std::cell::RefCell;
use std::io;

use libbpf_rs::{Map, MapCore, Object, PrintLevel, ProgramInput};

use crate::trouble::Trouble;

/// Aligned as libbpf reads it.
#[repr(C, align(8))]
pub struct Aligned<T: ?Sized>(pub T);

/// Makes sure that the kernel describes its types, which every object needs.
///
/// # Errors
///
/// It does not.
pub fn kernel_has_types() -> Result<(), Trouble> {
    match std::fs::metadata("/sys/kernel/btf/vmlinux") {
        Ok(_) => Ok(()),
        Err(error) => Err(Trouble {
            what: "the kernel does not describe its types (BTF)",
            evidence: format!("/sys/kernel/btf/vmlinux: {error}"),
            remedy: "use a kernel that was built with CONFIG_DEBUG_INFO_BTF, and mount /sys",
        }),
    }
}

/// Does this, which loads something. If it fails, what libbpf and the verifier said last is the evidence, too, after a semicolon.
///
/// # Errors
///
/// Its own.
pub fn listened<T, E>(load: impl FnOnce() -> Result<T, E>) -> Result<T, (E, String)> {
    thread_local! {
        static SAID: RefCell<String> = const { RefCell::new(String::new()) };
    }
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        SAID.with_borrow_mut(|said| said.push_str(&text));
    })));
    let loaded = load();
    libbpf_rs::set_print(None);
    let said = SAID.take();
    loaded.map_err(|error| {
        // What the verifier says comes before the counts and the end of its log.
        let tells = |line: &&str| {
            let is_frame = ["--", "processed "].iter().any(|it| line.starts_with(it));
            !is_frame && !line.contains("failed to load") && !line.trim().is_empty()
        };
        let line = said.lines().rfind(tells);
        (
            error,
            line.map_or_else(String::new, |line| format!("; {}", line.trim())),
        )
    })
}

/// The map with this name, before which libbpf may have put the object's.
///
/// # Errors
///
/// There is none.
pub fn map<'a>(object: &'a Object, name: &str) -> io::Result<Map<'a>> {
    let mut maps = object.maps();
    let found = maps.find(|map| map.name().to_string_lossy().ends_with(name));
    found.ok_or_else(|| io::Error::other(format!("the object has no map {name}")))
}

/// Calls a program of the object. Returns its answer.
///
/// # Errors
///
/// There is none of that name, or the kernel does not run it.
pub fn call(object: &Object, name: &str, context: &mut [u8]) -> io::Result<u32> {
    let mut programs = object.progs_mut();
    let program = programs
        .find(|program| program.name() == name)
        .ok_or(io::ErrorKind::NotFound)?;
    let input = ProgramInput {
        context_in: Some(context),
        ..ProgramInput::default()
    };
    let done = program.test_run(input).map_err(io::Error::other)?;
    Ok(done.return_value)
}
