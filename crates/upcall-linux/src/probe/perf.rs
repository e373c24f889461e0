//! The perf switch ring: an unprivileged record of every context switch of one's own thread.
//!
//! The record says whether the switch was a preemption, which is the question that the
//! standby has to answer. No one is woken by it; it is read from memory. Needs
//! `perf_event_paranoid` of 2 or less, or CAP_PERFMON.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Finding, os_error};

const NAME: &str = "perf-switch-ring";
const PAGE: usize = 4096;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_FLAG_FD_CLOEXEC: u64 = 8;
const PERF_RECORD_SWITCH: u32 = 14;
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;

const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const WATERMARK: u64 = 1 << 14;
const CONTEXT_SWITCH: u64 = 1 << 26;

/// `struct perf_event_attr`, version 5 (112 bytes); what is not used is zero.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    rest: [u32; 15],
}
const _: () = assert!(size_of::<Attributes>() == 112);

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
        Err((what, error)) => Finding::fails(
            NAME,
            format!("{what}: {error}; kernel.perf_event_paranoid is {paranoid}"),
            remedy,
        ),
    }
}

fn paranoid() -> String {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .map_or_else(|_| "unreadable".into(), |text| text.trim().to_owned())
}

/// Records of (blocked, preempted) that one short sleep leaves.
fn switch_records() -> Result<(u32, u32), (&'static str, std::io::Error)> {
    let attributes = Attributes {
        kind: PERF_TYPE_SOFTWARE,
        size: 112,
        config: PERF_COUNT_SW_DUMMY,
        flags: EXCLUDE_KERNEL | EXCLUDE_HV | WATERMARK | CONTEXT_SWITCH,
        wakeup_watermark: i32::MAX.unsigned_abs(),
        ..Attributes::default()
    };
    // SAFETY: `attributes` is valid and says its own size; pid 0 is this thread.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            0,
            -1,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if event < 0 {
        return Err(("perf_event_open", os_error()));
    }
    let event = i32::try_from(event).expect("a descriptor fits");
    // SAFETY: a fresh shared mapping of the event's control page and one data page.
    let ring = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            2 * PAGE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            event,
            0,
        )
    };
    let counted = if ring == libc::MAP_FAILED {
        Err(("mmap of the perf ring", os_error()))
    } else {
        std::thread::sleep(std::time::Duration::from_millis(1));
        let counted = count(ring.cast());
        // SAFETY: mapped above with this size, and not used any more.
        unsafe { libc::munmap(ring, 2 * PAGE) };
        Ok(counted)
    };
    // SAFETY: opened above, and not used any more.
    unsafe { libc::close(event) };
    counted
}

fn count(ring: *const u8) -> (u32, u32) {
    // SAFETY: the control page is mapped, `data_head` is an aligned 64-bit word in it that
    // the kernel writes, hence the atomic.
    let head = unsafe { &*ring.add(DATA_HEAD).cast::<AtomicU64>() };
    // Acquire: pairs with the kernel's store of the head after the records.
    let end = usize::try_from(head.load(Ordering::Acquire)).unwrap_or(0);
    let (mut blocked, mut preempted, mut at) = (0, 0, 0);
    while at + 8 <= end.min(PAGE) {
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
