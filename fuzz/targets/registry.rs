//! A program among others that write anything into the memory by which they take turns.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    upcall_linux::fuzzing::live_among(bytes);
});
