//! How the library that `upcall run` preloads is linked. None of this touches programs that link the crate.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The loader runs its constructor before those of all other objects, so that none of them has made a
    // thread by then (`start`).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // Its memory is its own (`heap`).
    for name in ["malloc", "calloc", "realloc", "free", "posix_memalign"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym={name}=upcall_own_{name}");
    }
    // So is what moves bytes (`arch`).
    for name in ["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym={name}=upcall_own_{name}");
    }
    // libc's spin locks are its own in every program (`spin`, which has them exported).
    for name in ["lock", "trylock", "unlock"] {
        // Otherwise GNU ld drops the code, to which it finds no reference.
        println!("cargo::rustc-cdylib-link-arg=-Wl,--undefined=upcall_own_pthread_spin_{name}");
        println!(
            "cargo::rustc-cdylib-link-arg=-Wl,--defsym=pthread_spin_{name}=upcall_own_pthread_spin_{name}"
        );
    }
    // Its unwinder is the program's (`unwinder`).
    for name in [
        "Backtrace",
        "GetDataRelBase",
        "GetIP",
        "GetIPInfo",
        "GetLanguageSpecificData",
        "GetRegionStart",
        "GetTextRelBase",
        "Resume",
        "SetGR",
        "SetIP",
    ] {
        println!(
            "cargo::rustc-cdylib-link-arg=-Wl,--defsym=_Unwind_{name}=upcall_own__Unwind_{name}"
        );
    }
}
