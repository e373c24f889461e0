//! What a thread waits for, in words.

use syscalls::Sysno;
use upcall_abi::trace::wait;

use super::output::Note;
use crate::stacks::calls;

/// What a wait is for: a name, and more.
pub fn reason(argument: u64) -> (&'static str, Option<(&'static str, Note)>) {
    let address = argument & !3;
    match argument & 3 {
        _ if argument == 0 => ("waits", None),
        wait::WORD => (
            "waits for a word",
            Some(("address", Note::Address(address))),
        ),
        wait::SLEEP => ("sleeps", None),
        wait::END => ("waits for an end", Some(("of", Note::Address(address)))),
        _ => {
            let name = match argument >> 2 & 3 {
                1 => "waits to read",
                2 => "waits to write",
                _ => "waits for a descriptor",
            };
            (name, Some(("descriptor", Note::Number(argument >> 8))))
        }
    }
}

/// The name of a system call.
pub fn call(argument: u64) -> String {
    match argument & 0xffff_ffff {
        0xffff_ffff => "system call".into(),
        number => match calls::describe(number, argument >> 32) {
            unknown if unknown.starts_with("system call") => {
                let known = Sysno::new(number as usize).map(|call| call.name());
                known.map_or(unknown, str::to_owned)
            }
            known => known,
        },
    }
}
