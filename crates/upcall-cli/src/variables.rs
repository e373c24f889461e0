//! The variables of `upcall run` that no flag stands for. The guest library reads them in the program, where
//! nobody could be told of a mistake. So they are checked here, and a value that means nothing is an error.

use std::ffi::{OsStr, OsString};

use crate::refusal::Refusal;

/// What a variable may say.
enum Values {
    /// A number, both ends included.
    Number(u64, u64),
    /// Yes or no, as for the flags; the guest reads 1 or 0.
    YesOrNo,
    /// One of these words.
    Word(&'static [&'static str]),
}

const VARIABLES: [(&str, Values); 6] = [
    ("UPCALL_SLICE_US", Values::Number(100, 1_000_000)),
    ("UPCALL_GANG", Values::YesOrNo),
    ("UPCALL_SENTINEL", Values::YesOrNo),
    ("UPCALL_CHILDREN", Values::YesOrNo),
    ("UPCALL_PROBE", Values::Word(&["perf", "proc", "yields"])),
    ("UPCALL_LOG", Values::Word(&["sites"])),
];

impl Values {
    /// The value as the guest reads it.
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
        }
    }

    fn expected(&self) -> String {
        match self {
            Values::Number(least, most) => format!("a number from {least} to {most}"),
            Values::YesOrNo => "1 or 0".into(),
            Values::Word(words) => words.join(" or "),
        }
    }
}

/// What to set for the guest, of the variables that are there. One that is empty counts as absent.
///
/// # Errors
/// One of them says nothing that the guest knows.
pub fn checked(
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(&'static str, Option<OsString>)>, Refusal> {
    let mut settings = Vec::new();
    for (name, values) in &VARIABLES {
        let Some(value) = variable(name) else {
            continue;
        };
        if value.is_empty() {
            settings.push((*name, None));
            continue;
        }
        let Some(read) = value.to_str().and_then(|value| values.read(value)) else {
            return Err(refused(name, &value, values));
        };
        settings.push((*name, Some(read.into())));
    }
    Ok(settings)
}

fn refused(name: &str, value: &OsStr, values: &Values) -> Refusal {
    Refusal {
        what: format!("{name} is not {}", values.expected()),
        checked: format!("its value is '{}'", value.display()),
        remedy: format!("set {name} to {}, or unset it", values.expected()),
        more: "upcall help run, under Environment",
    }
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
        ] {
            let refusal = one(name, value).expect_err(value);
            assert!(refusal.what.contains(name), "{refusal}");
            assert!(refusal.checked.contains(value), "{refusal}");
        }
        for (name, value, read) in [
            ("UPCALL_SLICE_US", "100", Some("100")),
            ("UPCALL_SLICE_US", "1000000", Some("1000000")),
            ("UPCALL_GANG", "off", Some("0")),
            ("UPCALL_CHILDREN", "YES", Some("1")),
            ("UPCALL_PROBE", "proc", Some("proc")),
            ("UPCALL_PROBE", "", None),
        ] {
            let expected = vec![(name, read.map(OsString::from))];
            assert_eq!(one(name, value), Ok(expected), "{name}={value}");
        }
    }
}
