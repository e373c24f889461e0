//! Any words as the command line of `upcall`. A zero byte ends a word.
#![no_main]
#![allow(dead_code, reason = "the command itself is not here")]

#[path = "../../crates/upcall-cli/src/args.rs"]
mod args;
#[path = "../../crates/upcall-cli/src/vps.rs"]
mod vps;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::Parser;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let line: Vec<OsString> = [&b"upcall"[..]]
        .into_iter()
        .chain(bytes.split(|&byte| byte == 0))
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    match args::Cli::try_parse_from(&line) {
        Ok(args::Cli {
            command: args::Command::Run(args),
        }) => {
            // What goes to the program is the end of the line, byte for byte.
            assert!(!args.command.is_empty() && line.ends_with(&args.command));
            for allowed in [0, 1, 4, usize::MAX] {
                let vps = args.vps.map_or(1, |range| range.resolve(allowed));
                assert!((1..=1024).contains(&vps));
            }
        }
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
