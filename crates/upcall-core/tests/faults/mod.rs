//! Puts faults into a copy of a crate, and looks whether its models catch them.

use std::fs;
use std::path::Path;

#[cfg(loom)]
mod copy;
#[cfg(loom)]
pub use copy::check;

/// The model that catches it, the file, and what stands there once in place of what.
pub type Fault = (&'static str, &'static str, &'static str, &'static str);

/// Panics if a text that a fault replaces does not stand in its file exactly once.
pub fn find(krate: &str, faults: &[Fault]) {
    for (_, file, text, _) in faults {
        let source = fs::read_to_string(Path::new(krate).join("src").join(file)).expect(file);
        assert_eq!(source.matches(text).count(), 1, "{file}: {text}");
    }
}
