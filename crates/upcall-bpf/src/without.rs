//! A build without the BPF objects.

use std::convert::Infallible;
use std::io;
use std::os::fd::BorrowedFd;

use crate::ended::{Counts, Ended};
use crate::trouble::Trouble;

/// There is none in this build.
#[derive(Debug)]
pub struct Observatory(Infallible);

/// There is none in this build.
#[derive(Debug)]
pub struct Page(Infallible);

impl Observatory {
    /// Says that this build has no BPF object.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn start() -> Result<Self, Trouble> {
        Err(missing())
    }

    /// Cannot be called.
    ///
    /// # Errors
    ///
    /// None.
    pub fn observe(&self, _pid: i32, _generation: u64) -> io::Result<Page> {
        match self.0 {}
    }
}

impl Page {
    /// Cannot be called.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn end(&self) {
        match self.0 {}
    }
}

/// There is none in this build.
#[derive(Debug)]
pub struct Scheduler(Infallible);

impl Scheduler {
    /// Says that this build has no BPF object.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn start() -> Result<Self, Trouble> {
        Err(missing())
    }

    /// Cannot be called.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn ended(&self) -> Option<Ended> {
        match self.0 {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    ///
    /// None.
    pub fn set_process(&self, _pid: i32, _weight: u32, _is_space: bool) -> io::Result<()> {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn counts(&self) -> Counts {
        match self.0 {}
    }
}

fn missing() -> Trouble {
    let evidence = if cfg!(feature = "bpf") {
        "there was no compiler for it, or none for this processor architecture, when it was built"
    } else {
        "it was built without its feature bpf"
    };
    Trouble {
        what: "this upcalld has no BPF programs",
        evidence: evidence.into(),
        remedy: "install clang-19, libelf-dev and zlib1g-dev, and build it by cargo build --release -p upcalld --features bpf",
    }
}
