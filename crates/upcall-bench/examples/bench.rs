//! The benchmark without the rest of the `upcall` command:
//! `cargo run --release -p upcall-bench --example bench -- --runtime nptl,go`.

use std::process::ExitCode;

use clap::Parser;
use upcall_bench::BenchArgs;

/// Benchmarks thread runtimes side by side.
#[derive(Parser)]
struct Command {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> ExitCode {
    upcall_bench::main(Command::parse().bench)
}
