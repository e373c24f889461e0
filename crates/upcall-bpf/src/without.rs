//! A build without the BPF object.

use std::convert::Infallible;
use std::io;
use std::os::fd::BorrowedFd;

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
        let evidence = if cfg!(feature = "bpf") {
            "there was no compiler for it, or none for this processor architecture, when it was built"
        } else {
            "it was built without its feature bpf"
        };
        Err(Trouble {
            what: "this upcalld has no BPF programs",
            evidence: evidence.into(),
            remedy: "install clang-19, libelf-dev and zlib1g-dev, and build it by cargo build --release -p upcalld --features bpf",
        })
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
