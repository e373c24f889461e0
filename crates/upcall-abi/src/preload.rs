//! The list of libraries in `LD_PRELOAD`, into which the command and the library in the program put its path.

/// The variable's separators.
pub fn is_separator(byte: &u8) -> bool {
    matches!(byte, b' ' | b':')
}

/// The entries of a list.
pub fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(is_separator).filter(|entry| !entry.is_empty())
}

/// Returns true if an entry is a library of a tool that owns the threads of its program: valgrind, or a sanitizer. The library in the
/// program cannot work beside it.
pub fn owns_threads(entry: &[u8]) -> bool {
    const TOOLS: [&[u8]; 6] = [
        b"vgpreload_",
        b"libtsan.so",
        b"libasan.so",
        b"libhwasan.so",
        b"libmsan.so",
        b"liblsan.so",
    ];
    let name = entry.rsplit(|&byte| byte == b'/').next();
    name.is_some_and(|name| TOOLS.iter().any(|tool| name.starts_with(tool)))
}
