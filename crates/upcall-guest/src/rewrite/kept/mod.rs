//! What a scan of an object has found is kept, so that the next program that loads the object need not scan it.
//!
//! A file holds the decisions of one scan (`format`): where each system call is, its window, or why it has none. It
//! lies in a directory of the user's own (`place`). See docs/adr/0032.
//!
//! 1. An object is known by its build id, which is in memory, and by its file: device, inode, size, and the moment of the
//!    last change, which the kernel keeps and nobody can set. The kernel's own object is known by all its bytes. An object
//!    without a build id is scanned each time. If no file can be kept, the process itself keeps what it has left for later.
//! 2. A file counts if it is of that object, whole, and as its writer has summed it up.
//! 3. Each window that is used is decoded again from the object's own bytes, and must be what a scan could have chosen
//!    ([`Window::again`]). If one is not, the whole file is worth nothing, and the object is scanned.
//!
//! So what a file says decides where jumps are written, never what is written there: a window that is no window is not
//! used. What remains is trust in the user's own files: that no branch leads into the middle of a window, only a scan can
//! find. A jump there meets `int3`.

mod format;
mod place;

use std::ops::Range;
use std::sync::Mutex;

use self::format::LONGEST;
use crate::rewrite::object::{Image, Object, Role};
use crate::rewrite::site::{self, Scan, Site, Window};

pub use format::{
    BEGINNING, Beginning, Decision, Decisions, First, Key, Reader, Verdict, encode, open,
    open_beginning,
};
pub use place::{note, while_open};

/// The sites of an object.
pub struct Found {
    /// Those that are asked for.
    pub scan: Scan,
    /// How many windows were not asked for, if only some were.
    pub left: Option<usize>,
}

/// What no file holds, by where the object begins: without a directory, a build id, or room for so many sites. The rest of
/// the object is rewritten by it later.
static UNWRITTEN: Mutex<Vec<(usize, Vec<u8>)>> = Mutex::new(Vec::new());

/// The key of what stays in memory, for an object that has none.
const NAMELESS: Key = Key {
    build_id: [0; 20],
    file: [0; 5],
    first: 0,
};

/// Forgets what is kept in memory about an object that is gone, by where it began.
pub fn forget(base: usize) {
    if let Ok(mut unwritten) = UNWRITTEN.try_lock() {
        unwritten.retain(|one| one.0 != base);
    }
}

fn take_unwritten(base: usize) -> Option<Vec<u8>> {
    let mut unwritten = UNWRITTEN.try_lock().ok()?;
    let at = unwritten.iter().position(|one| one.0 == base)?;
    Some(unwritten.swap_remove(at).1)
}

/// Finds the sites of an object. `known` holds windows that are rewritten already, by address. `wanted` says of a call's
/// number if its windows are asked for now, `None`: all are. No number is asked for that is not among the `first`.
pub fn sites(
    object: &Object,
    image: &Image<'_>,
    known: &[Range<usize>],
    wanted: Option<fn(Option<u32>) -> bool>,
    first: First,
) -> Found {
    if image.has_no_call() {
        let scan = Scan::default();
        return Found { scan, left: None };
    }
    let base = object.span().start;
    let named = match object.role {
        Role::Runtime => None,
        _ => Key::of(object, image, first.set),
    };
    let key = named.as_ref().unwrap_or(&NAMELESS);
    let recall_all = |bytes: &[u8]| recall(&open(key, bytes)?, image, base, known, wanted);
    if let Some(found) = take_unwritten(base).and_then(|bytes| recall_all(&bytes)) {
        return found;
    }
    if let Some(key) = &named {
        let all = || recall_all(&place::read(key, LONGEST)?);
        let beginning = || {
            let bytes = place::read(key, BEGINNING)?;
            match open_beginning(key, &bytes) {
                Beginning::First(kept) => recall(&kept, image, base, known, wanted),
                Beginning::Longer => all(),
                Beginning::None => None,
            }
        };
        let kept = match wanted {
            Some(_) => beginning(),
            None => all(),
        };
        if let Some(found) = kept {
            return found;
        }
    }
    let scan = site::scan(image, known);
    if known.is_empty()
        && let Some(decisions) = decided(&scan, image, base)
    {
        let bytes = encode(key, &decisions, first.is);
        let is_written = named.as_ref().is_some_and(|key| place::write(key, &bytes));
        if wanted.is_some()
            && let Some(found) = recall_all(&bytes)
        {
            if !is_written && let Ok(mut unwritten) = UNWRITTEN.try_lock() {
                unwritten.push((base, bytes));
            }
            return found;
        }
    }
    Found { scan, left: None }
}

/// Returns the sites that were decided on, for an object that begins at `base`; `None` if one of them is no site, or no
/// window.
pub fn recall(
    kept: &Reader<'_>,
    image: &Image<'_>,
    base: usize,
    known: &[Range<usize>],
    wanted: Option<fn(Option<u32>) -> bool>,
) -> Option<Found> {
    let absolute = |range: &Range<u32>| {
        Some(base.checked_add(range.start as usize)?..base.checked_add(range.end as usize)?)
    };
    // Those that are asked for are all among the first.
    let (first, all) = (&mut kept.first(), &mut kept.decisions());
    let (decisions, left): (&mut dyn Iterator<Item = Option<Decision>>, _) = match wanted {
        Some(_) => (first, Some(kept.nr_others())),
        None => (all, None),
    };
    let nr_all = kept.first().count() + kept.nr_others();
    let mut found = Found {
        scan: Scan {
            // To grow would touch pages that are not needed.
            sites: Vec::with_capacity(nr_all - left.unwrap_or(0)),
            other_pairs: kept.other_pairs(),
            cancel: match kept.cancel() {
                Some(range) => Some(site::CancelRange(absolute(&range)?)),
                None => None,
            },
        },
        left,
    };
    // Up to here everything is decided.
    let mut taken = base;
    for decision in decisions {
        let decision = decision?;
        let address = base.checked_add(decision.offset as usize)?;
        if address < taken {
            return None;
        }
        if known.iter().any(|known| known.contains(&address)) {
            taken = address + 1;
            continue;
        }
        let number = decision.number.map(u32::from);
        let window = match decision.verdict {
            Verdict::Window { .. } if wanted.is_some_and(|wanted| !wanted(number)) => {
                found.left = found.left.map(|left| left + 1);
                taken = address + 1;
                continue;
            }
            Verdict::Window {
                before,
                length,
                wide,
            } => {
                let start = address.checked_sub(usize::from(before))?;
                let range = start..start.checked_add(usize::from(length))?;
                if range.start < taken || sum_of(image, &range)? != decision.sum {
                    return None;
                }
                taken = range.end;
                Ok(Window::again(image, address, range, wide)?)
            }
            Verdict::Refused(reason) => {
                taken = address + 1;
                Err(reason)
            }
        };
        found.scan.sites.push(Site {
            address,
            number,
            window,
        });
    }
    Some(found)
}

/// Returns what a complete scan has decided; `None` if that cannot be written down.
pub fn decided(scan: &Scan, image: &Image<'_>, base: usize) -> Option<Decisions> {
    let offset = |address: usize| u32::try_from(address.checked_sub(base)?).ok();
    let decide = |site: &Site| {
        let (verdict, sum) = match &site.window {
            Ok(window) => (
                Verdict::Window {
                    before: u8::try_from(site.address - window.range.start).ok()?,
                    length: u8::try_from(window.range.len()).ok()?,
                    wide: window.wide,
                },
                sum_of(image, &window.range)?,
            ),
            Err(reason) => (Verdict::Refused(reason.clone()), 0),
        };
        Some(Decision {
            offset: offset(site.address)?,
            number: match site.number {
                Some(number) => Some(u16::try_from(number).ok().filter(|&n| n != u16::MAX)?),
                None => None,
            },
            verdict,
            sum,
        })
    };
    Some(Decisions {
        decisions: scan.sites.iter().map(decide).collect::<Option<_>>()?,
        other_pairs: scan.other_pairs.try_into().ok()?,
        cancel: match &scan.cancel {
            Some(range) => Some(offset(range.0.start)?..offset(range.0.end)?),
            None => None,
        },
    })
}

fn sum_of(image: &Image<'_>, range: &Range<usize>) -> Option<u32> {
    image
        .bytes(range.clone())
        .map(|bytes| format::sum(bytes) as u32)
}

#[cfg(test)]
mod tests;
