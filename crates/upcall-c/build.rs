//! The shared library's name, by which programs find it when they start: its ABI is that of version 0.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libupcall.so.0");
}
