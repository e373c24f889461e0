//! The ELF objects of this process, and the bytes that the rewriter reads of them.
//!
//! An [`Object`] is a description (addresses only). An [`Image`] is a readable view of one. So the same decoder works on
//! live memory, on a file that is not loaded and on the hand-assembled functions of the tests.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::borrow::Cow;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::ptr;

/// How often objects have been loaded or unloaded; 0 where the loader does not tell.
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// What part an object plays in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The program itself.
    Program,
    /// A shared library.
    Library,
    /// The dynamic loader (ld.so).
    Loader,
    /// The kernel's own object.
    Vdso,
    /// The object that holds this crate: its system calls are ours.
    Runtime,
}

/// One loaded segment.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The addresses it occupies.
    pub range: Range<usize>,
    /// Its protection as `PROT_*` bits, as the program header asks for it.
    pub protection: c_int,
}

impl Segment {
    /// Returns true if code runs there.
    pub fn is_executable(&self) -> bool {
        self.protection & libc::PROT_EXEC != 0
    }
}

/// One loaded ELF object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its path as the loader knows it; for the program, which has none there, words that say so.
    pub path: String,
    /// What it is to the process.
    pub role: Role,
    /// Its `PT_LOAD` segments, by address.
    pub segments: Vec<Segment>,
    /// The address of `.eh_frame_hdr`, if it has one.
    pub eh_frame_hdr: Option<usize>,
    /// What its linker has named its contents by, if it has.
    pub build_id: Option<BuildId>,
}

/// The name of an object's contents (`.note.gnu.build-id`), with zeros behind a shorter one.
pub type BuildId = [u8; 20];

impl Object {
    /// From its first byte to its last.
    pub fn span(&self) -> Range<usize> {
        let start = self.segments.iter().map(|s| s.range.start).min();
        let end = self.segments.iter().map(|s| s.range.end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// Returns true if `address` lies in one of its segments.
    pub fn contains(&self, address: usize) -> bool {
        self.segments.iter().any(|s| s.range.contains(&address))
    }

    /// Returns a view of the object's bytes.
    ///
    /// # Safety
    /// The object stays mapped, and nobody writes its code or read-only data, while the image lives. Writable segments are
    /// left out of the view.
    pub unsafe fn image(&self) -> Image<'_> {
        let parts = self
            .segments
            .iter()
            .filter(|s| s.protection & libc::PROT_READ != 0 && s.protection & libc::PROT_WRITE == 0)
            .map(|s| Part {
                start: s.range.start,
                // SAFETY: the loader mapped this range readable and the caller keeps it so.
                bytes: unsafe {
                    std::slice::from_raw_parts(s.range.start as *const u8, s.range.len())
                },
                executable: s.is_executable(),
            })
            .collect();
        Image {
            parts,
            eh_frame_hdr: self.eh_frame_hdr,
        }
    }
}

/// A piece of an [`Image`].
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The address of its first byte.
    pub start: usize,
    /// The bytes.
    pub bytes: &'a [u8],
    /// True if it holds code.
    pub executable: bool,
}

impl Part<'_> {
    /// Returns the addresses it covers.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes.len()
    }
}

/// Readable bytes at addresses: what the decoder sees.
#[derive(Clone, Debug)]
pub struct Image<'a> {
    /// The readable pieces; they do not overlap.
    pub parts: Vec<Part<'a>>,
    /// The address of `.eh_frame_hdr`, if there is one.
    pub eh_frame_hdr: Option<usize>,
}

impl<'a> Image<'a> {
    /// Code by itself, without an unwind table.
    pub fn of_code(start: usize, bytes: &'a [u8]) -> Self {
        Self {
            parts: vec![Part {
                start,
                bytes,
                executable: true,
            }],
            eh_frame_hdr: None,
        }
    }

    /// Returns the bytes from `address` to the end of the piece that holds it.
    pub fn tail(&self, address: usize) -> Option<&'a [u8]> {
        let part = self.parts.iter().find(|p| p.range().contains(&address))?;
        Some(&part.bytes[address - part.start..])
    }

    /// Returns the bytes of `range`, if one piece holds all of it.
    pub fn bytes(&self, range: Range<usize>) -> Option<&'a [u8]> {
        self.tail(range.start)?.get(..range.len())
    }

    /// Returns the little-endian number of `N` bytes at `address`.
    pub fn array<const N: usize>(&self, address: usize) -> Option<[u8; N]> {
        self.tail(address)?.first_chunk().copied()
    }

    /// Returns true if there is little code and no system call in it: that is seen faster than what is kept about it is read.
    pub fn has_no_call(&self) -> bool {
        const LITTLE: usize = 64 << 10;
        let length: usize = self.code().map(|part| part.bytes.len()).sum();
        length <= LITTLE
            && !self.code().any(|part| {
                // Without an early end: so the compiler looks at many bytes at a time.
                let (bytes, next) = (part.bytes, part.bytes.get(1..).unwrap_or_default());
                let pairs = bytes.iter().zip(next);
                pairs.fold(false, |found, (&one, &two)| {
                    found | ((one == SYSCALL[0]) & (two == SYSCALL[1]))
                })
            })
    }

    /// Returns the pieces that hold code.
    pub fn code(&self) -> impl Iterator<Item = &Part<'a>> {
        self.parts.iter().filter(|p| p.executable)
    }
}

/// The instruction that makes a system call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What stands for the program's path.
const PROGRAM: &str = "the program";

/// Returns an object's path for people. That of the program is asked for only here: each process asks procfs for a name of
/// its own first, which takes microseconds.
pub fn path_of(path: &str) -> Cow<'_, str> {
    let program = (path == PROGRAM).then(|| std::fs::read_link("/proc/self/exe").ok());
    match program.flatten() {
        Some(program) => program.to_string_lossy().into_owned().into(),
        None => path.into(),
    }
}

/// Returns every object loaded now, in the loader's order.
///
/// # Upcall safety
/// Allocates, and takes the loader's lock: for start-up and for a thread in program context.
pub fn loaded() -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    // SAFETY: `collect` has the callback's signature and gets the vector it expects; the call
    // returns before the vector is used again.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut objects).cast()) };
    objects
}

/// Returns the loader's word to debuggers, as the program's dynamic section says; null without one.
///
/// # Upcall safety
/// As [`loaded`].
pub fn loader_debug() -> *mut LoaderDebug {
    let mut debug: *mut LoaderDebug = ptr::null_mut();
    // SAFETY: `find_debug` has the callback's signature and gets the pointer it expects.
    unsafe { libc::dl_iterate_phdr(Some(find_debug), (&raw mut debug).cast()) };
    debug
}

/// The program comes first: looks at it alone.
unsafe extern "C" fn find_debug(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    const DT_NULL: usize = 0;
    const DT_DEBUG: usize = 21;
    // SAFETY: the loader passes a valid record and our own pointer; a dynamic section is pairs of
    // words up to a null tag.
    unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        if let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) {
            let mut entry = (info.dlpi_addr as usize).wrapping_add(dynamic.p_vaddr as usize)
                as *const [usize; 2];
            while (*entry)[0] != DT_NULL {
                if (*entry)[0] == DT_DEBUG {
                    *data.cast() = (*entry)[1];
                }
                entry = entry.add(1);
            }
        }
    }
    1
}

/// Returns the loaded object that holds `address`.
///
/// # Upcall safety
/// As [`loaded`].
pub fn at(address: usize) -> Option<Object> {
    loaded().into_iter().find(|o| o.contains(address))
}

unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid record and our own pointer, for this call.
    let (info, objects) = unsafe { (&*info, &mut *data.cast::<Vec<Object>>()) };
    // SAFETY: the loader says how many headers there are.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let mut segments = Vec::new();
    let mut eh_frame_hdr = None;
    let mut build_id = None;
    for header in headers {
        let start = base.wrapping_add(header.p_vaddr as usize);
        match header.p_type {
            libc::PT_LOAD => segments.push(Segment {
                range: start..start + header.p_memsz as usize,
                protection: protection(header.p_flags),
            }),
            libc::PT_GNU_EH_FRAME => eh_frame_hdr = Some(start),
            libc::PT_NOTE if build_id.is_none() => {
                // SAFETY: the loader has mapped the notes with the segment that holds them.
                let notes = unsafe {
                    std::slice::from_raw_parts(start as *const u8, header.p_memsz as usize)
                };
                build_id = find_build_id(notes, header.p_align as usize);
            }
            _ => {}
        }
    }
    let name = if info.dlpi_name.is_null() {
        ""
    } else {
        // SAFETY: a non-null name is a C string that lives as long as the object.
        unsafe { CStr::from_ptr(info.dlpi_name) }
            .to_str()
            .unwrap_or("")
    };
    let mut object = Object {
        path: name.to_owned(),
        role: Role::Library,
        segments,
        eh_frame_hdr,
        build_id,
    };
    object.role = role(&object, base);
    if object.path.is_empty() {
        object.path = PROGRAM.to_owned();
    }
    objects.push(object);
    0
}

/// Returns the build id in a segment of notes: heads of three words (the length of the owner's name, the length of the
/// contents, the type), the name, the contents.
fn find_build_id(notes: &[u8], alignment: usize) -> Option<BuildId> {
    const TYPE: usize = 3;
    const OWNER: &[u8] = b"GNU\0";
    let alignment = alignment.clamp(4, 8);
    let mut rest = notes;
    loop {
        let (head, behind) = rest.split_at_checked(12)?;
        let word = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().unwrap_or(&[0; 4]));
        let [name, contents, kind] = [0, 4, 8].map(|at| word(at) as usize);
        let at = (12 + name).next_multiple_of(alignment) - 12;
        let found = behind.get(at..at.checked_add(contents)?)?;
        if kind == TYPE && behind.get(..name) == Some(OWNER) {
            let mut id = BuildId::default();
            // One that is shorter says too little, and one that is longer is none that a linker makes by itself.
            id.get_mut(..contents)
                .filter(|_| contents >= 8)?
                .copy_from_slice(found);
            return Some(id);
        }
        rest = rest.get((12 + at + contents).next_multiple_of(alignment)..)?;
    }
}

fn role(object: &Object, base: usize) -> Role {
    // SAFETY: getauxval only reads the auxiliary vector.
    let (vdso, loader) = unsafe {
        (
            libc::getauxval(libc::AT_SYSINFO_EHDR) as usize,
            libc::getauxval(libc::AT_BASE) as usize,
        )
    };
    if object.contains(crate::ground::arch::anchor()) {
        Role::Runtime
    } else if (vdso != 0 && object.contains(vdso)) || object.path.starts_with("linux-vdso") {
        Role::Vdso
    } else if (loader != 0 && base == loader) || is_loader_name(&object.path) {
        Role::Loader
    } else if object.path.is_empty() {
        Role::Program
    } else {
        Role::Library
    }
}

fn is_loader_name(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.starts_with("ld-linux") || file.starts_with("ld-2.") || file == "ld.so"
}

fn protection(flags: u32) -> c_int {
    let bit = |flag, protection| if flags & flag != 0 { protection } else { 0 };
    bit(libc::PF_R, libc::PROT_READ)
        | bit(libc::PF_W, libc::PROT_WRITE)
        | bit(libc::PF_X, libc::PROT_EXEC)
}

/// `struct r_debug` (<link.h>), the documented part of it.
#[repr(C)]
pub struct LoaderDebug {
    version: i32,
    map: usize,
    pub(crate) brk: usize,
    pub(crate) state: i32,
    base: usize,
}

/// Objects were loaded or unloaded, or the loader tells of that from now on.
pub fn note_change() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// How often objects have been loaded or unloaded. `None`: the loader does not tell.
#[inline]
pub fn generation() -> Option<usize> {
    Some(GENERATION.load(Ordering::Relaxed)).filter(|&count| count != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_libc_with_code_and_unwind_table() {
        let objects = loaded();
        let libc = objects
            .iter()
            .find(|o| o.path.contains("/libc.so.6"))
            .expect("the test is linked with libc");
        assert_eq!(libc.role, Role::Library);
        assert!(libc.eh_frame_hdr.is_some());
        assert!(libc.segments.iter().any(Segment::is_executable));
        // Not one that a sanitizer's runtime puts itself before.
        assert!(libc.contains(libc::getppid as *const () as usize));
    }

    #[test]
    fn the_build_id_is_found_among_other_notes_and_never_beyond_them() {
        let note = |kind: u8, name: &[u8], contents: &[u8]| {
            let mut note = vec![0u8; 12];
            (note[0], note[4], note[8]) = (name.len() as u8, contents.len() as u8, kind);
            note.extend_from_slice(name);
            note.resize(note.len().next_multiple_of(4), 0);
            note.extend_from_slice(contents);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let id: Vec<u8> = (1..=20).collect();
        let notes = [note(1, b"GNU\0", &[0; 16]), note(3, b"GNU\0", &id)].concat();
        assert_eq!(find_build_id(&notes, 4).map(Vec::from), Some(id.clone()));
        assert_eq!(find_build_id(&note(3, b"Go\0\0", &id), 4), None);
        assert_eq!(find_build_id(&note(3, b"GNU\0", &[1; 3]), 4), None);
        for length in 0..notes.len() {
            assert_eq!(
                find_build_id(&notes[..length], 4),
                None,
                "of {length} bytes"
            );
        }
    }

    #[test]
    fn every_role_is_told_apart() {
        let objects = loaded();
        for role in [Role::Runtime, Role::Loader, Role::Vdso] {
            let of_role = objects.iter().filter(|o| o.role == role).count();
            assert_eq!(of_role, 1, "{role:?} among {objects:#?}");
        }
    }

    #[test]
    fn image_reads_only_what_one_part_holds() {
        let image = Image::of_code(0x1000, &[1, 2, 3, 4]);
        assert_eq!(image.bytes(0x1001..0x1003), Some(&[2u8, 3][..]));
        assert_eq!(image.bytes(0x1003..0x1005), None);
        assert_eq!(image.array::<2>(0x1002), Some([3, 4]));
        assert_eq!(image.array::<2>(0xfff), None);
    }
}
