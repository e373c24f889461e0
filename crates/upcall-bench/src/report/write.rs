//! Writes a file that has its name only when it is whole.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::Builder;

use crate::problem::Problem;

/// Writes `text` to `name` in `directory`, in place of what is there.
///
/// # Errors
///
/// A [`Problem`] if it cannot be written. What was there stays.
pub fn file(directory: &Path, name: &str, text: &str) -> Result<(), Problem> {
    let write = || -> std::io::Result<()> {
        let mut draft = Builder::new()
            .prefix(&format!(".{name}."))
            // What umask(2) takes off is taken off here, too.
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(directory)?;
        draft.write_all(text.as_bytes())?;
        // A file system may say only now that it has no room.
        draft.as_file().sync_data()?;
        draft
            .persist(directory.join(name))
            .map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|error| {
        let shown = directory.join(name);
        Problem::new(
            "the report cannot be written",
            format!("{}: {error}", shown.display()),
            "a directory that can be written and has room: copy the files that end in .jsonl to one",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        file(directory.path(), "a.html", "old").unwrap();
        file(directory.path(), "a.html", "new").unwrap();
        let all: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(all.len(), 1);
        let text = std::fs::read_to_string(directory.path().join("a.html")).unwrap();
        assert_eq!(text, "new");
    }

    #[test]
    fn a_directory_that_takes_nothing_is_named() {
        let problem = file(Path::new("/proc/self"), "a.html", "x").unwrap_err();
        assert!(problem.evidence.contains("/proc/self/a.html"));
    }

    #[test]
    fn what_is_in_the_way_stays() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("a.html")).unwrap();
        assert!(file(directory.path(), "a.html", "x").is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
