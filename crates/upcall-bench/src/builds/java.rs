//! The peer in Java, and the JDK with which it is compiled and run.
//!
//! Virtual threads are there from version 21 on. A JDK that JAVA_HOME names wins over the one whose
//! compiler is found by PATH, and that over the newest one below /usr/lib/jvm, where distributions
//! have them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Built, build};

pub(super) const SOURCES: &[(&str, &str)] = &[
    (
        "Blocked.java",
        include_str!("../../peers/java/Blocked.java"),
    ),
    ("Fork.java", include_str!("../../peers/java/Fork.java")),
    ("Http.java", include_str!("../../peers/java/Http.java")),
    ("Peer.java", include_str!("../../peers/java/Peer.java")),
    ("Sync.java", include_str!("../../peers/java/Sync.java")),
];

/// The first version with virtual threads.
const FIRST: u32 = 21;

/// A JDK with virtual threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jdk {
    home: PathBuf,
    version: String,
}

impl Jdk {
    /// Finds one, or says what there is instead.
    pub fn find() -> Result<Self, String> {
        let named = std::env::var_os("JAVA_HOME").map(PathBuf::from);
        let others = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten();
        let others = others.filter_map(|entry| Some(entry.ok()?.path()));
        choose(
            named.into_iter().chain(in_path()).filter_map(Self::at),
            others.filter_map(Self::at),
        )
    }

    /// The JDK in the directory `home`, if there is one; its file `release` says which.
    fn at(home: PathBuf) -> Option<Self> {
        let release = std::fs::read_to_string(home.join("release")).ok()?;
        let version = release
            .lines()
            .find_map(|line| line.strip_prefix("JAVA_VERSION="))?
            .trim_matches('"')
            .to_owned();
        let has = |name: &str| home.join("bin").join(name).exists();
        (has("java") && has("javac")).then_some(Self { home, version })
    }

    /// The command that runs programs.
    pub fn java(&self) -> PathBuf {
        self.home.join("bin/java")
    }

    /// Compiles the peer, or says why it cannot be had.
    pub fn peer(&self, cache: &Path) -> Result<Built, String> {
        let version = format!("JDK {}", self.version);
        build(cache, "java", SOURCES, version, |directory, program| {
            let mut command = Command::new(self.home.join("bin/javac"));
            command
                .args(["--release", &FIRST.to_string(), "-d"])
                .arg(program)
                .args(SOURCES.iter().map(|(name, _)| name))
                .current_dir(directory);
            command
        })
    }

    /// The number before the first dot; those up to 8 begin with `1.`.
    fn major(&self) -> u32 {
        let digits = self.version.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }
}

/// The first of `preferred` with virtual threads, or else the newest of `others`.
fn choose(
    preferred: impl Iterator<Item = Jdk>,
    others: impl Iterator<Item = Jdk>,
) -> Result<Jdk, String> {
    let mut too_old = Vec::new();
    let mut new_enough = |jdk: &Jdk| {
        if jdk.major() < FIRST && !too_old.contains(&jdk.version) {
            too_old.push(jdk.version.clone());
        }
        jdk.major() >= FIRST
    };
    for jdk in preferred {
        if new_enough(&jdk) {
            return Ok(jdk);
        }
    }
    let newest = others.filter(new_enough).max_by_key(Jdk::major);
    newest.ok_or_else(|| {
        let there = match too_old.join(", ") {
            none if none.is_empty() => "there is none".into(),
            old => format!("there is {old}"),
        };
        format!("a JDK of version {FIRST} or later is needed, and {there} (JAVA_HOME, PATH, /usr/lib/jvm)")
    })
}

/// The directory of the compiler that PATH finds, behind all links.
fn in_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let compiler = std::env::split_paths(&path).find_map(|directory| {
        // Absolute, and none if there is no such file.
        directory.join("javac").canonicalize().ok()
    })?;
    Some(compiler.parent()?.parent()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jdks(versions: &[&str]) -> impl Iterator<Item = Jdk> {
        let all: Vec<_> = versions
            .iter()
            .map(|version| Jdk {
                home: PathBuf::from(version),
                version: (*version).into(),
            })
            .collect();
        all.into_iter()
    }

    #[test]
    fn a_named_jdk_wins_unless_it_is_too_old() {
        let chosen = |preferred: &[&str], others: &[&str]| {
            choose(jdks(preferred), jdks(others)).map(|jdk| jdk.version)
        };
        assert_eq!(chosen(&["21.0.2", "25"], &["26"]), Ok("21.0.2".into()));
        assert_eq!(chosen(&["17.0.15", "25"], &["26"]), Ok("25".into()));
        assert_eq!(
            chosen(&["1.8.0"], &["17", "26-ea", "21"]),
            Ok("26-ea".into())
        );
        let error = chosen(&["17.0.15"], &["17.0.15", "11"]).unwrap_err();
        assert!(error.contains("there is 17.0.15, 11 ("), "{error}");
        assert!(chosen(&[], &[]).unwrap_err().contains("there is none"));
    }

    #[test]
    fn a_jdk_has_a_version_and_a_compiler() {
        let home = std::env::temp_dir().join(format!("upcall-jdk-{}", std::process::id()));
        std::fs::create_dir_all(home.join("bin")).unwrap();
        let release = "IMPLEMENTOR=\"N. N.\"\nJAVA_VERSION=\"25.0.3\"\nLIBC=\"gnu\"\n";
        std::fs::write(home.join("release"), release).unwrap();
        std::fs::write(home.join("bin/java"), "").unwrap();
        let without_compiler = Jdk::at(home.clone());
        std::fs::write(home.join("bin/javac"), "").unwrap();
        let found = Jdk::at(home.clone());
        std::fs::remove_dir_all(&home).unwrap();
        assert_eq!(without_compiler, None);
        assert_eq!(found.map(|jdk| jdk.version), Some("25.0.3".into()));
        assert_eq!(Jdk::at(home), None);
    }
}
