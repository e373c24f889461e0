//! The daemon (`upcalld`) as the source of turns, as a program sees it.
//!
//! 1. At its start the program asks the system's daemon for its pages, or the user's if there is none, and does not wait for the answer
//!    (`Daemon::ask`). If the system's refuses, it asks the user's.
//! 2. The first decision about turns that finds the answer links the program (`Daemon::look`). Until then, and where no
//!    daemon is, the registry alone decides.
//! 3. While it is linked, what it was told (`Link::news`) says which processors are the program's. The program writes what it computes on
//!    and uses, and knocks when that has changed or when it has acted on what it was told.
//! 4. The link ends when the daemon's end of the socket is closed, or its alive word is not what it was. Then the registry decides,
//!    and the program asks again from time to time (`again`), as it does where no daemon was. A daemon that has kept the program
//!    waiting for `LONGEST_NS` is left for good.
//!
//! No word of the daemon's is trusted further than that. Its pages are checked before they are mapped: of this user or of root, of
//! the known size, and sealed against a smaller one. What can be in them is any set of processors.
//!
//! While the link is used only calls are made that the runtime makes anyhow (read, write, futex), since a filter of the
//! program's may end it for others. A program that is under a filter by then is not linked.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use upcall_abi::{
    ASK_JOIN, Answer, Head, MAGIC, Message, STATUS_OK, Said, Told, VERSION, WANTED, WANTED_LENDS,
};

use super::rules::Set;
use super::rules::truce::Truce;
use crate::sys::descriptors;
use crate::sys::procfs::may_be_filtered;
use crate::sys::{self, error};

mod again;
mod listing;
pub(crate) mod place;

pub(crate) use again::Again;
pub use listing::{Trouble, observes_at, schedules_at, spaces, spaces_at};
pub use place::{SYSTEM_SOCKET, note, socket, system_socket};

/// A daemon that keeps a program waiting for longer is stopped, or hostile: nanoseconds. More than as many slices and
/// graces as there can be spaces.
pub(super) const LONGEST_NS: u64 = 4_000_000_000;

/// A daemon that has not answered after so many looks is none. One look is made at the end of a time slice.
const MOST_LOOKS: u32 = 20;

/// What the program knows of a daemon. Belongs to the activation that decides.
#[derive(Default)]
pub(super) enum Daemon {
    /// There is none, or none any more.
    #[default]
    None,
    /// It was asked, at this socket, and has not answered for so many looks.
    Asked(Socket, Whose, u32),
    /// It decides.
    Linked(Link),
}

/// Whose daemon it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// Root's, for all users.
    System,
    /// The user's own.
    User,
}

/// A descriptor among the runtime's own, closed when it is dropped.
pub(crate) struct Socket(pub(crate) i32);

impl Drop for Socket {
    fn drop(&mut self) {
        descriptors::give_back(self.0);
    }
}

impl Socket {
    /// Sends this question, without waiting. Returns true if it is sent.
    pub(crate) fn ask(&self, what: u32) -> bool {
        let message = Message::new(what).bytes();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: reads the message.
        let sent = unsafe {
            sys!(
                libc::SYS_sendto,
                self.0,
                message.as_ptr(),
                message.len(),
                flags,
                0,
                0
            )
        };
        sent == message.len() as isize
    }

    /// Whether the daemon has its end still. It sends nothing more.
    pub(crate) fn is_open(&self) -> bool {
        let mut byte = 0u8;
        // 0 is the end.
        // SAFETY: writes one byte at most.
        let read = unsafe { sys!(libc::SYS_read, self.0, &raw mut byte, 1) };
        error(read) == Some(libc::EAGAIN) || error(read) == Some(libc::EINTR)
    }

    /// Takes the answer, if it is there, with the descriptors that it carries.
    pub(crate) fn answer(&self) -> Reply<(Answer, [Option<Raw>; DESCRIPTORS])> {
        #[repr(C, align(8))]
        struct Control([u8; 64]);
        let mut answer = [0u8; size_of::<Answer>()];
        let mut control = Control([0; 64]);
        let mut part = libc::iovec {
            iov_base: answer.as_mut_ptr().cast(),
            iov_len: answer.len(),
        };
        let mut descriptors = [-1i32; DESCRIPTORS];
        // SAFETY: all-zero is a valid msghdr; its pointers lead to memory of the sizes given, which the kernel fills in. The
        // descriptors are read where the kernel has written as many.
        let length = unsafe {
            let mut header: libc::msghdr = core::mem::zeroed();
            header.msg_iov = &raw mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = size_of::<Control>() as _;
            let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
            let length = sys!(libc::SYS_recvmsg, self.0, &raw mut header, flags);
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            if length >= 0
                && !message.is_null()
                && (*message).cmsg_level == libc::SOL_SOCKET
                && (*message).cmsg_type == libc::SCM_RIGHTS
            {
                let bytes = (*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(message).cast::<i32>();
                for (at, descriptor) in descriptors.iter_mut().enumerate().take(bytes / 4) {
                    *descriptor = data.add(at).read_unaligned();
                }
            }
            length
        };
        let descriptors = descriptors.map(|number| (number >= 0).then_some(Raw(number)));
        if error(length) == Some(libc::EAGAIN) {
            return Reply::Pending;
        }
        let is_whole = length == answer.len() as isize;
        let answer = Answer::read(&answer).filter(|answer| {
            is_whole
                && answer.status == STATUS_OK
                && answer.version == VERSION
                && answer.generation != 0
        });
        match answer {
            Some(answer) => Reply::Yes((answer, descriptors)),
            None => Reply::No,
        }
    }
}

/// Descriptors that an answer carries, at most.
const DESCRIPTORS: usize = 3;

/// The daemon decides.
pub(super) struct Link {
    socket: Socket,
    knocker: Socket,
    told: &'static Told,
    said: &'static Said,
    generation: u64,
}

/// What the daemon says at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct News {
    pub has: Set,
    pub wanted: bool,
    /// No truce is needed.
    pub lends: bool,
    pub truce: Truce,
    /// The warning: when the processors will be lost; 0: none.
    pub leaves_at: u64,
    /// Of [`Told::changes`].
    pub changes: u32,
}

impl Daemon {
    /// Asks for pages, if there is a daemon. Does not wait.
    pub(super) fn ask() -> Self {
        match Self::ask_one(Whose::System) {
            Daemon::None => Self::ask_one(Whose::User),
            asked => asked,
        }
    }

    fn ask_one(whose: Whose) -> Self {
        match place::connect(whose) {
            Some(socket) if socket.ask(ASK_JOIN) => Daemon::Asked(socket, whose, 0),
            _ => Daemon::None,
        }
    }

    /// Sees whether a daemon that was asked has answered. Returns true if it has just become the one that decides. `places`: where its
    /// pages are, and those of the one before it were.
    pub(super) fn look(&mut self, places: &Places) -> bool {
        if !matches!(self, Daemon::Asked(..)) {
            return false;
        }
        let Daemon::Asked(socket, whose, looks) = core::mem::take(self) else {
            return false;
        };
        if may_be_filtered() || looks == MOST_LOOKS {
            return false;
        }
        // Its descriptors are at low numbers until they are mapped.
        let _opening = descriptors::opening();
        *self = match socket.answer() {
            Reply::Pending => Daemon::Asked(socket, whose, looks + 1),
            Reply::Yes((answer, descriptors)) => {
                link(socket, &answer, descriptors, places).map_or(Daemon::None, Daemon::Linked)
            }
            Reply::No if whose == Whose::System => Self::ask_one(Whose::User),
            Reply::No => Daemon::None,
        };
        matches!(self, Daemon::Linked(_))
    }
}

/// What a look for an answer finds.
pub(crate) enum Reply<T> {
    /// It is not there yet.
    Pending,
    /// It is what was asked for.
    Yes(T),
    /// It is something else.
    No,
}

/// Links the program by an answer.
fn link(
    socket: Socket,
    answer: &Answer,
    [told, said, knocker]: [Option<Raw>; DESCRIPTORS],
    places: &Places,
) -> Option<Link> {
    let (Some(told), Some(said), Some(knocker)) = (told, said, knocker) else {
        return None;
    };
    let knocker = Socket(descriptors::keep_copy(knocker.0).ok()?);
    let link = Link {
        told: map::<Told>(&told, false, &places.told)?,
        said: map::<Said>(&said, true, &places.said)?,
        socket,
        knocker,
        generation: answer.generation,
    };
    link.is_alive().then_some(link)
}

/// A descriptor as it came.
pub(crate) struct Raw(pub(crate) i32);

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: a descriptor of ours.
        unsafe { sys!(sys::SYS_close, self.0) };
    }
}

/// Where the pages of a daemon are mapped.
#[derive(Default)]
pub(super) struct Places {
    told: Place,
    said: Place,
}

/// Where something of a daemon is mapped for ever, since others may be reading it when the link ends. What the next daemon gives
/// takes its place.
#[derive(Default)]
pub(crate) struct Place(AtomicUsize);

impl Place {
    /// Maps this file there with this access, once its head is checked. Children of fork(2) do not have it.
    ///
    /// # Safety
    ///
    /// Any bytes are a valid `T`, which begins with a head. It is the only type for this place. The file stays as large, or the
    /// kernel refuses to map beyond its end.
    pub(crate) unsafe fn map<T>(&self, file: &Raw, access: i32) -> Option<&'static T> {
        let size = size_of::<T>();
        let before = self.0.load(Ordering::Relaxed);
        // SAFETY: a new mapping, which is unmapped if it is of no use. What is at the place is one of the same size that this function
        // has moved there; a thread that reads there meanwhile waits for the kernel.
        unsafe {
            let new = sys!(sys::SYS_mmap, 0, size, access, libc::MAP_SHARED, file.0, 0);
            if error(new).is_some() {
                return None;
            }
            sys!(sys::SYS_madvise, new, size, libc::MADV_DONTFORK);
            let head = &*(new as *const Head);
            let is_known = head.magic.load(Ordering::Acquire) == MAGIC
                && head.version.load(Ordering::Relaxed) == VERSION
                && head.size.load(Ordering::Relaxed) as usize == size;
            let mut place = new;
            if is_known && before != 0 {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                place = sys!(libc::SYS_mremap, new, size, size, flags, before);
            }
            if !is_known || error(place).is_some() {
                sys!(sys::SYS_munmap, new, size);
                return None;
            }
            self.0.store(place as usize, Ordering::Relaxed);
            Some(&*(place as *const T))
        }
    }
}

/// Maps a page of the daemon's for ever, once it is checked.
fn map<T>(file: &Raw, writable: bool, at: &Place) -> Option<&'static T> {
    let size = size_of::<T>();
    // SAFETY: all-zero is a valid stat, which the call fills in. The file stays as large. Any bytes are a valid structure of atomics,
    // and both begin with a head.
    unsafe {
        let seals = sys!(sys::SYS_fcntl, file.0, libc::F_GET_SEALS);
        if seals < 0 || seals & libc::F_SEAL_SHRINK as isize == 0 {
            return None;
        }
        let mut status: libc::stat = core::mem::zeroed();
        if sys!(libc::SYS_fstat, file.0, &raw mut status) != 0 || status.st_size != size as i64 {
            return None;
        }
        let access = if writable {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        at.map(file, access)
    }
}

impl Link {
    /// The word on which the program's kernel threads sleep until there is news.
    pub(super) fn bell(&self) -> &'static AtomicU32 {
        &self.said.bell
    }

    /// Both pages, for those that read and write without a decision.
    pub(super) fn pages(&self) -> (&'static Told, &'static Said) {
        (self.told, self.said)
    }

    /// Whether the daemon still is there.
    pub(super) fn is_alive(&self) -> bool {
        self.told.alive.load(Ordering::Acquire) == self.generation && self.socket.is_open()
    }

    /// What the daemon says now.
    pub(super) fn news(&self) -> News {
        // Acquire: pairs with the daemon's Release; the words are as new as this number, or newer.
        let changes = self.told.changes.load(Ordering::Acquire);
        let wanted = self.told.wanted.load(Ordering::Relaxed);
        News {
            has: load(&self.told.has),
            wanted: wanted & WANTED != 0,
            lends: wanted & WANTED_LENDS != 0,
            truce: Truce {
                until: self.told.truce_until.load(Ordering::Relaxed),
                length: self.told.truce_length.load(Ordering::Relaxed),
            },
            leaves_at: self.told.leaves_at.load(Ordering::Relaxed),
            changes,
        }
    }

    /// Asks for a truce. The daemon must be told.
    pub(super) fn ask_for(&self, truce: Truce) {
        self.said
            .truce_length
            .store(truce.length, Ordering::Relaxed);
        self.said.truce_until.store(truce.until, Ordering::Relaxed);
    }

    /// Says with how many processors the program goes on; 0: it needs all that it wants at once.
    pub(super) fn adapts(&self, least: u32) {
        self.said.adapts.store(least, Ordering::Relaxed);
    }

    /// Asks for this share of the time; 0: for what is configured.
    pub(super) fn asks_for_share(&self, share: u32) {
        self.said.share.store(share, Ordering::Relaxed);
    }

    /// Says what the program wants and uses, and where it may run. Returns true if that is new, and the daemon must be told.
    pub(super) fn say(&self, wants: Set, uses: Set, may: Set, changes: u32) -> bool {
        let said = self.said;
        // What is there is compared: a virtual processor that rests writes there, too.
        let is_new = load(&said.wants) != wants
            || load(&said.uses) != uses
            || load(&said.may) != may
            || said.changes.load(Ordering::Relaxed) != changes;
        if is_new {
            store(&said.wants, wants);
            store(&said.uses, uses);
            store(&said.may, may);
            // Release: pairs with the daemon's Acquire; it does not see older sets with this number.
            said.changes.store(changes, Ordering::Release);
        }
        is_new
    }

    /// A number for [`knock`], which is called when the decision is made.
    pub(super) fn knocker(&self) -> i32 {
        self.knocker.0
    }
}

fn load(words: &[AtomicU64; Set::WORDS]) -> Set {
    Set(core::array::from_fn(|at| words[at].load(Ordering::Relaxed)))
}

/// Writes a set of processors, word by word.
pub(super) fn store(words: &[AtomicU64; Set::WORDS], set: Set) {
    for (word, value) in words.iter().zip(set.0) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Has the daemon look at what spaces say.
pub(super) fn knock(knocker: i32) {
    let one = 1u64;
    // SAFETY: reads eight bytes.
    unsafe { sys!(sys::SYS_write, knocker, &raw const one, 8) };
}
