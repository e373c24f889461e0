//! An ordinary program with POSIX threads: it runs one workload of `upcall bench` and prints
//! what it measured. It knows no runtime; `upcall run` executes it exactly as the kernel does.

use std::process::ExitCode;

fn main() -> ExitCode {
    let servers = upcall_bench::server::programs::<upcall_bench::server::Std>();
    upcall_bench::workload::main(servers, std::env::args().skip(1))
}
