//! The perf switch ring: an unprivileged record of every context switch of one's own kernel thread.
//!
//! The record tells if the switch was a preemption. The standby has to answer exactly that question. The record
//! wakes nobody, and the standby reads it from memory. It needs `perf_event_paranoid` of 2 or less, or CAP_PERFMON.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Finding;
use crate::blocked::observe::open_switch_ring;

const NAME: &str = "perf-switch-ring";
const PAGE: usize = 4096;

const PERF_RECORD_SWITCH: u32 = 14;
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;

/// Offset of `data_head` in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;

/// Opens a switch ring on the calling thread, blocks for a moment, and looks whether the
/// ring says so.
#[must_use]
pub fn perf_switch_ring() -> Finding {
    let paranoid = paranoid();
    let remedy = "sysctl kernel.perf_event_paranoid=2 (or lower), CAP_PERFMON, and a sandbox \
                  that allows perf_event_open";
    match switch_records() {
        Ok((blocked, preempted)) if blocked > 0 => Finding::works(
            NAME,
            format!(
                "a sleep of this thread was recorded as {blocked} blocked and {preempted} \
                 preempted; kernel.perf_event_paranoid is {paranoid}"
            ),
        ),
        Ok((_, preempted)) => Finding::fails(
            NAME,
            format!(
                "the ring opened, but a sleep left no record of blocking ({preempted} preempted)"
            ),
            "a kernel with context-switch records (Linux 4.3 or later)",
        ),
        Err(number) => Finding::fails(
            NAME,
            format!(
                "the ring cannot be opened: {}; kernel.perf_event_paranoid is {paranoid}",
                std::io::Error::from_raw_os_error(number)
            ),
            remedy,
        ),
    }
}

fn paranoid() -> String {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .map_or_else(|_| "unreadable".into(), |text| text.trim().to_owned())
}

/// Records of (blocked, preempted) that one short sleep leaves; or the error number.
fn switch_records() -> Result<(u32, u32), i32> {
    // SAFETY: at no particular place.
    let ring = unsafe { open_switch_ring(0) }?;
    std::thread::sleep(std::time::Duration::from_millis(1));
    let counted = count(ring as *const u8);
    // SAFETY: mapped by the call above with this size, and not used any more.
    unsafe { libc::munmap(ring as *mut _, 2 * PAGE) };
    Ok(counted)
}

/// Counts the records of a ring that is written backwards, from the newest on.
fn count(ring: *const u8) -> (u32, u32) {
    // SAFETY: the control page is mapped, `data_head` is an aligned 64-bit word in it that
    // the kernel writes, hence the atomic.
    let head = unsafe { &*ring.add(DATA_HEAD).cast::<AtomicU64>() };
    // Acquire: pairs with the kernel's store of the head after the records.
    let written = head.load(Ordering::Acquire).wrapping_neg();
    let written = usize::try_from(written).map_or(PAGE, |written| written.min(PAGE));
    let (mut blocked, mut preempted, mut at) = (0, 0, PAGE - written);
    while at + 8 <= PAGE {
        // SAFETY: records are 8-byte aligned, the header is 8 bytes, and `at + 8` is within
        // the data page, which follows the control page.
        let (kind, misc, size) = unsafe {
            let header = ring.add(PAGE + at);
            (
                header.cast::<u32>().read(),
                header.add(4).cast::<u16>().read(),
                header.add(6).cast::<u16>().read(),
            )
        };
        if kind == PERF_RECORD_SWITCH && misc & SWITCH_OUT != 0 {
            if misc & SWITCH_OUT_PREEMPT != 0 {
                preempted += 1;
            } else {
                blocked += 1;
            }
        }
        if size == 0 {
            break;
        }
        at += usize::from(size);
    }
    (blocked, preempted)
}
