//! Can the guest library be loaded into this executable, and serve it?
//!
//! Decided from the file's program headers and dynamic section alone, which the kernel and
//! the dynamic linker read too. Section headers are not looked at: they may be stripped.
//!
//! Every number in the file is a claim to be checked against the file's length; whatever
//! the claims, the answer is a verdict and never a crash.

use std::ops::Range;
use std::path::Path;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::Elf;
use goblin::elf::header::{EI_CLASS, EI_DATA, ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64};
use goblin::elf::header::{ET_DYN, ET_EXEC, Header, machine_to_str};
use goblin::elf::program_header::{PT_DYNAMIC, PT_INTERP, PT_LOAD, ProgramHeader};

/// glibc's dynamic linker, wherever it is installed.
const LINKER: &str = "ld-linux-x86-64.so.2";
/// glibc, by the name that programs ask for.
const LIBC: &str = "libc.so.6";

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_PIE: u64 = 0x0800_0000;

/// Runtimes that own the threads of a program, or must be loaded before everything else: the
/// library's name, and a symbol that a program with the runtime linked in defines.
const SANITIZERS: [(&str, &str); 5] = [
    ("libtsan.so", "__tsan_init"),
    ("libasan.so", "__asan_init"),
    ("libhwasan.so", "__hwasan_init"),
    ("libmsan.so", "__msan_init"),
    ("liblsan.so", "__lsan_init"),
];

/// Why an executable cannot be served.
#[derive(Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The kernel could not execute it either.
    Broken(String),
    /// For another processor or class.
    OtherMachine(String),
    /// It loads no libraries.
    Static(String),
    /// Its C library is not glibc.
    OtherLibc(String),
    /// A sanitizer's runtime is part of it.
    Sanitizer(String),
}

/// Returns true if the file begins as an ELF file does.
pub fn is_elf(file: &[u8]) -> bool {
    file.starts_with(ELFMAG)
}

/// Examines an ELF file.
///
/// # Errors
/// Why it cannot be served, with the evidence.
pub fn examine(file: &[u8]) -> Result<(), Unfit> {
    let header = header(file)?;
    let headers = program_headers(file, &header)?;
    let unnamed = || Unfit::Static("it names no program interpreter (PT_INTERP)".into());
    let strings = match headers.iter().find(|entry| entry.p_type == PT_INTERP) {
        Some(interp) => {
            let linker = text(contents(file, interp).ok_or_else(|| beyond("PT_INTERP"))?);
            if linker.rsplit('/').next() != Some(LINKER) {
                return Err(Unfit::OtherLibc(format!(
                    "its program interpreter is {linker}, not glibc's {LINKER}"
                )));
            }
            dynamic_strings(file, &headers)?
        }
        // A program that loads the dynamic linker itself, as this command does, is served from there on.
        None => match dynamic_strings(file, &headers) {
            Ok(strings) if strings.is_program && strings.needs_libc() => strings,
            _ => return Err(unnamed()),
        },
    };
    if let Some((library, _)) = SANITIZERS
        .iter()
        .find(|(library, _)| strings.needed.iter().any(|name| name.starts_with(library)))
    {
        return Err(Unfit::Sanitizer(format!("it needs {library}")));
    }
    let has_symbol = |symbol: &str| {
        strings
            .table
            .split(|&byte| byte == 0)
            .any(|name| name == symbol.as_bytes())
    };
    if let Some((_, symbol)) = SANITIZERS.iter().find(|(_, symbol)| has_symbol(symbol)) {
        return Err(Unfit::Sanitizer(format!(
            "its dynamic symbols include {symbol}"
        )));
    }
    if !strings.needs_libc() {
        return Err(Unfit::Static(format!(
            "it does not need {LIBC} (DT_NEEDED: {})",
            if strings.needed.is_empty() {
                "none".to_owned()
            } else {
                strings.needed.join(", ")
            }
        )));
    }
    Ok(())
}

/// Whether the dynamic linker of a program for this processor can load this file as a library. Nothing more is
/// asked: a library of this project has any contents in its tests.
///
/// # Errors
/// Why not.
pub fn examine_library(path: &Path) -> Result<(), String> {
    let file = std::fs::read(path).map_err(|error| error.to_string())?;
    if !is_elf(&file) {
        return Err("it is no ELF file".into());
    }
    let look = || {
        let header = header(&file)?;
        if header.e_type != ET_DYN {
            return Err(Unfit::Broken("it is no shared object".into()));
        }
        let headers = program_headers(&file, &header)?;
        dynamic_strings(&file, &headers)
    };
    look().map(drop).map_err(|unfit| match unfit {
        Unfit::Broken(evidence)
        | Unfit::OtherMachine(evidence)
        | Unfit::Static(evidence)
        | Unfit::OtherLibc(evidence)
        | Unfit::Sanitizer(evidence) => evidence,
    })
}

fn header(file: &[u8]) -> Result<Header, Unfit> {
    let ident = file.get(..16).ok_or_else(|| {
        Unfit::Broken(format!(
            "it ends after {} bytes, within its header",
            file.len()
        ))
    })?;
    if ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB {
        let class = match ident[EI_CLASS] {
            1 => "32-bit",
            2 => "64-bit",
            _ => "of no known class",
        };
        let order = match ident[EI_DATA] {
            1 => "little-endian",
            2 => "big-endian",
            _ => "of no known byte order",
        };
        return Err(Unfit::OtherMachine(format!(
            "its header says {class}, {order}; this is for 64-bit, little-endian x86-64"
        )));
    }
    let header = Elf::parse_header(file)
        .map_err(|error| Unfit::Broken(format!("its header cannot be read: {error}")))?;
    if header.e_machine != EM_X86_64 {
        return Err(Unfit::OtherMachine(format!(
            "its header says {} (e_machine {}); this is for x86-64",
            machine_to_str(header.e_machine),
            header.e_machine
        )));
    }
    if !matches!(header.e_type, ET_EXEC | ET_DYN) {
        return Err(Unfit::Broken(format!(
            "its header says that it is no program (e_type {})",
            header.e_type
        )));
    }
    Ok(header)
}

fn program_headers(file: &[u8], header: &Header) -> Result<Vec<ProgramHeader>, Unfit> {
    const ENTRY: u64 = 56;
    let length = u64::from(header.e_phnum) * ENTRY;
    let inside = header
        .e_phoff
        .checked_add(length)
        .is_some_and(|end| end <= file.len() as u64);
    if u64::from(header.e_phentsize) != ENTRY || header.e_phnum == 0 || !inside {
        return Err(Unfit::Broken(format!(
            "its {} program headers at offset {} are not within its {} bytes",
            header.e_phnum,
            header.e_phoff,
            file.len()
        )));
    }
    let context = Ctx::new(Container::Big, Endian::Little);
    let start = usize::try_from(header.e_phoff).map_err(|_| beyond("program headers"))?;
    ProgramHeader::parse(file, start, usize::from(header.e_phnum), context)
        .map_err(|error| Unfit::Broken(format!("its program headers cannot be read: {error}")))
}

/// What the dynamic section says by name.
struct DynamicStrings<'a> {
    needed: Vec<String>,
    table: &'a [u8],
    /// It says that it is a program, not a library.
    is_program: bool,
}

impl DynamicStrings<'_> {
    fn needs_libc(&self) -> bool {
        self.needed.iter().any(|name| name == LIBC)
    }
}

fn dynamic_strings<'a>(
    file: &'a [u8],
    headers: &[ProgramHeader],
) -> Result<DynamicStrings<'a>, Unfit> {
    let Some(dynamic) = headers.iter().find(|entry| entry.p_type == PT_DYNAMIC) else {
        return Err(Unfit::Static("it has no dynamic section".into()));
    };
    let dynamic = contents(file, dynamic).ok_or_else(|| beyond("PT_DYNAMIC"))?;
    let entries: Vec<(u64, u64)> = dynamic
        .chunks_exact(16)
        .map(|entry| (word(&entry[..8]), word(&entry[8..])))
        .take_while(|&(tag, _)| tag != DT_NULL)
        .collect();
    let value = |wanted| {
        entries
            .iter()
            .find(|(tag, _)| *tag == wanted)
            .map(|(_, value)| *value)
    };
    let table = value(DT_STRTAB)
        .zip(value(DT_STRSZ))
        .and_then(|(address, size)| {
            let start = offset_of(headers, address)?;
            file.get(range(start, size)?)
        })
        .ok_or_else(|| beyond("string table (DT_STRTAB)"))?;
    let needed = entries
        .iter()
        .filter(|(tag, _)| *tag == DT_NEEDED)
        .filter_map(|&(_, at)| table.get(usize::try_from(at).ok()?..))
        .map(text)
        .collect();
    Ok(DynamicStrings {
        needed,
        table,
        is_program: value(DT_FLAGS_1).is_some_and(|flags| flags & DF_1_PIE != 0),
    })
}

/// Where in the file the byte lies that is loaded at this address.
fn offset_of(headers: &[ProgramHeader], address: u64) -> Option<u64> {
    headers
        .iter()
        .filter(|entry| entry.p_type == PT_LOAD)
        .find_map(|entry| {
            let within = address.checked_sub(entry.p_vaddr)?;
            (within < entry.p_filesz).then(|| entry.p_offset.checked_add(within))?
        })
}

fn contents<'a>(file: &'a [u8], entry: &ProgramHeader) -> Option<&'a [u8]> {
    file.get(range(entry.p_offset, entry.p_filesz)?)
}

fn range(start: u64, length: u64) -> Option<Range<usize>> {
    let end = start.checked_add(length)?;
    Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// The string that ends at the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

fn beyond(what: &str) -> Unfit {
    Unfit::Broken(format!("its {what} is not within the file"))
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
