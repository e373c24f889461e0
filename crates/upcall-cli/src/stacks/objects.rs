//! The objects that are mapped: their files, and names of functions and lines in them.

use std::cell::OnceCell;
use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use memmap2::Mmap;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment, ObjectSymbol, SymbolKind};

use super::memory::{Memory, Source};

/// The kernel's own object.
const VDSO: &str = "[vdso]";

/// What the bytes of an object are in.
enum Held {
    File(Mmap),
    Memory(Vec<u8>),
}

impl Held {
    fn bytes(&self) -> &[u8] {
        match self {
            Held::File(map) => map,
            Held::Memory(bytes) => bytes,
        }
    }
}

struct Mapped {
    /// As the process knows it.
    path: PathBuf,
    /// Where this process finds it.
    here: PathBuf,
    start: u64,
    end: u64,
    held: Option<Held>,
    /// What a distribution has taken out of it for debuggers.
    debug: Option<(PathBuf, Mmap)>,
}

/// Where distributions put debug information, by the build id of what it was taken out of.
const DEBUG: &str = "/usr/lib/debug/.build-id";

fn debug_file(bytes: &[u8]) -> Option<(PathBuf, Mmap)> {
    let file = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let id: Vec<String> = file
        .build_id()
        .ok()??
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let (first, rest) = id.split_first()?;
    let path = Path::new(DEBUG)
        .join(first)
        .join(format!("{}.debug", rest.concat()));
    let map = map(&path)?;
    Some((path, map))
}

/// The names and lines in a file, and in the one that it shares parts with (dwz(1)).
fn load(path: &Path, bytes: Option<&[u8]>) -> Option<Loader> {
    let shared = bytes.and_then(|bytes| {
        let file = ElfFile64::<Endianness>::parse(bytes).ok()?;
        let (name, _) = file.gnu_debugaltlink().ok()??;
        Some(path.parent()?.join(std::str::from_utf8(name).ok()?))
    });
    Loader::new_with_sup(path, shared).ok()
}

/// The files of all objects.
pub struct Files(Vec<Mapped>);

impl Files {
    pub fn open(memory: &Memory) -> Self {
        let mut all: Vec<Mapped> = Vec::new();
        for mapping in &memory.mappings {
            let (path, start, end) = (&mapping.path, mapping.start, mapping.end);
            match all.last_mut() {
                Some(last) if last.path == *path && mapping.offset != 0 => last.end = end,
                _ if mapping.offset == 0 && (path.is_absolute() || path == Path::new(VDSO)) => {
                    let here = here(memory, path);
                    let held = match path.is_absolute() {
                        true => map(&here).map(Held::File),
                        false => copy(memory, start, end).map(Held::Memory),
                    };
                    all.push(Mapped {
                        path: path.clone(),
                        here,
                        start,
                        end,
                        debug: held.as_ref().and_then(|held| debug_file(held.bytes())),
                        held,
                    });
                }
                _ => {}
            }
        }
        Files(all)
    }
}

/// A process may see other files by the same names.
fn here(memory: &Memory, path: &Path) -> PathBuf {
    match memory.source {
        Source::Process(pid) => {
            let root = PathBuf::from(format!("/proc/{pid}/root"));
            root.join(path.strip_prefix("/").unwrap_or(path))
        }
        Source::Core(_) => path.to_owned(),
    }
}

fn map(path: &Path) -> Option<Mmap> {
    let file = File::open(path).ok()?;
    // SAFETY: it is read only. If somebody changes it, other bytes are read.
    unsafe { Mmap::map(&file) }.ok()
}

fn copy(memory: &Memory, start: u64, end: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(end - start).ok()?];
    memory.read(start, &mut bytes).ok().map(|()| bytes)
}

/// One object.
pub struct Image<'a> {
    mapped: &'a Mapped,
    /// How far it is mapped behind its own addresses.
    pub bias: u64,
    pub file: ElfFile64<'a, Endianness>,
    functions: OnceCell<Vec<Function<'a>>>,
    lines: OnceCell<Option<Loader>>,
}

struct Function<'a> {
    start: u64,
    end: u64,
    name: &'a str,
}

/// A function that an instruction belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub function: Option<String>,
    /// A file, and a line in it.
    pub line: Option<String>,
}

impl Image<'_> {
    /// Its file, as the process knows it.
    pub fn path(&self) -> &Path {
        &self.mapped.path
    }

    /// An address, as the object itself counts.
    pub fn offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }

    /// What an instruction belongs to: the function that is inlined innermost first, and in any case one, perhaps without
    /// a name.
    pub fn places(&self, at: u64) -> Vec<Place> {
        let at = self.offset(at);
        let mut places = Vec::new();
        let lines = self.lines.get_or_init(|| match &self.mapped.debug {
            Some((path, bytes)) => load(path, Some(bytes)),
            None => load(
                &self.mapped.here,
                self.mapped.held.as_ref().map(Held::bytes),
            ),
        });
        if let Some(mut frames) = lines.as_ref().and_then(|one| one.find_frames(at).ok()) {
            while let Ok(Some(frame)) = frames.next() {
                let function = frame.function.as_ref();
                let line = frame.location.and_then(|location| {
                    let line = location
                        .line
                        .map_or(String::new(), |line| format!(":{line}"));
                    Some(format!("{}{line}", location.file?))
                });
                places.push(Place {
                    function: function.and_then(|one| Some(one.demangle().ok()?.into_owned())),
                    line,
                });
            }
        }
        if places.is_empty() {
            places.push(Place::default());
        }
        // The outermost one is the symbol's, whose name says in which crate or namespace it is.
        if let Some(last) = places.last_mut()
            && let Some(function) = self.function(at)
        {
            last.function = Some(function);
        }
        places
    }

    fn function(&self, at: u64) -> Option<String> {
        let functions = self.functions.get_or_init(|| {
            let debug = self.mapped.debug.as_ref();
            let debug = debug.and_then(|(_, bytes)| ElfFile64::parse(&**bytes).ok());
            functions(debug.as_ref().unwrap_or(&self.file))
        });
        let next = functions.partition_point(|one| one.start <= at);
        let found = &functions[next.checked_sub(1)?];
        let name = (at < found.end).then_some(found.name)?;
        // A symbol's version is not a part of the name.
        let name = name.split('@').next().unwrap_or(name);
        Some(demangled(name))
    }
}

/// The name as the program's source has it. One of C stays as it is: `f` is not C++'s abbreviation of a type.
fn demangled(name: &str) -> String {
    match name.starts_with("_Z") || name.starts_with("_R") {
        true => addr2line::demangle_auto(name.into(), None).into_owned(),
        false => name.into(),
    }
}

/// Those of the symbol tables that say how long they are: another one that is near is not it.
fn functions<'a>(file: &ElfFile64<'a, Endianness>) -> Vec<Function<'a>> {
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let mut all: Vec<Function<'a>> = symbols
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() != 0)
        .filter_map(|symbol| {
            Some(Function {
                start: symbol.address(),
                end: symbol.address().checked_add(symbol.size())?,
                name: symbol.name().ok()?,
            })
        })
        .collect();
    all.sort_by(|one, other| (one.start, one.name).cmp(&(other.start, other.name)));
    all
}

/// All objects that can be read.
pub struct Objects<'a>(Vec<Image<'a>>);

impl<'a> Objects<'a> {
    pub fn new(files: &'a Files) -> Self {
        let images = files.0.iter().filter_map(|mapped| {
            let file = ElfFile64::parse(mapped.held.as_ref()?.bytes()).ok()?;
            let first = file.segments().next()?;
            // Segments are mapped by pages.
            let bias = mapped.start.wrapping_sub(first.address() & !0xfff);
            Some(Image {
                mapped,
                bias,
                file,
                functions: OnceCell::new(),
                lines: OnceCell::new(),
            })
        });
        Objects(images.collect())
    }

    /// The object in which an address is.
    pub fn at(&self, address: u64) -> Option<&Image<'a>> {
        let within = |image: &&Image<'_>| (image.mapped.start..image.mapped.end).contains(&address);
        self.0.iter().find(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_c_stay_and_others_are_demangled() {
        for (name, shown) in [
            ("f", "f"),
            ("g", "g"),
            ("main", "main"),
            ("_start", "_start"),
            ("_Z1fi", "f(int)"),
            ("_ZN5dance4move17h0123456789abcdefE", "dance::move"),
            ("_RNvC5dance4move", "dance::move"),
        ] {
            assert_eq!(demangled(name), shown, "{name}");
        }
    }

    #[inline(never)]
    fn here_am_i() -> u64 {
        here_am_i as *const () as u64
    }

    #[test]
    fn a_function_of_this_program_has_its_name() {
        let memory = Memory::of_process(std::process::id() as i32).expect("one's own process");
        let files = Files::open(&memory);
        let objects = Objects::new(&files);
        let at = std::hint::black_box(here_am_i)();
        let image = objects.at(at).expect("it is mapped");
        let places = image.places(at);
        let name = places.last().and_then(|place| place.function.as_deref());
        assert!(
            name.is_some_and(|name| name.contains("here_am_i")),
            "{places:?}"
        );
        assert!(objects.at(8).is_none());
        // The kernel's object has tables, and no file.
        let vdso = objects
            .0
            .iter()
            .find(|image| image.path() == Path::new(VDSO));
        assert!(vdso.is_some_and(|image| image.file.section_by_name(".eh_frame").is_some()));
    }
}
