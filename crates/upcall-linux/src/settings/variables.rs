//! The environment variables that set the runtime. A program or a flag may set the same things.
//!
//! The launcher checks the variables before it starts a program, and the crate before it starts the runtime: a value that
//! means nothing is an error. The guest library that the launcher preloads cannot report an error. It finds values that
//! the launcher has checked. If the program has changed one since, and the value means nothing, it takes the default.

use std::env;
use std::ffi::OsString;
use std::fmt;

use upcall_abi::MOST_SHARE;

use crate::settings::vp_range::VpRange;

/// What a variable may say.
enum Values {
    /// A number, both ends included.
    Number(u64, u64),
    /// Yes or no, as for the flags; read as 1 or 0.
    YesOrNo,
    Word(&'static [&'static str]),
    /// A number of virtual processors, or a range of numbers.
    Processors,
    /// The absolute path of this.
    Path(&'static str),
}

/// The variables that no flag of `upcall run` stands for.
const VARIABLES: [(&str, Values); 9] = [
    ("UPCALL_SLICE_US", Values::Number(100, 1_000_000)),
    ("UPCALL_GANG", Values::YesOrNo),
    ("UPCALL_SENTINEL", Values::YesOrNo),
    ("UPCALL_CHILDREN", Values::YesOrNo),
    ("UPCALL_PROBE", Values::Word(&["perf", "proc", "yields"])),
    ("UPCALL_LOG", Values::Word(&["sites"])),
    ("UPCALL_TRACE", Values::Path("a directory")),
    ("UPCALL_COMMAND", Values::Path("the command upcall")),
    ("UPCALL_DEADLOCKS", Values::YesOrNo),
];

/// Those that stand for a flag.
const OF_FLAGS: [(&str, Values); 7] = [
    ("UPCALL_VPS", Values::Processors),
    ("UPCALL_STATS", Values::YesOrNo),
    ("UPCALL_POLICY", Values::Word(&POLICIES)),
    ("UPCALL_BACKEND", Values::Word(&BACKENDS)),
    ("UPCALL_SHARE", Values::Number(1, MOST_SHARE as u64)),
    ("UPCALL_STACKS", Values::Word(&SIGNALS)),
    ("UPCALL_COMM", Values::YesOrNo),
];

/// The names of policies that `upcall run --policy` knows.
pub(crate) const POLICIES: [&str; 5] = ["lifo", "round-robin", "fifo", "priority", "deadline"];

/// The names of backends that `upcall run --backend` knows.
const BACKENDS: [&str; 4] = ["auto", "standby", "observed", "sched_ext"];

/// The names of signals on which a program may be asked to show its threads. Each may be sent to a program by a user, and
/// none stops one.
pub const SIGNALS: [&str; 8] = ["HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "URG", "WINCH"];

/// The number of one of the signals on which a program may be asked to show its threads.
pub fn signal_named(name: &str) -> Option<i32> {
    const NUMBERS: [i32; SIGNALS.len()] = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGTERM,
        libc::SIGURG,
        libc::SIGWINCH,
    ];
    let at = SIGNALS.iter().position(|known| *known == name)?;
    Some(NUMBERS[at])
}

/// A variable whose value means nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meaningless {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub value: String,
    /// What it could say.
    pub expected: String,
}

impl fmt::Display for Meaningless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Meaningless {
            name,
            value,
            expected,
        } = self;
        write!(
            f,
            "the variable {name} is '{value}': set it to {expected}, or unset it"
        )
    }
}

impl Values {
    fn read(&self, value: &str) -> Option<String> {
        match self {
            Values::Number(least, most) => {
                let number: u64 = value.parse().ok()?;
                (least..=most)
                    .contains(&&number)
                    .then(|| number.to_string())
            }
            Values::YesOrNo => match value.to_ascii_lowercase().as_str() {
                "1" | "y" | "yes" | "t" | "true" | "on" => Some("1".into()),
                "0" | "n" | "no" | "f" | "false" | "off" => Some("0".into()),
                _ => None,
            },
            Values::Word(words) => words.contains(&value).then(|| value.into()),
            Values::Processors => {
                let range: VpRange = value.parse().ok()?;
                Some(range.to_string())
            }
            Values::Path(_) => value.starts_with('/').then(|| value.into()),
        }
    }

    fn expected(&self) -> String {
        match self {
            Values::Number(least, most) => format!("a number from {least} to {most}"),
            Values::YesOrNo => "1 or 0".into(),
            Values::Word(words) => words.join(" or "),
            Values::Processors => "a number from 1 to 1024, or a range such as 2..8".into(),
            Values::Path(what) => format!("the absolute path of {what}"),
        }
    }
}

/// The value, as the runtime reads it, of one of the variables; `None`: it is absent or empty.
///
/// # Errors
///
/// It means nothing.
///
/// # Panics
///
/// When there is no variable of that name.
pub fn read(name: &'static str) -> Result<Option<String>, Meaningless> {
    let (_, values) = VARIABLES
        .iter()
        .chain(&OF_FLAGS)
        .find(|(known, _)| *known == name)
        .expect("a variable");
    read_as(name, values, env::var_os(name))
}

fn read_as(
    name: &'static str,
    values: &Values,
    value: Option<OsString>,
) -> Result<Option<String>, Meaningless> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let found = value.to_str().and_then(|value| values.read(value));
    found.map(Some).ok_or_else(|| Meaningless {
        name,
        value: value.display().to_string(),
        expected: values.expected(),
    })
}

/// The values, as the runtime reads them, of the variables that are there and that no flag stands for. One that is
/// empty counts as absent.
///
/// # Errors
///
/// The first one that means nothing.
pub fn checked(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(&'static str, Option<OsString>)>, Meaningless> {
    let mut settings = Vec::new();
    for (name, values) in &VARIABLES {
        if let Some(value) = variable(name) {
            let read = read_as(name, values, Some(value))?;
            settings.push((*name, read.map(OsString::from)));
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_means_nothing_is_an_error() {
        let one = |name: &'static str, value: &str| {
            let value = OsString::from(value);
            checked(|asked| (asked == name).then(|| value.clone()))
        };
        for (name, value) in [
            ("UPCALL_SLICE_US", "0"),
            ("UPCALL_SLICE_US", "99"),
            ("UPCALL_SLICE_US", "1000001"),
            ("UPCALL_SLICE_US", "5ms"),
            ("UPCALL_SLICE_US", "-1"),
            ("UPCALL_GANG", "2"),
            ("UPCALL_SENTINEL", "maybe"),
            ("UPCALL_CHILDREN", "some"),
            ("UPCALL_PROBE", "best"),
            ("UPCALL_LOG", "everything"),
            ("UPCALL_TRACE", "events"),
            ("UPCALL_COMMAND", "upcall"),
            ("UPCALL_DEADLOCKS", "/usr/bin/upcall"),
        ] {
            let meaningless = one(name, value).expect_err(value);
            assert_eq!(meaningless.name, name, "{meaningless}");
            assert_eq!(meaningless.value, value, "{meaningless}");
        }
        for (name, value, read) in [
            ("UPCALL_SLICE_US", "100", Some("100")),
            ("UPCALL_SLICE_US", "1000000", Some("1000000")),
            ("UPCALL_GANG", "off", Some("0")),
            ("UPCALL_CHILDREN", "YES", Some("1")),
            ("UPCALL_PROBE", "proc", Some("proc")),
            ("UPCALL_TRACE", "/dev/shm/a b", Some("/dev/shm/a b")),
            ("UPCALL_PROBE", "", None),
        ] {
            let expected = vec![(name, read.map(OsString::from))];
            assert_eq!(one(name, value), Ok(expected), "{name}={value}");
        }
    }

    #[test]
    fn what_stands_for_a_flag_is_read_as_the_flag() {
        let read = |at: usize, value: &str| {
            let (name, values) = &OF_FLAGS[at];
            read_as(name, values, Some(value.into()))
        };
        for (at, value, found) in [
            (0, "3", "3"),
            (0, "1..1", "1"),
            (1, "true", "1"),
            (2, "fifo", "fifo"),
            (4, "3", "3"),
        ] {
            assert_eq!(read(at, value), Ok(Some(found.into())), "{value}");
        }
        for (at, value) in [
            (0, "0"),
            (0, "2.."),
            (0, "many"),
            (1, "2"),
            (2, "fastest"),
            (4, "0"),
            (4, "11"),
        ] {
            let meaningless = read(at, value).expect_err(value);
            assert!(meaningless.to_string().contains(value), "{meaningless}");
        }
    }
}
