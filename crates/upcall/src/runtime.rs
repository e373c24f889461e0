//! The runtime of the process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use std::sync::{Once, atomic::AtomicBool};
use std::time::Duration;

use upcall_linux::VpRange;

use crate::Error;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::deadlock;
use crate::policy::Policy;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::policy::{self, BuiltIn};

/// The shortest and the longest time slice.
const SLICES: [Duration; 2] = [Duration::from_micros(100), Duration::from_secs(1)];

/// The smallest and the largest stack.
const STACKS: std::ops::RangeInclusive<usize> = 16 << 10..=16 << 20;

/// Whether the runtime was started to say so.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
static SAYS_DEADLOCKS: AtomicBool = AtomicBool::new(false);

/// The size of a thread's stack, in bytes, where nothing else is said.
static STACK: AtomicUsize = AtomicUsize::new(256 << 10);

pub(crate) fn usual_stack_size() -> usize {
    STACK.load(Ordering::Relaxed)
}

/// The runtime of the process. There is one, and it stays until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    preloaded: bool,
}

impl Runtime {
    /// Starts the runtime with the settings of the environment, or what is best on this machine: [`Builder::start`].
    ///
    /// # Errors
    ///
    /// As [`Builder::start`].
    pub fn start() -> Result<Self, Error> {
        Self::builder().start()
    }

    /// Returns a builder for a runtime with settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns true if `upcall run` has started the program and the runtime. Its settings are then the user's, and not
    /// the program's.
    pub fn is_preloaded(self) -> bool {
        self.preloaded
    }
}

/// How the runtime learns from the kernel what happens to its activations. More may be added.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Backend {
    /// The best that works here.
    #[default]
    Auto,
    /// A standby activation on each virtual processor, which runs when the other one does not. Needs no privilege.
    Standby,
}

/// Settings of a [`Runtime`]. For settings that are not made, the variables `UPCALL_VPS`, `UPCALL_SLICE_US`,
/// `UPCALL_POLICY`, `UPCALL_STATS` and `UPCALL_TRACE` hold, as under `upcall run`.
#[derive(Default)]
pub struct Builder {
    vps: Option<(u32, u32)>,
    backend: Backend,
    slice: Option<Duration>,
    policy: Option<Box<dyn Policy>>,
    stats: Option<bool>,
    trace: Option<PathBuf>,
    deadlocks: Option<bool>,
    stack: Option<usize>,
}

impl Builder {
    /// Sets the number of virtual processors: that of allowed processors, but at least `min` and at most `max`. Both
    /// are from 1 to 1024.
    ///
    /// If there are more than `min`, the program adapts: where `upcalld` divides the processors, it goes on with fewer, `min` at
    /// least, while others have the rest. A program with `min` equal to `max` needs all at once, and waits for its turn. That
    /// is right for threads that spin for each other.
    #[must_use]
    pub fn virtual_processors(mut self, min: u32, max: u32) -> Self {
        self.vps = Some((min, max));
        self
    }

    /// Sets how to learn from the kernel what it does. A backend that is named is used, or the runtime does not start.
    /// If `upcall run` has started the program, its user's choice counts.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Sets how long a thread computes while others are ready: from 100 µs to 1 s. The default is 4 ms.
    #[must_use]
    pub fn time_slice(mut self, slice: Duration) -> Self {
        self.slice = Some(slice);
        self
    }

    /// Sets which ready thread runs first: a policy of [`crate::policy`], or one of the program's own. The default is
    /// [`ForkedFirst`](crate::policy::ForkedFirst). If `upcall run` has started the program, its user's choice counts.
    #[must_use]
    pub fn policy(mut self, policy: impl Policy) -> Self {
        self.policy = Some(Box::new(policy));
        self
    }

    /// With true, the runtime prints its counters to standard error when the process ends.
    #[must_use]
    pub fn stats(mut self, stats: bool) -> Self {
        self.stats = Some(stats);
        self
    }

    /// Has the runtime note what its threads do with the processors, in a file that it makes in this directory: an absolute
    /// path, best of a file system in memory. The last 16384 events of each activation are there, also after the process was
    /// killed. `upcall trace --from` makes a timeline of them, and `upcall trace -p` one of all that comes.
    ///
    /// If there can be no such file, this is said on standard error, and the program runs without one.
    #[must_use]
    pub fn trace(mut self, directory: impl Into<PathBuf>) -> Self {
        self.trace = Some(directory.into());
        self
    }

    /// Sets the least size of threads' stacks, in bytes, if [`thread::Builder`](crate::thread::Builder) sets none:
    /// from 16 KiB to 16 MiB. Only the part that is used takes memory. The default is 256 KiB.
    #[must_use]
    pub fn stack_size(mut self, size: usize) -> Self {
        self.stack = Some(size);
        self
    }

    /// With true, which is the default, a deadlock of all threads is reported on standard error, with the backtrace of
    /// each. A program with timers or signal handlers is never reported, because these may wake a thread.
    #[must_use]
    pub fn report_deadlocks(mut self, report: bool) -> Self {
        self.deadlocks = Some(report);
        self
    }

    /// Starts the runtime. The caller becomes its first thread. All threads that the process makes afterwards are
    /// threads of the runtime. If there is a runtime already, with the settings that are made here, the call succeeds.
    /// The runtime of `upcall run` has the settings of its user, whatever is set here.
    ///
    /// # Errors
    ///
    /// - A setting is out of its range, or a variable of the environment has an invalid value. Nothing was done.
    /// - There is a runtime with another setting. A policy of the program's own is never the same as another one.
    /// - The process has other threads, is linked statically, or runs under a tool that owns its threads.
    /// - The kernel gives no memory, descriptors or kernel threads.
    /// - This is another processor architecture.
    pub fn start(self) -> Result<Runtime, Error> {
        let range = self
            .vps
            .map(|(min, max)| VpRange::new(min, max))
            .transpose()
            .map_err(Error::VirtualProcessors)?;
        if let Some(slice) = self.slice
            && !(SLICES[0]..=SLICES[1]).contains(&slice)
        {
            return Err(Error::TimeSlice(slice));
        }
        if let Some(size) = self.stack
            && !STACKS.contains(&size)
        {
            return Err(Error::StackSize(size));
        }
        match self.backend {
            Backend::Auto | Backend::Standby => self.embed(range),
        }
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn embed(self, range: Option<VpRange>) -> Result<Runtime, Error> {
        use upcall_guest::start::{NotServed, Server, embed, kept_path, server};
        use upcall_guest::state::{GUEST, Options, Policy as Known};

        let (mut options, meaningless) = Options::from_environment();
        if let Some(variable) = meaningless
            && server() != Some(Server::Preloaded)
        {
            return Err(Error::Variable(variable));
        }
        if let Some(range) = range {
            options.set_vps(range);
        }
        if let Some(slice) = self.slice {
            options.slice_ns = slice.as_nanos() as u64;
        }
        if let Some(policy) = &self.policy {
            options.policy = match policy.built_in() {
                Some(BuiltIn::ForkedFirst) => Known::ForkedFirst,
                Some(BuiltIn::Lifo) => Known::Lifo,
                Some(BuiltIn::RoundRobin) => Known::RoundRobin,
                Some(BuiltIn::Fifo) => Known::Fifo,
                Some(BuiltIn::Priority) => Known::Priority,
                Some(BuiltIn::Deadline) => Known::Deadline,
                None => Known::Advised,
            };
        }
        if self.backend == Backend::Standby {
            options.backend = upcall_guest::state::Backend::Standby;
        }
        options.stats = self.stats.unwrap_or(options.stats);
        if let Some(directory) = &self.trace {
            let path = kept_path(directory.clone().into());
            options.trace = Some(path.ok_or(Error::TraceDirectory)?);
        }
        let there = GUEST.runtime();
        let server = embed(options).map_err(|error| match error {
            NotServed::Process(why) => Error::NotServed(why),
            NotServed::HasThreads(count) => Error::HasThreads(count),
            NotServed::Refused(number) => Error::Refused(number),
        })?;
        match (server, there) {
            (Server::Own, Some(runtime)) => self.is_as_named(&options, runtime.vps().len())?,
            (Server::Own, None) => self.start_threads_of_ours()?,
            (Server::Preloaded, _) => self.set_stack_size(),
        }
        Ok(Runtime {
            preloaded: server == Server::Preloaded,
        })
    }

    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn set_stack_size(&self) {
        if let Some(size) = self.stack {
            STACK.store(size, Ordering::Relaxed);
        }
    }

    /// Whether the runtime that is there, with so many virtual processors, has the settings that are named here, of
    /// which `options` are made.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn is_as_named(
        &self,
        options: &upcall_guest::state::Options,
        nr_vps: usize,
    ) -> Result<(), Error> {
        use upcall_guest::state::{GUEST, Policy as Known};

        let differs = [
            (
                self.vps.is_some()
                    && (options.vps as usize, options.adapts) != (nr_vps, GUEST.adapts()),
                "number of virtual processors",
            ),
            (
                self.slice.is_some() && options.slice_ns != GUEST.slice_ns(),
                "time slice",
            ),
            (
                self.policy.is_some()
                    && (options.policy != GUEST.policy() || options.policy == Known::Advised),
                "policy",
            ),
            (
                self.stats.is_some() && options.stats != GUEST.prints_stats(),
                "choice of counters",
            ),
            (
                self.trace.is_some() && options.trace != GUEST.trace(),
                "directory for events",
            ),
            (
                self.stack.is_some_and(|size| size != usual_stack_size()),
                "size of stacks",
            ),
            (
                self.deadlocks
                    .is_some_and(|report| report != SAYS_DEADLOCKS.load(Ordering::Relaxed)),
                "choice of what is said of deadlocks",
            ),
        ];
        match differs.iter().find(|(differs, _)| *differs) {
            Some((_, setting)) => Err(Error::RunsOtherwise(setting)),
            None => Ok(()),
        }
    }

    /// The runtime has just been started.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn start_threads_of_ours(self) -> Result<(), Error> {
        let Some(runtime) = upcall_guest::direct::runtime() else {
            return Ok(());
        };
        self.set_stack_size();
        static SAYS_NAMES: Once = Once::new();
        SAYS_NAMES.call_once(crate::current::say_names_in_panics);
        let says = self.deadlocks.unwrap_or(true);
        SAYS_DEADLOCKS.store(says, Ordering::Relaxed);
        if says {
            deadlock::watch().map_err(Error::of)?;
        }
        // Last: it is told of no thread of ours.
        if let Some(policy) = self.policy.filter(|policy| policy.built_in().is_none()) {
            policy::start(runtime, policy).map_err(Error::of)?;
        }
        Ok(())
    }

    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    fn embed(self, _range: Option<VpRange>) -> Result<Runtime, Error> {
        Err(Error::Architecture)
    }
}
