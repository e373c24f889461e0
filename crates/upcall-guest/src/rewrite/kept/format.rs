//! The file in which the decisions of one scan are kept.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | the format's name and version |
//! | 64 | of which object: the build id, the file ([`Key`]) |
//! | 16 | how many decisions, pairs that are no call, glibc's cancellable call |
//! | 16 each | the decisions, by address |
//! | 8 | the sum of all bytes before |
//!
//! Numbers are little-endian. The reader believes nothing: whatever the bytes are, its answer is decisions about places in
//! an object of 4 GiB, or none.

use std::ffi::CString;
use std::ops::Range;

use crate::ground::entry::raw_syscall;
use crate::rewrite::object::{BuildId, Object, Role};
use crate::rewrite::site::Reason;

const NAME: [u8; 8] = *b"upcsite2";
const HEAD: usize = 8 + Key::LENGTH + 16;
const ENTRY: usize = 16;
const SUM: usize = 8;
/// No file is longer: an object with more sites than fit is scanned each time.
pub const LONGEST: usize = 32 << 10;

const NO_NUMBER: u16 = u16::MAX;
const WINDOW: u8 = 1;
const WIDE_WINDOW: u8 = 2;
/// The reasons that a scan gives, by the byte that stands for each.
const REASONS: [(u8, Reason); 6] = [
    (16, Reason::NoFunction),
    (17, Reason::Undecodable),
    (18, Reason::Sigreturn),
    (19, Reason::Tiles),
    (20, Reason::UnknownTargets),
    (21, Reason::NoWindow),
];

/// By what an object is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The name of its contents.
    pub build_id: BuildId,
    /// Its file: device, inode, size, seconds and nanoseconds of the last change.
    pub file: [u64; 5],
}

impl Key {
    const LENGTH: usize = 64;

    /// Returns the key of a loaded object, if it has a build id and its file is where the loader has found it.
    pub fn of(object: &Object) -> Option<Self> {
        let build_id = object.build_id?;
        let path = match object.role {
            Role::Program => c"/proc/self/exe".to_owned(),
            // A relative one may lead elsewhere by now.
            _ if object.path.starts_with('/') => CString::new(object.path.as_str()).ok()?,
            _ => return None,
        };
        // SAFETY: a zeroed `stat` is valid, and the kernel fills it in; the path is a C string.
        let (found, data) = unsafe {
            let mut data: libc::stat = core::mem::zeroed();
            let (at, to) = (path.as_ptr() as u64, (&raw mut data) as u64);
            let words = [libc::AT_FDCWD as u64, at, to, 0, 0, 0];
            (raw_syscall(libc::SYS_newfstatat, words) == 0, data)
        };
        found.then_some(Self {
            build_id,
            file: [
                data.st_dev,
                data.st_ino,
                data.st_size as u64,
                data.st_ctime as u64,
                data.st_ctime_nsec as u64,
            ],
        })
    }

    fn bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let (id, rest) = bytes.split_at_mut(self.build_id.len());
        id.copy_from_slice(&self.build_id);
        for (to, number) in rest.chunks_exact_mut(8).zip(self.file) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Returns a number that tells objects apart, mostly: not one version of a file from the next.
    pub fn slot(&self) -> u64 {
        let [device, inode, ..] = self.file;
        let words = [device.to_le_bytes(), inode.to_le_bytes()].concat();
        sum(&words)
    }
}

/// What was decided about one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// From the object's first byte to the system call.
    pub offset: u32,
    /// The call's number, where the code shows it.
    pub number: Option<u16>,
    /// The window, or why there is none.
    pub verdict: Verdict,
    /// The sum of the window's bytes.
    pub sum: u32,
}

/// See [`Decision::verdict`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What is overwritten.
    Window {
        /// How many of its bytes are before the system call.
        before: u8,
        /// All its bytes.
        length: u8,
        /// See [`Window::wide`](crate::rewrite::site::Window::wide).
        wide: bool,
    },
    /// Nothing.
    Refused(Reason),
}

/// What was decided about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// By address.
    pub decisions: Vec<Decision>,
    /// See [`Scan::other_pairs`](crate::rewrite::site::Scan::other_pairs).
    pub other_pairs: u32,
    /// See [`Scan::cancel`](crate::rewrite::site::Scan::cancel), from the object's first byte.
    pub cancel: Option<Range<u32>>,
}

/// Returns a number that other bytes hardly have. It guards against accidents, not against people.
pub fn sum(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(ODD).rotate_left(29);
    let words = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    let sum = words.fold(bytes.len() as u64, |sum, word| {
        mix(sum, u64::from_le_bytes(word.try_into().unwrap_or_default()))
    });
    let sum = mix(mix(sum, u64::from_le_bytes(last)), ODD);
    sum ^ sum >> 32
}

/// Returns the file's bytes.
pub fn encode(key: &Key, decisions: &Decisions) -> Vec<u8> {
    let all = &decisions.decisions;
    let mut bytes = Vec::with_capacity(HEAD + all.len() * ENTRY + SUM);
    bytes.extend_from_slice(&NAME);
    bytes.extend_from_slice(&key.bytes());
    let cancel = decisions.cancel.clone().unwrap_or_default();
    for number in [
        all.len() as u32,
        decisions.other_pairs,
        cancel.start,
        cancel.end,
    ] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for decision in all {
        let (verdict, before, length) = match &decision.verdict {
            Verdict::Window {
                before,
                length,
                wide,
            } => (if *wide { WIDE_WINDOW } else { WINDOW }, *before, *length),
            Verdict::Refused(reason) => {
                let known = REASONS.iter().find(|(_, known)| known == reason);
                (known.map_or(0, |(byte, _)| *byte), 0, 0)
            }
        };
        bytes.extend_from_slice(&decision.offset.to_le_bytes());
        bytes.extend_from_slice(&decision.number.unwrap_or(NO_NUMBER).to_le_bytes());
        bytes.extend_from_slice(&[verdict, before, length, 0, 0, 0]);
        bytes.extend_from_slice(&decision.sum.to_le_bytes());
    }
    bytes.extend_from_slice(&sum(&bytes).to_le_bytes());
    bytes
}

/// A file, as it is read.
pub struct Reader<'a> {
    entries: &'a [u8],
    other_pairs: u32,
    cancel: Option<Range<u32>>,
}

/// Opens a file that is of the object with this key; `None` if it is of another, or no such file.
pub fn open<'a>(key: &Key, bytes: &'a [u8]) -> Option<Reader<'a>> {
    let (body, end) = bytes.split_last_chunk::<SUM>()?;
    let (head, entries) = body.split_at_checked(HEAD)?;
    let (name, rest) = head.split_at(NAME.len());
    let (of, counts) = rest.split_at(Key::LENGTH);
    let number = |at: usize| u32::from_le_bytes(*counts[at..].first_chunk().unwrap_or(&[0; 4]));
    let [count, other_pairs, from, to] = [0, 4, 8, 12].map(number);
    let is_whole = bytes.len() <= LONGEST
        && name == NAME
        && of == key.bytes()
        && entries.len() == (count as usize).checked_mul(ENTRY)?
        && sum(body) == u64::from_le_bytes(*end);
    is_whole.then_some(Reader {
        entries,
        other_pairs,
        cancel: (from < to).then_some(from..to),
    })
}

impl Reader<'_> {
    /// See [`Decisions::other_pairs`].
    pub fn other_pairs(&self) -> usize {
        self.other_pairs as usize
    }

    /// See [`Decisions::cancel`].
    pub fn cancel(&self) -> Option<Range<u32>> {
        self.cancel.clone()
    }

    /// Returns the decisions as they stand in the file. `None` in place of one that is none.
    pub fn decisions(&self) -> impl Iterator<Item = Option<Decision>> {
        self.entries.chunks_exact(ENTRY).map(decision)
    }
}

fn decision(entry: &[u8]) -> Option<Decision> {
    let (offset, rest) = entry.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let ([verdict, before, length, ..], rest) = rest.split_first_chunk::<6>()?;
    let number = u16::from_le_bytes(*number);
    Some(Decision {
        offset: u32::from_le_bytes(*offset),
        number: (number != NO_NUMBER).then_some(number),
        verdict: match *verdict {
            WINDOW | WIDE_WINDOW => Verdict::Window {
                before: *before,
                length: *length,
                wide: *verdict == WIDE_WINDOW,
            },
            other => {
                let (_, reason) = REASONS.iter().find(|(byte, _)| *byte == other)?;
                Verdict::Refused(reason.clone())
            }
        },
        sum: u32::from_le_bytes(*rest.first_chunk()?),
    })
}
