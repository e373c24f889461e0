//! Why there is no runtime.

use std::error;
use std::fmt;
use std::time::Duration;

use upcall_linux::variables::Meaningless;
use upcall_linux::vp_range::NoVpRange;

/// Why [`Runtime::start`](crate::Runtime::start) did not start a runtime. The program goes on with the
/// kernel's threads.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The number of virtual processors is out of its range.
    VirtualProcessors(NoVpRange),
    /// The time slice is not between 100 µs and 1 s.
    TimeSlice(Duration),
    /// Stacks are not of a size from 16 KiB to 16 MiB.
    StackSize(usize),
    /// The directory for the file of events is no absolute path.
    TraceDirectory,
    /// A variable of the environment that sets the runtime has an invalid value.
    Variable(Meaningless),
    /// This process has so many threads already.
    HasThreads(usize),
    /// There is a runtime already, with another value of this setting.
    RunsOtherwise(&'static str),
    /// The process cannot be served, for this reason.
    NotServed(&'static str),
    /// The kernel refuses what the runtime needs, with this error number.
    Refused(i32),
    /// There is no runtime on this processor architecture.
    Architecture,
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl Error {
    pub(crate) fn of(error: std::io::Error) -> Self {
        Error::Refused(error.raw_os_error().unwrap_or(libc::EAGAIN))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::VirtualProcessors(reason) => write!(f, "virtual processors: {reason}"),
            Error::TimeSlice(slice) => {
                write!(f, "time slice: {slice:?} is not between 100 µs and 1 s")
            }
            Error::StackSize(size) => write!(
                f,
                "stack size: {size} bytes is not between 16 KiB and 16 MiB"
            ),
            Error::TraceDirectory => {
                write!(f, "the directory for events is no absolute path")
            }
            Error::Variable(variable) => variable.fmt(f),
            Error::HasThreads(count) => write!(
                f,
                "the process has {count} threads already: start the runtime first in main()"
            ),
            Error::RunsOtherwise(setting) => {
                write!(f, "the runtime runs already, with another {setting}")
            }
            Error::NotServed(why) => write!(
                f,
                "this process cannot be served: {why}; its threads stay the kernel's"
            ),
            Error::Refused(number) => write!(
                f,
                "the kernel refuses what the runtime needs: {} (see `upcall doctor`)",
                std::io::Error::from_raw_os_error(*number)
            ),
            Error::Architecture => write!(
                f,
                "{} is not supported yet, only x86_64 under Linux",
                std::env::consts::ARCH
            ),
        }
    }
}

impl error::Error for Error {}
