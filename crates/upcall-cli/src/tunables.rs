//! Lets libc keep more stacks of threads that have ended (`GLIBC_TUNABLES`, `glibc.pthread.stack_cache_size`).
//!
//! By default libc keeps 40 MB, five stacks of the usual size, and maps and unmaps every other one. Where a thread costs a
//! microsecond that is most of what it costs. A stack that is kept has given its pages back, but for the first two or three.
//!
//! It is not done where kept addresses would be missed: with a limit of them (RLIMIT_AS), and where the kernel counts what
//! is mapped as used (vm.overcommit_memory 2, proc_sys_vm(5)). What the user has said of it stays.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use upcall_linux::probe::soft_limit;

/// The variable.
pub const VARIABLE: &str = "GLIBC_TUNABLES";
/// How the kernel counts mapped memory.
pub const OVERCOMMIT: &str = "/proc/sys/vm/overcommit_memory";
const NAME: &str = "glibc.pthread.stack_cache_size";
/// More than a thousand stacks of the usual size, in bytes.
const KEPT: u64 = 9 << 30;

/// What to set the variable to, which is `existing` now. `None`: it stays as it is.
pub fn with_stacks(existing: Option<&OsStr>) -> Option<OsString> {
    let existing = existing.unwrap_or_default();
    let is_limited = soft_limit(libc::RLIMIT_AS).is_some();
    if says_already(existing) || is_limited || is_counted() {
        return None;
    }
    let mut value = existing.to_owned();
    if !value.is_empty() {
        value.push(":");
    }
    value.push(format!("{NAME}={KEPT}"));
    Some(value)
}

fn says_already(existing: &OsStr) -> bool {
    let named = |entry: &[u8]| entry.starts_with(NAME.as_bytes());
    existing.as_bytes().split(|&byte| byte == b':').any(named)
}

fn is_counted() -> bool {
    !std::fs::read(OVERCOMMIT).is_ok_and(|mode| matches!(mode.trim_ascii(), b"0" | b"1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_says_stays() {
        assert!(says_already(OsStr::new(
            "glibc.malloc.arena_max=2:glibc.pthread.stack_cache_size=1"
        )));
        assert!(!says_already(OsStr::new("glibc.malloc.arena_max=2")));
        assert_eq!(
            with_stacks(Some(OsStr::new("glibc.pthread.stack_cache_size=1"))),
            None
        );
    }

    #[test]
    fn other_tunables_stay_before_it() {
        if let Some(value) = with_stacks(Some(OsStr::new("glibc.malloc.arena_max=2"))) {
            let value = value.into_string().expect("it is text");
            let rest = value.strip_prefix("glibc.malloc.arena_max=2:");
            assert!(rest.is_some_and(|rest| rest.starts_with(NAME)), "{value}");
        }
    }
}
