//! Any bytes as a function: whatever is chosen to be overwritten is whole instructions around a
//! system call, into which nothing leads.
#![no_main]

#[path = "../../crates/upcall-guest/tests/support/mod.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    support::check::check_function(0x10_0000, bytes);
});
