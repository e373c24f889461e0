//! How many virtual processors a program gets.

use std::str::FromStr;

/// The most virtual processors that one program can have.
const MOST: u32 = 1024;

/// `N` or `MIN..MAX`, both ends included and between 1 and 1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VpRange {
    min: u32,
    max: u32,
}

impl VpRange {
    /// The number to take where this many processors are allowed.
    ///
    /// More than are allowed is what the user asked for when the minimum says so: programs
    /// are tested that way. The caller warns.
    pub fn resolve(self, allowed: usize) -> u32 {
        u32::try_from(allowed)
            .unwrap_or(MOST)
            .clamp(self.min, self.max)
    }
}

impl FromStr for VpRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (min, max) = match text.split_once("..") {
            Some((min, max)) => (end(min)?, end(max)?),
            None => {
                let both = end(text)?;
                (both, both)
            }
        };
        if min > max {
            return Err(format!("the range is empty: {min} is more than {max}"));
        }
        Ok(Self { min, max })
    }
}

fn end(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if (1..=MOST).contains(&number) => Ok(number),
        Ok(number) => Err(format!("{number} is not between 1 and {MOST}")),
        Err(_) => Err(format!(
            "expected a number from 1 to {MOST}, or a range such as 2..8"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_whatever_is_allowed() {
        let four: VpRange = "4".parse().expect("valid");
        assert_eq!(four.resolve(2), 4);
        assert_eq!(four.resolve(16), 4);
    }

    #[test]
    fn a_range_takes_what_is_allowed_within_it() {
        let range: VpRange = "2..4".parse().expect("valid");
        assert_eq!(range.resolve(1), 2);
        assert_eq!(range.resolve(3), 3);
        assert_eq!(range.resolve(64), 4);
    }

    #[test]
    fn what_is_neither_is_refused_with_the_reason() {
        for (text, reason) in [
            ("0", "not between"),
            ("1025", "not between"),
            ("4..2", "empty"),
            ("-1", "expected"),
            ("1..", "expected"),
            ("..3", "expected"),
            ("two", "expected"),
            ("", "expected"),
            ("1...3", "expected"),
            ("99999999999", "expected"),
        ] {
            let error = text.parse::<VpRange>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
