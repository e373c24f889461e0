//! Any bytes as the ring of context switches.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    upcall_linux::fuzzing::ring(bytes);
});
