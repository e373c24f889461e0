//! What the machine and its administrator allow: processors and time on them.

use std::fs;

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

/// The processor time that the control group grants, in processors, if it is limited
/// (cgroup v2 `cpu.max`, v1 `cpu.cfs_quota_us`).
pub fn quota() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut least: Option<f64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let mut path = path;
        loop {
            let share = if controllers.is_empty() {
                unified(path)
            } else if controllers.split(',').any(|one| one == "cpu") {
                legacy(path)
            } else {
                None
            };
            least = match (least, share) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            match path.rfind('/') {
                Some(0) if path.len() > 1 => path = "/",
                Some(end) if end > 0 => path = &path[..end],
                _ => break,
            }
        }
    }
    least
}

fn unified(path: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/sys/fs/cgroup{path}/cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

fn legacy(path: &str) -> Option<f64> {
    let read = |name: &str| -> Option<f64> {
        fs::read_to_string(format!("/sys/fs/cgroup/cpu{path}/{name}"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let quota = read("cpu.cfs_quota_us")?;
    (quota > 0.0).then_some(quota / read("cpu.cfs_period_us")?)
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
