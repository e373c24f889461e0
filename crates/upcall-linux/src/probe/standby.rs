//! Measures whether the scheduler lets an always-runnable standby give way to the activation that computes.
//!
//! The standby backend keeps one runnable activation beside each running one. It yields whenever the scheduler chooses it.
//! EEVDF kernels (Linux 6.6 and later) give the processor straight back, and the standby costs a thousandth of it. CFS
//! kernels treat the two as equals, and the standby takes half of the processor. There an idle-class *sentinel* must take
//! its place. A sentinel wakes a parked activation when it gets to run at all.
//!
//! The measurement uses processor time and not the time of day, so a busy machine makes it slower and not wrong:
//! 1. Two child processes are bound to one processor. The standby writes a byte into a pipe to say that it runs, and then
//!    yields without end.
//! 2. The other computes until it has used [`COMPUTE_NS`] of processor time itself, and then raises the stop word. CFS
//!    alternates in steps of 1.5 to 4 ms, so that is several steps.
//! 3. The standby's share is its processor time, divided by the sum of both.

use std::sync::atomic::{AtomicU64, Ordering};

use super::child::{Child, Ended, errno};
use super::{Finding, os_error};

/// Processor time that the computing child uses, ns.
const COMPUTE_NS: u64 = 40_000_000;

/// The same where a program waits for the answer. Some slices of every scheduler: up to 10 ms.
const QUICK_NS: u64 = 20_000_000;

/// A standby that takes more than this share of the processor is no standby. What was
/// measured is at most 2 % on EEVDF kernels and about 50 % on CFS kernels.
const ACCEPTABLE_SHARE: f64 = 0.1;

/// Which standby this kernel wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandbyMode {
    /// An ordinary standby that yields.
    Nice0,
    /// An idle-class sentinel that wakes a parked activation.
    Sentinel,
}

impl StandbyMode {
    /// The word for it in reports and settings.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Nice0 => "nice0",
            Self::Sentinel => "sentinel",
        }
    }
}

/// The share of a processor that a standby of either kind takes from a computing activation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shares {
    ordinary: f64,
    /// Measured only where the ordinary one takes too much.
    idle_class: Option<f64>,
}

/// Measures which standby this kernel wants; `None` where neither gives way or the
/// measurement cannot be made. Uses 40 to 160 ms of processor time.
#[must_use]
pub fn measure_mode() -> Option<StandbyMode> {
    judge(measure().ok()?)
}

/// As [`measure_mode`], within 20 to 40 ms of processor time, without measuring whether an
/// idle-class standby is better where an ordinary one is bad: it always is.
pub(super) fn measure_quickly() -> Option<StandbyMode> {
    let share = share_of(libc::SCHED_OTHER, give_way, QUICK_NS).ok()?;
    Some(if share <= ACCEPTABLE_SHARE {
        StandbyMode::Nice0
    } else {
        StandbyMode::Sentinel
    })
}

/// The finding for the `standby` backend.
#[must_use]
pub fn standby() -> Finding {
    const NAME: &str = "standby";
    let processor = super::processor();
    if !processor.works {
        return Finding {
            name: NAME,
            ..processor
        };
    }
    let calls = super::calls();
    if !calls.works {
        return Finding {
            name: NAME,
            ..calls
        };
    }
    let shares = match measure() {
        Ok(shares) => shares,
        Err(why) => {
            return Finding::fails(
                NAME,
                format!("could not measure what a standby costs: {why}"),
                "allow clone, sched_setaffinity and sched_setscheduler(SCHED_IDLE) in the \
                 sandbox, and at least three processes",
            );
        }
    };
    let ordinary = format!(
        "an ordinary standby takes {:.2} % of a busy processor",
        shares.ordinary * 100.0
    );
    match (judge(shares), shares.idle_class) {
        (Some(mode), None) => Finding {
            mode: Some(mode.word()),
            ..Finding::works(NAME, ordinary)
        },
        (Some(mode), Some(idle)) => Finding {
            mode: Some(mode.word()),
            ..Finding::works(
                NAME,
                format!(
                    "{ordinary}, an idle-class one {:.2} %: a sentinel is used, and an upcall \
                     costs one wake-up more",
                    idle * 100.0
                ),
            )
        },
        (None, idle) => Finding::fails(
            NAME,
            format!(
                "{ordinary}, an idle-class one {:.2} %",
                idle.unwrap_or(1.0) * 100.0
            ),
            "another scheduler is active (see /sys/kernel/sched_ext/state); run under the \
             kernel's own",
        ),
    }
}

fn judge(shares: Shares) -> Option<StandbyMode> {
    if shares.ordinary <= ACCEPTABLE_SHARE {
        return Some(StandbyMode::Nice0);
    }
    match shares.idle_class {
        Some(share) if share <= ACCEPTABLE_SHARE => Some(StandbyMode::Sentinel),
        _ => None,
    }
}

fn measure() -> Result<Shares, String> {
    let ordinary = share_of(libc::SCHED_OTHER, give_way, COMPUTE_NS)?;
    let idle_class = if ordinary <= ACCEPTABLE_SHARE {
        None
    } else {
        Some(share_of(libc::SCHED_IDLE, give_way, COMPUTE_NS)?)
    };
    Ok(Shares {
        ordinary,
        idle_class,
    })
}

/// What the two children and the parent share.
#[repr(C)]
struct Shared {
    stop: AtomicU64,
    standby_ns: AtomicU64,
    compute_ns: AtomicU64,
}

/// The share of the processor that a standby of this scheduling class takes, which calls
/// `relax` again and again.
fn share_of(policy: i32, relax: fn(), compute_ns: u64) -> Result<f64, String> {
    // SAFETY: a fresh anonymous mapping of one page.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Shared>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(format!("mmap: {}", os_error()));
    }
    // SAFETY: the page is mapped, zeroed, large enough and aligned, and atomics may be
    // shared between processes; it is unmapped after the last use of the reference.
    let shared = unsafe { &*page.cast::<Shared>() };
    let share = run_pair(policy, relax, compute_ns, shared);
    // SAFETY: mapped above with this size; `shared` is not used after this.
    unsafe { libc::munmap(page, size_of::<Shared>()) };
    share
}

fn run_pair(policy: i32, relax: fn(), compute_ns: u64, shared: &Shared) -> Result<f64, String> {
    let mut pipe = [0; 2];
    // SAFETY: `pipe` holds two ints.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(format!("pipe2: {}", os_error()));
    }
    let [ready_out, ready_in] = pipe;
    // SAFETY: reads the number of the processor that this runs on.
    let processor = unsafe { libc::sched_getcpu() };
    let standby = Child::start(|| stand_by(shared, policy, relax, processor, ready_in));
    let compute = Child::start(|| compute(shared, compute_ns, processor, ready_in, ready_out));
    // SAFETY: both descriptors are ours and not used again here.
    unsafe {
        libc::close(ready_in);
        libc::close(ready_out);
    }
    let compute = compute.map_or_else(Ended::NotRun, Child::wait);
    // Release: pairs with the Acquire in `stand_by`; a computing child that died has not
    // raised it.
    shared.stop.store(1, Ordering::Release);
    let standby = standby.map_or_else(Ended::NotRun, Child::wait);
    for (who, ended) in [("standby", standby), ("computing child", compute)] {
        if ended != Ended::Works {
            return Err(format!("{who}: {ended}"));
        }
    }
    let standby_ns = shared.standby_ns.load(Ordering::Acquire) as f64;
    let compute_ns = shared.compute_ns.load(Ordering::Acquire) as f64;
    Ok(standby_ns / (standby_ns + compute_ns))
}

fn give_way() {
    // SAFETY: no arguments, no memory.
    unsafe { libc::sched_yield() };
}

/// The standby's child: relaxes until told to stop.
fn stand_by(
    shared: &Shared,
    policy: i32,
    relax: fn(),
    processor: i32,
    ready: i32,
) -> Result<(), i32> {
    pin(processor)?;
    let parameters = libc::sched_param { sched_priority: 0 };
    if policy != libc::SCHED_OTHER {
        // SAFETY: `parameters` is valid for the call.
        if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } != 0 {
            return Err(errno());
        }
    }
    let start = processor_time();
    // SAFETY: one byte from a valid buffer to a descriptor that this child inherited.
    if unsafe { libc::write(ready, [1u8].as_ptr().cast(), 1) } != 1 {
        return Err(errno());
    }
    // Acquire: pairs with the Release of the process that stops this.
    while shared.stop.load(Ordering::Acquire) == 0 {
        relax();
    }
    let used = processor_time() - start;
    shared.standby_ns.store(used, Ordering::Release);
    Ok(())
}

/// The computing child: uses its processor time, then stops the standby.
fn compute(
    shared: &Shared,
    compute_ns: u64,
    processor: i32,
    unused: i32,
    ready: i32,
) -> Result<(), i32> {
    pin(processor)?;
    let mut byte = 0u8;
    // SAFETY: closes this child's copy of the write end, so that the read below ends when the
    // standby's child died; reads one byte into a valid buffer.
    if unsafe {
        libc::close(unused);
        libc::read(ready, (&raw mut byte).cast(), 1)
    } != 1
    {
        return Err(libc::ECHILD);
    }
    let start = processor_time();
    let mut used = 0;
    let mut noise = 1u64;
    while used < compute_ns {
        for _ in 0..10_000 {
            noise = std::hint::black_box(noise.wrapping_mul(6_364_136_223_846_793_005) + 1);
        }
        used = processor_time() - start;
    }
    shared.compute_ns.store(used, Ordering::Release);
    // Release: pairs with the Acquire in `stand_by`.
    shared.stop.store(1, Ordering::Release);
    Ok(())
}

fn pin(processor: i32) -> Result<(), i32> {
    let processor = usize::try_from(processor).map_err(|_| libc::EINVAL)?;
    // SAFETY: an all-zero cpu_set_t is the empty set; CPU_SET checks the bound; the set is
    // valid for the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        if libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) != 0 {
            return Err(errno());
        }
    }
    Ok(())
}

/// Processor time of this process, ns.
fn processor_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call, which cannot fail for one's own clock.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(ordinary: f64, idle_class: Option<f64>) -> Shares {
        Shares {
            ordinary,
            idle_class,
        }
    }

    #[test]
    fn the_verdict_follows_the_shares() {
        assert_eq!(judge(shares(0.004, None)), Some(StandbyMode::Nice0));
        assert_eq!(judge(shares(0.5, Some(0.002))), Some(StandbyMode::Sentinel));
        assert_eq!(judge(shares(0.5, Some(0.5))), None);
        assert_eq!(judge(shares(0.5, None)), None);
    }

    #[test]
    fn an_idle_class_standby_takes_a_small_share_on_every_scheduler() {
        let share = share_of(libc::SCHED_IDLE, give_way, COMPUTE_NS).expect("measurable");
        assert!(share < ACCEPTABLE_SHARE, "{share}");
    }

    /// The control: the measurement tells a standby that does not give way.
    #[test]
    fn a_standby_that_never_yields_is_refused() {
        let share = share_of(libc::SCHED_OTHER, || {}, COMPUTE_NS).expect("measurable");
        assert!(share > ACCEPTABLE_SHARE, "{share}");
    }
}
