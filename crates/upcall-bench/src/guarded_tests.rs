//! Whose files are taken, and whose are not.

use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::*;

/// A directory of the test's own that goes away with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let name = format!("upcall-guarded-{name}-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        // Fails where somebody has been there before.
        fs::DirBuilder::new().mode(0o700).create(&place).unwrap();
        Self(place.canonicalize().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        let file = self.0.join(name);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(file.parent().unwrap()).unwrap();
        fs::write(&file, "x").unwrap();
        set(&file, 0o755);
        file
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn set(file: &Path, mode: u32) {
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

/// Gives `file` to another user, if this one may.
fn give_away(file: &Path) -> bool {
    let given = std::os::unix::fs::lchown(file, Some(4321), Some(4321)).is_ok();
    if !given {
        eprintln!("SKIPPED: only the superuser gives files away");
    }
    given
}

fn guarded(file: &Path) -> Result<PathBuf, String> {
    Trust::own().guarded(file, Way::OfFile)
}

#[test]
fn a_directory_that_others_can_write_is_not_passed_unless_it_is_sticky() {
    let place = Place::new("modes");
    let file = place.file("a/b/library.so");
    set(&place.0.join("a"), 0o755);
    assert_eq!(guarded(&file), Ok(file.clone()));
    for mode in [0o777, 0o775, 0o757] {
        set(&place.0.join("a"), mode);
        let why = guarded(&file).unwrap_err();
        assert!(why.contains(&format!("{mode:04o}")), "{why}");
    }
    set(&place.0.join("a"), 0o1777);
    assert_eq!(guarded(&file), Ok(file.clone()));
    let builds = Trust::own().guarded(&place.0.join("a/b"), Way::OfBuilds);
    assert!(builds.unwrap_err().contains("1777"));
    // The last one, in which files are looked for by name.
    assert!(guarded(&place.0.join("a")).is_err());
}

#[test]
fn a_file_that_others_can_write_is_not_taken() {
    let place = Place::new("file");
    let file = place.file("library.so");
    set(&file, 0o766);
    assert!(guarded(&file).unwrap_err().contains("0766"));
}

#[test]
fn what_another_user_has_put_into_a_shared_directory_is_not_taken() {
    let place = Place::new("planted");
    let file = place.file("shared/library.so");
    set(&place.0.join("shared"), 0o1777);
    assert_eq!(guarded(&file), Ok(file.clone()));
    if give_away(&file) {
        assert!(guarded(&file).unwrap_err().contains("4321"));
    }
}

#[test]
fn links_are_followed_and_belong_to_trusted_users_too() {
    let place = Place::new("links");
    let file = place.file("real/library.so");
    set(&place.0.join("real"), 0o755);
    fs::create_dir(place.0.join("shared")).unwrap();
    let link = place.0.join("shared/library.so");
    symlink("../real/../real/library.so", &link).unwrap();
    assert_eq!(guarded(&link), Ok(file.clone()));
    // What a link leads through is looked at as well.
    set(&place.0.join("real"), 0o777);
    assert!(guarded(&link).unwrap_err().contains("0777"));
    set(&place.0.join("real"), 0o755);
    if give_away(&link) {
        assert!(guarded(&link).unwrap_err().contains("4321"));
    }
    let round = place.0.join("round");
    symlink(&round, &round).unwrap();
    assert!(guarded(&round).unwrap_err().contains("round"));
}

#[test]
fn who_could_replace_the_command_is_trusted_with_its_library() {
    let place = Place::new("command");
    let command = place.file("theirs/bin/upcall");
    let file = place.file("theirs/lib/upcall/library.so");
    let (bin, lib) = (place.0.join("theirs/bin"), place.0.join("theirs/lib"));
    let check = || Trust::of_command(&command).guarded(&file, Way::OfFile);
    // Group-writable like the command, as under a umask of 002.
    set(&lib, 0o775);
    set(&bin, 0o755);
    assert!(check().unwrap_err().contains("0775"));
    set(&bin, 0o775);
    assert_eq!(check(), Ok(file.clone()));
    if give_away(&file) {
        assert!(check().unwrap_err().contains("4321"));
        chown(&command, Some(4321), None).unwrap();
        assert_eq!(check(), Ok(file.clone()));
    }
}

#[test]
fn a_missing_file_is_named() {
    let why = guarded(Path::new("/no/such/library.so")).unwrap_err();
    assert!(why.starts_with("/no: "), "{why}");
}
