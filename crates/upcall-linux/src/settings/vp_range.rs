//! How many virtual processors a program gets.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// The most virtual processors that one program can have.
const MOST: u32 = 1024;

/// `N` or `MIN..MAX`, both ends included and between 1 and 1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VpRange {
    min: u32,
    max: u32,
}

/// What is no [`VpRange`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoVpRange {
    /// Such a number of virtual processors cannot be.
    OutOfRange(u32),
    /// The least is more than the most.
    Empty(u32, u32),
    /// Not written as a number or a range.
    Unreadable,
}

impl fmt::Display for NoVpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoVpRange::OutOfRange(number) => write!(f, "{number} is not between 1 and {MOST}"),
            NoVpRange::Empty(min, max) => {
                write!(f, "the range is empty: {min} is more than {max}")
            }
            NoVpRange::Unreadable => {
                write!(
                    f,
                    "expected a number from 1 to {MOST}, or a range such as 2..8"
                )
            }
        }
    }
}

impl Error for NoVpRange {}

impl VpRange {
    /// From `min` to `max`, both included.
    ///
    /// # Errors
    ///
    /// One of them is not between 1 and 1024, or there is nothing between them.
    pub fn new(min: u32, max: u32) -> Result<Self, NoVpRange> {
        for end in [min, max] {
            if !(1..=MOST).contains(&end) {
                return Err(NoVpRange::OutOfRange(end));
            }
        }
        if min > max {
            return Err(NoVpRange::Empty(min, max));
        }
        Ok(Self { min, max })
    }

    /// The number to take where this many processors are allowed.
    ///
    /// More than are allowed is what the user asked for when the minimum says so: programs
    /// are tested that way. The caller warns.
    pub fn resolve(self, allowed: usize) -> u32 {
        u32::try_from(allowed)
            .unwrap_or(MOST)
            .clamp(self.min, self.max)
    }

    /// With how many processors a program goes on at least that takes [`VpRange::resolve`] of them where so many are allowed, while
    /// others compete; 0: it needs all at once.
    pub fn adapts(self, allowed: usize) -> u32 {
        if self.min < self.resolve(allowed) {
            self.min
        } else {
            0
        }
    }
}

impl fmt::Display for VpRange {
    /// As it is read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.min)
        } else {
            write!(f, "{}..{}", self.min, self.max)
        }
    }
}

impl FromStr for VpRange {
    type Err = NoVpRange;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let end = |end: &str| end.parse().map_err(|_| NoVpRange::Unreadable);
        Self::new(end(min)?, end(max)?)
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
    fn a_range_adapts_where_its_least_is_less_than_it_takes() {
        let range: VpRange = "2..4".parse().expect("valid");
        assert_eq!(
            [1, 2, 3, 64].map(|allowed| range.adapts(allowed)),
            [0, 0, 2, 2]
        );
        let four: VpRange = "4".parse().expect("valid");
        assert_eq!(four.adapts(64), 0);
        assert_eq!([four, range].map(|range| range.to_string()), ["4", "2..4"]);
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
            let error = text.parse::<VpRange>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
