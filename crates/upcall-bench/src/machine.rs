//! What is said of the machine on which figures were measured: nothing that names it or its user.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The machine at one moment. What could not be read is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The model of the processors.
    pub processor: String,
    /// How many there are.
    pub processors: usize,
    /// Seconds since 1970.
    pub time: u64,
    /// The mean number of runnable threads in the last minute.
    pub load: f64,
}

impl Machine {
    /// This machine, now.
    pub fn now() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let (processor, processors) = processors(&text("/proc/cpuinfo"));
        Self {
            kernel: text("/proc/sys/kernel/osrelease").trim().into(),
            processor,
            processors,
            time: since.map_or(0, |since| since.as_secs()),
            load: load(&text("/proc/loadavg")),
        }
    }
}

/// The load of the last minute in `/proc/loadavg`.
fn load(text: &str) -> f64 {
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// The model in `/proc/cpuinfo`, and how many there are.
fn processors(text: &str) -> (String, usize) {
    let field = |name: &'static str| {
        text.lines()
            .filter_map(move |line| line.split_once(':'))
            .filter(move |(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim())
    };
    let model = field("model name").next().unwrap_or_default();
    (model.into(), field("processor").count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_procfs_are_read() {
        let text = "processor\t: 0\nmodel name\t: A  processor\n\nprocessor\t: 1\nmodel name\t: A  processor\n";
        assert_eq!(processors(text), ("A  processor".into(), 2));
        assert_eq!(processors(""), (String::new(), 0));
        assert_eq!(load("1.50 2.00 3.00 1/2 3\n"), 1.5);
        assert_eq!(load(""), 0.0);
    }
}
