//! Threads in shells: a record is what is in a shell's room.

use std::ffi::{c_int, c_void};

use upcall_guest::lending::Asks;
use upcall_guest::shell::{self, CLASSES, Handle, ROOM, Work};
use upcall_linux::Runtime;

use super::record::{Kind, Record};
use super::{Plan, STACK};

const _: () = assert!(size_of::<Record>() <= ROOM && align_of::<Record>() <= 16);

/// What lies on a stack beside frames: a guard page, thread-local storage, libc's control block and the shell. Programs
/// with much thread-local storage have less of the stack, as with pthread_create(3).
const BESIDE: usize = 12 << 10;

const WORK: Work = Work { run, drop_result };

unsafe fn run(room: *mut u8) {
    // SAFETY: `create` has put it there.
    unsafe { (*room.cast::<Record>()).run() };
}

/// A record has nothing to drop, and its result is an address.
unsafe fn drop_result(_: *mut u8) {}

/// The smallest class of stacks that has room; 0: the usual one, with all that lies there.
pub(super) fn class_of(size: usize) -> Option<usize> {
    let size = match size {
        0 => STACK,
        size => size.checked_add(BESIDE)?,
    };
    CLASSES.iter().position(|&class| size <= class)
}

/// What the thread says of its urgency, but for a priority.
#[inline]
fn asks(plan: &Plan<'_>) -> Option<Asks> {
    let (tag, deadline) = (plan.attributes.tag, plan.attributes.deadline_ns);
    (tag != 0 || deadline != 0).then(|| Asks {
        priority: None,
        deadline: (deadline != 0).then_some(deadline),
        tag,
        serves: false,
    })
}

#[inline]
pub(super) fn create(
    runtime: &'static Runtime,
    class: usize,
    plan: &Plan<'_>,
    made: impl FnOnce(*mut Record),
) -> Result<(), c_int> {
    // SAFETY: the work is for a record.
    let handle = unsafe {
        shell::spawn(runtime, class, asks(plan), WORK, |room| {
            let record = room.cast::<Record>();
            record.write(plan.record(Kind::Shell));
            made(record);
        })
    };
    match handle {
        Ok(handle) => {
            handle.into_room();
            Ok(())
        }
        Err(error) => Err(error.0),
    }
}

/// That of a thread whose right is the caller's.
fn handle(record: &Record) -> Handle {
    let room = std::ptr::from_ref(record).cast_mut().cast();
    // SAFETY: records of this kind are in rooms, and their right is taken once.
    unsafe { Handle::of_room(room) }
}

/// What it has given; `None`: it has not ended, and `waits` is not wanted.
#[inline]
pub(super) fn join(record: &Record, waits: bool) -> Option<*mut c_void> {
    let handle = handle(record);
    if !waits && !handle.is_ended() {
        handle.into_room();
        return None;
    }
    // The record of a thread that has ended is still there until the shell is given back.
    Some(handle.join(|| record.result()))
}

pub(super) fn detach(record: &Record) {
    drop(handle(record));
}
