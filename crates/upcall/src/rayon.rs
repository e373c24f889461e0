//! Parallel iterators: a pool of [`rayon`] whose threads are those of this crate (feature `rayon`).
//!
//! A thread of such a pool that blocks gives its virtual processor to others; the pool itself has one thread less
//! meanwhile. If its work blocks, give it more threads than there are virtual processors: they cost little.
//!
//! ```
//! use rayon::prelude::*;
//!
//! let pool = upcall::rayon::pool(8)?;
//! let sum: u64 = pool.install(|| (1..=1000u64).into_par_iter().map(|n| n * n).sum());
//! assert_eq!(sum, 333_833_500);
//! # Ok::<(), rayon::ThreadPoolBuildError>(())
//! ```
//!
//! For a pool with other settings, or rayon's global one:
//!
//! ```
//! rayon::ThreadPoolBuilder::new()
//!     .num_threads(4)
//!     .spawn_handler(upcall::rayon::spawn)
//!     .build_global()?;
//! # Ok::<(), rayon::ThreadPoolBuildError>(())
//! ```

use std::io;

use rayon::{ThreadBuilder, ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::thread::Builder;

/// The default stack size of a thread: work that is stolen while a thread waits runs on top of what waits.
const STACK: usize = 2 << 20;

/// Makes a pool of so many threads; 0: one for each processor.
///
/// # Errors
///
/// There is no memory, or the kernel gives no thread.
pub fn pool(threads: usize) -> Result<ThreadPool, ThreadPoolBuildError> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .spawn_handler(spawn)
        .build()
}

/// Makes one thread of a pool: for [`ThreadPoolBuilder::spawn_handler`].
///
/// # Errors
///
/// There is no memory, or the kernel gives no thread.
pub fn spawn(thread: ThreadBuilder) -> io::Result<()> {
    let mut builder = Builder::new().stack_size(thread.stack_size().unwrap_or(STACK));
    if let Some(name) = thread.name() {
        builder = builder.name(name.to_owned());
    }
    builder.spawn(|| thread.run()).map(drop)
}
