//! What is logged, to standard error. If that is the journal, without the time, which the journal notes itself.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, reload};

use crate::config::Config;

/// The default.
const USUAL: LevelFilter = LevelFilter::WARN;

/// What sets the level while the daemon runs.
pub struct Log {
    /// By a flag: the configuration does not change it.
    fixed: Option<LevelFilter>,
    set: Box<dyn Fn(LevelFilter)>,
}

impl Log {
    /// Begins to log. Once in a process.
    pub fn begin(fixed: Option<LevelFilter>) -> Self {
        let (filter, handle) = reload::Layer::new(fixed.unwrap_or(USUAL));
        let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
        let lines = match is_journal() {
            true => lines.without_time().boxed(),
            false => lines.boxed(),
        };
        tracing_subscriber::registry()
            .with(lines.with_filter(filter))
            .init();
        // It fails only when there is no subscriber any more.
        let set = Box::new(move |level| drop(handle.reload(level)));
        Log { fixed, set }
    }

    /// Logs what the configuration says from here on, or the flag.
    pub fn follow(&self, config: &Config) {
        let configured = config.log.map(|level| level.0);
        (self.set)(self.fixed.or(configured).unwrap_or(USUAL));
    }
}

/// The service manager says which file the journal is.
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|it| named == format!("{}:{}", it.st_dev, it.st_ino))
}
