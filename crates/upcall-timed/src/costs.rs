//! What things cost, in nanoseconds.

/// A microsecond.
pub const US: u64 = 1_000;
/// A millisecond.
pub const MS: u64 = 1_000_000;

/// The costs of one address space's operations, and of the kernel under it.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Create a thread and make it ready.
    pub fork: u64,
    /// Put a thread on the processor: of the user level, or for plain kernel threads of the kernel.
    pub dispatch: u64,
    /// More for a thread that was stopped before.
    pub resume: u64,
    /// End a thread and tell the thread that joins it.
    pub exit: u64,
    /// Wait for another thread, without what runs instead.
    pub wait: u64,
    /// Tell a waiting thread.
    pub signal: u64,
    /// Acquire and release a free lock.
    pub lock: u64,
    /// Whether a plain kernel thread's operation, the trap apart, runs under one lock of the kernel.
    pub one_lock: bool,
    /// How much longer computing takes for each other processor that computes, in percent: the bus.
    pub bus: u64,
    /// The kernel switches from one kernel thread to another.
    pub switch: u64,
    /// Enter and leave the kernel.
    pub trap: u64,
    /// Wait in the kernel, and tell the thread that waits there, beside the trap.
    pub kernel_wait: u64,
    /// See [`Costs::kernel_wait`].
    pub kernel_signal: u64,
    /// Upcall: blocked.
    pub blocked: u64,
    /// Upcall: unblocked.
    pub unblocked: u64,
    /// Upcall: a processor was added.
    pub added: u64,
    /// A kernel thread is made.
    pub spawn: u64,
    /// How long a thread may run while others are ready; for ever, if it is `u64::MAX`.
    pub slice: u64,
    /// How much slower the machine is than the one for which the core's own times (how long to
    /// spin, how often to look) were measured.
    pub slowness: u64,
}

/// The CVAX Firefly of Anderson et al. (1991). Their Tables 1 and 4 give sums, for one operation each; the
/// division among the parts is ours, and what it is proven right by is that the sums come out
/// when the operations run on the core.
pub mod firefly {
    use super::{Costs, MS, US};

    /// A procedure call (§2.1).
    pub const CALL: u64 = 7 * US;
    /// A kernel trap (§2.1).
    pub const TRAP: u64 = 19 * US;
    /// A miss of the application's buffer cache blocks in the kernel for this time (§5.3).
    pub const MISS: u64 = 50 * MS;

    /// Computing takes so many percent longer for each other processor that computes: two copies on six
    /// processors come within 5 % of one on three, and what is missing is the bus and a
    /// daemon (§5.3). The daemon's part is less than one of these, so the bus with three processors
    /// more slows by at most 4 %: for each no more than 1.4, of which this is a round figure.
    pub const BUS: u64 = 1;

    /// Original FastThreads: Null Fork 34 µs, Signal-Wait 37 µs (Tables 1 and 4).
    pub fn fast_threads() -> Costs {
        Costs {
            fork: 12 * US,
            dispatch: 5 * US,
            resume: 0,
            exit: 10 * US,
            wait: 16 * US,
            signal: 16 * US,
            lock: 2 * US,
            one_lock: false,
            bus: BUS,
            switch: 100 * US,
            trap: TRAP,
            kernel_wait: 151 * US,
            kernel_signal: 152 * US,
            blocked: 0,
            unblocked: 0,
            added: 0,
            spawn: 0,
            slice: u64::MAX,
            slowness: 100,
        }
    }

    /// FastThreads on activations (Table 4, §5.1): 3 µs more a fork for counting busy threads, which a
    /// signal and its wait count too, and 2 µs for the check whether a preempted thread is
    /// resumed. Upcalls (§5.2) cost what Signal-Wait through the kernel, which makes two, takes more than that of Topaz
    /// threads: 2.4 ms less 441 µs.
    pub fn activations() -> Costs {
        let plain = fast_threads();
        Costs {
            fork: plain.fork + 1500,
            exit: plain.exit + 1500,
            wait: plain.wait + 1500,
            signal: plain.signal + 1500,
            resume: 2 * US,
            // The kernel of 1991 had no standby to switch to and from: that is what upcalls cost.
            switch: 0,
            blocked: 980 * US,
            unblocked: 980 * US,
            added: 980 * US,
            spawn: 300 * US,
            ..plain
        }
    }

    /// Topaz kernel threads: Null Fork 948 µs, Signal-Wait 441 µs (Table 1). That the kernel's part of
    /// each is under one lock is assumed.
    pub fn topaz() -> Costs {
        Costs {
            fork: 500 * US,
            dispatch: 100 * US,
            exit: 341 * US,
            wait: 170 * US,
            signal: 171 * US,
            one_lock: true,
            ..fast_threads()
        }
    }

    /// Ultrix processes: Null Fork 11.3 ms, Signal-Wait 1.84 ms (Table 1).
    pub fn ultrix() -> Costs {
        Costs {
            fork: 8 * MS,
            dispatch: 400 * US,
            exit: 2_893 * US,
            wait: 720 * US,
            signal: 720 * US,
            switch: 400 * US,
            one_lock: false,
            ..topaz()
        }
    }
}

/// A machine of today: x86-64, Linux 6.x. Minima of `upcall bench` for user level, of the system
/// calls for the kernel.
pub mod today {
    use super::{Costs, MS};

    /// This runtime.
    pub fn activations() -> Costs {
        Costs {
            fork: 70,
            dispatch: 20,
            resume: 0,
            exit: 40,
            wait: 40,
            signal: 40,
            lock: 10,
            one_lock: false,
            bus: 0,
            switch: 700,
            trap: 100,
            kernel_wait: 400,
            kernel_signal: 700,
            blocked: 600,
            unblocked: 600,
            added: 1_000,
            spawn: 12_000,
            slice: 4 * MS,
            slowness: 1,
        }
    }

    /// Kernel threads under glibc.
    pub fn kernel_threads() -> Costs {
        Costs {
            fork: 9_000,
            dispatch: 700,
            exit: 1_700,
            wait: 600,
            signal: 700,
            one_lock: false,
            ..activations()
        }
    }
}
