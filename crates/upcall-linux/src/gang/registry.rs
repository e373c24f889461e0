//! The memory that one user's processes share to take turns.
//!
//! A file in `/dev/shm`, named after the layout's version, the user and the pid namespace, which
//! nobody else can open. It holds a header and one [`Slot`] a process; zeros are the valid
//! beginning, so creating it needs no order among the creators. Every word is a hint: it is
//! read as a number, bounded, and can cost no more than a turn (see [`super::policy`]). A slot
//! whose process is gone is taken by the next one that needs it; the file stays.
//!
//! Not defended against: the same user cutting the file short, which kills the processes that
//! have mapped it. That user can kill them anyway.
//!
//! Rejected: a lock held by each member, which would tell the death of a process: a child of
//! fork inherits it, and a stopped process keeps it. Rejected: a name from the environment
//! (`XDG_RUNTIME_DIR`): two processes with different ones would not see each other.

#[cfg(not(any(loom, shuttle)))]
use core::mem::offset_of;
use core::ptr;

use upcall_core::sync::{AtomicU32, AtomicU64, Ordering};

use super::policy::{Member, Phase, Set};
use crate::memory;
use crate::procfs::Path;
use crate::sys::{self, error};

/// Processes that can take part; the others are scheduled by the kernel alone.
pub const SLOTS: usize = 64;

const MAGIC: u64 = 0x7570_6361_6c6c_6731;
const MODE: u32 = 0o600;
const ESRCH: i32 = libc::ESRCH;
const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const NAME: &[u8] = b"/dev/shm/upcall-turns-1-";

/// What one process publishes.
#[repr(C, align(128))]
pub struct Slot {
    /// The process; 0: free.
    pid: AtomicU32,
    /// Counts the changes that concern it; it sleeps on this word.
    bell: AtomicU32,
    /// 0, or since when it has its turn.
    on: AtomicU64,
    /// 0, or since when it waits.
    waiting: AtomicU64,
    /// 0, or when it was offered the turn.
    offered: AtomicU64,
    /// When it was last heard of.
    beat: AtomicU64,
    /// Not 0: a competitor waits.
    wanted: AtomicU64,
    busy: [AtomicU64; Set::WORDS],
}

#[repr(C, align(128))]
struct Shared {
    magic: AtomicU64,
    size: AtomicU64,
    /// No slot from here on was ever taken.
    nr_used: AtomicU32,
    slots: [Slot; SLOTS],
}

const SIZE: usize = size_of::<Shared>();
#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(size_of::<Slot>() == 128);
    assert!(offset_of!(Slot, bell) == 4);
    assert!(offset_of!(Slot, busy) == 48);
    assert!(offset_of!(Shared, slots) == 128);
    assert!(SIZE == 128 * (SLOTS + 1));
};

/// Why there is no registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The file cannot be opened or mapped: the error number.
    Open(i32),
    /// The file there is another user's, or others may use it too.
    NotOurs,
    /// The file there has another layout.
    Layout,
    /// All slots are taken by living processes.
    Full,
}

/// This process's place among the others.
pub struct Registry {
    shared: &'static Shared,
    id: u32,
}

impl Registry {
    /// Joins the registry of the calling process's user.
    ///
    /// # Errors
    ///
    /// [`Trouble`].
    pub fn join(pid: i32) -> Result<Self, Trouble> {
        Self::join_at(&name(), pid)
    }

    /// As [`Registry::join`], in this file.
    fn join_at(path: &Path, pid: i32) -> Result<Self, Trouble> {
        let shared = attach(path)?;
        let Some(registry) = Self::take(shared, pid) else {
            detach(shared);
            return Err(Trouble::Full);
        };
        memory::note(ptr::from_ref(shared) as usize, SIZE);
        Ok(registry)
    }

    /// Takes a slot of nobody's, or of one that is gone.
    fn take(shared: &'static Shared, pid: i32) -> Option<Self> {
        for id in 0..SLOTS as u32 {
            let slot = &shared.slots[id as usize];
            let owner = slot.pid.load(Ordering::Acquire);
            // The same number: what this process was before it executed another program.
            if (owner == 0 || owner == pid as u32 || !is_alive(owner))
                && slot
                    .pid
                    .compare_exchange(owner, pid as u32, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                shared.nr_used.fetch_max(id + 1, Ordering::AcqRel);
                let registry = Registry { shared, id };
                registry.publish(Phase::Resting);
                for word in &slot.busy {
                    word.store(0, Ordering::Relaxed);
                }
                return Some(registry);
            }
        }
        None
    }

    /// Gives the slot back.
    pub fn leave(&self) {
        self.publish(Phase::Resting);
        self.publish_busy(Set::default());
        // Release: the slot is clean for the next one.
        self.own().pid.store(0, Ordering::Release);
    }

    /// Its place.
    pub fn id(&self) -> u32 {
        self.id
    }

    fn own(&self) -> &'static Slot {
        &self.shared.slots[self.id as usize]
    }

    /// This process as the others see it.
    pub fn me(&self) -> Member {
        self.own().read(self.id)
    }

    /// Reads the other members that have something to say into `room`; returns how many.
    pub fn others(&self, room: &mut [Member; SLOTS]) -> usize {
        let nr_used = self.shared.nr_used.load(Ordering::Acquire) as usize;
        let mut count = 0;
        for (id, slot) in self.shared.slots.iter().enumerate().take(nr_used) {
            if id as u32 != self.id && slot.pid.load(Ordering::Acquire) != 0 {
                let member = slot.read(id as u32);
                if !member.busy.is_empty() {
                    room[count] = member;
                    count += 1;
                }
            }
        }
        count
    }

    /// Publishes the phase.
    pub fn publish(&self, phase: Phase) {
        let (on, waiting, offered) = match phase {
            Phase::Resting => (0, 0, 0),
            Phase::On { since } => (since, 0, 0),
            Phase::Waiting { since, offered } => (0, since, offered),
        };
        let own = self.own();
        own.offered.store(offered, Ordering::Relaxed);
        own.waiting.store(waiting, Ordering::Relaxed);
        // SeqCst: before this member looks at the others again.
        own.on.store(on, Ordering::SeqCst);
        if on == 0 {
            own.wanted.store(0, Ordering::Relaxed);
        }
    }

    /// Publishes the processors in continuous use.
    pub fn publish_busy(&self, busy: Set) {
        for (word, value) in self.own().busy.iter().zip(busy.0) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Lets the others know that this process runs.
    pub fn beat(&self, now: u64) {
        self.own().beat.store(now, Ordering::Relaxed);
    }

    /// Notes that this process waits for `id`'s processors.
    pub fn want(&self, id: u32) {
        if let Some(slot) = self.shared.slots.get(id as usize) {
            slot.wanted.store(1, Ordering::Relaxed);
        }
    }

    /// Whether somebody said so of this one.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.own().wanted.load(Ordering::Relaxed) != 0
    }

    /// Nobody does any more.
    pub fn clear_wanted(&self) {
        self.own().wanted.store(0, Ordering::Relaxed);
    }

    /// Offers a waiting member the turn.
    pub fn offer(&self, id: u32, now: u64) {
        if let Some(slot) = self.shared.slots.get(id as usize) {
            // An older offer without an answer stands.
            let _ = slot
                .offered
                .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            slot.ring();
        }
    }

    /// Wakes a member that sleeps until something changes.
    pub fn ring(&self, id: u32) {
        if let Some(slot) = self.shared.slots.get(id as usize) {
            slot.ring();
        }
    }

    /// The value for [`Registry::sleep`]. Read before looking whether there is a reason not to.
    pub fn bell(&self) -> u32 {
        self.own().bell.load(Ordering::SeqCst)
    }

    /// Sleeps until somebody rings, a signal comes, or `nanoseconds` have passed.
    pub fn sleep(&self, bell: u32, nanoseconds: u64) {
        let time = libc::timespec {
            tv_sec: (nanoseconds / 1_000_000_000) as i64,
            tv_nsec: (nanoseconds % 1_000_000_000) as i64,
        };
        // SAFETY: the word is mapped for ever; reads the time.
        unsafe {
            sys!(
                sys::SYS_futex,
                self.own().bell.as_ptr(),
                FUTEX_WAIT,
                bell,
                &raw const time
            )
        };
    }

    /// Frees the slot of a member whose process is gone; says whether it was.
    pub fn bury(&self, id: u32) -> bool {
        let Some(slot) = self.shared.slots.get(id as usize) else {
            return false;
        };
        let pid = slot.pid.load(Ordering::Acquire);
        if pid == 0 || is_alive(pid) {
            return false;
        }
        // Not reset but freed: it may have been taken by a new process in between.
        slot.pid
            .compare_exchange(pid, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

impl Slot {
    fn read(&self, id: u32) -> Member {
        let on = self.on.load(Ordering::SeqCst);
        let waiting = self.waiting.load(Ordering::Relaxed);
        Member {
            id,
            busy: Set(core::array::from_fn(|at| {
                self.busy[at].load(Ordering::Relaxed)
            })),
            phase: match (on, waiting) {
                (0, 0) => Phase::Resting,
                (0, since) => Phase::Waiting {
                    since,
                    offered: self.offered.load(Ordering::Relaxed),
                },
                (since, _) => Phase::On { since },
            },
            beat: self.beat.load(Ordering::Relaxed),
        }
    }

    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::SeqCst);
        // SAFETY: wakes on a mapped word; touches no memory.
        unsafe { sys!(sys::SYS_futex, self.bell.as_ptr(), FUTEX_WAKE, i32::MAX) };
    }
}

/// Whether there is such a process, as far as this one may know.
fn is_alive(pid: u32) -> bool {
    // A number that no process can have would name groups of processes.
    let Ok(pid @ 1..) = i32::try_from(pid) else {
        return false;
    };
    // SAFETY: signal 0 only asks.
    let answer = unsafe { sys!(libc::SYS_kill, pid, 0) };
    error(answer) != Some(ESRCH)
}

/// Opens, checks and maps the file.
fn attach(path: &Path) -> Result<&'static Shared, Trouble> {
    // SAFETY: the path ends with a zero; a new descriptor, closed here; a new mapping.
    unsafe {
        let file = sys!(
            sys::SYS_openat,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_CLOEXEC,
            MODE
        );
        if let Some(number) = error(file) {
            // In a sticky directory the kernel may refuse another's file at once; but where
            // nothing has that name, the directory itself is closed to this user.
            return Err(match number {
                libc::ELOOP => Trouble::NotOurs,
                libc::EACCES if exists(path) => Trouble::NotOurs,
                other => Trouble::Open(other),
            });
        }
        let answer = map(file);
        sys!(sys::SYS_close, file);
        answer
    }
}

/// Whether anything has that name, a symbolic link too.
fn exists(path: &Path) -> bool {
    // SAFETY: the path ends with a zero; all-zero is a valid stat, which the call fills in.
    let answer = unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        sys!(
            libc::SYS_newfstatat,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut status,
            libc::AT_SYMLINK_NOFOLLOW
        )
    };
    error(answer).is_none()
}

/// # Safety
///
/// `file` is an open descriptor.
unsafe fn map(file: isize) -> Result<&'static Shared, Trouble> {
    // SAFETY: all-zero is a valid stat; fstat fills it in.
    let (status, answer) = unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        let answer = sys!(libc::SYS_fstat, file, &raw mut status);
        (status, answer)
    };
    if let Some(number) = error(answer) {
        return Err(Trouble::Open(number));
    }
    // SAFETY: asks only.
    let user = unsafe { sys!(libc::SYS_geteuid) } as u32;
    if status.st_uid != user
        || status.st_mode & libc::S_IFMT != libc::S_IFREG
        || status.st_mode & 0o077 != 0
    {
        return Err(Trouble::NotOurs);
    }
    if status.st_size != 0 && status.st_size != SIZE as i64 {
        return Err(Trouble::Layout);
    }
    // SAFETY: sets the size, which it has or which is 0; a new mapping of exactly that file.
    let place = unsafe {
        if let Some(number) = error(sys!(libc::SYS_ftruncate, file, SIZE)) {
            return Err(Trouble::Open(number));
        }
        sys!(
            sys::SYS_mmap,
            0,
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file,
            0
        )
    };
    if let Some(number) = error(place) {
        return Err(Trouble::Open(number));
    }
    // SAFETY: mapped for ever (but for `detach`), page-aligned, and any bytes are valid atomics. A
    // child of fork must not have it: its slot is the parent's.
    let shared = unsafe {
        sys!(sys::SYS_madvise, place, SIZE, libc::MADV_DONTFORK);
        &*(place as *const Shared)
    };
    let agreed = |word: &AtomicU64, value: u64| match word.compare_exchange(
        0,
        value,
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => true,
        Err(there) => there == value,
    };
    if agreed(&shared.magic, MAGIC) && agreed(&shared.size, SIZE as u64) {
        Ok(shared)
    } else {
        detach(shared);
        Err(Trouble::Layout)
    }
}

fn detach(shared: &'static Shared) {
    // SAFETY: nobody else has a reference to a registry that was not joined.
    unsafe { sys!(sys::SYS_munmap, core::ptr::from_ref(shared), SIZE) };
}

/// The file's path: the user and the pid namespace follow the constant.
fn name() -> Path {
    // SAFETY: asks only.
    let user = unsafe { sys!(libc::SYS_geteuid) } as u32;
    let mut name = Path::new().text(NAME).number(user).text(b"-");
    // "pid:[4026531836]"; without procfs all namespaces look the same, and numbers may mislead
    // about who is alive, which costs turns.
    let mut link = [0u8; 32];
    // SAFETY: writes at most the size given.
    let length = unsafe {
        sys!(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            c"/proc/self/ns/pid".as_ptr(),
            link.as_mut_ptr(),
            link.len()
        )
    };
    for byte in link.iter().take(length.max(0) as usize) {
        if byte.is_ascii_digit() {
            name = name.text(&[*byte]);
        }
    }
    name
}

/// Whether the registry can be used, and how many living processes are in it: for `doctor`.
///
/// # Errors
///
/// [`Trouble`].
pub fn look() -> Result<usize, Trouble> {
    let shared = attach(&name())?;
    let living = shared
        .slots
        .iter()
        .map(|slot| slot.pid.load(Ordering::Relaxed))
        .filter(|&pid| pid != 0 && is_alive(pid))
        .count();
    detach(shared);
    if living < SLOTS {
        Ok(living)
    } else {
        Err(Trouble::Full)
    }
}

/// The path as text, for those who report about it.
pub fn path() -> String {
    String::from_utf8_lossy(name().as_bytes()).into_owned()
}

#[cfg(fuzzing)]
#[path = "registry_fuzzing.rs"]
pub mod fuzzing;
#[cfg(all(test, not(any(loom, shuttle))))]
#[path = "hostile_tests.rs"]
mod hostile_tests;
#[cfg(all(test, shuttle))]
#[path = "registry_models.rs"]
mod models;
#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
