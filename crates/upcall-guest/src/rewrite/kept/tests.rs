use super::*;
use crate::rewrite::object;
use crate::rewrite::site::Reason;
use iced_x86::{Code, Decoder, DecoderOptions};
use proptest::prelude::*;

fn key() -> impl Strategy<Value = Key> {
    let parts = (any::<[u8; 20]>(), any::<[u64; 5]>(), any::<u32>());
    parts.prop_map(|(build_id, file, first)| Key {
        build_id,
        file,
        first,
    })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(before, length, wide)| {
            Verdict::Window {
                before,
                length,
                wide,
            }
        }),
        prop::sample::select(vec![
            Reason::Sigreturn,
            Reason::NoWindow,
            Reason::NoFunction
        ])
        .prop_map(Verdict::Refused),
    ]
}

fn decisions() -> impl Strategy<Value = Decisions> {
    let one = (
        any::<u32>(),
        prop::option::of(0..1000u16),
        verdict(),
        any::<u32>(),
    );
    (
        prop::collection::vec(one, 0..40),
        any::<u32>(),
        any::<u32>(),
    )
        .prop_map(|(mut all, other_pairs, from)| {
            all.sort_by_key(|one| one.0);
            all.dedup_by_key(|one| one.0);
            let decision = |(offset, number, verdict, sum)| Decision {
                offset,
                number,
                verdict,
                sum,
            };
            Decisions {
                decisions: all.into_iter().map(decision).collect(),
                other_pairs,
                cancel: (from < 1000).then_some(from..2000),
            }
        })
}

fn some_numbers(number: Option<u32>) -> bool {
    number.is_none_or(|number| number % 3 == 0)
}

/// All that a file says.
fn decode(key: &Key, bytes: &[u8]) -> Option<Decisions> {
    let reader = open(key, bytes)?;
    Some(Decisions {
        decisions: reader.decisions().collect::<Option<_>>()?,
        other_pairs: reader.other_pairs() as u32,
        cancel: reader.cancel(),
    })
}

/// What a program gets of decisions that were kept.
fn through_a_file(
    kept: &Decisions,
    image: &Image<'_>,
    base: usize,
    wanted: Option<fn(Option<u32>) -> bool>,
) -> Option<Found> {
    let key = Key {
        build_id: [1; 20],
        file: [1; 5],
        first: 1,
    };
    let bytes = encode(&key, kept, wanted.unwrap_or(|_| true));
    recall(&open(&key, &bytes)?, image, base, &[], wanted)
}

fn same(one: &Site, other: &Site) -> bool {
    let ranges = |site: &Site| {
        site.window
            .as_ref()
            .map(|w| (w.range.clone(), w.wide))
            .map_err(Clone::clone)
    };
    one.address == other.address && one.number == other.number && ranges(one) == ranges(other)
}

fn libc_object() -> Object {
    object::at(libc::getppid as *const () as usize).expect("the test is linked with libc")
}

#[test]
fn what_is_kept_of_libc_is_what_its_scan_has_found() {
    let libc = libc_object();
    // SAFETY: libc stays, and nothing in this test rewrites it.
    let image = unsafe { libc.image() };
    let scan = site::scan(&image, &[]);
    let base = libc.span().start;
    let key = Key::of(&libc, &image, 1).expect("libc has a build id and a file");
    let kept = decided(&scan, &image, base).expect("libc is an object like others");
    let bytes = encode(&key, &kept, some_numbers);
    assert!(bytes.len() <= format::LONGEST);
    let kept = decode(&key, &bytes).expect("it was just written");
    let all = through_a_file(&kept, &image, base, None).expect("nothing has changed");
    assert_eq!(all.left, None);
    assert_eq!(all.scan.other_pairs, scan.other_pairs);
    assert_eq!(all.scan.cancel, scan.cancel);
    assert_eq!(all.scan.sites.len(), scan.sites.len());
    assert!(
        all.scan
            .sites
            .iter()
            .zip(&scan.sites)
            .all(|(a, b)| same(a, b))
    );
    let exits = |number: Option<u32>| number == Some(libc::SYS_exit_group as u32);
    let some = through_a_file(&kept, &image, base, Some(exits)).expect("nothing has changed");
    let (left, got) = (some.left.expect("some are left"), some.scan.sites.len());
    assert!(left > 100 && left + got == all.scan.sites.len());
}

#[test]
fn the_first_decisions_are_read_without_the_others() {
    let libc = libc_object();
    // SAFETY: as above.
    let image = unsafe { libc.image() };
    let base = libc.span().start;
    let kept = decided(&site::scan(&image, &[]), &image, base).expect("an object like others");
    let key = Key::of(&libc, &image, 1).expect("libc has a build id and a file");
    let exits = |number: Option<u32>| number == Some(libc::SYS_exit_group as u32);
    let bytes = encode(&key, &kept, exits);
    let Beginning::First(first) = open_beginning(&key, &bytes[..BEGINNING]) else {
        panic!("they are in the beginning");
    };
    let found = recall(&first, &image, base, &[], Some(exits)).expect("nothing has changed");
    let all = through_a_file(&kept, &image, base, Some(exits)).expect("nothing has changed");
    assert_eq!(found.left, all.left);
    let addresses = |found: &Found| -> Vec<usize> {
        let sites = found.scan.sites.iter();
        sites.map(|site| site.address).collect()
    };
    assert_eq!(addresses(&found), addresses(&all));
    let all_first = encode(&key, &kept, |_| true);
    let beginning = open_beginning(&key, &all_first[..BEGINNING]);
    assert!(matches!(beginning, Beginning::Longer));
    for at in 0..BEGINNING.min(90 + 16 * first.first().count()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let beginning = open_beginning(&key, &damaged[..BEGINNING]);
        assert!(!matches!(beginning, Beginning::First(_)), "byte {at}");
    }
}

#[test]
fn one_changed_byte_in_a_window_makes_the_whole_file_worth_nothing() {
    let libc = libc_object();
    // SAFETY: as above.
    let image = unsafe { libc.image() };
    let scan = site::scan(&image, &[]);
    let base = libc.span().start;
    let mut kept = decided(&scan, &image, base).expect("libc is an object like others");
    assert!(through_a_file(&kept, &image, base, None).is_some());
    let windows = |d: &&mut Decision| matches!(d.verdict, Verdict::Window { .. });
    let last = kept.decisions.iter_mut().rfind(windows);
    last.expect("libc has windows").sum ^= 1;
    assert!(through_a_file(&kept, &image, base, None).is_none());
}

proptest! {
    #[test]
    fn decisions_are_read_as_they_were_written(key in key(), decisions in decisions()) {
        let bytes = encode(&key, &decisions, some_numbers);
        prop_assert_eq!(decode(&key, &bytes), Some(decisions));
        let mut other = key;
        other.file[4] ^= 1;
        prop_assert_eq!(decode(&other, &bytes), None);
    }

    #[test]
    fn a_damaged_file_is_none(
        key in key(), decisions in decisions(), at in any::<prop::sample::Index>(), with in 1..=255u8,
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(&key, &decisions, some_numbers);
        prop_assert_eq!(decode(&key, &bytes[..cut.index(bytes.len())]), None);
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        prop_assert_eq!(decode(&key, &bytes), None);
    }

    /// Bytes that somebody else wrote, with a sum that fits.
    #[test]
    fn any_bytes_are_sites_in_order_or_none(
        key in key(), decisions in decisions(), noise in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..9),
        rest in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut bytes = encode(&key, &decisions, some_numbers);
        bytes.truncate(bytes.len() - 8);
        let head = 72;
        for (at, byte) in noise {
            let at = head + at.index(bytes.len() - head);
            bytes[at] = byte;
        }
        bytes.extend(rest.iter().take(rest.len() / 16 * 16));
        let sum = format::sum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let _ = (decode(&key, &bytes), decode(&key, &rest));
        let libc = libc_object();
        // SAFETY: as above.
        let image = unsafe { libc.image() };
        if let Some(found) = open(&key, &bytes).and_then(|r| recall(&r, &image, libc.span().start, &[], None)) {
            prop_assert!(found.scan.sites.is_sorted_by_key(|site| site.address));
        }
    }

    /// A file that is whole and says anything: only windows come out of it.
    #[test]
    fn whatever_a_file_says_what_is_used_is_a_window(
        picks in prop::collection::vec((any::<prop::sample::Index>(), -3i64..4, 0u8..20, 0u8..30), 1..6),
        fits in any::<bool>(),
    ) {
        let libc = libc_object();
        // SAFETY: as above.
        let image = unsafe { libc.image() };
        let base = libc.span().start;
        let part = image.code().max_by_key(|part| part.bytes.len()).expect("code");
        let calls: Vec<usize> = memchr::memmem::find_iter(part.bytes, b"\x0f\x05").collect();
        let mut decisions: Vec<Decision> = picks.iter().map(|(pick, off, before, length)| {
            let address = part.start + calls[pick.index(calls.len())].saturating_add_signed(*off as isize);
            let start = address - usize::from(*before);
            let range = start..start + usize::from(*length);
            Decision {
                offset: (address - base) as u32,
                number: Some(1),
                verdict: Verdict::Window { before: *before, length: *length, wide: false },
                sum: if fits { sum_of(&image, &range).unwrap_or(0) } else { 7 },
            }
        }).collect();
        decisions.sort_by_key(|d| d.offset);
        let kept = Decisions { decisions, other_pairs: 0, cancel: None };
        let Some(found) = through_a_file(&kept, &image, base, None) else { return Ok(()) };
        let mut end = 0;
        for site in found.scan.sites {
            let window = site.window.expect("only windows were asked for");
            prop_assert!(window.range.start >= end && window.range.len() >= 5);
            end = window.range.end;
            let bytes = image.bytes(window.range.clone()).expect("in one piece");
            let decoder = Decoder::with_ip(64, bytes, window.range.start as u64, DecoderOptions::NONE);
            let all: Vec<_> = decoder.into_iter().collect();
            prop_assert!(all.iter().all(|i| !i.is_invalid()));
            prop_assert!(all.iter().any(|i| i.ip() == site.address as u64 && i.code() == Code::Syscall));
            prop_assert_eq!(all.len(), window.before.len() + 1 + window.after.len());
            for moved in window.before.iter().chain(&window.after) {
                let i = all.iter().find(|i| i.ip() == moved.start as u64).expect("a whole instruction");
                let depends = i.is_ip_rel_memory_operand() || crate::rewrite::code::near_target(i).is_some();
                prop_assert_eq!(depends, moved.relative.is_some());
                prop_assert!(!i.is_call_near() && !i.is_call_near_indirect());
            }
        }
    }
}
