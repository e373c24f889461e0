//! The processor quota of control groups (cgroups(7)): a program uses no more virtual processors than that comes to.
//!
//! Where a quota is less than a program's virtual processors, the kernel stops all of them for the rest of each period, whoever
//! holds a lock. A program that goes on with fewer (`-p MIN..MAX`) uses as many as its quota comes to, rounded up, and MIN at
//! least. It looks once a second, at the end of a time slice, so it follows a quota that changes. A program that needs all of
//! its processors keeps them.
//!
//! 1. [`follow`], at the start: which files say it. A program that is moved to another group later is not followed.
//! 2. `Quota::look`: the virtual processors from `Quota::in_use` on have no processor from then on, or have one again.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::sys::procfs::read_start;

/// How long what the files say holds, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// The files of one group. Where there is one only, it has both numbers.
struct Files {
    quota: CString,
    period: Option<CString>,
}

static FILES: OnceLock<Vec<Files>> = OnceLock::new();

/// These files say what this process may use, each with that of its period, if it is another one
/// ([`probe::quota_files`](crate::probe::quota_files)). Allocates memory.
pub fn follow(files: Vec<(PathBuf, Option<PathBuf>)>) {
    FILES.get_or_init(|| {
        let name = |path: PathBuf| CString::new(path.as_os_str().as_bytes()).ok();
        let files = files.into_iter().filter_map(|(quota, period)| {
            let period = match period {
                Some(period) => Some(name(period)?),
                None => None,
            };
            Some(Files {
                quota: name(quota)?,
                period,
            })
        });
        files.collect()
    });
}

/// How many virtual processors are in use.
pub(crate) struct Quota {
    in_use: AtomicU32,
    look_at: AtomicU64,
}

impl Quota {
    /// All are in use.
    pub(crate) const fn new() -> Self {
        Quota {
            in_use: AtomicU32::new(u32::MAX),
            look_at: AtomicU64::new(0),
        }
    }

    /// Virtual processors with a smaller number are in use.
    #[inline]
    pub(crate) fn in_use(&self) -> u32 {
        // SeqCst: an activation that falls idle looks here afterwards; who takes its processor looks at its word afterwards.
        self.in_use.load(Ordering::SeqCst)
    }

    /// Looks, if it is time. Of `most` virtual processors, `least` at least are in use. Returns how many were, and how many are, if that
    /// has changed.
    pub(crate) fn look(&self, now: u64, least: u32, most: u32) -> Option<(u32, u32)> {
        let files = FILES.get().filter(|files| !files.is_empty())?;
        let due = self.look_at.load(Ordering::Relaxed);
        if now < due {
            return None;
        }
        // One of those that find it due.
        let next = now + LOOK_NS;
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.look_at
            .compare_exchange(due, next, success, failure)
            .ok()?;
        let quotas = files.iter().filter_map(Files::processors);
        let after = in_use(quotas.min(), least, most);
        let before = self.in_use.swap(after, Ordering::SeqCst).min(most);
        (before != after).then_some((before, after))
    }
}

fn in_use(quota: Option<u64>, least: u32, most: u32) -> u32 {
    let quota = quota.map_or(most, |quota| u32::try_from(quota).unwrap_or(most));
    quota.clamp(least.min(most), most)
}

impl Files {
    /// Processors, rounded up; `None`: there is no bound, or nothing can be read.
    fn processors(&self) -> Option<u64> {
        let mut text = [0u8; 64];
        let mut length = read_start(&self.quota, &mut text);
        if let Some(period) = &self.period {
            length += read_start(period, text.get_mut(length..)?);
        }
        processors(text.get(..length)?)
    }
}

fn processors(text: &[u8]) -> Option<u64> {
    let (quota, period) = quota_and_period(core::str::from_utf8(text).ok()?)?;
    Some(quota.div_ceil(period))
}

/// A quota and its period, both in microseconds; `None`: "max", -1, or nonsense, such as "inf".
pub(crate) fn quota_and_period(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace();
    let mut number = || {
        let number = words.next()?.parse::<u64>().ok();
        number.filter(|&number| number != 0)
    };
    Some((number()?, number()?))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_rounded_up() {
        assert_eq!(processors(b"150000 100000\n"), Some(2));
        assert_eq!(processors(b"100000\n100000\n"), Some(1));
        assert_eq!(processors(b"1000 100000\n"), Some(1));
        for none in [
            &b"max 100000\n"[..],
            b"-1\n100000\n",
            b"",
            b"5",
            b"0 0",
            b"x y",
            b"\xff",
        ] {
            assert_eq!(processors(none), None, "{none:?}");
        }
    }

    #[test]
    fn no_fewer_than_the_program_goes_on_with() {
        assert_eq!(in_use(None, 1, 4), 4);
        assert_eq!(in_use(Some(3), 1, 4), 3);
        assert_eq!(in_use(Some(1), 2, 4), 2);
        assert_eq!(in_use(Some(9), 1, 4), 4);
        assert_eq!(in_use(Some(u64::MAX), 1, 4), 4);
        assert_eq!(in_use(Some(1), 8, 4), 4);
    }
}
