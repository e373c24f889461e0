//! Programs that are installed here, of those that are measured and that measure.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where servers are that the search path of a user may lack.
const MORE: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// Where Debian has the versions of PostgreSQL.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// Finds an installed program. Of several PostgreSQLs the newest is taken.
pub fn found(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = MORE.iter().map(PathBuf::from);
    let all = postgresql(Path::new(POSTGRESQL)).into_iter();
    all.chain(std::env::split_paths(&path))
        .chain(more)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    let found = path.metadata();
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The directories with programs of PostgreSQL, the newest version first. Debian's commands of these names outside are
/// scripts that choose a version by settings of the machine.
fn postgresql(root: &Path) -> Vec<PathBuf> {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<f64>().ok();
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries
        .filter_map(|entry| Some((version(&entry.path())?, entry.path().join("bin"))))
        .collect();
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    all.into_iter().map(|(_, path)| path).collect()
}

/// The programs of `needs` that are not installed.
fn lacking(needs: &[&'static str]) -> Vec<&'static str> {
    let lacks = |name: &&&str| found(name).is_none();
    needs.iter().filter(lacks).copied().collect()
}

/// Why programs that need these cannot be measured, if some are not installed.
pub fn why(needs: &[&'static str]) -> Option<String> {
    let lacks = lacking(needs);
    (!lacks.is_empty()).then(|| format!("not installed: {}", lacks.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(lacking(&["sh", "no-such-program"]), ["no-such-program"]);
    }

    #[test]
    fn the_newest_postgresql_comes_first() {
        let root = tempfile::tempdir().unwrap();
        for name in ["9.6", "15", "17", "common"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        let found = postgresql(root.path());
        let wanted = ["17/bin", "15/bin", "9.6/bin"].map(|name| root.path().join(name));
        assert_eq!(found, wanted);
        assert!(postgresql(Path::new("/no/such/place")).is_empty());
    }
}
