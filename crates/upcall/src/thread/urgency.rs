//! How urgent a thread is.

use std::time::Instant;

/// What a thread asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asks {
    pub(super) priority: Option<u8>,
    pub(super) deadline: Option<Instant>,
    pub(super) tag: u64,
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    pub(super) serves: bool,
}

/// Sets how urgent the calling thread is, from 1 to 99. A larger number is more urgent. It counts only if threads are
/// ordered by [`Priority`](crate::policy::Priority). A thread that is more urgent then runs at once.
/// pthread_setschedprio(3) of a thread with SCHED_RR.
///
/// ```
/// upcall::Runtime::builder().policy(upcall::policy::Priority).start()?;
/// upcall::thread::set_priority(10);
/// # Ok::<(), upcall::Error>(())
/// ```
///
/// # Panics
///
/// If the priority is not from 1 to 99.
pub fn set_priority(priority: u8) {
    check_priority(priority);
    change(Asks {
        priority: Some(priority),
        ..Asks::default()
    });
}

/// Sets the moment by which the calling thread's work must be done. A periodic thread calls this at the beginning of
/// each period. It counts only if threads are ordered by [`EarliestDeadline`](crate::policy::EarliestDeadline). A
/// thread with a nearer deadline then runs at once.
pub fn set_deadline(deadline: Instant) {
    change(Asks {
        deadline: Some(deadline),
        ..Asks::default()
    });
}

pub(super) fn check_priority(priority: u8) {
    assert!(
        (1..=99).contains(&priority),
        "priority {priority} is not from 1 to 99"
    );
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn change(asks: Asks) {
    use upcall_guest::{direct, lending};

    let Some(runtime) = direct::runtime() else {
        return;
    };
    let asks = asks.of_guest();
    let inside = runtime.enter();
    if let Some(thread) = inside.thread() {
        lending::change(&inside, thread, asks);
    }
    inside.leave();
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn change(_asks: Asks) {}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
impl Asks {
    pub(super) fn of_guest(self) -> upcall_guest::lending::Asks {
        upcall_guest::lending::Asks {
            priority: self.priority,
            deadline: self.deadline.map(crate::waiting::moment),
            tag: self.tag,
            serves: self.serves,
        }
    }
}
