//! How the complete vector state is saved on this machine.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Bytes that a wide entry reserves: a multiple of 64. The default is FXSAVE's area and header.
pub(super) static WIDE_SIZE: AtomicU64 = AtomicU64::new(576);
/// The state components that are saved.
pub(super) static WIDE_MASK: AtomicU32 = AtomicU32::new(0);
/// The instruction: [`FXSAVE`], [`XSAVE`] or [`XSAVEC`].
pub(super) static WIDE_KIND: AtomicU32 = AtomicU32::new(FXSAVE);

pub(super) const FXSAVE: u32 = 0;
pub(super) const XSAVE: u32 = 1;
pub(super) const XSAVEC: u32 = 2;

/// x87, xmm, ymm, mask registers, zmm. Not the protection keys (a thread's own business) and
/// not tiles (sites that could need them are refused).
const COMPONENTS: u32 = 0xe7;

/// True if the processor was asked.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);

/// Asks the processor once which state exists. Call before the first stub with a wide entry can run. In a virtual machine
/// each question takes microseconds.
///
/// # Upcall safety
/// Everywhere.
pub fn setup() {
    const OSXSAVE: u32 = 1 << 27;
    if IS_KNOWN.swap(true, Ordering::Relaxed) {
        return;
    }
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return;
    }
    let enabled: u32;
    // SAFETY: OSXSAVE says that xgetbv exists; it reads XCR0 and writes eax and edx only.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") enabled, out("edx") _,
            options(nomem, nostack, preserves_flags));
    }
    let mask = enabled & COMPONENTS;
    let mut size = 576;
    for component in (2..8).filter(|c| mask & (1 << c) != 0) {
        let leaf = __cpuid_count(0xd, component);
        size = size.max(leaf.eax + leaf.ebx);
    }
    const HAS_XSAVEC: u32 = 1 << 1;
    let compact = __cpuid_count(0xd, 1).eax & HAS_XSAVEC != 0;
    WIDE_SIZE.store(u64::from(size).next_multiple_of(64), Ordering::Relaxed);
    WIDE_MASK.store(mask, Ordering::Relaxed);
    WIDE_KIND.store(if compact { XSAVEC } else { XSAVE }, Ordering::Relaxed);
}
