//! Writes `bpf/kernel.h` from the BTF of the running kernel to standard output: `cargo run -p upcall-bpf --features bpf
//! --example kernel-header`. With `--scheduler` it is `bpf/scheduler-kernel.h`, of a kernel with sched_ext. `--btf FILE` names
//! the BTF of another kernel. With `--check` it compares instead, and fails if the file is another.

use std::path::PathBuf;
use std::process::ExitCode;

#[path = "kernel-header/write.rs"]
mod write;

fn main() -> ExitCode {
    let (mut header, mut checks, mut btf) = (write::OBSERVER, false, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--check" => checks = true,
            "--scheduler" => header = write::SCHEDULER,
            "--btf" => btf = words.next().map(PathBuf::from),
            other => {
                eprintln!("kernel-header: what is {other}? --check, --scheduler, --btf FILE");
                return ExitCode::FAILURE;
            }
        }
    }
    let text = match header.text(btf.as_deref()) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("kernel-header: {error}");
            return ExitCode::FAILURE;
        }
    };
    if !checks {
        print!("{text}");
        return ExitCode::SUCCESS;
    }
    let path = format!("{}/bpf/{}", env!("CARGO_MANIFEST_DIR"), header.file);
    match std::fs::read_to_string(&path) {
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
