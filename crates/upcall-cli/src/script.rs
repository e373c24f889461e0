//! The first line of a script, as the kernel reads it.

/// How much of a file the kernel looks at (BINPRM_BUF_SIZE).
const LOOKED_AT: usize = 256;

/// An interpreter and the one argument that may follow it.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Shebang<'a> {
    /// The interpreter's file name.
    pub interpreter: &'a [u8],
    /// The rest of the line, which the interpreter gets as one argument.
    pub argument: Option<&'a [u8]>,
}

/// The interpreter line of a file that begins with `#!`; `None` for any other file, and for
/// a line that the kernel would not accept.
pub fn shebang(file: &[u8]) -> Option<Shebang<'_>> {
    let head = &file[..file.len().min(LOOKED_AT)];
    let rest = head.strip_prefix(b"#!")?;
    let (line, whole) = match rest.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&rest[..end], true),
        None => (rest, file.len() <= LOOKED_AT),
    };
    let line = trim(line);
    let end = line.iter().position(|&byte| is_blank(byte));
    let interpreter = &line[..end.unwrap_or(line.len())];
    // A name that runs out of what the kernel looks at is not the whole name.
    if interpreter.is_empty() || (!whole && end.is_none()) {
        return None;
    }
    let argument = trim(&line[interpreter.len()..]);
    Some(Shebang {
        interpreter,
        argument: (!argument.is_empty()).then_some(argument),
    })
}

/// The program that a line such as `#!/usr/bin/env -S python3 -u` comes to, by name.
pub fn behind_env<'a>(line: &Shebang<'a>) -> Option<&'a [u8]> {
    let name = line.interpreter.rsplit(|&byte| byte == b'/').next()?;
    if name != b"env" {
        return None;
    }
    let argument = line.argument?;
    if !argument.starts_with(b"-") {
        // Without -S the whole argument is one word.
        return Some(argument);
    }
    argument
        .split(|&byte| is_blank(byte))
        .find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='))
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn trim(mut line: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = line
        && is_blank(*first)
    {
        line = rest;
    }
    while let [rest @ .., last] = line
        && is_blank(*last)
    {
        line = rest;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(file: &[u8]) -> Option<(&str, Option<&str>)> {
        shebang(file).map(|line| {
            let text = |bytes| std::str::from_utf8(bytes).expect("ASCII");
            (text(line.interpreter), line.argument.map(text))
        })
    }

    #[test]
    fn lines_are_read_as_the_kernel_reads_them() {
        assert_eq!(parts(b"#!/bin/sh\necho\n"), Some(("/bin/sh", None)));
        assert_eq!(
            parts(b"#! \t/bin/sh -e -x \n"),
            Some(("/bin/sh", Some("-e -x")))
        );
        assert_eq!(parts(b"#!/bin/sh"), Some(("/bin/sh", None)));
        assert_eq!(parts(b"#!\n"), None);
        assert_eq!(parts(b"#"), None);
        assert_eq!(parts(b""), None);
        assert_eq!(parts(b"\x7fELF"), None);
    }

    #[test]
    fn a_name_cut_off_by_the_kernel_is_none() {
        let long = [b"#!/".as_slice(), &[b'x'; 400], b"\n"].concat();
        assert_eq!(parts(&long), None);
        let long_argument = [b"#!/bin/sh ".as_slice(), &[b'x'; 400], b"\n"].concat();
        assert_eq!(parts(&long_argument).map(|(name, _)| name), Some("/bin/sh"));
    }

    #[test]
    fn env_is_seen_through() {
        let behind = |file: &'static [u8]| {
            behind_env(&shebang(file).expect("a script"))
                .map(|name| std::str::from_utf8(name).expect("ASCII"))
        };
        assert_eq!(behind(b"#!/usr/bin/env python3\n"), Some("python3"));
        assert_eq!(
            behind(b"#!/usr/bin/env -S A=b python3 -u\n"),
            Some("python3")
        );
        assert_eq!(behind(b"#!/usr/bin/python3\n"), None);
        assert_eq!(behind(b"#!/usr/bin/env\n"), None);
    }
}
