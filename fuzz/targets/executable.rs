//! Any bytes as the file that `upcall run` is to run: an ELF file, or a script.
#![no_main]

#[path = "../../crates/upcall-cli/src/image.rs"]
mod image;
#[path = "../../crates/upcall-cli/src/script.rs"]
mod script;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if image::is_elf(bytes) {
        let _ = image::examine(bytes);
    } else if let Some(line) = script::shebang(bytes) {
        assert!(!line.interpreter.is_empty());
        let _ = script::behind_env(&line);
    }
});
