//! Finds the guest library, and puts it into LD_PRELOAD.

use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use upcall_abi::preload::{entries, owns_threads};
use upcall_bench::guarded::{Trust, Way};

use crate::image;
use crate::refusal::Refusal;

/// The file that is preloaded.
const NAME: &str = "libupcall_guest.so";
const MORE: &str = "upcall help run, under Environment";

/// Where this command is. Without /proc: what the kernel was asked to execute, which a shell or
/// execvp(3) has found by PATH, with links followed.
pub fn command() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| {
        // SAFETY: asks only.
        let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
        if name.is_null() {
            return PathBuf::new();
        }
        // SAFETY: a string that the kernel has put where it stays for ever.
        let name = unsafe { CStr::from_ptr(name) };
        let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
        path.canonicalize().unwrap_or(path)
    })
}

/// The guest library: what UPCALL_GUEST_LIB names, else beside this command, else in ../lib/upcall. Its code runs with
/// the user's rights in every program, so it is not taken from a place where a user can put files who could not
/// replace this command as well.
///
/// # Errors
/// It is in none of these places, others can write there, or its path cannot be written in LD_PRELOAD.
pub fn find(named: Option<OsString>, command: &Path) -> Result<PathBuf, Refusal> {
    let library = match named {
        Some(named) => {
            let library = PathBuf::from(named);
            if !library.is_file() {
                return Err(Refusal {
                    what: "the guest library is not where UPCALL_GUEST_LIB says".into(),
                    checked: format!("{}: no such file", library.display()),
                    remedy: "correct UPCALL_GUEST_LIB, or unset it to have the library found"
                        .into(),
                    more: MORE,
                });
            }
            if let Err(evidence) = image::examine_library(&library) {
                return Err(Refusal {
                    what: "what UPCALL_GUEST_LIB names cannot be loaded into a program".into(),
                    checked: format!("{}: {evidence}", library.display()),
                    remedy: "correct UPCALL_GUEST_LIB, or unset it to have the library found"
                        .into(),
                    more: MORE,
                });
            }
            std::path::absolute(&library).unwrap_or(library)
        }
        None => beside(command)?,
    };
    if let Err(why) = Trust::of_command(command).guarded(&library, Way::OfFile) {
        return Err(Refusal {
            what: "the guest library is where other users could have put it".into(),
            checked: why,
            remedy: "install upcall and its library in directories that only you, or the \
                     superuser, can write"
                .into(),
            more: MORE,
        });
    }
    if let Some(byte) = library
        .as_os_str()
        .as_bytes()
        .iter()
        .find(|byte| b" :$".contains(byte) || byte.is_ascii_control())
    {
        return Err(Refusal {
            what: "the guest library's path cannot be written in LD_PRELOAD".into(),
            checked: format!(
                "{} contains {:?}, which the dynamic linker would take for its own",
                library.display(),
                char::from(*byte)
            ),
            remedy: "install upcall in a directory without spaces, colons and dollar signs, or \
                     name a link to the library in UPCALL_GUEST_LIB"
                .into(),
            more: "man 8 ld.so, LD_PRELOAD",
        });
    }
    Ok(library)
}

/// Where the library is looked for, in this order.
pub fn places(command: &Path) -> [PathBuf; 2] {
    let directory = command.parent().unwrap_or(Path::new("/"));
    let above = directory.parent().unwrap_or(directory);
    [directory.join(NAME), above.join("lib/upcall").join(NAME)]
}

fn beside(command: &Path) -> Result<PathBuf, Refusal> {
    let places = places(command);
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Ok(found.clone());
    }
    Err(Refusal {
        what: "the guest library is not installed".into(),
        checked: format!("no {} and no {}", places[0].display(), places[1].display()),
        remedy: "build it (cargo build --release -p upcall-guest), or name it in \
                 UPCALL_GUEST_LIB"
            .into(),
        more: MORE,
    })
}

/// LD_PRELOAD with the library first, once.
pub fn preload(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    for entry in entries(existing.unwrap_or_default().as_bytes()) {
        if entry != library.as_os_str().as_bytes() {
            list.push(":");
            list.push(OsStr::from_bytes(entry));
        }
    }
    list
}

/// A library in LD_PRELOAD beside which the guest cannot work: valgrind's or a sanitizer's.
pub fn conflicting(existing: Option<&OsStr>) -> Option<String> {
    let mut entries = entries(existing?.as_bytes());
    let found = entries.find(|entry| owns_threads(entry))?;
    Some(String::from_utf8_lossy(found).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_once() {
        let library = Path::new("/opt/libupcall_guest.so");
        let preload = |existing: Option<&str>| preload(library, existing.map(OsStr::new));
        assert_eq!(preload(None), "/opt/libupcall_guest.so");
        assert_eq!(preload(Some("")), "/opt/libupcall_guest.so");
        assert_eq!(
            preload(Some("liba.so libb.so:libc.so")),
            "/opt/libupcall_guest.so:liba.so:libb.so:libc.so"
        );
        assert_eq!(
            preload(Some("liba.so:/opt/libupcall_guest.so")),
            "/opt/libupcall_guest.so:liba.so"
        );
    }

    #[test]
    fn valgrind_and_sanitizers_are_noticed() {
        let conflicting = |existing: &str| conflicting(Some(OsStr::new(existing)));
        assert!(conflicting("/usr/lib/valgrind/vgpreload_core-amd64-linux.so").is_some());
        assert!(conflicting("liba.so:libtsan.so.2").is_some());
        assert!(conflicting("libjemalloc.so.2:/x/libasan_not.so").is_none());
        assert!(super::conflicting(None).is_none());
    }

    #[test]
    fn a_path_that_the_linker_would_split_is_refused() {
        let directory = std::env::temp_dir().join(format!("upcall guest {}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join(NAME), "").expect("a file");
        let refusal = find(None, &directory.join("upcall")).expect_err("a space");
        assert!(refusal.checked.contains("' '"), "{refusal}");
        std::fs::remove_dir_all(directory).expect("cleaned up");
    }

    #[test]
    fn a_library_that_others_could_have_put_there_is_refused() {
        let directory = std::env::temp_dir().join(format!("upcall-guest-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("lib")).expect("a directory");
        let library = directory.join("lib").join(NAME);
        std::fs::copy("/proc/self/exe", &library).expect("an object that can be loaded");
        let open = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(directory.join("lib"), mode).expect("a mode");
        };
        let command = directory.join("upcall");
        std::fs::write(&command, "").expect("a file");
        let named = |library: &Path| find(Some(library.into()), &command);
        assert_eq!(named(&library).as_deref(), Ok(library.as_path()));
        open(0o777);
        let refusal = named(&library).expect_err("open to all");
        assert!(refusal.checked.contains("0777"), "{refusal}");
        let refusal = find(None, &directory.join("lib/upcall")).expect_err("open to all");
        assert!(refusal.checked.contains("0777"), "{refusal}");
        std::fs::remove_dir_all(directory).expect("cleaned up");
    }

    #[test]
    fn what_is_named_is_not_searched_for() {
        let refusal = find(Some("/no/such.so".into()), Path::new("/bin/x")).expect_err("missing");
        assert!(refusal.what.contains("UPCALL_GUEST_LIB"));
        let refusal = find(None, Path::new("/no/such/bin/upcall")).expect_err("missing");
        assert!(refusal.checked.contains("/no/such/lib/upcall"), "{refusal}");
    }
}
