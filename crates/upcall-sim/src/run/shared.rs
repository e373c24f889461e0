//! Memory in which a worker tells its parent where it is and what failed.

use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::setup::plan::Plan;

const PLAN: usize = 256;
const TEXT: usize = 1 << 16;

/// The worker writes, the parent reads when it has ended: Relaxed is enough.
#[repr(C)]
struct Page {
    points: AtomicU64,
    draws: AtomicU64,
    sum: AtomicU64,
    plan_length: AtomicUsize,
    text_length: AtomicUsize,
    plan: [u8; PLAN],
    text: [u8; TEXT],
}

/// The memory.
pub(crate) struct Shared(*mut Page);

impl Shared {
    pub(crate) fn new() -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let page =
            unsafe { libc::mmap(ptr::null_mut(), size_of::<Page>(), protection, kind, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED, "no memory for a worker");
        Shared(page.cast())
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped, zeroed, which is a page; written by one process, and read by the other
        // afterwards.
        unsafe { &*self.0 }
    }

    pub(crate) fn begin(&self, plan: &Plan) {
        let text = plan.to_string();
        let length = text.len().min(PLAN);
        // SAFETY: in bounds; only the worker is here now.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), (&raw mut (*self.0).plan).cast(), length)
        };
        self.page().plan_length.store(length, Ordering::Relaxed);
    }

    /// Adds to what is wrong.
    pub(crate) fn tell(&self, what: &str) {
        let before = self.page().text_length.load(Ordering::Relaxed);
        let length = what.len().min(TEXT - before);
        // SAFETY: in bounds; only the worker is here now.
        unsafe {
            let text = (&raw mut (*self.0).text).cast::<u8>().add(before);
            ptr::copy_nonoverlapping(what.as_ptr(), text, length);
        }
        self.page()
            .text_length
            .store(before + length, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, points: u64, draws: u64) {
        self.page().points.store(points, Ordering::Relaxed);
        self.page().draws.store(draws, Ordering::Relaxed);
    }

    /// Adds what an attempt said.
    pub(crate) fn add(&self, number: u64) {
        self.page().sum.fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.page().sum.load(Ordering::Relaxed)
    }

    pub(crate) fn points(&self) -> u64 {
        self.page().points.load(Ordering::Relaxed)
    }

    pub(crate) fn draws(&self) -> u64 {
        self.page().draws.load(Ordering::Relaxed)
    }

    /// Which run was begun last.
    ///
    /// # Panics
    ///
    /// When none was.
    pub(crate) fn plan(&self) -> Plan {
        let page = self.page();
        let text = &page.plan[..page.plan_length.load(Ordering::Relaxed)];
        let plan = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        plan.expect("a worker began a run")
    }

    pub(crate) fn text(&self) -> String {
        let page = self.page();
        let text = &page.text[..page.text_length.load(Ordering::Relaxed)];
        String::from_utf8_lossy(text).into_owned()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody refers to any more.
        unsafe { libc::munmap(self.0.cast(), size_of::<Page>()) };
    }
}
