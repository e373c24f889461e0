//! An ordinary program with POSIX threads: it runs one workload of `upcall bench` and prints
//! what it measured. It knows no runtime; `upcall run` executes it exactly as the kernel does.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut more = upcall_bench::server::programs::<upcall_bench::server::Std>();
    more.push(("keeper", upcall_bench::keeper::run));
    more.push(("memcached_load", upcall_bench::memcached_load::run));
    upcall_bench::workload::main(more, std::env::args().skip(1))
}
