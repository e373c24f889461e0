//! Tells *blocked* from *preempted*: what the standby asks about the owner.
//!
//! | probe | cost | needs |
//! |---|---|---|
//! | the page that `upcalld` has the kernel write ([`page`](crate::page)) | a memory read | a daemon of root |
//! | perf switch ring: the newest record of a ring that never wakes anybody | a memory read; 0.25 µs more for each context switch | perf_event_paranoid ≤ 2 |
//! | `/proc/self/task/T/syscall` | 0.5 to 0.8 µs | procfs, and a process that may be dumped: see prctl(2), PR_SET_DUMPABLE |
//! | `/proc/self/task/T/stat` | 2.5 µs | procfs |
//! | its processor time: did it run while the standby yielded three times? | 0.5 µs for each yield | nothing |
//!
//! The page is asked first where there is one. procfs is the default. The kernel writes a record of the perf ring at every context switch, so the ring delays every
//! upcall and every unblocking (measured: 1.2 to 1.4 µs instead of 0.9 to 1.2 for the latter). The file is read only when
//! the standby runs.
//!
//! If the owner has announced a system call and other threads are ready, nothing is read. A wrong *blocked* then costs
//! one upcall for nothing. An owner that blocked in program code (a page fault) does not know that it was replaced. A
//! signal may tell it, unless that would cut its wait short: `/proc/self/task/T/stat` says which.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use upcall_core::Waiting;
use upcall_core::numbered::{AtomicEnum, numbered_enum};

use crate::sys::procfs::Path;
use crate::sys::{self, descriptors, error, processor_time};

numbered_enum! {
    /// A way to learn whether an activation is blocked.
    #[derive(Default)]
    pub enum Probe {
        /// None: there is no kernel thread.
        #[default]
        None = 0,
        /// perf_event_open(2) with context-switch records.
        Perf = 1,
        /// /proc/self/task/T/syscall.
        Proc = 2,
        /// Its processor time across yields of the standby.
        Yields = 3,
        /// /proc/self/task/T/stat.
        Stat = 4,
    }
}

const PAGE: usize = 4096;
const PERF_RECORD_MISC_SWITCH_OUT: u16 = 1 << 13;
const PERF_RECORD_MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;
const PERF_FLAG_FD_CLOEXEC: usize = 8;
const DATA_HEAD: usize = 1024;
const RECORD_ALIGN: usize = 8;

/// perf_event_attr, version 0 and a little: 112 bytes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    rest: [u32; 15],
}

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const WATERMARK: u64 = 1 << 14;
const CONTEXT_SWITCH: u64 = 1 << 26;
const WRITE_BACKWARD: u64 = 1 << 27;

/// Opens a ring of context-switch records of the calling kernel thread, newest first, that never
/// wakes anybody. Returns its address: `place`, over what is mapped there, unless that is 0.
///
/// # Errors
///
/// The error number: `EACCES` where perf_event_paranoid forbids it, `EPERM` at the limit of locked
/// memory, `ENOSYS` without perf.
///
/// # Safety
///
/// `place` is 0 or what an earlier call returned, and nobody relies on its contents.
pub unsafe fn open_switch_ring(place: usize) -> Result<usize, i32> {
    let attributes = Attributes {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: PERF_COUNT_SW_DUMMY,
        flags: EXCLUDE_KERNEL | EXCLUDE_HV | WATERMARK | CONTEXT_SWITCH | WRITE_BACKWARD,
        wakeup_watermark: 0x7fff_ffff,
        ..Attributes::default()
    };
    let _opening = descriptors::opening();
    // SAFETY: reads the attributes; a new descriptor; a new mapping, or one over an old one of ours.
    unsafe {
        let descriptor = sys!(
            sys::SYS_perf_event_open,
            &raw const attributes,
            0,
            usize::MAX,
            usize::MAX,
            PERF_FLAG_FD_CLOEXEC
        );
        if let Some(number) = error(descriptor) {
            return Err(number);
        }
        let ring = sys!(
            sys::SYS_mmap,
            place,
            2 * PAGE,
            libc::PROT_READ,
            libc::MAP_SHARED | fixed(place),
            descriptor,
            0
        );
        // The mapping keeps the event alive.
        sys!(sys::SYS_close, descriptor);
        match error(ring) {
            Some(number) => Err(number),
            None => Ok(ring as usize),
        }
    }
}

fn fixed(place: usize) -> i32 {
    if place == 0 { 0 } else { libc::MAP_FIXED }
}

/// What is kept to observe one activation.
#[derive(Default)]
pub struct Observer {
    /// Address of the perf ring, or 0. Stays mapped for ever: an observer may look at an activation
    /// that has been replaced and has ended since; then it finds an empty ring.
    ring: AtomicUsize,
    /// Descriptors of `syscall` and `stat` in `/proc/self/task/T` plus one, or 0: opened when first
    /// needed.
    syscall_file: AtomicI32,
    stat_file: AtomicI32,
    probe: AtomicEnum<Probe>,
    /// For [`Probe::Yields`]: its processor time at the last look, nanoseconds, and looks since that
    /// found the same.
    ran_ns: AtomicU64,
    looks: AtomicU32,
}

impl Observer {
    /// Prepares to be observed. Called by the activation's own kernel thread.
    pub(crate) fn open(&self, probe: Probe) {
        let mut probe = probe;
        if probe == Probe::Perf {
            // SAFETY: the place is this observer's own, and the last kernel thread has closed it.
            match unsafe { open_switch_ring(self.ring.load(Ordering::Relaxed)) } {
                Ok(ring) => self.ring.store(ring, Ordering::Relaxed),
                // Out of locked memory with many activations: this one is observed otherwise.
                Err(_) => {
                    self.empty_ring();
                    probe = Probe::Proc;
                }
            }
        }
        self.probe.store(probe, Ordering::Release);
    }

    /// The kernel thread ends.
    pub(crate) fn close(&self) {
        self.probe.store(Probe::None, Ordering::Relaxed);
        self.empty_ring();
        for file in [&self.syscall_file, &self.stat_file] {
            let file = file.swap(0, Ordering::Relaxed);
            if file != 0 {
                descriptors::give_back(file - 1);
            }
        }
    }

    /// Puts empty memory in the place of the ring, which ends the event.
    fn empty_ring(&self) {
        let ring = self.ring.load(Ordering::Relaxed);
        if ring == 0 {
            return;
        }
        // SAFETY: over the ring, which is ours.
        unsafe {
            sys!(
                sys::SYS_mmap,
                ring,
                2 * PAGE,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                usize::MAX,
                0
            )
        };
    }

    /// Whether the activation, whose kernel thread this is, is blocked. Called by the standby. `page`: what the page says,
    /// if it says anything.
    pub(crate) fn is_blocked(
        &self,
        tid: i32,
        cheap_doubt: bool,
        page: impl FnOnce() -> Option<bool>,
    ) -> bool {
        match self.probe.load(Ordering::Acquire) {
            Probe::Perf => self.switched_out(),
            Probe::Proc => cheap_doubt || page().unwrap_or_else(|| self.waits_in_kernel(tid)),
            Probe::Stat => cheap_doubt || page().unwrap_or_else(|| self.sleeps(tid)),
            Probe::Yields => page().unwrap_or_else(|| {
                self.has_not_run(tid)
                    && (cheap_doubt || self.state(tid).is_none_or(|it| it != b'R'))
            }),
            Probe::None => false,
        }
    }

    /// How it waits. Called for one that was found blocked.
    pub(crate) fn waiting(&self, tid: i32) -> Waiting {
        match self.state(tid) {
            // Without procfs the kind of wait is unknown: no signal may be risked.
            None | Some(b'S') => Waiting::Interruptible,
            Some(_) => Waiting::Deaf,
        }
    }

    /// Whether the newest record says that the kernel thread went to sleep.
    fn switched_out(&self) -> bool {
        let ring = self.ring.load(Ordering::Relaxed);
        // SAFETY: the ring is mapped while the activation exists: a control page and a data page.
        unsafe { went_to_sleep(ring) }
    }

    /// Whether its processor time is the same for the third time in a row, between which the
    /// standby let others run.
    fn has_not_run(&self, tid: i32) -> bool {
        const LOOKS: u32 = 3;
        let ran = processor_time(tid);
        if self.ran_ns.swap(ran, Ordering::Relaxed) != ran {
            self.looks.store(0, Ordering::Relaxed);
            return false;
        }
        if self.looks.fetch_add(1, Ordering::Relaxed) + 1 < LOOKS {
            return false;
        }
        self.looks.store(0, Ordering::Relaxed);
        true
    }

    /// `/proc/self/task/T/syscall`: "running", or the call's number, or -1 outside of any call. When
    /// it cannot be read (the program has used up its descriptors), its processor time.
    fn waits_in_kernel(&self, tid: i32) -> bool {
        let mut text = [0u8; 16];
        match read_task_file(&self.syscall_file, tid, b"syscall\0", &mut text) {
            Ok([b'-' | b'0'..=b'9', ..]) => true,
            Ok(_) => false,
            // A server that has given up the superuser's rights is refused its own file.
            Err(libc::EACCES | libc::EPERM) => {
                self.probe.store(Probe::Stat, Ordering::Release);
                self.sleeps(tid)
            }
            Err(_) => self.has_not_run(tid),
        }
    }

    /// Whether `/proc/self/task/T/stat` has another state than `R`. When it cannot be read, its processor time.
    fn sleeps(&self, tid: i32) -> bool {
        match self.state(tid) {
            Some(state) => state != b'R',
            None => self.has_not_run(tid),
        }
    }

    /// The state in `/proc/self/task/T/stat`: `R`, `S`, `D`, …
    fn state(&self, tid: i32) -> Option<u8> {
        let mut text = [0u8; 64];
        state_in(read_task_file(&self.stat_file, tid, b"stat\0", &mut text).ok()?)
    }
}

/// Whether the newest record of the ring says that its kernel thread went to sleep.
///
/// # Safety
///
/// Two pages are mapped there. They may hold anything: the program can write what is mapped.
pub(crate) unsafe fn went_to_sleep(ring: usize) -> bool {
    // SAFETY: the caller's promise.
    let head = unsafe { &*((ring + DATA_HEAD) as *const AtomicU64) }.load(Ordering::Acquire);
    if head == 0 {
        return false;
    }
    // Records begin at multiples of eight bytes; so this one's header lies within the page.
    let record = ring + PAGE + (head as usize & (PAGE - RECORD_ALIGN));
    // SAFETY: see above. perf_event_header: type (32 bits), misc (16), size (16).
    let misc = unsafe { ((record + 4) as *const u16).read_volatile() };
    misc & PERF_RECORD_MISC_SWITCH_OUT != 0 && misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT == 0
}

/// The state in the beginning of a `stat` file.
pub(crate) fn state_in(text: &[u8]) -> Option<u8> {
    // It follows the name, which is in parentheses and may contain some.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    text.get(end + 2).copied()
}

/// Reads the beginning of a file in `/proc/self/task/T`, which stays open in `file`. Returns the error number if that
/// fails.
fn read_task_file<'a>(
    file: &AtomicI32,
    tid: i32,
    name: &[u8],
    text: &'a mut [u8],
) -> Result<&'a [u8], i32> {
    if file.load(Ordering::Relaxed) == 0 {
        let opening = descriptors::opening();
        let kept = descriptors::keep_many(open_task_file(tid, name)?);
        drop(opening);
        match kept {
            Ok(kept) => file.store(kept + 1, Ordering::Relaxed),
            // No room among our own descriptors, with many blocked activations: for this once.
            Err(_) => return read_once(tid, name, text),
        }
    }
    let read = read_beginning(file.load(Ordering::Relaxed) - 1, text);
    if read.is_err() {
        // Opened for a kernel thread that has ended since: the next look opens it anew.
        let stale = file.swap(0, Ordering::Relaxed);
        if stale != 0 {
            descriptors::give_back(stale - 1);
        }
    }
    read
}

/// Reads the beginning of such a file, which does not stay open.
#[cold]
fn read_once<'a>(tid: i32, name: &[u8], text: &'a mut [u8]) -> Result<&'a [u8], i32> {
    let _opening = descriptors::opening();
    let file = open_task_file(tid, name)?;
    let read = read_beginning(file as i32, text);
    // SAFETY: opened here.
    unsafe { sys!(sys::SYS_close, file) };
    read
}

fn read_beginning(file: i32, text: &mut [u8]) -> Result<&[u8], i32> {
    // SAFETY: writes at most the size given.
    let read = unsafe { sys!(sys::SYS_pread64, file, text.as_mut_ptr(), text.len(), 0) };
    succeeded(read).map(|length| &text[..length as usize])
}

fn succeeded(answer: sys::Answer) -> Result<sys::Answer, i32> {
    error(answer).map_or(Ok(answer), Err)
}

fn open_task_file(tid: i32, name: &[u8]) -> Result<sys::Answer, i32> {
    let path = Path::new()
        .text(b"/proc/self/task/")
        .number(tid.unsigned_abs())
        .text(b"/")
        .text(name);
    // SAFETY: the path is NUL-terminated.
    let opened = unsafe {
        sys!(
            sys::SYS_openat,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC
        )
    };
    succeeded(opened)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A control page, a page of records, and what lies behind them.
    #[repr(C, align(4096))]
    struct Ring([[u8; PAGE]; 3]);

    fn ring_with(head: u64, record_at: usize, misc: u16) -> Box<Ring> {
        let mut ring = Box::new(Ring([[0; PAGE]; 3]));
        ring.0[0][DATA_HEAD..][..8].copy_from_slice(&head.to_ne_bytes());
        ring.0[1][record_at + 4..][..2].copy_from_slice(&misc.to_ne_bytes());
        ring
    }

    fn says_asleep(ring: &Ring) -> bool {
        // SAFETY: two pages and more.
        unsafe { went_to_sleep(ring.0.as_ptr() as usize) }
    }

    #[test]
    fn the_newest_record_says_whether_it_sleeps() {
        let at = |head: i64, misc| says_asleep(&ring_with(head as u64, 40, misc));
        assert!(at(40, PERF_RECORD_MISC_SWITCH_OUT));
        // The kernel counts down from zero.
        assert!(at(40 - 4096 * 3, PERF_RECORD_MISC_SWITCH_OUT));
        let preempted = PERF_RECORD_MISC_SWITCH_OUT | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
        assert!(!at(40, preempted) && !at(40, 0));
        assert!(!says_asleep(&ring_with(0, 0, PERF_RECORD_MISC_SWITCH_OUT)));
    }

    /// The program can make the page writable and put any head there.
    #[test]
    fn a_head_that_points_at_the_end_of_the_ring_is_not_read_behind_it() {
        for head in 4088..=4095 {
            for high in [0, !4095] {
                let ring = ring_with(high | head, 4088, PERF_RECORD_MISC_SWITCH_OUT);
                assert!(says_asleep(&ring), "{head}");
            }
        }
    }

    proptest! {
        /// A kernel thread names itself, with up to fifteen bytes of anything.
        #[test]
        fn no_name_passes_for_a_state(
            tid in 1u32..=u32::MAX >> 1,
            name in prop::collection::vec(any::<u8>(), 0..16),
            state in prop::sample::select(b"RSDTtXZPI".to_vec()),
            cut in 0usize..=64,
        ) {
            let mut text = format!("{tid} (").into_bytes();
            text.extend(&name);
            text.extend(b") ");
            let at = text.len();
            text.push(state);
            text.extend(b" 1 1 1 34817 1 4194304 0 0 0 0 0 0 0 0 20 0");
            text.truncate(64);
            prop_assert_eq!(state_in(&text), Some(state));
            // Cut off, it says nothing, or something of the name, but never more than there is.
            let part = &text[..cut.min(at)];
            prop_assert!(state_in(part).is_none_or(|byte| part.contains(&byte)));
        }
    }

    /// What a process sees that cannot be dumped, as one that has given up rights: its tasks' files are the superuser's.
    #[test]
    fn a_process_that_has_given_up_its_rights_is_observed() {
        // SAFETY: the child leaves by _exit(2).
        let child = unsafe { libc::fork() };
        if child == 0 {
            let passed = std::panic::catch_unwind(observe_without_rights).is_ok();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!passed)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made here.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }

    fn observe_without_rights() {
        const NOBODY: u32 = 65534;
        // SAFETY: bounds this process, and changes what it may do. The last fails where it had no rights before.
        unsafe {
            libc::alarm(60);
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::setresuid(NOBODY, NOBODY, NOBODY);
        }
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // SAFETY: harmless.
            tell.send(unsafe { libc::gettid() }).unwrap();
            loop {
                std::thread::park();
            }
        });
        let sleeper = told.recv().unwrap();
        let observer = Observer::default();
        observer.open(Probe::Proc);
        while !observer.is_blocked(sleeper, false, || None) {
            std::thread::yield_now();
        }
        assert_eq!(observer.probe.load(Ordering::Relaxed), Probe::Stat);
        // SAFETY: harmless.
        let running = unsafe { libc::gettid() };
        let observer = Observer::default();
        observer.open(Probe::Proc);
        assert!((0..10).all(|_| !observer.is_blocked(running, false, || None)));
        observer.close();
    }
}
