//! Every library and program on the machine: what would be rewritten in it must be a system call for another decoder too,
//! and nothing that this decoder, the symbols or the relocations know of may lead into its middle.
//!
//! `UPCALL_SCAN_ROOTS` (directories, separated by colons) replaces the system's own directories.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod support;

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use goblin::elf::{Elf, header, section_header, sym};
use upcall_guest::rewrite::site::{SYSCALL_LENGTH, Scan, scan};
use upcall_guest::rewrite::stub;
use yaxpeax_x86::long_mode::Opcode;

use support::Other;

const LABEL: &str = "a symbol";
const ROOTS: &str = "/lib:/lib64:/usr/lib:/usr/libexec:/usr/bin:/usr/sbin:/bin:/sbin";

/// Returns true if the file begins as a 64-bit x86 program or shared library does.
fn is_candidate(path: &Path) -> bool {
    let mut bytes = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    let kind = u16::from_le_bytes([bytes[16], bytes[17]]);
    read.is_ok()
        && bytes.starts_with(b"\x7fELF\x02\x01")
        && u16::from_le_bytes([bytes[18], bytes[19]]) == header::EM_X86_64
        && matches!(kind, header::ET_EXEC | header::ET_DYN)
}

/// The files below `root`, each once whatever its names are.
fn files(root: &Path, seen: &mut HashSet<(u64, u64)>, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(root) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(status) = fs::symlink_metadata(&path) else {
            continue;
        };
        if status.is_dir() {
            files(&path, seen, found);
        } else if status.is_file()
            && status.size() > 64
            && seen.insert((status.dev(), status.ino()))
            && is_candidate(&path)
        {
            found.push(path);
        }
    }
}

/// What an independent look at the file says about the addresses of interest.
#[derive(Default)]
struct Opinion {
    /// Where instructions begin.
    boundaries: BTreeSet<usize>,
    /// Where system calls begin.
    calls: BTreeSet<usize>,
    /// Where control may arrive, or what is named: the address and by what.
    arrivals: Vec<(usize, String)>,
}

/// Decodes all code from the first byte of each section on, and anew at each symbol.
fn opinion(elf: &Elf<'_>, bytes: &[u8], windows: &[Range<usize>]) -> Opinion {
    let mut opinion = Opinion::default();
    let near = |address: usize| {
        let at = windows.partition_point(|w| w.end < address);
        windows.get(at).is_some_and(|w| w.start <= address)
    };
    let inside = |address: usize| {
        let at = windows.partition_point(|w| w.end <= address);
        windows.get(at).is_some_and(|w| w.start < address)
    };
    let named = |s: &sym::Sym| {
        s.st_shndx != 0
            && matches!(
                s.st_type(),
                sym::STT_FUNC | sym::STT_NOTYPE | sym::STT_GNU_IFUNC
            )
    };
    let symbols: BTreeSet<usize> = elf
        .syms
        .iter()
        .chain(elf.dynsyms.iter())
        .filter(named)
        .map(|s| s.st_value as usize)
        .collect();
    for &symbol in symbols.iter().filter(|&&s| inside(s)) {
        opinion.arrivals.push((symbol, LABEL.into()));
    }
    for relocation in elf.dynrelas.iter() {
        let address = relocation.r_addend.unwrap_or(0) as usize;
        if inside(address) {
            opinion.arrivals.push((address, "a relocation".into()));
        }
    }
    for section in &elf.section_headers {
        let code = section.sh_flags & u64::from(section_header::SHF_EXECINSTR) != 0;
        let Some(range) = section.file_range().filter(|_| code) else {
            continue;
        };
        let Some(text) = bytes.get(range) else {
            continue;
        };
        let start = section.sh_addr as usize;
        let mut at = 0;
        while at < text.len() {
            let address = start + at;
            let anew = symbols.range(address + 1..).next().map(|s| s - start);
            let Some(decoded) = Other::decode(address, &text[at..]) else {
                at += 1;
                continue;
            };
            if anew.is_some_and(|symbol| symbol < at + decoded.length) {
                at = anew.unwrap_or(at + 1);
                continue;
            }
            let instruction = &decoded.instruction;
            if near(address) {
                opinion.boundaries.insert(address);
            }
            if instruction.opcode() == Opcode::SYSCALL {
                opinion.calls.insert(address);
            }
            if let Some(target) = decoded.target().filter(|&t| inside(t)) {
                let who = format!("{instruction} at {address:#x}");
                opinion.arrivals.push((target, who));
            }
            at += decoded.length;
        }
        if near(start + text.len()) {
            opinion.boundaries.insert(start + text.len());
        }
    }
    opinion
}

/// What is wrong with what would be rewritten.
fn complaints(elf: &Elf<'_>, bytes: &[u8], scan: &Scan) -> Vec<String> {
    let good = || {
        let sites = scan.sites.iter();
        sites.filter_map(|s| Some((s.address, s.window.as_ref().ok()?)))
    };
    let windows: Vec<Range<usize>> = good().map(|(_, window)| window.range.clone()).collect();
    let mut found = Vec::new();
    if windows.is_empty() {
        return found;
    }
    if !windows.is_sorted_by(|one, next| one.end <= next.start) {
        found.push("windows overlap".into());
    }
    let opinion = opinion(elf, bytes, &windows);
    for (address, window) in good() {
        if !opinion.calls.contains(&address) {
            found.push(format!("{address:#x} is no system call"));
        }
        for edge in [window.range.start, window.range.end] {
            if !opinion.boundaries.contains(&edge) {
                found.push(format!("{address:#x}: {edge:#x} is inside an instruction"));
            }
        }
        let written = stub::jump(&window.range, window.range.start + 0x1000);
        if written.map(|bytes| bytes.len()) != Ok(window.range.len()) {
            found.push(format!("{address:#x}: not exactly the window is written"));
        }
    }
    for (address, who) in opinion.arrivals {
        // The label behind a system call, by which signal handlers recognise it (as in libc, and in
        // QEMU's user mode): they see the original address, and nothing goes there.
        if who == LABEL
            && scan
                .sites
                .iter()
                .any(|s| s.address + SYSCALL_LENGTH == address)
        {
            continue;
        }
        found.push(format!("{who} leads to {address:#x}, inside a window"));
    }
    found
}

#[test]
fn what_would_be_rewritten_is_a_system_call_in_every_file() {
    let roots = std::env::var("UPCALL_SCAN_ROOTS").unwrap_or_else(|_| ROOTS.into());
    let mut paths = Vec::new();
    let mut seen = HashSet::new();
    for root in roots.split(':') {
        files(Path::new(root), &mut seen, &mut paths);
    }
    assert!(!paths.is_empty(), "no program below {roots}");
    let (mut sites, mut rewritten, mut with_sites) = (0, 0, 0);
    let mut bad = Vec::new();
    for path in &paths {
        let Ok(bytes) = fs::read(path) else {
            continue;
        };
        let (Ok(elf), Some(image)) = (Elf::parse(&bytes), support::try_image(&bytes)) else {
            println!("skipped {}: not an ELF file after all", path.display());
            continue;
        };
        let scan = scan(&image, &[]);
        sites += scan.sites.len();
        with_sites += usize::from(!scan.sites.is_empty());
        rewritten += scan.sites.iter().filter(|s| s.window.is_ok()).count();
        for complaint in complaints(&elf, &bytes, &scan) {
            println!("{}: {complaint}", path.display());
            bad.push(complaint);
        }
    }
    println!(
        "{} files, {with_sites} of them with {sites} system calls, of which {rewritten} would be rewritten",
        paths.len()
    );
    assert_eq!(bad.len(), 0);
}
