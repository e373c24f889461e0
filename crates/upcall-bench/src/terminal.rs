//! Words for people, whose terminal may show ASCII alone.

use std::borrow::Cow;

/// Returns true if the environment names a locale with UTF-8.
pub fn is_utf8() -> bool {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(variable);
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The text as it can be shown here.
pub(crate) fn for_people(text: &str) -> Cow<'_, str> {
    shown(text, is_utf8())
}

/// The text as it can be shown.
fn shown(text: &str, utf8: bool) -> Cow<'_, str> {
    if utf8 || text.is_ascii() {
        return text.into();
    }
    let mut ascii = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            'µ' => ascii.push('u'),
            '×' => ascii.push('x'),
            '²' => ascii.push('2'),
            '≤' => ascii.push_str("<="),
            '≥' => ascii.push_str(">="),
            c if c.is_ascii() => ascii.push(c),
            _ => ascii.push('?'),
        }
    }
    ascii.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_says_the_same() {
        let text = "yield: min ≤ 1.5 µs or ≥ 2 × nptl²";
        assert_eq!(shown(text, true), text);
        assert_eq!(shown(text, false), "yield: min <= 1.5 us or >= 2 x nptl2");
        assert_eq!(shown("a é", false), "a ?");
    }
}
