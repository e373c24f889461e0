//! Every system call of the installed libc and loader gets a window, or a reason why not.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use iced_x86::{Code, Decoder, DecoderOptions};
use upcall_guest::rewrite::object::{Image, Object, loaded};
use upcall_guest::rewrite::site::{Reason, Scan, scan};
use upcall_guest::rewrite::unwind::Tables;

fn installed() -> Vec<Object> {
    let mut objects = loaded();
    objects.retain(|o| o.path.contains("/libc.so") || o.path.contains("/ld-linux"));
    assert_eq!(
        objects.len(),
        2,
        "the test is linked with glibc: {objects:#?}"
    );
    objects
}

/// The addresses of all system calls in all functions that the unwind table names, found by
/// decoding the whole text function by function.
fn by_decoding_everything(image: &Image<'_>) -> BTreeSet<usize> {
    let tables = Tables::new(image).expect("an unwind table");
    let mut found = BTreeSet::new();
    for part in image.code() {
        let mut at = part.start;
        while at < part.range().end {
            let Some(function) = tables.function_at(at) else {
                at += 1;
                continue;
            };
            let range = function.range.clone();
            let bytes = image
                .bytes(range.clone())
                .expect("a function lies in its text");
            let decoder = Decoder::with_ip(64, bytes, range.start as u64, DecoderOptions::NONE);
            found.extend(
                decoder
                    .into_iter()
                    .filter(|i| i.code() == Code::Syscall)
                    .map(|i| i.ip() as usize),
            );
            at = range.end.max(at + 1);
        }
    }
    found
}

/// The addresses where objdump shows a system call, or `None` without objdump.
fn by_objdump(path: &str) -> Option<BTreeSet<usize>> {
    let output = Command::new("objdump").args(["-d", path]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sites = text.lines().filter_map(|line| {
        let (address, rest) = line.trim_start().split_once(':')?;
        let instruction = rest.rsplit('\t').next()?.trim();
        (instruction == "syscall").then(|| usize::from_str_radix(address, 16).ok())?
    });
    Some(sites.collect())
}

fn addresses(scan: &Scan) -> BTreeSet<usize> {
    scan.sites.iter().map(|s| s.address).collect()
}

fn check_windows(path: &str, scan: &Scan) {
    let mut end = 0;
    for site in &scan.sites {
        match &site.window {
            Ok(window) => {
                assert!(
                    window.range.start >= end,
                    "windows overlap at {:#x}",
                    site.address
                );
                assert!(window.range.len() >= 5);
                assert!(window.range.contains(&site.address));
                end = window.range.end;
            }
            Err(reason) => println!("{path}: {:#x}: {reason}", site.address),
        }
    }
}

#[test]
fn every_call_of_the_installed_libc_is_found_and_only_sigreturn_refused() {
    for object in installed() {
        // SAFETY: libc and the loader stay, and nothing in this test rewrites them.
        let image = unsafe { object.image() };
        let scan = scan(&image, &[]);
        let good = scan.sites.iter().filter(|s| s.window.is_ok()).count();
        println!(
            "{}: {} sites, {good} rewritable",
            object.path,
            scan.sites.len()
        );
        check_windows(&object.path, &scan);
        let found = addresses(&scan);
        let decoded = by_decoding_everything(&image);
        assert!(!decoded.is_empty());
        let missed: Vec<_> = decoded.difference(&found).collect();
        assert!(missed.is_empty(), "{}: missed {missed:x?}", object.path);
        for site in &scan.sites {
            if let Err(reason) = &site.window {
                assert_eq!(reason, &Reason::Sigreturn, "at {:#x}", site.address);
            }
        }
    }
}

#[test]
fn objdump_sees_the_same_calls() {
    for object in installed() {
        let Some(expected) = by_objdump(&object.path).filter(|s| !s.is_empty()) else {
            println!("skipped for {}: objdump is not installed", object.path);
            continue;
        };
        let bytes = std::fs::read(&object.path).expect("libc can be read");
        let found = addresses(&scan(&support::image(&bytes), &[]));
        assert_eq!(found, expected, "{}", object.path);
    }
}

#[test]
fn a_file_and_its_loaded_image_have_the_same_sites() {
    for object in installed() {
        let bytes = std::fs::read(&object.path).expect("libc can be read");
        let file = scan(&support::image(&bytes), &[]);
        // SAFETY: as above.
        let live = scan(&unsafe { object.image() }, &[]);
        let base = object.span().start;
        let moved: BTreeSet<_> = addresses(&file).iter().map(|a| a + base).collect();
        assert_eq!(moved, addresses(&live));
        let numbers = |s: &Scan| s.sites.iter().map(|s| s.number).collect::<Vec<_>>();
        assert_eq!(numbers(&file), numbers(&live));
    }
}
