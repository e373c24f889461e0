//! The part of a machine that is replaced: it decides what runs next and what a step costs.
//!
//! A vessel runs from point to point. At each point the machine asks the policy whether it takes over there
//! ([`Policy::at_point`]). While the machine has control, it asks which vessel goes on ([`Policy::choose`]). The time is
//! [`Machine::clock`], which only the policy moves. If each processor has a clock of its own, the policy sets the
//! machine's clock to the one of the vessel that it chooses.

use crate::machine::Machine;

/// Where a vessel is at a point: what it asks of the kernel, or does of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    missing_docs,
    reason = "named as the functions of `upcall_core::Kernel`"
)]
pub enum Call {
    SetInside,
    ClearInside,
    Now,
    Yield,
    Sleep,
    Wake,
    Interrupt,
    PassBarriers,
    IsBlocked,
    Waiting,
    Spawn,
    Exit,
    Bind,
    MayRun,
    AwaitTurn,
    Resting,
    Install,
    Uninstall,
    Map,
    Poll,
    WantsPoller,
    SetAlarm,
    IsInterrupted,
    Sentinel,
    /// Some instructions of a thread's own.
    Step,
    /// A system call or a page fault of a thread begins.
    Block,
    /// Stopped by the machine between any two instructions of the runtime.
    Preempted,
}

/// How a vessel goes on at a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// At once.
    GoOn,
    /// The machine takes over; it may choose the same vessel again.
    Stop,
    /// The machine takes over, and others of the vessel's processor come first.
    GiveWay,
}

/// Decides what runs next and what a step costs.
pub trait Policy {
    /// The running vessel is at a point, which may cost time.
    fn at_point(&mut self, machine: &Machine, call: Call) -> Next;

    /// The time that [`upcall_core::Machine::now`] answers.
    fn now(&mut self, machine: &Machine) -> u64;

    /// Which of the vessels that can run goes on, if any can.
    fn choose(&mut self, machine: &Machine) -> Option<usize>;

    /// Nothing can run: the time of the next event has come.
    fn jump(&mut self, machine: &Machine, to: u64);
}
