//! Parameters of a workload program: `KEY=VALUE` words.
//!
//! A parameter that no workload asked for is an error: a misspelt `rounds=` must not silently
//! measure the default.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::Failure;

/// Parsed `KEY=VALUE` words.
#[derive(Debug, Default)]
pub struct Params {
    words: BTreeMap<String, String>,
    used: RefCell<Vec<String>>,
}

impl Params {
    /// Parses the words.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] for a word without `=` or a key given twice.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut params = Self::default();
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(Failure::Usage(format!(
                    "expected KEY=VALUE, found {word:?}"
                )));
            };
            if params.words.insert(key.into(), value.into()).is_some() {
                return Err(Failure::Usage(format!("{key} is given twice")));
            }
        }
        Ok(params)
    }

    /// The number under `key`, or `default`.
    pub fn number(&self, key: &str, default: usize) -> Result<usize, Failure> {
        match self.text(key) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Failure::Usage(format!("{key}={text} is not a number"))),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.used.borrow_mut().push(key.into());
        self.words.get(key).map(String::as_str)
    }

    /// Fails if a parameter was given that nothing asked for.
    pub(crate) fn all_used(&self) -> Result<(), Failure> {
        let used = self.used.borrow();
        match self.words.keys().find(|key| !used.contains(key)) {
            Some(key) => Err(Failure::Usage(format!(
                "this workload has no parameter {key}"
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Params, Failure> {
        Params::parse(words.iter().map(|word| word.to_string()))
    }

    #[test]
    fn numbers_have_defaults_and_are_checked() {
        let params = parse(&["n=7", "kind=x"]).unwrap();
        assert_eq!(params.number("n", 1), Ok(7));
        assert_eq!(params.number("m", 3), Ok(3));
        assert!(matches!(params.number("kind", 1), Err(Failure::Usage(_))));
    }

    #[test]
    fn an_unused_parameter_is_an_error() {
        let params = parse(&["n=7", "m=1"]).unwrap();
        params.number("n", 1).unwrap();
        assert!(matches!(params.all_used(), Err(Failure::Usage(text)) if text.contains('m')));
    }

    #[test]
    fn a_bare_or_repeated_word_is_an_error() {
        assert!(parse(&["n"]).is_err());
        assert!(parse(&["n=1", "n=2"]).is_err());
    }
}
