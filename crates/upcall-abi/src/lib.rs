//! What a program and the daemon (`upcalld`) share: `include/upcall/abi.h` in Rust.
//!
//! 1. [`Told`] is what the daemon tells an address space. Programs map it read-only.
//! 2. [`Said`] is what the program says. Every word of it is a hint. The daemon bounds it at each use.
//! 3. [`Observed`] is what the kernel does with the kernel threads of a program. BPF programs of the daemon write it.
//! 4. [`Message`], [`Answer`] and [`Row`] are the messages of the daemon's socket. Each is one packet.
//!
//! Apart are what debuggers read ([`description`]), what anybody of the same user may read ([`live`]), and what a program that
//! is traced writes ([`trace`]); and the list by which a program loads the library ([`preload`]).
//!
//! The header is written by hand, and so is this file. Both assert the same sizes and offsets, and `tests/header.rs`
//! compares each number with the one that a C compiler finds.
//!
//! # Upcall safety
//!
//! Nothing here calls anything: all of it may be used in an upcall, before thread-local storage exists, and inside
//! malloc.

#![no_std]

pub mod description;
pub mod live;
pub mod preload;
pub mod trace;

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// What each page and each message begins with.
pub const MAGIC: u64 = 0x6c6c_6163_7075_0001;
/// The version of this interface. A daemon and a program of different versions do not work together.
pub const VERSION: u32 = 1;
/// The words of a set of processors.
pub const WORDS: usize = 4;
/// Processors that are told apart: a processor is its number modulo this.
pub const PROCESSORS: u32 = 256;
/// The greatest share. A space has time in proportion to its share.
pub const MOST_SHARE: u32 = 10;

/// What each page begins with.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Of the whole structure, in bytes.
    pub size: AtomicU32,
}

/// A bit of [`Told::wanted`]: another space waits for a processor of this one.
pub const WANTED: u32 = 1;
/// A bit of [`Told::wanted`]: those that wait lend their weight. What ordinary programs take is made up for: no truce is needed.
pub const WANTED_LENDS: u32 = 2;

/// From the daemon.
#[repr(C)]
#[derive(Debug)]
pub struct Told {
    /// What it is.
    pub head: Head,
    /// The daemon's generation; 0: it has ended, and what it told does not hold any more.
    pub alive: AtomicU64,
    /// Counts what was told.
    pub changes: AtomicU32,
    /// Bits: [`WANTED`], [`WANTED_LENDS`].
    pub wanted: AtomicU32,
    /// The processors that the space may use.
    pub has: [AtomicU64; WORDS],
    /// When the last truce ends that concerned the space, in nanoseconds of the monotonic clock.
    pub truce_until: AtomicU64,
    /// How long that truce was to be, in nanoseconds.
    pub truce_length: AtomicU64,
    /// The warning: when the space is to lose all processors that others want, in nanoseconds of the monotonic clock; 0: nothing is
    /// known of that.
    pub leaves_at: AtomicU64,
}

/// From the program: hints.
#[repr(C)]
#[derive(Debug)]
pub struct Said {
    /// What it is.
    pub head: Head,
    /// Rises when there may be news; the space's kernel threads sleep on it.
    pub bell: AtomicU32,
    /// The last [`Told::changes`] that was acted on.
    pub changes: AtomicU32,
    /// Processors on which the space computes, or would if it had them.
    pub wants: [AtomicU64; WORDS],
    /// Those of them on which it runs now.
    pub uses: [AtomicU64; WORDS],
    /// When the truce ends that the space asks for, in nanoseconds of the monotonic clock.
    pub truce_until: AtomicU64,
    /// How long that truce was to be, in nanoseconds.
    pub truce_length: AtomicU64,
    /// The fewest processors with which the space goes on while it wants more: it *adapts*. 0: it needs all that it wants at
    /// once.
    pub adapts: AtomicU32,
    /// The share of the time for which the space asks, from 1 to [`MOST_SHARE`]; 0: what is configured.
    pub share: AtomicU32,
    /// The processors on which the space's kernel threads may run. One that may not run on all of the machine does not adapt.
    pub may: [AtomicU64; WORDS],
}

/// A kernel thread has the slot of its id modulo this.
pub const OBSERVED_SLOTS: usize = 256;

/// The state in [`Slot::now`]: it has a processor.
pub const OBSERVED_RUNNING: u8 = 1;
/// The state in [`Slot::now`]: it could run, and has no processor.
pub const OBSERVED_READY: u8 = 2;
/// The state in [`Slot::now`]: it is blocked.
pub const OBSERVED_BLOCKED: u8 = 3;
/// The state in [`Slot::now`]: it is stopped, by a signal or by who traces it.
pub const OBSERVED_STOPPED: u8 = 4;

/// The reason in [`Slot::now`]: it is in the system call [`Slot::nr`].
pub const REASON_CALL: u8 = 1;
/// The reason in [`Slot::now`]: it is on a page fault, of [`Slot::address`].
pub const REASON_FAULT: u8 = 2;
/// The reason in [`Slot::now`]: another space's kernel thread runs in its place.
pub const REASON_PREEMPTED: u8 = 3;
/// The reason in [`Slot::now`]: one of its own space runs in its place.
pub const REASON_GAVE_WAY: u8 = 4;
/// The reason in [`Slot::now`]: it was blocked.
pub const REASON_WOKEN: u8 = 5;

/// A kernel thread, as the kernel's scheduler sees it.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// Its id, its processor, its state and the reason: see [`Now`]. Written at once, after the other fields.
    pub now: AtomicU64,
    /// The system call in which it blocked last.
    pub nr: AtomicU32,
    /// Counts the times that it got a processor.
    pub switches: AtomicU32,
    /// Of its last page fault, if the kernel tells of those.
    pub address: AtomicU64,
    /// Counts the times that it blocked.
    pub blocks: AtomicU32,
    /// Counts the times that another space's kernel thread took its processor.
    pub preempted: AtomicU32,
    /// 0.
    pub reserved: [AtomicU64; 4],
}

/// The word [`Slot::now`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now(pub u64);

impl Now {
    /// The kernel thread's id; 0: none.
    pub const fn tid(self) -> u32 {
        self.0 as u32
    }

    /// What it is doing.
    pub const fn state(self) -> u8 {
        (self.0 >> 32) as u8
    }

    /// Why.
    pub const fn reason(self) -> u8 {
        (self.0 >> 40) as u8
    }

    /// On which processor it ran last.
    pub const fn cpu(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// What the kernel does with the kernel threads of a space.
#[repr(C)]
#[derive(Debug)]
pub struct Observed {
    /// What it is.
    pub head: Head,
    /// The daemon's generation; 0: nobody writes here any more. A daemon that was killed leaves it.
    pub alive: AtomicU64,
    /// 0.
    pub reserved: [AtomicU64; 5],
    /// See [`OBSERVED_SLOTS`].
    pub slots: [Slot; OBSERVED_SLOTS],
}

/// [`Message::ask`]: hand out the pages.
pub const ASK_JOIN: u32 = 1;
/// [`Message::ask`]: which spaces are there?
pub const ASK_LIST: u32 = 2;
/// [`Message::ask`]: hand out the page of what the kernel does.
pub const ASK_OBSERVE: u32 = 3;

/// [`Answer::status`]: yes.
pub const STATUS_OK: u32 = 0;
/// [`Answer::status`]: the daemon has another version.
pub const STATUS_VERSION: u32 = 1;
/// [`Answer::status`]: the user has as many spaces as one may have.
pub const STATUS_FULL: u32 = 2;
/// [`Answer::status`]: not a message of this interface.
pub const STATUS_NONSENSE: u32 = 3;
/// [`Answer::status`]: this daemon does not do that, or not for this process.
pub const STATUS_NOT_HERE: u32 = 4;

/// [`Row::state`]: it keeps no processor in continuous use.
pub const STATE_RESTING: u32 = 0;
/// [`Row::state`]: it computes.
pub const STATE_ON: u32 = 1;
/// [`Row::state`]: it would compute, and others have its processors.
pub const STATE_WAITING: u32 = 2;
/// [`Row::state`]: it did not do what it was told, and is left to the kernel.
pub const STATE_AWAY: u32 = 3;

/// A bit of [`Answer::flags`]: the daemon's scheduler (sched_ext) has all kernel threads at this moment.
pub const ANSWER_SCHEDULES: u32 = 1;

/// A message to the daemon.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// What is asked for.
    pub ask: u32,
}

/// The daemon's answer. To [`ASK_JOIN`] it carries the descriptors of [`Told`], of [`Said`] and of an eventfd(2), in this
/// order. The program adds to the latter when it has changed what it says. To [`ASK_OBSERVE`] it carries one: [`Observed`].
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// [`MAGIC`].
    pub magic: u64,
    /// The daemon's [`VERSION`].
    pub version: u32,
    /// Yes, or why not.
    pub status: u32,
    /// The daemon's generation.
    pub generation: u64,
    /// Rows that follow.
    pub count: u32,
    /// Bits: [`ANSWER_SCHEDULES`].
    pub flags: u32,
}

/// An address space, as the answer to [`ASK_LIST`] tells of it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Row {
    /// Its process.
    pub pid: u32,
    /// What it is doing.
    pub state: u32,
    /// When that began, in nanoseconds of the monotonic clock.
    pub since: u64,
    /// As [`Said::wants`], bounded by the processors of the machine.
    pub wants: [u64; WORDS],
    /// As [`Told::has`].
    pub has: [u64; WORDS],
    /// Its share of the time, as the daemon counts it.
    pub share: u32,
    /// Whose it is.
    pub user: u32,
}

impl Row {
    /// What the state is called.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            STATE_RESTING => "resting",
            STATE_ON => "on",
            STATE_WAITING => "waiting",
            STATE_AWAY => "away",
            _ => "unknown",
        }
    }
}

impl Message {
    /// A message of this version.
    pub const fn new(ask: u32) -> Self {
        Message {
            magic: MAGIC,
            version: VERSION,
            ask,
        }
    }

    /// Its bytes in a packet.
    pub fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.magic.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.version.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.ask.to_ne_bytes());
        bytes
    }

    /// Reads a packet; `None` if it has another length or another magic number.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let packet: &[u8; 16] = packet.try_into().ok()?;
        let message = Message {
            magic: u64::from_ne_bytes(packet[..8].try_into().ok()?),
            version: u32::from_ne_bytes(packet[8..12].try_into().ok()?),
            ask: u32::from_ne_bytes(packet[12..].try_into().ok()?),
        };
        (message.magic == MAGIC).then_some(message)
    }
}

impl Answer {
    /// Its bytes in a packet.
    pub fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.magic.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.version.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.status.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.count.to_ne_bytes());
        bytes[28..].copy_from_slice(&self.flags.to_ne_bytes());
        bytes
    }

    /// Reads a packet; `None` if it has another length or another magic number.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let packet: &[u8; 32] = packet.try_into().ok()?;
        let word = |at: usize| packet[at..at + 4].try_into().map(u32::from_ne_bytes).ok();
        let long = |at: usize| packet[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
        let answer = Answer {
            magic: long(0)?,
            version: word(8)?,
            status: word(12)?,
            generation: long(16)?,
            count: word(24)?,
            flags: word(28)?,
        };
        (answer.magic == MAGIC).then_some(answer)
    }
}

impl Row {
    /// Its bytes in a packet.
    pub fn bytes(&self) -> [u8; 88] {
        let mut bytes = [0; 88];
        bytes[..4].copy_from_slice(&self.pid.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.state.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.since.to_ne_bytes());
        for (at, word) in self.wants.iter().chain(&self.has).enumerate() {
            bytes[16 + at * 8..24 + at * 8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[80..84].copy_from_slice(&self.share.to_ne_bytes());
        bytes[84..].copy_from_slice(&self.user.to_ne_bytes());
        bytes
    }

    /// Reads a packet; `None` if it has another length.
    pub fn read(packet: &[u8]) -> Option<Self> {
        let packet: &[u8; 88] = packet.try_into().ok()?;
        let word = |at: usize| packet[at..at + 4].try_into().map(u32::from_ne_bytes).ok();
        let long = |at: usize| packet[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
        let mut row = Row {
            pid: word(0)?,
            state: word(4)?,
            since: long(8)?,
            share: word(80)?,
            user: word(84)?,
            ..Row::default()
        };
        for at in 0..WORDS {
            row.wants[at] = long(16 + at * 8)?;
            row.has[at] = long(48 + at * 8)?;
        }
        Some(row)
    }
}

/// Each type with its size, and each field with its offset, by the names of the header.
pub const LAYOUT: [(&str, usize); 50] = [
    ("sizeof(struct upcall_head)", size_of::<Head>()),
    (
        "offsetof(struct upcall_head, magic)",
        offset_of!(Head, magic),
    ),
    (
        "offsetof(struct upcall_head, version)",
        offset_of!(Head, version),
    ),
    ("offsetof(struct upcall_head, size)", offset_of!(Head, size)),
    ("sizeof(struct upcall_told)", size_of::<Told>()),
    (
        "offsetof(struct upcall_told, alive)",
        offset_of!(Told, alive),
    ),
    (
        "offsetof(struct upcall_told, changes)",
        offset_of!(Told, changes),
    ),
    (
        "offsetof(struct upcall_told, wanted)",
        offset_of!(Told, wanted),
    ),
    ("offsetof(struct upcall_told, has)", offset_of!(Told, has)),
    (
        "offsetof(struct upcall_told, truce_until)",
        offset_of!(Told, truce_until),
    ),
    (
        "offsetof(struct upcall_told, truce_length)",
        offset_of!(Told, truce_length),
    ),
    (
        "offsetof(struct upcall_told, leaves_at)",
        offset_of!(Told, leaves_at),
    ),
    ("sizeof(struct upcall_said)", size_of::<Said>()),
    ("offsetof(struct upcall_said, bell)", offset_of!(Said, bell)),
    (
        "offsetof(struct upcall_said, changes)",
        offset_of!(Said, changes),
    ),
    (
        "offsetof(struct upcall_said, wants)",
        offset_of!(Said, wants),
    ),
    ("offsetof(struct upcall_said, uses)", offset_of!(Said, uses)),
    (
        "offsetof(struct upcall_said, truce_until)",
        offset_of!(Said, truce_until),
    ),
    (
        "offsetof(struct upcall_said, truce_length)",
        offset_of!(Said, truce_length),
    ),
    (
        "offsetof(struct upcall_said, adapts)",
        offset_of!(Said, adapts),
    ),
    (
        "offsetof(struct upcall_said, share)",
        offset_of!(Said, share),
    ),
    ("offsetof(struct upcall_said, may)", offset_of!(Said, may)),
    ("sizeof(struct upcall_observed_slot)", size_of::<Slot>()),
    (
        "offsetof(struct upcall_observed_slot, nr)",
        offset_of!(Slot, nr),
    ),
    (
        "offsetof(struct upcall_observed_slot, switches)",
        offset_of!(Slot, switches),
    ),
    (
        "offsetof(struct upcall_observed_slot, address)",
        offset_of!(Slot, address),
    ),
    (
        "offsetof(struct upcall_observed_slot, blocks)",
        offset_of!(Slot, blocks),
    ),
    (
        "offsetof(struct upcall_observed_slot, preempted)",
        offset_of!(Slot, preempted),
    ),
    ("sizeof(struct upcall_observed)", size_of::<Observed>()),
    (
        "offsetof(struct upcall_observed, alive)",
        offset_of!(Observed, alive),
    ),
    (
        "offsetof(struct upcall_observed, slots)",
        offset_of!(Observed, slots),
    ),
    ("sizeof(struct upcall_message)", size_of::<Message>()),
    (
        "offsetof(struct upcall_message, magic)",
        offset_of!(Message, magic),
    ),
    (
        "offsetof(struct upcall_message, version)",
        offset_of!(Message, version),
    ),
    (
        "offsetof(struct upcall_message, ask)",
        offset_of!(Message, ask),
    ),
    ("sizeof(struct upcall_answer)", size_of::<Answer>()),
    (
        "offsetof(struct upcall_answer, magic)",
        offset_of!(Answer, magic),
    ),
    (
        "offsetof(struct upcall_answer, version)",
        offset_of!(Answer, version),
    ),
    (
        "offsetof(struct upcall_answer, status)",
        offset_of!(Answer, status),
    ),
    (
        "offsetof(struct upcall_answer, generation)",
        offset_of!(Answer, generation),
    ),
    (
        "offsetof(struct upcall_answer, count)",
        offset_of!(Answer, count),
    ),
    (
        "offsetof(struct upcall_answer, flags)",
        offset_of!(Answer, flags),
    ),
    ("sizeof(struct upcall_row)", size_of::<Row>()),
    ("offsetof(struct upcall_row, pid)", offset_of!(Row, pid)),
    ("offsetof(struct upcall_row, state)", offset_of!(Row, state)),
    ("offsetof(struct upcall_row, since)", offset_of!(Row, since)),
    ("offsetof(struct upcall_row, wants)", offset_of!(Row, wants)),
    ("offsetof(struct upcall_row, has)", offset_of!(Row, has)),
    ("offsetof(struct upcall_row, share)", offset_of!(Row, share)),
    ("offsetof(struct upcall_row, user)", offset_of!(Row, user)),
];

// The numbers of the header.
const _: () = {
    assert!(PROCESSORS as usize == WORDS * 64);
    let expected = [
        16, 0, 8, 12, 88, 16, 24, 28, 32, 64, 72, 80, 144, 16, 20, 24, 56, 88, 96, 104, 108, 112,
        64, 8, 12, 16, 24, 28, 16448, 16, 64, 16, 0, 8, 12, 32, 0, 8, 12, 16, 24, 28, 88, 0, 4, 8,
        16, 48, 80, 84,
    ];
    let mut at = 0;
    while at < LAYOUT.len() {
        assert!(LAYOUT[at].1 == expected[at]);
        at += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let message = Message::new(ASK_LIST);
        assert_eq!(Message::read(&message.bytes()), Some(message));
        let answer = Answer {
            magic: MAGIC,
            version: 7,
            status: STATUS_FULL,
            generation: u64::MAX - 1,
            count: 3,
            flags: 5,
        };
        assert_eq!(Answer::read(&answer.bytes()), Some(answer));
        let row = Row {
            pid: 9,
            state: STATE_WAITING,
            since: 1 << 40,
            wants: [1, 2, 3, 4],
            has: [5, 6, 7, u64::MAX],
            share: 3,
            user: 1000,
        };
        assert_eq!(Row::read(&row.bytes()), Some(row));
    }

    #[test]
    fn a_packet_of_another_kind_is_none() {
        let bytes = Message::new(ASK_JOIN).bytes();
        assert_eq!(Message::read(&bytes[..15]), None);
        assert_eq!(Message::read(&[0; 16]), None);
        assert_eq!(Answer::read(&[0; 32]), None);
        assert_eq!(Answer::read(&bytes), None);
        assert_eq!(Row::read(&bytes), None);
    }
}
