//! How the library that `upcall run` preloads is linked. None of this touches programs that link the crate.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The loader runs its constructor before those of all other objects, so that none of them has made a
    // thread by then (`start`).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
