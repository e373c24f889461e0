//! The processors that the machine and its administrator allow.

use crate::sys;

/// The processors that the calling kernel thread may use, in order.
pub fn allowed_processors() -> Vec<u32> {
    let mut mask = [0u64; 128];
    // SAFETY: writes at most the size given.
    let bytes = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(&mask),
            mask.as_mut_ptr(),
        )
    };
    let words = usize::try_from(bytes).unwrap_or(0) / 8;
    (0..words * 64)
        .filter(|&processor| mask[processor / 64] >> (processor % 64) & 1 != 0)
        .map(|processor| processor as u32)
        .collect()
}

/// As [`allowed_processors`], without allocating: fills `processors` and returns how many there are.
/// `mask` receives the affinity mask.
pub fn processors_into(mask: &mut [u64; 128], processors: &mut [u32; 1024]) -> usize {
    // SAFETY: writes at most the size given.
    let bytes = unsafe {
        sys!(
            sys::SYS_SCHED_GETAFFINITY,
            0,
            size_of_val(mask),
            mask.as_mut_ptr()
        )
    };
    let bits = usize::try_from(bytes).unwrap_or(0) * 8;
    let mut count = 0;
    for processor in (0..bits).filter(|&bit| mask[bit / 64] >> (bit % 64) & 1 != 0) {
        if count < processors.len() {
            processors[count] = processor as u32;
            count += 1;
        }
    }
    count.max(1)
}
/// Returns true if the process may write a file of this length: otherwise a signal would come (SIGXFSZ).
pub(crate) fn may_be_so_long(length: usize) -> bool {
    let mut limit = [0u64; 2];
    // SAFETY: writes the two numbers.
    let answer = unsafe {
        sys!(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_FSIZE,
            0,
            limit.as_mut_ptr()
        )
    };
    answer == 0 && limit[0] >= length as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_processor_is_allowed() {
        let processors = allowed_processors();
        assert!(!processors.is_empty());
        assert!(processors.is_sorted());
    }
}
