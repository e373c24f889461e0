//! That objects are as large as the header says, and may be initialized by zeros there.

use std::mem::{align_of, size_of};

use upcall::raw;
use upcall::sync::{Condvar, Semaphore};

use crate::barrier::Meeting;
use crate::fork::Fork;
use crate::once::Once;
use crate::options::{Options, ThreadAttributes};
use crate::policy::Callbacks;

macro_rules! fits {
    ($type:ty, $size:expr, $align:expr) => {
        const _: () = assert!(size_of::<$type>() <= $size && align_of::<$type>() <= $align);
    };
}

fits!(raw::Mutex, 16, 4);
fits!(Condvar, 16, 8);
fits!(raw::RwLock, 16, 4);
fits!(Semaphore, 16, 8);
fits!(Meeting, 32, 8);
fits!(Once, 8, 4);
fits!(Fork, 80, 8);
const _: () = assert!(size_of::<Callbacks>() == 72 || size_of::<usize>() != 8);
const _: () = assert!(size_of::<Options>() == 56 || size_of::<usize>() != 8);
const _: () = assert!(size_of::<ThreadAttributes>() == 56 || size_of::<usize>() != 8);
