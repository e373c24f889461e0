//! The registry's memory can hold anything. A member that reads it may lose turns by that, and nothing else.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;

use proptest::prelude::*;

use super::super::rules::truce;
use super::super::rules::{TIMES, decide};
use super::*;

const MS: u64 = 1_000_000;

/// Numbers that are likelier to do harm than others.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(u64::MAX - 1),
        Just(i64::MAX as u64),
        (0..3 * TIMES.longest),
        any::<u64>(),
    ]
}

fn busy() -> impl Strategy<Value = Set> {
    prop_oneof![
        Just(Set([3, 0, 0, 0])),
        Just(Set([u64::MAX; Set::WORDS])),
        any::<[u64; Set::WORDS]>().prop_map(Set),
    ]
}

fn member(id: u32) -> impl Strategy<Value = Member> {
    let phase = prop_oneof![
        Just(Phase::Resting),
        number().prop_map(|since| Phase::On { since }),
        (number(), number()).prop_map(|(since, offered)| Phase::Waiting { since, offered }),
    ];
    let truce = (number(), number()).prop_map(|(until, length)| Truce { until, length });
    (busy(), phase, number(), truce).prop_map(move |(busy, phase, beat, truce)| Member {
        id,
        busy,
        phase,
        beat,
        truce,
    })
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    (0..SLOTS as u32).map(member).collect::<Vec<_>>()
}

proptest! {
    /// Rule 4: a hostile member costs a bounded time. Here all others are hostile, and say something else
    /// at each look.
    #[test]
    fn nobody_waits_longer_than_the_longest_time_whatever_the_others_say(
        moods in prop::collection::vec(members(), 1..4),
        me in 0..SLOTS as u32,
        start in prop_oneof![Just(1u64), Just(u64::MAX / 2)],
    ) {
        let mut mine = Member {
            id: me,
            busy: Set([3, 0, 0, 0]),
            ..Member::default()
        };
        let (mut since, mut longest) = (start, 0);
        for step in 0..1200u64 {
            let now = start + step * 5 * MS;
            let others = &moods[step as usize % moods.len()];
            mine.truce = truce::in_force(&mine, others, now, &TIMES);
            prop_assert!(mine.truce.until <= now + TIMES.longest_truce);
            prop_assert!(mine.truce.length <= TIMES.longest_truce);
            let verdict = decide(&mine, others, now, &TIMES);
            prop_assert_eq!(verdict.offers & (1 << me), 0);
            prop_assert_eq!(verdict.holders & (1 << me), 0);
            mine.phase = verdict.phase;
            mine.beat = now;
            match verdict.phase {
                Phase::Waiting { .. } => longest = longest.max(now - since),
                _ => since = now,
            }
        }
        prop_assert!(longest <= TIMES.longest + 10 * MS, "waited {} ms", longest / MS);
    }

    /// Every word of the file but the two that say what it is.
    #[test]
    fn a_file_full_of_anything_can_be_joined_read_and_left(
        words in prop::collection::vec(number(), (SIZE - 16) / 8),
        id in any::<u32>(),
    ) {
        let path = std::env::temp_dir().join(format!("upcall-hostile-{}", std::process::id()));
        let mut bytes = Vec::with_capacity(SIZE);
        for word in [MAGIC, SIZE as u64].iter().chain(&words) {
            bytes.extend(word.to_le_bytes());
        }
        {
            use std::io::Write as _;
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&path)
                .unwrap();
            file.write_all(&bytes).unwrap();
        }
        let own = std::process::id() as i32;
        let name = || Path::new().text(path.to_str().unwrap().as_bytes());
        let joined = Registry::join_at(name, own);
        fs::remove_file(&path).unwrap();
        let registry = match joined {
            Ok(registry) => registry,
            Err(why) => {
                prop_assert_eq!(why, Trouble::Full);
                return Ok(());
            }
        };
        // What the last one in the slot left is gone.
        prop_assert_eq!(registry.me().phase, Phase::Resting);
        prop_assert!(registry.me().busy.is_empty());
        let mut room = [Member::default(); SLOTS];
        let count = registry.others(&mut room);
        prop_assert!(count < SLOTS);
        registry.publish_busy(Set([3, 0, 0, 0]));
        let me = Member { phase: Phase::Waiting { since: 1, offered: 0 }, ..registry.me() };
        let verdict = decide(&me, &room[..count], 5 * MS, &TIMES);
        for other in 0..SLOTS as u32 {
            if verdict.offers & (1 << other) != 0 {
                registry.offer(other, 5 * MS);
            }
        }
        registry.want(id);
        registry.ring(id);
        // Its own process lives.
        prop_assert!(!registry.bury(registry.id()));
        registry.leave();
        detach(registry.shared);
    }
}
