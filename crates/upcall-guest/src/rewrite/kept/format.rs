//! The file in which the decisions of one scan are kept.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | the format's name and version |
//! | 64 | of which object: the build id, the file ([`Key`]); which calls are first ([`First`]) |
//! | 24 | how many decisions are first, and how many others; pairs that are no call; glibc's cancellable call; 0 |
//! | 8 | the sum of these bytes and the first decisions |
//! | 16 each | the first decisions, by address: those about first calls, and those without a window |
//! | 16 each | the others, by address, windows all |
//! | 8 | the sum of all bytes before |
//!
//! A process without threads reads no more than the first decisions.
//!
//! Numbers are little-endian. The reader believes nothing: whatever the bytes are, its answer is decisions about places in
//! an object of 4 GiB, or none.

use std::ffi::CString;
use std::ops::Range;

use crate::ground::entry::raw_syscall;
use crate::rewrite::object::{BuildId, Image, Object, Role};
use crate::rewrite::site::Reason;

const NAME: [u8; 8] = *b"upcsite3";
const COUNTS: usize = 24;
const HEAD: usize = 8 + Key::LENGTH + COUNTS;
const ENTRY: usize = 16;
const SUM: usize = 8;
/// The beginning of a file has this much; the first decisions of most objects are in it.
pub const BEGINNING: usize = 1536;
/// No file is longer: an object with more sites than fit is scanned by each process.
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

/// Which calls' decisions are first in a file.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// Returns true if those about a call with this number are; `None`: it is not known.
    pub is: fn(Option<u32>) -> bool,
    /// A number that tells one such function from the next.
    pub set: u32,
}

impl First {
    /// None is.
    pub const NONE: Self = First {
        is: |_| false,
        set: 0,
    };
}

/// By what an object is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The name of its contents.
    pub build_id: BuildId,
    /// Its file: device, inode, size, seconds and nanoseconds of the last change. Of the kernel's own object, which has
    /// none: 0, the sum of its bytes, their number, and 0.
    pub file: [u64; 5],
    /// Which calls are first in what is kept: [`First::set`].
    pub first: u32,
}

impl Key {
    const LENGTH: usize = 64;

    /// Returns the key of a loaded object, if it has a build id and its file is where the loader has found it.
    pub fn of(object: &Object, image: &Image<'_>, first: u32) -> Option<Self> {
        let build_id = object.build_id?;
        let path = match object.role {
            Role::Vdso => {
                // The kernel adapts it to the processor when it starts.
                let bytes = image.parts.iter().map(|part| part.bytes);
                let (sum, size) = bytes.fold((0, 0), |(all, size), bytes| {
                    (sum(bytes) ^ u64::rotate_left(all, 1), size + bytes.len())
                });
                return Some(Self {
                    build_id,
                    file: [0, sum, size as u64, 0, 0],
                    first,
                });
            }
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
            first,
        })
    }

    fn bytes(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let (id, rest) = bytes.split_at_mut(self.build_id.len());
        id.copy_from_slice(&self.build_id);
        let (rest, first) = rest.split_at_mut(size_of_val(&self.file));
        first.copy_from_slice(&self.first.to_le_bytes());
        for (to, number) in rest.chunks_exact_mut(8).zip(self.file) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Returns a number that tells objects apart, mostly: not one version of a file from the next.
    pub fn slot(&self) -> u64 {
        let [device, inode, ..] = self.file;
        let words = [device, inode, self.first.into()];
        sum(words.map(u64::to_le_bytes).as_flattened())
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

/// Returns the file's bytes. `is_first` is that of [`First`].
pub fn encode(key: &Key, decisions: &Decisions, is_first: fn(Option<u32>) -> bool) -> Vec<u8> {
    let is_first = |decision: &&Decision| {
        let has_window = matches!(decision.verdict, Verdict::Window { .. });
        !has_window || is_first(decision.number.map(u32::from))
    };
    let (first, others): (Vec<_>, Vec<_>) = decisions.decisions.iter().partition(is_first);
    let all = first.len() + others.len();
    let mut bytes = Vec::with_capacity(HEAD + SUM + all * ENTRY + SUM);
    bytes.extend_from_slice(&NAME);
    bytes.extend_from_slice(&key.bytes());
    let cancel = decisions.cancel.clone().unwrap_or_default();
    for number in [
        first.len() as u32,
        others.len() as u32,
        decisions.other_pairs,
        cancel.start,
        cancel.end,
        0,
    ] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let first: Vec<u8> = first.into_iter().flat_map(entry).collect();
    let of_first = beginning_sum(&bytes, &first);
    bytes.extend_from_slice(&of_first.to_le_bytes());
    bytes.extend_from_slice(&first);
    bytes.extend(others.into_iter().flat_map(entry));
    bytes.extend_from_slice(&sum(&bytes).to_le_bytes());
    bytes
}

fn beginning_sum(head: &[u8], first: &[u8]) -> u64 {
    sum(head) ^ sum(first).rotate_left(1)
}

fn entry(decision: &Decision) -> [u8; ENTRY] {
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
    let mut entry = [0; ENTRY];
    entry[..4].copy_from_slice(&decision.offset.to_le_bytes());
    entry[4..6].copy_from_slice(&decision.number.unwrap_or(NO_NUMBER).to_le_bytes());
    entry[6..9].copy_from_slice(&[verdict, before, length]);
    entry[12..].copy_from_slice(&decision.sum.to_le_bytes());
    entry
}

/// A file, as it is read.
pub struct Reader<'a> {
    first: &'a [u8],
    others: &'a [u8],
    nr_others: u32,
    other_pairs: u32,
    cancel: Option<Range<u32>>,
}

/// What a look at the beginning of a file finds.
pub enum Beginning<'a> {
    /// The first decisions, and no others.
    First(Reader<'a>),
    /// They are not all there: the file must be read to its end.
    Longer,
    /// It is of another object, or no such file.
    None,
}

/// Opens the beginning of a file that is of the object with this key.
pub fn open_beginning<'a>(key: &Key, bytes: &'a [u8]) -> Beginning<'a> {
    match read_beginning(key, bytes) {
        Some((_, None)) => Beginning::Longer,
        Some((mut reader, Some(_))) => {
            reader.others = &[];
            Beginning::First(reader)
        }
        None => Beginning::None,
    }
}

/// Opens a file that is of the object with this key; `None` if it is of another, or no such file.
pub fn open<'a>(key: &Key, bytes: &'a [u8]) -> Option<Reader<'a>> {
    let (body, end) = bytes.split_last_chunk::<SUM>()?;
    let (mut reader, others) = read_beginning(key, body)?;
    reader.others = others?;
    let length = (reader.nr_others as usize).checked_mul(ENTRY)?;
    let is_whole = reader.others.len() == length && sum(body) == u64::from_le_bytes(*end);
    is_whole.then_some(reader)
}

/// Reads the head and the first decisions. Returns what stands behind those, `None` if they are not all there; nothing if
/// these bytes are of another object, or no such file.
fn read_beginning<'a>(key: &Key, bytes: &'a [u8]) -> Option<(Reader<'a>, Option<&'a [u8]>)> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let (name, of) = head.split_at(NAME.len());
    let (of, counts) = of.split_at(Key::LENGTH);
    let number = |at: usize| u32::from_le_bytes(*counts[at..].first_chunk().unwrap_or(&[0; 4]));
    let [nr_first, nr_others, other_pairs, from, to] = [0, 4, 8, 12, 16].map(number);
    if name != NAME || of != key.bytes() {
        return None;
    }
    let (of_first, entries) = rest.split_first_chunk::<SUM>()?;
    let mut reader = Reader {
        first: &[],
        others: &[],
        nr_others,
        other_pairs,
        cancel: (from < to).then_some(from..to),
    };
    let Some((first, others)) = entries.split_at_checked((nr_first as usize).checked_mul(ENTRY)?)
    else {
        return Some((reader, None));
    };
    reader.first = first;
    let is_whole = beginning_sum(head, first) == u64::from_le_bytes(*of_first);
    is_whole.then_some((reader, Some(others)))
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

    /// How many decisions are not first ones. All are windows.
    pub fn nr_others(&self) -> usize {
        self.nr_others as usize
    }

    /// Returns the first decisions as they stand in the file. `None` in place of one that is none.
    pub fn first(&self) -> impl Iterator<Item = Option<Decision>> {
        self.first.chunks_exact(ENTRY).map(decision)
    }

    /// Returns all decisions, by address if they stand so in the file.
    pub fn decisions(&self) -> impl Iterator<Item = Option<Decision>> {
        let offset = |entry: &[u8]| entry.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let mut first = self.first.chunks_exact(ENTRY).peekable();
        let mut others = self.others.chunks_exact(ENTRY).peekable();
        std::iter::from_fn(move || {
            let of_first = match (first.peek(), others.peek()) {
                (Some(one), Some(other)) => offset(one) < offset(other),
                (one, _) => one.is_some(),
            };
            let next = if of_first {
                first.next()
            } else {
                others.next()
            };
            next.map(decision)
        })
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
