//! What the kernel's scheduler says of the process's kernel threads: the page that `upcalld` has BPF programs write.
//!
//! 1. At its start the program asks for the page and does not wait (`ask`).
//! 2. Standbys that the page does not tell look for the answer, ever more seldom, and so does the end of each time slice (`tick`).
//! 3. From then on the page is asked first if an activation is blocked (`says_blocked`). *Blocked* is believed.
//!    *Not blocked* is believed if the asking activation was itself switched in since it asked last: an owner that can run
//!    gets the processor when the standby yields. Otherwise nobody may be writing the page any more, and procfs is asked.
//! 4. Every so often a look at an owner, whoever answers, finds that the daemon is gone, and so does the end of a time slice. Then the
//!    page is not asked any more, and the daemon is asked again from time to time.
//!
//! Nothing in the page leads to an address: the program may have put anything in its place.

use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use upcall_abi::{
    ANSWER_SCHEDULES, ASK_OBSERVE, Answer, Now, OBSERVED_BLOCKED, OBSERVED_READY, OBSERVED_RUNNING,
    OBSERVED_SLOTS, OBSERVED_STOPPED, Observed, Slot,
};
use upcall_core::numbered::{AtomicEnum, numbered_enum};

use crate::sys::descriptors;
use crate::sys::procfs::may_be_filtered;
use crate::sys::vdso;
use crate::turns::daemon::{Again, Place, Raw, Reply, Socket, Whose, place};

/// A daemon that has not answered after so many questions is none.
const MOST_LOOKS: u32 = 1 << 16;
/// After so many looks at an owner, the program looks if the daemon is there. Those that the page answers are among them: as the kernel
/// has left it when the daemon was killed, it may answer for ever. So are those for which it is not asked: there may be no others.
const APART: u32 = 64;

numbered_enum! {
    /// How far it is.
    #[derive(Default)]
    enum Stage {
        /// There is no daemon, or none any more.
        #[default]
        None = 0,
        /// It was asked.
        Asked = 1,
        /// One activation looks or ends the link.
        Busy = 2,
        /// The page is in use.
        Linked = 3,
    }
}

/// The page, if there is one.
#[derive(Default)]
pub(crate) struct Scheduler {
    /// In its place, mapped for ever; null: there is none.
    page: AtomicPtr<Observed>,
    /// This and what follows belong to the activation that has made the stage `Busy`.
    place: Place,
    again: Again,
    generation: AtomicU64,
    /// Of the answer.
    flags: AtomicU32,
    stage: AtomicEnum<Stage>,
    /// Of the daemon, plus one.
    socket: AtomicI32,
    looks: AtomicU32,
    /// Looks at an owner, as far as nobody else counted at the same moment.
    blocks: AtomicU32,
    told: AtomicU64,
    untold: AtomicU64,
}

/// What an activation saw of itself when it asked last.
#[derive(Default)]
pub(crate) struct Seen {
    switches: AtomicU32,
}

/// What the page was good for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// Questions that it answered.
    pub told: u64,
    /// Questions that it did not answer while it was in use.
    pub untold: u64,
    /// How often another program's kernel thread took the processor of a kernel thread of this one, as far as the page knows.
    pub preempted: u64,
}

impl Scheduler {
    /// Asks the daemon, if there is one, and does not wait.
    pub(crate) fn ask(now: u64) -> Self {
        let scheduler = Scheduler::default();
        scheduler.again.begin(now);
        let stage = scheduler.begin_to_ask();
        scheduler.stage.store(stage, Ordering::Release);
        scheduler
    }

    fn begin_to_ask(&self) -> Stage {
        let socket = place::connect(Whose::System).filter(|socket| socket.ask(ASK_OBSERVE));
        let Some(socket) = socket else {
            return Stage::None;
        };
        self.keep(socket);
        self.looks.store(0, Ordering::Relaxed);
        Stage::Asked
    }

    /// Returns true if the page is in use. Waits for the answer for `patience_ms` at most.
    pub(crate) fn is_linked_within(&self, patience_ms: i32) -> bool {
        if self.stage.load(Ordering::Acquire) == Stage::Asked {
            let mut event = libc::pollfd {
                fd: self.socket.load(Ordering::Relaxed) - 1,
                events: libc::POLLIN,
                revents: 0,
            };
            let time = libc::timespec {
                tv_sec: i64::from(patience_ms / 1000) as _,
                tv_nsec: i64::from(patience_ms % 1000 * 1_000_000) as _,
            };
            // SAFETY: reads the time, and fills in the event.
            unsafe { sys!(libc::SYS_ppoll, &raw mut event, 1, &raw const time, 0, 8) };
            self.look();
        }
        self.stage.load(Ordering::Acquire) == Stage::Linked
    }

    /// Returns true if the daemon's scheduler had all kernel threads when the page was handed out.
    pub(crate) fn was_scheduled(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & ANSWER_SCHEDULES != 0
    }

    /// Whether the kernel thread `owner` is blocked, asked by `own`. `None`: the page does not tell.
    pub(crate) fn says_blocked(&self, owner: i32, own: i32, seen: &Seen) -> Option<bool> {
        // SAFETY: null, or mapped for ever.
        let page = unsafe { self.page.load(Ordering::Acquire).as_ref() };
        let Some(page) = page else {
            if self.stage.load(Ordering::Relaxed) == Stage::Asked {
                self.look_sometimes();
            }
            return None;
        };
        let answer = self.read(page, owner, own, seen);
        if answer.is_some() {
            self.told.fetch_add(1, Ordering::Relaxed);
        } else {
            self.untold.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    /// Called for each look at an owner, which costs it no locked instruction. Looks after the daemon now and then.
    pub(crate) fn count(&self) {
        let blocks = self.blocks.load(Ordering::Relaxed).wrapping_add(1);
        self.blocks.store(blocks, Ordering::Relaxed);
        if blocks.is_multiple_of(APART) {
            self.tick(vdso::monotonic_ns());
        }
    }

    fn read(&self, page: &Observed, owner: i32, own: i32, seen: &Seen) -> Option<bool> {
        if page.alive.load(Ordering::Relaxed) != self.generation.load(Ordering::Relaxed) {
            return None;
        }
        let (now, _) = slot(page, owner);
        if now.tid() != owner as u32 {
            return None;
        }
        match now.state() {
            OBSERVED_BLOCKED => Some(true),
            // By a debugger, or as the whole process is about to: its virtual processor stands still with it (Anderson et
            // al. 1992, section 4.4).
            OBSERVED_STOPPED => Some(false),
            OBSERVED_RUNNING | OBSERVED_READY => {
                let (now, slot) = slot(page, own);
                let switches = slot.switches.load(Ordering::Relaxed);
                let is_new = seen.switches.swap(switches, Ordering::Relaxed) != switches;
                (is_new && now.tid() == own as u32).then_some(false)
            }
            _ => None,
        }
    }

    /// Looks for the answer: often at first.
    #[cold]
    fn look_sometimes(&self) {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        if looks.is_power_of_two() {
            self.look();
        }
    }

    /// Looks for the answer. A program that is under a filter by then is not linked.
    #[cold]
    fn look(&self) {
        if !self.makes_busy(Stage::Asked) {
            return;
        }
        let socket = Socket(self.socket.load(Ordering::Relaxed) - 1);
        let (is_over, next) = if may_be_filtered() {
            (true, Stage::None)
        } else {
            // Its descriptors are at low numbers until they are mapped.
            let _opening = descriptors::opening();
            match socket.answer() {
                Reply::Pending if self.looks.load(Ordering::Relaxed) < MOST_LOOKS => {
                    (false, Stage::Asked)
                }
                Reply::Yes((answer, [Some(map), ..])) if self.link(&answer, &map) => {
                    (false, Stage::Linked)
                }
                _ => (true, Stage::None),
            }
        };
        if is_over {
            drop(socket);
        } else {
            self.keep(socket);
        }
        self.stage.store(next, Ordering::Release);
    }

    /// Only the caller looks after the socket from here on.
    fn makes_busy(&self, from: Stage) -> bool {
        let (taken, kept) = (Ordering::Acquire, Ordering::Relaxed);
        let replaced = self.stage.compare_exchange(from, Stage::Busy, taken, kept);
        replaced.is_ok()
    }

    fn keep(&self, socket: Socket) {
        self.socket.store(socket.0 + 1, Ordering::Relaxed);
        core::mem::forget(socket);
    }

    /// Maps the page, once it is checked. Returns true if it is in use.
    fn link(&self, answer: &Answer, map: &Raw) -> bool {
        // SAFETY: any bytes are a page of atomics, which begins with a head; the kernel refuses to map beyond the map's end.
        let Some(page) = (unsafe { self.place.map::<Observed>(map, libc::PROT_READ) }) else {
            return false;
        };
        self.generation.store(answer.generation, Ordering::Relaxed);
        self.flags.store(answer.flags, Ordering::Relaxed);
        let page = ptr::from_ref(page).cast_mut();
        // Release: pairs with the Acquire of those that read it.
        self.page.store(page, Ordering::Release);
        true
    }

    /// Looks if the daemon has answered, is gone, or is there again.
    pub(crate) fn tick(&self, now: u64) {
        match self.stage.load(Ordering::Relaxed) {
            Stage::Asked => self.look_sometimes(),
            Stage::Linked => self.look_after(now),
            Stage::None => self.ask_again(now),
            Stage::Busy => {}
        }
    }

    fn ask_again(&self, now: u64) {
        if self.makes_busy(Stage::None) {
            let stage = match self.again.is_due(now) {
                true => self.begin_to_ask(),
                false => Stage::None,
            };
            self.stage.store(stage, Ordering::Release);
        }
    }

    fn look_after(&self, now: u64) {
        if !self.makes_busy(Stage::Linked) {
            return;
        }
        let socket = Socket(self.socket.load(Ordering::Relaxed) - 1);
        let next = if socket.is_open() {
            self.keep(socket);
            Stage::Linked
        } else {
            self.page.store(ptr::null_mut(), Ordering::Release);
            drop(socket);
            self.again.begin(now);
            Stage::None
        };
        self.stage.store(next, Ordering::Release);
    }

    /// What it was good for.
    pub(crate) fn looks(&self) -> Looks {
        // SAFETY: null, or mapped for ever.
        let page = unsafe { self.page.load(Ordering::Acquire).as_ref() };
        let preempted = page.map_or(0, |page| {
            let slots = page.slots.iter();
            slots
                .map(|slot| u64::from(slot.preempted.load(Ordering::Relaxed)))
                .sum()
        });
        Looks {
            told: self.told.load(Ordering::Relaxed),
            untold: self.untold.load(Ordering::Relaxed),
            preempted,
        }
    }
}

fn slot(page: &Observed, tid: i32) -> (Now, &Slot) {
    let slot = &page.slots[tid as usize % OBSERVED_SLOTS];
    // Acquire: pairs with the order in which the BPF programs write.
    (Now(slot.now.load(Ordering::Acquire)), slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: i32 = 1000;
    const STANDBY: i32 = 1001;

    fn word(tid: i32, state: u8) -> u64 {
        tid as u64 | u64::from(state) << 32
    }

    /// A page in which the owner is in this state, and the standby was switched in so many times.
    fn page(owner: u64, switches: u32) -> Box<Observed> {
        // SAFETY: all-zero is a valid page.
        let page: Box<Observed> = unsafe { Box::new_zeroed().assume_init() };
        page.alive.store(7, Ordering::Relaxed);
        let at = |tid: i32| &page.slots[tid as usize % OBSERVED_SLOTS];
        at(OWNER).now.store(owner, Ordering::Relaxed);
        at(STANDBY)
            .now
            .store(word(STANDBY, OBSERVED_RUNNING), Ordering::Relaxed);
        at(STANDBY).switches.store(switches, Ordering::Relaxed);
        page
    }

    fn scheduler() -> Scheduler {
        let scheduler = Scheduler::default();
        scheduler.generation.store(7, Ordering::Relaxed);
        scheduler
    }

    #[test]
    fn blocked_is_believed_each_time() {
        let (scheduler, seen) = (scheduler(), Seen::default());
        let page = page(word(OWNER, OBSERVED_BLOCKED), 3);
        for _ in 0..3 {
            assert_eq!(scheduler.read(&page, OWNER, STANDBY, &seen), Some(true));
        }
    }

    #[test]
    fn a_page_that_answers_is_left_when_its_daemon_is_gone() {
        let (scheduler, seen) = (scheduler(), Seen::default());
        let page = Box::leak(page(word(OWNER, OBSERVED_BLOCKED), 3));
        scheduler.page.store(page, Ordering::Release);
        let (own, daemons) = std::os::unix::net::UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        let own = std::os::fd::IntoRawFd::into_raw_fd(own);
        scheduler.keep(Socket(descriptors::keep(own as isize).unwrap()));
        scheduler.stage.store(Stage::Linked, Ordering::Release);
        let ask = || {
            scheduler.count();
            scheduler.says_blocked(OWNER, STANDBY, &seen)
        };
        for _ in 0..2 * APART {
            assert_eq!(ask(), Some(true));
        }
        // Closing would not do: a child that another test has forked just now may have a copy of it.
        daemons.shutdown(std::net::Shutdown::Both).unwrap();
        assert!((0..=APART).any(|_| ask().is_none()));
    }

    #[test]
    fn one_that_a_debugger_has_stopped_is_not_blocked() {
        let (scheduler, seen) = (scheduler(), Seen::default());
        let page = page(word(OWNER, OBSERVED_STOPPED), 3);
        for _ in 0..3 {
            assert_eq!(scheduler.read(&page, OWNER, STANDBY, &seen), Some(false));
        }
    }

    #[test]
    fn a_page_that_nobody_writes_any_more_does_not_say_for_ever_that_the_owner_runs() {
        let (scheduler, seen) = (scheduler(), Seen::default());
        let page = page(word(OWNER, OBSERVED_READY), 3);
        let ask = || scheduler.read(&page, OWNER, STANDBY, &seen);
        assert_eq!(ask(), Some(false));
        assert_eq!(ask(), None);
        assert_eq!(ask(), None);
        page.slots[STANDBY as usize % OBSERVED_SLOTS]
            .switches
            .store(4, Ordering::Relaxed);
        assert_eq!(ask(), Some(false));
        assert_eq!(ask(), None);
    }

    #[test]
    fn what_is_of_another_kernel_thread_or_daemon_is_not_believed() {
        let (scheduler, seen) = (scheduler(), Seen::default());
        let ask = |page: &Observed| scheduler.read(page, OWNER, STANDBY, &seen);
        let other = word(OWNER + OBSERVED_SLOTS as i32, OBSERVED_BLOCKED);
        assert_eq!(ask(&page(other, 3)), None);
        for state in [0, 5, 255] {
            assert_eq!(ask(&page(word(OWNER, state), 3)), None);
        }
        let ended = page(word(OWNER, OBSERVED_BLOCKED), 3);
        ended.alive.store(0, Ordering::Relaxed);
        assert_eq!(ask(&ended), None);
        // Its own slot is another's.
        let taken = page(word(OWNER, OBSERVED_RUNNING), 3);
        taken.slots[STANDBY as usize % OBSERVED_SLOTS]
            .now
            .store(word(9, OBSERVED_RUNNING), Ordering::Relaxed);
        assert_eq!(ask(&taken), None);
    }
}
