//! Which processors a program may use.

use crate::problem::Problem;

/// A set of processors, by number, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processors(Vec<usize>);

impl Processors {
    /// The processors that this process may use.
    ///
    /// # Errors
    ///
    /// If the kernel does not say, which happens with more processors than a `cpu_set_t` holds.
    pub fn allowed() -> Result<Self, Problem> {
        // SAFETY: all-zero bytes are an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is valid and of the given size; 0 is this thread.
        if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0 {
            let error = std::io::Error::last_os_error();
            let what = "cannot find out which processors may be used";
            let remedy = "run it on fewer processors: taskset -c 0-3 upcall bench";
            return Err(Problem::new(
                what,
                format!("sched_getaffinity: {error}"),
                remedy,
            ));
        }
        // SAFETY: the index is below the size of the set.
        let has = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
        Ok(Self((0..libc::CPU_SETSIZE as usize).filter(has).collect()))
    }

    /// The last `count` of them: the first processor of a machine tends to serve interrupts.
    pub fn last(&self, count: usize) -> Self {
        Self(self.0[self.0.len().saturating_sub(count)..].to_vec())
    }

    /// Those that are not in `other`, or all if that leaves none.
    pub fn besides(&self, other: &Self) -> Self {
        let rest: Vec<_> = self
            .0
            .iter()
            .copied()
            .filter(|cpu| !other.0.contains(cpu))
            .collect();
        if rest.is_empty() {
            self.clone()
        } else {
            Self(rest)
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The set as the kernel wants it.
    pub fn set(&self) -> libc::cpu_set_t {
        // SAFETY: all-zero bytes are an empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &cpu in &self.0 {
            // SAFETY: the number came out of a set of this size.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_and_the_rest() {
        let all = Processors(vec![0, 2, 5]);
        assert_eq!(all.last(2), Processors(vec![2, 5]));
        assert_eq!(all.last(9), all);
        assert_eq!(all.besides(&all.last(1)), Processors(vec![0, 2]));
        assert_eq!(all.besides(&all), all);
    }

    #[test]
    fn this_process_may_use_at_least_one() {
        let allowed = Processors::allowed().unwrap();
        assert!(allowed.count() > 0);
        // SAFETY: the number is below the size of the set.
        let has = |cpu| unsafe { libc::CPU_ISSET(cpu, &allowed.set()) };
        assert!(allowed.0.iter().all(|&cpu| has(cpu)));
    }
}
