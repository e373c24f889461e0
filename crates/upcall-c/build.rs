//! The shared library's name, by which programs find it when they start: its ABI is that of version 0.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libupcall.so.0");
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|architecture| architecture == "x86_64") {
        hide_spin_locks();
    }
}

/// The preloaded library exports functions of libc's names (`upcall-guest`). Cargo passes its arguments on to this library, which
/// exports only what the header declares. The linker reads this file as a script beside its own.
fn hide_spin_locks() {
    let text: String = ["lock", "trylock", "unlock"]
        .map(|name| format!("HIDDEN(pthread_spin_{name} = upcall_own_pthread_spin_{name});\n"))
        .concat();
    let folder = env::var("OUT_DIR").expect("Cargo names it");
    let path = Path::new(&folder).join("hidden.ld");
    fs::write(&path, text).expect("the folder is the build's own");
    println!("cargo::rustc-cdylib-link-arg={}", path.display());
}
