//! A plan decides a run: it has the seed, and says by how much less happens than the seed alone would give.
//!
//! A plan is written as it is read: `17`, or `17,size=4,vps=2,without=slices+stepping,calm=900`. Each part after the seed
//! makes the run smaller. That is how a failing run is shrunk.

use std::fmt;
use std::str::FromStr;

use crate::setup::style::{Feature, Style};

/// One run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// What a scenario does so many times it does once in so many: see [`crate::Me::some`].
    pub size: u64,
    /// At most so many virtual processors.
    pub vps: usize,
    /// What does not happen.
    pub without: Vec<Feature>,
    /// After so many draws nothing is drawn any more: vessels take turns, and nothing bad happens.
    pub calm: u64,
}

impl From<u64> for Plan {
    fn from(seed: u64) -> Self {
        Plan {
            seed,
            size: 1,
            vps: usize::MAX,
            without: Vec::new(),
            calm: u64::MAX,
        }
    }
}

impl Plan {
    /// A style, less what is not to happen.
    pub(crate) fn reduce(&self, mut style: Style) -> Style {
        style.processors.truncate(self.vps);
        for &feature in &self.without {
            style.remove(feature);
        }
        style
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.seed)?;
        if self.size != 1 {
            write!(to, ",size={}", self.size)?;
        }
        if self.vps != usize::MAX {
            write!(to, ",vps={}", self.vps)?;
        }
        if !self.without.is_empty() {
            let names: Vec<_> = self.without.iter().map(|feature| feature.name()).collect();
            write!(to, ",without={}", names.join("+"))?;
        }
        if self.calm != u64::MAX {
            write!(to, ",calm={}", self.calm)?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let number = |text: &str| text.parse::<u64>().map_err(|why| format!("{text}: {why}"));
        let mut plan = Plan::from(number(parts.next().unwrap_or(""))?);
        for part in parts {
            match part.split_once('=') {
                Some(("size", value)) => plan.size = number(value)?.max(1),
                Some(("vps", value)) => plan.vps = number(value)?.max(1) as usize,
                Some(("calm", value)) => plan.calm = number(value)?,
                Some(("without", names)) => {
                    for name in names.split('+') {
                        let all = Feature::ALL.into_iter();
                        let feature = all.into_iter().find(|feature| feature.name() == name);
                        plan.without
                            .push(feature.ok_or_else(|| format!("no feature {name}"))?);
                    }
                }
                _ => return Err(format!("{part}: not a part of a plan")),
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_is_written() {
        for text in [
            "17",
            "3,size=4,vps=2,without=slices+stepping,calm=900",
            "1,calm=0",
        ] {
            assert_eq!(text.parse::<Plan>().unwrap().to_string(), text);
        }
        for text in ["", "x", "1,size", "1,without=rain", "1,colour=2"] {
            assert!(text.parse::<Plan>().is_err(), "{text}");
        }
    }
}
