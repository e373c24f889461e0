//! Synchronization between threads, shaped as in `std::sync`.
//!
//! A thread of the runtime that has to wait gives its virtual processor to another one, without the kernel;
//! any other kernel thread waits in futex(2). With no runtime in the process everything works as well.

mod semaphore;

pub use semaphore::Semaphore;
