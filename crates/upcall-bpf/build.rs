//! Compiles the BPF objects, if the feature `bpf` asks for it and there is a clang that can. Otherwise it says so, and the
//! crate is built without: `upcall_bpf::start` then says why.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const COMPILERS: [&str; 2] = ["clang-19", "clang"];
const OBJECTS: [&str; 2] = ["observe", "scheduler"];
const HEADERS: [&str; 3] = ["bpf/kernel.h", "bpf/scheduler-kernel.h", "bpf/helpers.h"];

fn main() {
    println!("cargo:rustc-check-cfg=cfg(with_object)");
    println!("cargo:rerun-if-env-changed=UPCALL_CLANG");
    for header in HEADERS {
        println!("cargo:rerun-if-changed={header}");
    }
    for object in OBJECTS {
        println!("cargo:rerun-if-changed=bpf/{object}.bpf.c");
    }
    println!("cargo:rerun-if-changed=../../include/upcall/abi.h");
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    let place = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    match OBJECTS
        .iter()
        .try_for_each(|object| compile(object, &place))
    {
        Ok(()) => println!("cargo:rustc-cfg=with_object"),
        Err(why) => {
            println!(
                "cargo:warning=upcalld is built without its BPF half, and will not observe: {why}"
            );
        }
    }
}

fn compile(name: &str, place: &Path) -> Result<(), String> {
    let source = format!("bpf/{name}.bpf.c");
    let object = place.join(format!("{name}.bpf.o"));
    let target = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if target != "x86_64" {
        return Err(format!("it is not written for {target}"));
    }
    let named = env::var("UPCALL_CLANG").ok();
    let candidates: Vec<&str> = match &named {
        Some(name) => vec![name],
        None => COMPILERS.to_vec(),
    };
    let mut trouble = String::new();
    for compiler in candidates {
        let include = "-I../../include";
        let flags = [
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
        ];
        let done = Command::new(compiler)
            .args(flags)
            .args([include, "-c", &source, "-o"])
            .arg(&object)
            .output();
        match done {
            Ok(done) if done.status.success() => return Ok(()),
            Ok(done) => {
                let text = String::from_utf8_lossy(&done.stderr).into_owned();
                let line = text.lines().find(|line| line.contains("error"));
                trouble = format!("{trouble}{compiler}: {}; ", line.unwrap_or("failed"));
            }
            Err(error) => trouble = format!("{trouble}{compiler}: {error}; "),
        }
    }
    let _ = fs::remove_file(&object);
    Err(format!("{trouble}install clang-19, or set UPCALL_CLANG"))
}
