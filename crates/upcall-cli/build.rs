//! How the command is linked where it has its own first instruction (`front`).

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(front)");
    if !may_be_in_front() {
        return;
    }
    println!("cargo::rustc-cfg=front");
    println!("cargo::rustc-env=UPCALL_INTERPRETER={}", interpreter());
    for argument in ["-e,upcall_front", "--no-dynamic-linker"] {
        println!("cargo::rustc-link-arg-bin=upcall=-Wl,{argument}");
    }
}

/// The front runs before anything is relocated or instrumented, and calls nothing of libc: that needs an optimizer, and no
/// sanitizer.
fn may_be_in_front() -> bool {
    let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|value| value == wanted);
    is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var_os("CARGO_CFG_SANITIZE").is_none()
        && env::var_os("CARGO_CFG_TARGET_FEATURE").is_none_or(|features| {
            !features
                .to_string_lossy()
                .split(',')
                .any(|feature| feature == "crt-static")
        })
        && env::var("OPT_LEVEL").is_ok_and(|level| matches!(level.as_str(), "2" | "3"))
}

/// The dynamic linker: where programs are built for this machine, the one of this program.
fn interpreter() -> String {
    let own = || {
        let is_native = env::var("HOST").ok()? == env::var("TARGET").ok()?;
        let file = is_native
            .then(|| std::fs::read("/proc/self/exe").ok())
            .flatten()?;
        let word = |at: usize, size: usize| -> Option<usize> {
            let bytes = file.get(at..at.checked_add(size)?)?;
            Some(
                bytes
                    .iter()
                    .rev()
                    .fold(0, |all, &byte| all << 8 | usize::from(byte)),
            )
        };
        let (headers, count) = (word(32, 8)?, word(56, 2)?);
        let entry = (0..count)
            .map(|number| headers + number * 56)
            .find(|&at| word(at, 4) == Some(3))?;
        let (offset, length) = (word(entry + 8, 8)?, word(entry + 32, 8)?);
        let name = file.get(offset..(offset + length).checked_sub(1)?)?;
        String::from_utf8(name.to_vec()).ok()
    };
    own().unwrap_or_else(|| "/lib64/ld-linux-x86-64.so.2".into())
}
