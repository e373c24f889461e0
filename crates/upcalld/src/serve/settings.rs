//! What the daemon's user decides, while it runs: the configuration, what is logged, and where counts are served.

use std::io::Read;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use upcall_alloc::Stage;

use super::{METRICS, SCHEDULER, Server};
use crate::config::{Absolute, Config, Scheduler, Source};
use crate::house::Doing;
use crate::log::Log;
use crate::manager;
use crate::metrics::Exporter;
use crate::place::Scope;
use crate::trouble::Trouble;

/// What the daemon is told by its user.
pub struct Settings {
    /// Where the configuration is.
    pub source: Source,
    /// What it says.
    pub config: Config,
    /// What follows it.
    pub log: Log,
}

impl Server {
    /// Programs of one user, at most.
    pub(super) fn most_spaces(&self) -> usize {
        self.settings.config.limits.programs.0 as usize
    }

    /// SIGHUP: what the configuration says holds from here on, for programs that are there, too. One that makes no sense changes
    /// nothing.
    pub(super) fn reload(&mut self) {
        // One look for all signals that have come.
        while matches!((&self.reload).read(&mut [0; 64]), Ok(1..)) {}
        manager::tell(manager::State::Reloading, "Reads its configuration again");
        let config = self.settings.source.read();
        let wanted = config.as_ref().map(|config| config.metrics.clone());
        let has = self.exporter.as_ref().map(|exporter| &exporter.path);
        let read = match wanted {
            Ok(Some(Absolute(path))) if has == Some(&path) => config,
            Ok(path) => exporter(path.as_ref())
                .and_then(|exporter| {
                    let failed = |error| Trouble::broken("cannot serve metrics", error);
                    self.export(exporter).map_err(failed)
                })
                .and(config),
            Err(_) => config,
        };
        match read {
            Ok(config) => {
                self.settings.log.follow(&config);
                self.settings.config = config;
                self.configure_scheduler();
                tracing::info!("the configuration was read again");
                manager::tell(manager::State::Ready, "Has read its configuration again");
            }
            // Whatever is logged.
            Err(mut trouble) => {
                trouble.remedy += ", then send SIGHUP again; until then the old one holds";
                eprintln!("{trouble}");
                let status = format!("The configuration is refused: {}", trouble.evidence);
                manager::tell(manager::State::Ready, &status);
            }
        }
    }

    /// The scheduler is in force, or not, as the configuration says.
    pub(super) fn configure_scheduler(&mut self) {
        let is_wanted = self.settings.config.scheduler == Scheduler::Auto;
        if is_wanted && self.place.scope == Scope::User {
            tracing::warn!("the scheduler stays off: that is for the daemon of root");
            return;
        }
        let wakes = (&self.epoll, SCHEDULER);
        self.scheduler.configure(is_wanted, wakes);
    }

    /// From here on counts are served there, or nowhere.
    pub(super) fn export(&mut self, exporter: Option<Exporter>) -> Result<(), Errno> {
        if let Some(exporter) = &exporter {
            let about = EventData::new_u64(METRICS);
            epoll::add(&self.epoll, exporter.epoll(), about, EventFlags::IN)?;
        }
        // The one before leaves the epoll with its last descriptor.
        self.exporter = exporter;
        Ok(())
    }

    /// Somebody asks for the counts.
    pub(super) fn tell_counts(&mut self) {
        let waits = |id: u64| {
            let doing = self.house.doing(id).map(|(doing, ..)| doing);
            matches!(doing, Some(Doing::Gang(Stage::Waiting { .. })))
        };
        let waiting = self.spaces().filter(|(id, _)| waits(*id)).count();
        let observed = self.clients.values().filter(|it| it.observed.is_some());
        self.counts.programs.set(self.spaces().count() as i64);
        self.counts.waiting.set(waiting as i64);
        self.counts.observed.set(observed.count() as i64);
        self.counts.connections.set(self.clients.len() as i64);
        let done = self.scheduler.counts();
        self.counts.scheduler.set(self.scheduler.is_on().into());
        for (counter, count) in [
            (&self.counts.scheduler_ends, self.scheduler.ends),
            (&self.counts.upcalls, done.upcalls),
            (&self.counts.at_once, done.at_once),
            (&self.counts.overdue, done.overdue),
        ] {
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        if let Some(exporter) = &mut self.exporter
            && let Err(error) = exporter.serve(&self.counts)
        {
            tracing::error!(%error, "no metrics are served any more, until SIGHUP");
            self.exporter = None;
        }
    }
}

/// What serves counts at this path, if there is one.
///
/// # Errors
///
/// See [`Exporter::new`].
pub fn exporter(path: Option<&Absolute>) -> Result<Option<Exporter>, Trouble> {
    path.map(|path| Exporter::new(&path.0)).transpose()
}
