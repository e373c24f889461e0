//! What the poller has learned about descriptors: their kind, and that calls on them wait without a time limit.
//!
//! All of it is a hint. Other processes, and calls that the runtime does not see, may have changed what a number means.
//! Every use of a hint works if it is wrong.

use core::sync::atomic::Ordering;

use upcall_core::numbered::{Numbered, numbered_enum};

use super::{Poller, Wants, Watch};
use crate::state::{Known, Runtime};

numbered_enum! {
    /// What kind of file a descriptor is for.
    #[derive(Default)]
    pub enum Kind {
        /// Nothing yet, or the kernel did not say.
        #[default]
        Unknown = 0,
        /// A pipe or FIFO.
        Pipe = 1,
        /// A socket.
        Socket = 2,
        /// A regular file, directory, block device, or one of memory (/dev/zero): its calls do not wait for anybody.
        File = 3,
        /// Anything else.
        Other = 4,
    }
}

const KIND: u32 = 0x7;
/// It is a socket that listens. Changed flags do not change that.
const LISTENS: u32 = 0x8;
/// It has no O_NONBLOCK.
const WAITS: u32 = 0x10;
/// It has no SO_RCVTIMEO.
const ENDLESS_IN: u32 = 0x20;
/// It has no SO_SNDTIMEO.
const ENDLESS_OUT: u32 = 0x40;
/// Its file refuses RWF_NOWAIT for writes.
const UNTRIED: u32 = 0x80;
/// It has O_NONBLOCK.
const NEVER_WAITS: u32 = 0x100;
/// How much it was used, so many bits: a write is one, a read two.
const USES: u32 = 0xe00;
const EPOCH_SHIFT: u32 = 12;
/// What is known whatever flags are changed.
const LASTING: u32 = KIND | LISTENS;

impl Known {
    fn kind(&self) -> Kind {
        Kind::of(self.word.load(Ordering::Relaxed) & KIND)
    }

    /// The caller holds the entry's lock. Otherwise a thread that learns the kind may learn it of the wrong file.
    pub(super) fn forget(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.drained.store(0, Ordering::Relaxed);
    }
}

impl Poller {
    /// Whether the descriptor was seen without O_NONBLOCK since the program last changed any file
    /// flags. Another process that shares the description may have changed them: then the thread
    /// waits where it would have got EAGAIN.
    pub fn is_known_to_wait(&self, descriptor: i32) -> bool {
        self.was_seen(descriptor, WAITS)
    }

    /// The descriptor has no O_NONBLOCK.
    pub fn note_waits(&self, descriptor: i32) {
        self.note(descriptor, WAITS);
    }

    /// Whether it is a socket that was seen with O_NONBLOCK since then. A call that is made for that reason may wait all the same.
    #[inline]
    pub fn is_known_never_to_wait(&self, descriptor: i32) -> bool {
        let socket = Kind::Socket.number() | NEVER_WAITS;
        self.seen(descriptor) & (KIND | NEVER_WAITS) == socket
    }

    /// The descriptor has O_NONBLOCK.
    pub fn note_never_waits(&self, descriptor: i32) {
        self.note(descriptor, NEVER_WAITS);
    }

    /// The descriptor is used. Returns true if it is worth asking whether it has O_NONBLOCK: that is not known, and since the program
    /// last changed any flags it was read and written, or written three times. One request and its answer are not worth it.
    pub fn is_worth_asking(&self, descriptor: i32, reads: bool) -> bool {
        let seen = self.seen(descriptor);
        if seen & (WAITS | NEVER_WAITS) != 0 {
            return false;
        }
        let (uses, enough) = ((seen & USES).count_ones(), USES.count_ones());
        if uses < enough {
            let bits = enough.min(uses + if reads { 2 } else { 1 });
            self.note(descriptor, ((1 << bits) - 1) << USES.trailing_zeros());
        }
        uses == enough
    }

    /// Whether the socket was seen to listen. One whose listening has ended since is ready, for poll(2).
    pub fn is_known_to_listen(&self, descriptor: i32) -> bool {
        self.known
            .get(descriptor as usize)
            .is_some_and(|known| known.word.load(Ordering::Relaxed) & LISTENS != 0)
    }

    /// The socket listens.
    pub fn note_listens(&self, descriptor: i32) {
        self.note(descriptor, LISTENS);
    }

    /// Whether the socket was seen without a time limit (SO_RCVTIMEO, SO_SNDTIMEO) since the program last
    /// set one anywhere.
    pub fn is_known_endless(&self, descriptor: i32, wants: Wants) -> bool {
        self.was_seen(descriptor, endless(wants))
    }

    /// The socket has no time limit.
    pub fn note_endless(&self, descriptor: i32, wants: Wants) {
        self.note(descriptor, endless(wants));
    }

    /// Whether the descriptor's file was seen to refuse `RWF_NOWAIT` for a write, as an eventfd does. Its reads may be tried.
    pub fn is_known_to_refuse_tries(&self, descriptor: i32) -> bool {
        self.was_seen(descriptor, UNTRIED)
    }

    /// The descriptor's file has refused `RWF_NOWAIT` for a write.
    pub fn note_refused_try(&self, descriptor: i32) {
        self.note(descriptor, UNTRIED);
    }

    /// The program has changed some description's flags, or some socket's time limit.
    pub fn flags_change(&self) {
        self.flags_epoch.fetch_add(1, Ordering::Relaxed);
    }

    fn was_seen(&self, descriptor: i32, what: u32) -> bool {
        self.seen(descriptor) & what != 0
    }

    /// What was seen since the program last changed any flags, and the kind; 0 if nothing was.
    #[inline]
    fn seen(&self, descriptor: i32) -> u32 {
        let word = self
            .known
            .get(descriptor as usize)
            .map_or(0, |known| known.word.load(Ordering::Relaxed));
        match word >> EPOCH_SHIFT == self.epoch_mark() {
            true => word,
            false => 0,
        }
    }

    fn note(&self, descriptor: i32, what: u32) {
        let Some(known) = self.known.get(descriptor as usize) else {
            return;
        };
        let word = known.word.load(Ordering::Relaxed);
        // What is not known at all is not remembered: it would not be forgotten at close.
        if word & KIND == 0 {
            return;
        }
        let mark = self.epoch_mark();
        let kept = if word >> EPOCH_SHIFT == mark {
            word
        } else {
            word & LASTING
        };
        let new = kept | what | mark << EPOCH_SHIFT;
        // Another thread was faster, and knows better: it may be another file by now.
        let _ = known
            .word
            .compare_exchange(word, new, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn epoch_mark(&self) -> u32 {
        (self.flags_epoch.load(Ordering::Relaxed) & (u32::MAX >> EPOCH_SHIFT >> 1)) + 1
    }

    /// Whether all edges that a watch has seen have said no more than that there is something to read or room to
    /// write: no end, no error, nothing urgent.
    #[inline]
    pub fn is_plain(&self, watch: &Watch) -> bool {
        let known = self.known.get(watch.descriptor as usize);
        known.is_some_and(|known| !known.eventful.load(Ordering::Relaxed))
    }

    /// What kind of descriptor it is; asks the kernel the first time.
    pub fn kind(&self, runtime: &'static Runtime, descriptor: i32) -> Kind {
        let Some(known) = self.known.get(descriptor as usize) else {
            return Kind::Other;
        };
        match known.kind() {
            Kind::Unknown => self.learn_kind(runtime, descriptor),
            kind => kind,
        }
    }

    /// Whether it may be an epoll instance, as far as is known without asking. One whose kind could not
    /// be learned, or was forgotten since, may be watched, too.
    pub(super) fn may_be_nested(&self, descriptor: usize) -> bool {
        let kind = self.known.get(descriptor).map(Known::kind);
        !matches!(kind, Some(Kind::Pipe | Kind::Socket))
    }

    #[cold]
    fn learn_kind(&self, runtime: &'static Runtime, descriptor: i32) -> Kind {
        // SAFETY: an all-zero stat is valid; fstat fills it in.
        let (answer, status) = unsafe {
            let mut status: libc::stat = core::mem::zeroed();
            (sys!(libc::SYS_fstat, descriptor, &raw mut status), status)
        };
        if answer != 0 {
            return Kind::Unknown;
        }
        let kind = match status.st_mode & libc::S_IFMT {
            libc::S_IFIFO => Kind::Pipe,
            libc::S_IFSOCK => Kind::Socket,
            libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => Kind::File,
            libc::S_IFCHR if is_memory(status.st_rdev) => Kind::File,
            _ => Kind::Other,
        };
        let inside = runtime.enter();
        {
            let mut state = self.entries[descriptor as usize].lock(runtime.kernel());
            state.inode = if kind == Kind::Pipe { status.st_ino } else { 0 };
            self.highest.fetch_max(descriptor as u32, Ordering::Relaxed);
            self.known[descriptor as usize]
                .word
                .store(kind.number(), Ordering::Relaxed);
        }
        inside.leave();
        kind
    }
}

/// Whether it is a device of mem(4), null(4) or random(4).
fn is_memory(device: libc::dev_t) -> bool {
    const MEMORY: u32 = 1;
    /// /dev/kmsg, of which each read is a message.
    const MESSAGES: u32 = 11;
    libc::major(device) == MEMORY && libc::minor(device) != MESSAGES
}

fn endless(wants: Wants) -> u32 {
    if wants == Wants::OUT {
        ENDLESS_OUT
    } else {
        ENDLESS_IN
    }
}
