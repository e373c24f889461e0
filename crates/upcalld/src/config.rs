//! The configuration: one file of TOML, read at the start and at SIGHUP. The manual page upcalld.toml(5) says what its keys mean.
//!
//! A key that is not known, or a value out of its bounds, makes the whole file useless: the daemon does not start by it, and one
//! that runs goes on with what it had.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use upcall_abi::MOST_SHARE;

use crate::place::Scope;
use crate::trouble::{Exit, Trouble};

/// Programs of one user, at most, whatever is configured: a round of as many turns is as long as a program waits for its own.
pub const MOST_PROGRAMS: u32 = 64;

/// What an administrator, or the user, has decided.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What is logged, if no flag says it.
    pub log: Option<Level>,
    /// Where metrics are served, if they are.
    pub metrics: Option<Absolute>,
    /// How long before the end of its turn a program is warned.
    pub warning: Lead,
    /// If the daemon's scheduler is to have all kernel threads.
    pub scheduler: Scheduler,
    /// For each user.
    pub limits: Limits,
    /// By the name of the executable file.
    pub programs: BTreeMap<String, Program>,
}

/// What each user may have.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Programs at once.
    pub programs: Count,
    /// The greatest share for which a program may ask.
    pub share: Share,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            programs: Count(MOST_PROGRAMS),
            share: Share(MOST_SHARE),
        }
    }
}

/// What programs of a name have.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its share, if it asks for none.
    pub share: Share,
}

/// Before the end of a turn, in milliseconds; 0: no warning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "i64")]
pub struct Lead(u32);

/// The longest: half of a turn, where nobody has a longer one.
const LONGEST_LEAD: u32 = 10;

impl Lead {
    /// In nanoseconds.
    pub fn ns(self) -> u64 {
        u64::from(self.0) * 1_000_000
    }
}

impl TryFrom<i64> for Lead {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        match number {
            0 => Ok(Lead(0)),
            number => within(number, LONGEST_LEAD)
                .map(Lead)
                .map_err(|wrong| format!("{wrong}, or 0 for no warning")),
        }
    }
}

/// The scheduler of sched_ext.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// The kernel's own scheduler stays.
    #[default]
    Off,
    /// That of the daemon, where the kernel takes it.
    Auto,
}

/// A number of programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "i64")]
pub struct Count(pub u32);

impl TryFrom<i64> for Count {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        within(number, MOST_PROGRAMS).map(Count)
    }
}

/// A share of the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "i64")]
pub struct Share(pub u32);

impl TryFrom<i64> for Share {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        within(number, MOST_SHARE).map(Share)
    }
}

fn within(number: i64, most: u32) -> Result<u32, String> {
    match u32::try_from(number) {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("{number} is not a number from 1 to {most}")),
    }
}

/// The absolute path of a socket.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "PathBuf")]
pub struct Absolute(pub PathBuf);

impl TryFrom<PathBuf> for Absolute {
    type Error = String;

    fn try_from(path: PathBuf) -> Result<Self, String> {
        match path.is_absolute() {
            true => Ok(Absolute(path)),
            false => Err(format!("'{}' is not an absolute path", path.display())),
        }
    }
}

/// What is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Level(pub LevelFilter);

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        const NAMES: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
        let known = NAMES.contains(&name.as_str());
        let level = known.then(|| name.parse().ok()).flatten();
        let wanted = || format!("'{name}' is none of {}", NAMES.join(", "));
        level.map(Level).ok_or_else(wanted)
    }
}

impl Config {
    /// The share of a program of this name that asks for this one; 0: for none.
    pub fn share(&self, program: &str, asked: u32) -> u32 {
        let configured = || self.programs.get(program).map_or(1, |it| it.share.0);
        match asked {
            0 => configured(),
            asked => asked.min(self.limits.share.0),
        }
    }
}

/// Where the configuration is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    path: Option<PathBuf>,
    /// The path was named: the file must be there.
    is_named: bool,
}

impl Source {
    /// This file, or the usual one of such a daemon.
    pub fn new(named: Option<PathBuf>, scope: Scope) -> Self {
        let is_named = named.is_some();
        let path = named.or_else(|| match scope {
            Scope::All => Some("/etc/upcall/upcalld.toml".into()),
            Scope::User => {
                let absolute = |name: &str| {
                    std::env::var_os(name)
                        .map(PathBuf::from)
                        .filter(|path| path.is_absolute())
                };
                absolute("XDG_CONFIG_HOME")
                    .or_else(|| Some(absolute("HOME")?.join(".config")))
                    .map(|directory| directory.join("upcall/upcalld.toml"))
            }
        });
        Source { path, is_named }
    }

    /// What the file says. Where there is none and none was named: the defaults.
    ///
    /// # Errors
    ///
    /// It cannot be read, or says what it may not say.
    pub fn read(&self) -> Result<Config, Trouble> {
        let Some(path) = &self.path else {
            return Ok(Config::default());
        };
        match std::fs::read_to_string(path) {
            Ok(text) => parsed(path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.is_named => {
                Ok(Config::default())
            }
            Err(error) => Err(Trouble {
                exit: Exit::Config,
                what: "the configuration cannot be read".into(),
                evidence: format!("{}: {error}", path.display()),
                remedy: "make it readable for the daemon's user, or name another file by --config"
                    .into(),
            }),
        }
    }
}

fn parsed(path: &Path, text: &str) -> Result<Config, Trouble> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let before = &text.as_bytes()[..at];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let message = error.message().trim().replace('\n', "; ");
        Trouble {
            exit: Exit::Config,
            what: "the configuration makes no sense".into(),
            evidence: format!("{}, line {line}: {message}", path.display()),
            remedy: "mend that line; upcalld --check says if all is well".into(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Result<Config, String> {
        parsed(Path::new("file"), text).map_err(|trouble| trouble.evidence)
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(of(""), Ok(Config::default()));
        assert_eq!(of("# nothing\n[limits]\n"), Ok(Config::default()));
    }

    #[test]
    fn every_key_is_read() {
        let config = of(
            "log = 'info'\nmetrics = '/run/m'\nwarning = 4\nscheduler = 'auto'\n[limits]\nprograms = 8\nshare = 4\n\
                         [programs.make]\nshare = 3\n[programs.'a b.x']\nshare = 2\n",
        )
        .expect("sense");
        assert_eq!(config.log, Some(Level(LevelFilter::INFO)));
        assert_eq!(config.metrics, Some(Absolute("/run/m".into())));
        assert_eq!(config.warning.ns(), 4_000_000);
        assert_eq!(config.scheduler, Scheduler::Auto);
        assert_eq!(config.limits.programs, Count(8));
        let shares = [
            ("make", 0),
            ("make", 2),
            ("make", 9),
            ("a b.x", 0),
            ("cc", 0),
        ];
        let shares = shares.map(|(name, asked)| config.share(name, asked));
        assert_eq!(shares, [3, 2, 4, 2, 1]);
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_line() {
        for (text, line, word) in [
            ("shares = 3\n", 1, "shares"),
            ("\n[limits]\nprogram = 3\n", 3, "program"),
            ("[limits]\nprograms = 0\n", 2, "1 to 64"),
            ("[limits]\nprograms = 65\n", 2, "1 to 64"),
            ("[limits]\nshare = -1\n", 2, "1 to 10"),
            ("[limits]\nshare = 'much'\n", 2, "string"),
            ("\n\nlog = 'loud'\n", 3, "loud"),
            ("metrics = 'm.sock'\n", 1, "absolute"),
            ("warning = 11\n", 1, "1 to 10, or 0"),
            ("warning = -1\n", 1, "1 to 10, or 0"),
            ("warning = '5ms'\n", 1, "string"),
            ("scheduler = 'on'\n", 1, "auto"),
            ("scheduler = true\n", 1, ""),
            ("log = '3'\n", 1, "off, error"),
            ("[programs.x]\nshare = 3\nshare = 4\n", 3, "duplicate"),
            ("[programs]\nx = 3\n", 2, "struct"),
            ("[programs.x]\n", 1, "share"),
            ("log = \n", 1, ""),
            ("log = 'info'\n[", 2, ""),
        ] {
            let evidence = of(text).expect_err(text);
            let place = format!("file, line {line}: ");
            assert!(evidence.starts_with(&place), "{text:?}: {evidence}");
            assert!(evidence.contains(word), "{text:?}: {evidence}");
            assert_eq!(evidence.lines().count(), 1, "{evidence}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_configuration_or_one_line_of_evidence(
            text in prop_oneof![any::<String>(), "[a-z=\\[\\]\\.0-9\"'\n {},]{0,60}"],
        ) {
            match of(&text) {
                Ok(config) => {
                    for asked in [0, 1, 7, u32::MAX] {
                        prop_assert!((1..=MOST_SHARE).contains(&config.share("x", asked)));
                    }
                }
                Err(evidence) => prop_assert!(!evidence.is_empty()),
            }
        }
    }
}
