//! Whatever events say, a timeline adds up.

use std::collections::HashMap;

use proptest::prelude::*;
use prost::Message;
use upcall_abi::trace::{wait, what};

use super::packets::{Kind, Trace};
use super::space::About;
use super::spool::{Event, GAP, Spool};
use super::timeline::{Summary, write};

fn event(time: u64, ring: u32, what: u32, thread: u64, argument: u64) -> Event {
    Event {
        time,
        ring,
        what: what as u16,
        vp: 0,
        thread,
        argument,
    }
}

fn timeline(events: &[Event]) -> (Trace, Summary) {
    let mut spool = Spool::new(&std::env::temp_dir()).expect("a spool");
    for one in events {
        spool.push(one).expect("room");
    }
    spool.flush().expect("room");
    let sorted = spool.sorted().expect("a mapping");
    let about = About {
        pid: 7,
        name: "program".into(),
        began_ns: 0,
        ended_ns: None,
        remark: None,
    };
    let mut bytes = Vec::new();
    let summary = write(&[about], &sorted, &mut bytes).expect("room");
    (Trace::decode(&*bytes).expect("a trace"), summary)
}

/// Slices by the names of their tracks: names, begins and ends. Each that begins must end, on a track that is there.
fn slices(trace: &Trace) -> Vec<(String, String, u64, u64)> {
    let (mut tracks, mut names) = (HashMap::new(), HashMap::new());
    let mut open: HashMap<u64, Vec<(String, u64)>> = HashMap::new();
    let mut last: HashMap<u64, u64> = HashMap::new();
    let mut slices = Vec::new();
    for packet in &trace.packet {
        let fresh = packet
            .interned_data
            .iter()
            .flat_map(|data| &data.event_names);
        names.extend(fresh.map(|name| (name.iid(), name.name().to_owned())));
        if let Some(track) = &packet.track_descriptor {
            tracks.insert(track.uuid(), track.name().to_owned());
        }
        let Some(event) = &packet.track_event else {
            continue;
        };
        let (track, time) = (event.track_uuid(), packet.timestamp());
        assert!(last.insert(track, time).unwrap_or(0) <= time);
        let place = &tracks[&track];
        match event.r#type() {
            Kind::SliceBegin => {
                let name = names[&event.name_iid()].clone();
                open.entry(track).or_default().push((name, time));
            }
            Kind::SliceEnd => {
                let (name, begin) = open.get_mut(&track).and_then(Vec::pop).expect("a begin");
                slices.push((place.clone(), name, begin, time));
            }
            Kind::Instant | Kind::Counter => {}
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    slices
}

fn has(slices: &[(String, String, u64, u64)], track: &str, name: &str, times: (u64, u64)) -> bool {
    slices.iter().any(|(its, one, begin, end)| {
        its.starts_with(track) && one == name && (*begin, *end) == times
    })
}

#[test]
fn a_thread_that_waits_for_a_word_is_shown() {
    let name = u64::from_le_bytes(*b"worker\0\0");
    let (trace, summary) = timeline(&[
        event(1, 0, what::IDENTITY, 64, 1000),
        event(1, 0, what::NAME, 64, name),
        event(2, 1, what::CREATED, 64, 0),
        event(10, 1, what::RUNS, 64, 0),
        event(20, 1, what::BLOCKED, 64, 0x1000 | wait::WORD),
        event(21, 1, what::IDLE, 0, 0),
        event(30, 1, what::BUSY, 0, 0),
        event(31, 2, what::UNBLOCKED, 64, 0),
        event(40, 1, what::RUNS, 64, 0),
        event(50, 1, what::ENDED, 64, 0),
    ]);
    let slices = slices(&trace);
    for (track, name, times) in [
        ("worker 1000", "ready", (2, 10)),
        ("worker 1000", "runs", (10, 20)),
        ("worker 1000", "waits for a word", (20, 31)),
        ("worker 1000", "ready", (31, 40)),
        ("worker 1000", "runs", (40, 50)),
        ("virtual processor 0", "worker 1000", (10, 20)),
        ("virtual processor 0", "idle", (21, 30)),
        ("activation 1", "worker 1000", (40, 50)),
    ] {
        assert!(has(&slices, track, name, times), "{name}: {slices:?}");
    }
    let expected = Summary {
        threads: 1,
        vps: 1,
        time_ns: 50,
        busy_ns: 41,
    };
    assert_eq!(summary, expected);
}

#[test]
fn a_call_that_blocks_is_an_upcall() {
    let (trace, _) = timeline(&[
        event(1, 1, what::RUNS, 64, 0),
        event(10, 1, what::CALLS, 64, 73 | 5 << 32),
        event(12, 2, what::ABSENT, 64, 1),
        event(13, 2, what::RUNS, 128, 0),
        event(20, 2, what::YIELDED, 128, 0),
        event(21, 1, what::UNBLOCKED, 64, 0),
        event(22, 1, what::RESUMES, 64, 0),
        event(30, 1, what::ENDED, 64, 0),
    ]);
    let all = slices(&trace);
    for (track, name, times) in [
        ("thread 1", "flock of descriptor 5", (10, 21)),
        ("virtual processor 0", "thread 1", (1, 12)),
        ("virtual processor 0", "thread 2", (13, 20)),
        ("thread 1", "runs", (22, 30)),
    ] {
        assert!(has(&all, track, name, times), "{name}: {all:?}");
    }
    let arrows = |ends: bool| -> Vec<u64> {
        let events = trace
            .packet
            .iter()
            .filter_map(|one| one.track_event.as_ref());
        let ids = |event: &super::packets::TrackEvent| match ends {
            true => event.terminating_flow_ids.clone(),
            false => event.flow_ids.clone(),
        };
        events.flat_map(ids).collect()
    };
    // The upcall, and the return.
    assert_eq!(arrows(true).len(), 2);
    assert!(arrows(true).iter().all(|one| arrows(false).contains(one)));
}

/// As where a program is asked for a timeline while a thread is in a call.
#[test]
fn what_begins_in_the_middle_of_a_call_is_shown_where_it_runs() {
    let (trace, _) = timeline(&[
        event(10, 1, what::RETURNS, 64, 0),
        event(20, 1, what::CALLS, 64, 73 | 5 << 32),
        event(30, 1, what::RETURNS, 64, 0),
        event(40, 1, what::ENDED, 64, 0),
        event(50, 1, what::CALLS, 128, 73 | 5 << 32),
        event(60, 1, what::RETURNS, 128, 0),
        event(70, 1, what::ENDED, 128, 0),
    ]);
    let all = slices(&trace);
    for (track, name, times) in [
        ("thread 1", "runs", (10, 20)),
        ("thread 1", "flock of descriptor 5", (20, 30)),
        ("virtual processor 0", "thread 1", (10, 40)),
        ("activation 1", "thread 1", (10, 40)),
        ("thread 2", "flock of descriptor 5", (50, 60)),
        ("virtual processor 0", "thread 2", (50, 70)),
    ] {
        assert!(has(&all, track, name, times), "{name}: {all:?}");
    }
}

#[test]
fn what_was_dropped_is_said() {
    let (trace, _) = timeline(&[
        event(1, 1, what::RUNS, 64, 0),
        Event::gap(1, 10, 5),
        event(10, 1, what::RUNS, 64, 0),
    ]);
    let all = slices(&trace);
    assert!(has(&all, "thread 1", "runs", (1, 10)), "{all:?}");
    let said = trace.packet.iter().any(|packet| {
        let event = packet.track_event.as_ref();
        event.is_some_and(|event| {
            event
                .debug_annotations
                .iter()
                .any(|one| one.uint_value == Some(5))
        })
    });
    assert!(said);
}

fn any_event() -> impl Strategy<Value = Event> {
    let what = prop_oneof![0_u16..40, Just(GAP), any::<u16>()];
    let ring = prop_oneof![0_u32..4, any::<u32>()];
    (0_u64..1000, ring, what, 0_u16..3, 0_u64..5, any::<u64>()).prop_map(
        |(time, ring, what, vp, thread, argument)| Event {
            time,
            ring,
            what,
            vp,
            thread,
            argument,
        },
    )
}

proptest! {
    #[test]
    fn any_events_make_a_timeline_that_adds_up(
        events in prop::collection::vec(any_event(), 0..200),
    ) {
        let (trace, summary) = timeline(&events);
        let all = slices(&trace);
        prop_assert!(summary.busy_ns <= summary.time_ns);
        // One thing at a time, for each thread and each virtual processor.
        let mut by_track: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
        for (track, _, begin, end) in &all {
            if !track.starts_with("activation") && !track.starts_with("kernel") {
                by_track.entry(track).or_default().push((*begin, *end));
            }
        }
        for times in by_track.values_mut() {
            times.sort_unstable();
            for pair in times.windows(2) {
                prop_assert!(pair[0].1 <= pair[1].0, "{:?}", times);
            }
        }
    }
}
