//! Threads on scheduler activations, in your own program.
//!
//! A [`Runtime`] takes the place of the kernel's scheduler for the threads of the process. They become user-level
//! threads, which switch without the kernel. When one of them blocks, in `std`, in a C library or on a page fault,
//! another thread gets its processor. Anderson, Bershad, Lazowska and Levy, *Scheduler Activations*, ACM TOCS 1992.
//!
//! ```
//! upcall::Runtime::start()?;
//! let threads: Vec<_> = (0..1_000)
//!     .map(|_| upcall::thread::spawn(|| std::thread::sleep(std::time::Duration::from_millis(10))))
//!     .collect();
//! for thread in threads {
//!     thread.join().unwrap();
//! }
//! # Ok::<(), upcall::Error>(())
//! ```
//!
//! All threads that the process makes afterwards are such threads, however it makes them. Those of [`thread`] cost
//! least. [`thread`], [`sync`], [`net`] and [`io`] have the shape of `std`, and add deadlines.
//!
//! There are other styles on top of threads. Their code may block, too. [`join()`] divides work in two. [`workers`]
//! share a heap of problems. [`actor`] has mailboxes, [`future`] futures. With the feature `rayon` the module `rayon`
//! has parallel iterators.
//!
//! Cancellation (pthread_cancel(3)) and C++ exceptions pass through frames of the runtime. A program that uses them,
//! and whose panics abort, must be compiled with `-C force-unwind-tables=yes`.

/// A function that is `const`, but not under the model checker: its atomics are made when it runs.
macro_rules! constant {
    ($(#[$attribute:meta])* $visible:vis const fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $visible const fn $($rest)*

        #[cfg(loom)]
        $(#[$attribute])*
        $visible fn $($rest)*
    };
}

#[cfg(not(loom))]
pub mod actor;
#[cfg(not(loom))]
mod critical;
#[cfg(not(loom))]
mod current;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(loom)))]
mod deadlock;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod future;
#[cfg(not(loom))]
pub mod io;
#[cfg_attr(all(loom, not(test)), allow(dead_code))]
mod join;
#[cfg(all(loom, test))]
mod models;
#[cfg(not(loom))]
pub mod net;
#[cfg(not(loom))]
pub mod policy;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod raw;
#[cfg(all(not(loom), feature = "rayon"))]
pub mod rayon;
#[cfg(not(loom))]
mod runtime;
#[cfg_attr(all(loom, not(test)), allow(dead_code))]
mod signal;
pub mod sync;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod time;
#[cfg_attr(loom, path = "models/waiting.rs")]
mod waiting;
#[cfg_attr(all(loom, not(test)), allow(dead_code))]
pub mod workers;

#[cfg(not(loom))]
pub use critical::{CriticalSection, critical, critical_code};
#[cfg(not(loom))]
pub use error::Error;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(loom)))]
#[doc(hidden)]
pub use join::foreign;
#[cfg(not(loom))]
pub use join::{ScopedFork, join};
#[cfg(not(loom))]
pub use runtime::{Backend, Builder, Runtime};
