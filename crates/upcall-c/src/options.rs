//! Settings of the runtime, and properties of threads: structures that say how long they are.

use std::ffi::{CStr, OsStr, c_char};
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use libc::c_int;
use upcall::{Builder, Error, Runtime, policy};

use crate::policy::Callbacks;
use crate::versioned::versioned;

/// `struct upcall_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Options {
    size: usize,
    vps_min: u32,
    vps_max: u32,
    time_slice_ns: u64,
    policy: *const c_char,
    stats: i32,
    reserved: i32,
    own_policy: *const Callbacks,
    trace: *const c_char,
}

/// `struct upcall_thread_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThreadAttributes {
    size: usize,
    pub(crate) stack_size: usize,
    pub(crate) name: *const c_char,
    pub(crate) detached: i32,
    pub(crate) priority_class: i32,
    pub(crate) priority: i32,
    pub(crate) reserved: i32,
    pub(crate) tag: u64,
    pub(crate) deadline_ns: u64,
}

impl ThreadAttributes {
    /// Those of a thread where nothing is said.
    pub(crate) const DEFAULT: Self = ThreadAttributes {
        size: size_of::<Self>(),
        stack_size: 0,
        name: std::ptr::null(),
        detached: 0,
        priority_class: 0,
        priority: 0,
        reserved: 0,
        tag: 0,
        deadline_ns: 0,
    };
}

impl Options {
    fn builder(&self) -> Result<Builder, c_int> {
        let mut builder = Runtime::builder();
        if self.reserved != 0 {
            return Err(libc::EINVAL);
        }
        if (self.vps_min, self.vps_max) != (0, 0) {
            builder = builder.virtual_processors(self.vps_min, self.vps_max);
        }
        if self.time_slice_ns != 0 {
            builder = builder.time_slice(Duration::from_nanos(self.time_slice_ns));
        }
        if !self.policy.is_null() {
            // SAFETY: the caller's string.
            builder = match unsafe { CStr::from_ptr(self.policy) }.to_bytes() {
                b"lifo" => builder.policy(policy::Lifo),
                b"round-robin" => builder.policy(policy::RoundRobin),
                b"fifo" => builder.policy(policy::Fifo),
                b"priority" => builder.policy(policy::Priority),
                b"deadline" => builder.policy(policy::EarliestDeadline),
                _ => return Err(libc::EINVAL),
            };
        }
        if !self.own_policy.is_null() {
            if !self.policy.is_null() {
                return Err(libc::EINVAL);
            }
            // SAFETY: the caller's table.
            builder = builder.policy(unsafe { crate::policy::own(self.own_policy) }?);
        }
        if self.stats != 0 {
            builder = builder.stats(true);
        }
        if !self.trace.is_null() {
            // SAFETY: the caller's string.
            let path = unsafe { CStr::from_ptr(self.trace) };
            builder = builder.trace(OsStr::from_bytes(path.to_bytes()));
        }
        Ok(builder)
    }
}

fn number(error: &Error) -> c_int {
    match error {
        Error::VirtualProcessors(_)
        | Error::TimeSlice(_)
        | Error::StackSize(_)
        | Error::TraceDirectory
        | Error::Variable(_) => libc::EINVAL,
        Error::HasThreads(_) => libc::EBUSY,
        Error::RunsOtherwise(_) => libc::EALREADY,
        Error::Refused(number) => *number,
        // Error::Architecture, Error::NotServed, and what there will be.
        _ => libc::ENOSYS,
    }
}

c_functions! {
    /// Starts the runtime.
    fn upcall_start(options: *const Options) -> c_int {
        const NONE: Options = Options {
            size: size_of::<Options>(),
            vps_min: 0,
            vps_max: 0,
            time_slice_ns: 0,
            policy: std::ptr::null(),
            stats: 0,
            reserved: 0,
            own_policy: std::ptr::null(),
            trace: std::ptr::null(),
        };
        // SAFETY: the caller's promise.
        let builder = unsafe { versioned(options, NONE) }.and_then(|options| options.builder());
        match builder.map(|builder| builder.start()) {
            Ok(Ok(_)) => 0,
            Ok(Err(error)) => number(&error),
            Err(number) => number,
        }
    }

    /// Which runtime serves the process.
    fn upcall_served_by() -> c_int {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        return match upcall_guest::start::server() {
            None => 0,
            Some(upcall_guest::start::Server::Own) => 1,
            Some(upcall_guest::start::Server::Preloaded) => 2,
        };
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
        0
    }
}
