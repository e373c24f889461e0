//! The peers in C++: a library, its version, and how a program is built with it.
//!
//! The version is what the preprocessor makes of the library's own macro. So a library that is not
//! installed is found out before anything is built, and a new version is built anew.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Built, build, finished, output};

pub(super) const SOURCES: &[(&str, &str)] = &[
    ("boost.cpp", include_str!("../../peers/cpp/boost.cpp")),
    ("load.hpp", include_str!("../../peers/cpp/load.hpp")),
    ("peer.hpp", include_str!("../../peers/cpp/peer.hpp")),
    ("st.cpp", include_str!("../../peers/cpp/st.cpp")),
    ("st.hpp", include_str!("../../peers/cpp/st.hpp")),
    ("tbb.cpp", include_str!("../../peers/cpp/tbb.cpp")),
    ("threads.hpp", include_str!("../../peers/cpp/threads.hpp")),
];

/// A library with which a peer is built.
#[derive(Debug)]
pub struct Library {
    /// The source of the peer, without `.cpp`.
    name: &'static str,
    /// What Debian calls it.
    package: &'static str,
    /// The header that defines `macro`.
    header: &'static str,
    version: &'static str,
    /// What to link with.
    libraries: &'static [&'static str],
    /// What is to be known of it beside the version.
    remark: &'static str,
}

/// oneTBB.
pub const TBB: Library = Library {
    name: "tbb",
    package: "libtbb-dev",
    header: "oneapi/tbb/version.h",
    version: "TBB_VERSION_STRING",
    libraries: &["-ltbb"],
    remark: "",
};

pub const BOOST: Library = Library {
    name: "boost",
    package: "libboost-fiber-dev",
    header: "boost/version.hpp",
    version: "BOOST_LIB_VERSION",
    libraries: &["-lboost_fiber", "-lboost_context"],
    remark: "",
};

/// State Threads.
pub const ST: Library = Library {
    name: "st",
    package: "libst-dev",
    header: "st.h",
    version: "ST_VERSION",
    libraries: &["-lst"],
    remark: ", one worker",
};

/// Builds a peer, or says why it cannot be had.
pub fn peer(cache: &Path, library: &Library) -> Result<Built, String> {
    let Library { name, remark, .. } = library;
    let compiler = output(Command::new("c++").arg("--version"))?;
    let version = format!("{}{remark}, {compiler}", version(library)?);
    let built = build(cache, name, SOURCES, version, |directory, program| {
        let mut command = Command::new("c++");
        command
            .args(["-std=c++17", "-O2", "-DNDEBUG", "-pthread", "-o"])
            .arg(program)
            .arg(format!("{name}.cpp"))
            .args(library.libraries)
            .current_dir(directory);
        command
    });
    built.map_err(|why| missing(library, &why))
}

fn version(library: &Library) -> Result<String, String> {
    let mut command = Command::new("c++");
    command.args(["-E", "-P", "-x", "c++", "-"]);
    let text = format!("#include <{}>\n{}\n", library.header, library.version);
    let said = preprocessed(&mut command, &text).map_err(|why| missing(library, &why))?;
    let last = said.lines().last().unwrap_or_default();
    // Adjacent strings, which the compiler would make one.
    let version: String = last
        .chars()
        .filter(|c| !"\" ".contains(*c))
        .map(|c| if c == '_' { '.' } else { c })
        .collect();
    if version.starts_with(|c: char| c.is_ascii_digit()) {
        Ok(version)
    } else {
        let why = format!("{} is {last}", library.version);
        Err(missing(library, &why))
    }
}

fn preprocessed(command: &mut Command, text: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("c++: {error}");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    // Two lines, for which there is room in a pipe; its end is that of the text.
    let written = child
        .stdin
        .take()
        .map(|mut pipe| pipe.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    written.transpose().map_err(failed)?;
    finished("c++", &output)
}

fn missing(library: &Library, why: &str) -> String {
    format!("{why} (Debian has it in {})", library.package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_its_package() {
        if output(Command::new("c++").arg("--version")).is_err() {
            eprintln!("SKIPPED: c++ is not installed");
            return;
        }
        let library = Library {
            header: "no/such/header.h",
            ..TBB
        };
        let error = version(&library).unwrap_err();
        assert!(
            error.contains("no/such/header.h") && error.contains("libtbb-dev"),
            "{error}"
        );
        let library = Library {
            header: "stdio.h",
            version: "NO_SUCH_MACRO",
            ..TBB
        };
        let error = version(&library).unwrap_err();
        assert!(error.contains("NO_SUCH_MACRO"), "{error}");
    }

    #[test]
    fn a_version_is_what_the_macro_says() {
        let mut command = Command::new("c++");
        command.args(["-E", "-P", "-x", "c++", "-"]);
        let Ok(said) = preprocessed(&mut command, "#define V \"1\" \".\" \"2\"\nV\n") else {
            eprintln!("SKIPPED: c++ is not installed");
            return;
        };
        assert_eq!(said.lines().last(), Some("\"1\" \".\" \"2\""));
    }
}
