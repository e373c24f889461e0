//! Writes `bpf/kernel.h` from the BTF of the running kernel to standard output: `cargo run -p upcall-bpf --features bpf
//! --example kernel-header`. With `--check` it compares instead, and fails if the file is another.

use std::process::ExitCode;

#[path = "kernel-header/write.rs"]
mod write;

fn main() -> ExitCode {
    let text = match write::header() {
        Ok(text) => text,
        Err(error) => {
            eprintln!("kernel-header: {error}");
            return ExitCode::FAILURE;
        }
    };
    if std::env::args().nth(1).as_deref() != Some("--check") {
        print!("{text}");
        return ExitCode::SUCCESS;
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/kernel.h");
    match std::fs::read_to_string(path) {
        Ok(there) if there == text => ExitCode::SUCCESS,
        Ok(there) => {
            for (at, (old, new)) in there.lines().zip(text.lines()).enumerate() {
                if old != new {
                    eprintln!("{path}:{}: is '{old}', would be '{new}'", at + 1);
                }
            }
            eprintln!("kernel-header: {path} is not what this kernel gives");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("kernel-header: {path}: {error}");
            ExitCode::FAILURE
        }
    }
}
