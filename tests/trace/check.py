#!/usr/bin/env python3
"""Checks a timeline of `upcall trace`.

    check.py FILE [--busy PERCENT] [--processor WHEEL] [--names]

FILE is decoded by the schema in Perfetto's own Python package (`pip install perfetto`), and must add up: each slice
begins and ends, on a track that was described; a thread runs on one virtual processor at a time; each arrow ends where it
began, or later. With --busy the virtual processors were not idle for so much of the time, within one percent.

With --processor, or where the environment names it in UPCALL_TEST_TRACE_PROCESSOR, Perfetto's own trace processor loads the file,
too (`processor.py`). It must give the same numbers, and `queries.py` must find nothing wrong.
"""

import argparse
import os
import sys
from collections import Counter, defaultdict

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

Event = schema.TrackEvent


def fail(text):
    sys.exit(f"check.py: {text}")


def unknown_fields(message):
    """Fields that the schema does not have."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    found = [field.field_number for field in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in value if not hasattr(value, "ListFields") else [value]:
            found += unknown_fields(part)
    return found


def decode(path):
    trace = schema.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    if not trace.packet:
        fail("there is no packet")
    if unknown := unknown_fields(trace):
        fail(f"fields that the schema does not have: {unknown[:10]}")
    return trace


class Timeline:
    def __init__(self, trace):
        self.tracks = {}
        self.slices = []  # (track, name, begin, end)
        self.instants = []
        self.counters = 0
        self.arrows = 0
        names = {}
        open_slices = defaultdict(list)
        flows = {}
        last = defaultdict(int)
        for packet in trace.packet:
            if packet.sequence_flags & 1:
                names = {}
            for name in packet.interned_data.event_names:
                names[name.iid] = name.name
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
                parent = packet.track_descriptor.parent_uuid
                if parent and parent not in self.tracks:
                    fail(f"the track {packet.track_descriptor.name} is below one that was not described")
            if not packet.HasField("track_event"):
                continue
            event, time = packet.track_event, packet.timestamp
            if event.track_uuid not in self.tracks:
                fail("an event on a track that was not described")
            if time < last[event.track_uuid]:
                fail("events of a track are not in the order of time")
            last[event.track_uuid] = time
            if event.name_iid and event.name_iid not in names:
                fail("a name that was not written before")
            name = names.get(event.name_iid, "")
            for flow in event.flow_ids:
                flows.setdefault(flow, time)
            for flow in event.terminating_flow_ids:
                if flow not in flows:
                    fail("an arrow that begins nowhere")
                self.arrows += 1
            if event.type == Event.TYPE_SLICE_BEGIN:
                open_slices[event.track_uuid].append((name, time))
            elif event.type == Event.TYPE_SLICE_END:
                if not open_slices[event.track_uuid]:
                    fail("a slice ends that did not begin")
                name, begin = open_slices[event.track_uuid].pop()
                self.slices.append((event.track_uuid, name, begin, time))
            elif event.type == Event.TYPE_INSTANT:
                self.instants.append((event.track_uuid, name, time))
            elif event.type == Event.TYPE_COUNTER:
                self.counters += 1
            else:
                fail(f"an event of type {event.type}")
        left = [track for track, slices in open_slices.items() if slices]
        if left:
            fail(f"{len(left)} tracks have slices that do not end")
        self.end = max(last.values(), default=0)

    def group(self, track):
        parent = self.tracks[track].parent_uuid
        return self.tracks[parent].name if parent else ""

    def check(self):
        """A thread runs at one place at a time, and is one thing at a time."""
        by_track = defaultdict(list)
        running = defaultdict(list)
        for track, name, begin, end in self.slices:
            group = self.group(track)
            if group in ("threads", "virtual processors"):
                by_track[track].append((begin, end, name))
            if group == "virtual processors" and name not in ("idle", "another program's turn"):
                running[name].append((begin, end, track))
        for kind, slices in [(by_track, by_track.values()), (running, running.values())]:
            for some in slices:
                some.sort()
                for (_, end, one), (begin, _, other) in zip(some, some[1:]):
                    if begin < end:
                        fail(f"{one} and {other} overlap")
        return by_track, running

    def by_kind(self):
        """How many tracks of each kind something is on."""
        used = {track for track, *_ in self.slices + self.instants}
        kinds = Counter(self.group(track) for track in used)
        return {kind: kinds[kind] for kind in sorted(kinds) if kind in ("virtual processors", "threads", "activations")}

    def busy(self):
        """For how much of the time virtual processors were not idle, in percent."""
        begin = min((time for _, _, time in self.instants), default=0)
        tracks = [track for track in self.tracks if self.group(track) == "virtual processors"]
        idle = sum(end - begin for track, name, begin, end in self.slices if name == "idle" and track in tracks)
        return 100 * (1 - idle / (len(tracks) * (self.end - begin)))


def by_processor(path, timeline, wheel):
    """Asks Perfetto's trace processor, if it is here. Returns what is to be said of it."""
    if not wheel:
        return "not compared with Perfetto's trace processor, which is not here"
    import queries
    from processor import Failed, Processor

    try:
        processor = Processor(wheel, path)
        processor.query(queries.PLACES)
        wrong = dict(queries.WRONG)
        if not processor.one(queries.DROPPED):
            wrong |= queries.WRONG_UNLESS_DROPPED
        for what, query in wrong.items():
            if found := processor.query(query):
                fail(f"the trace processor finds {what}: {len(found)}, such as {found[:3]}")
        expected = {
            "slices": len(timeline.slices) + len(timeline.instants),
            "idle": sum(end - begin for _, name, begin, end in timeline.slices if name == "idle"),
            "arrows": timeline.arrows,
            "counts": timeline.counters,
            "processes": sum(track.HasField("process") for track in timeline.tracks.values()),
        }
        counted = {what: processor.one(query) for what, query in queries.COUNTS.items()}
        if counted != expected:
            fail(f"the trace processor counts {counted}, and the file has {expected}")
        tracks = {row.kind: row.n for row in processor.query(queries.TRACKS)}
        if tracks != timeline.by_kind():
            fail(f"the trace processor has tracks {tracks}, and the file {timeline.by_kind()}")
        busy = processor.one(queries.BUSY)
        if abs(busy - timeline.busy()) > 1:
            fail(f"the trace processor has virtual processors busy for {busy:.2f} %, and the file {timeline.busy():.2f} %")
    except Failed as error:
        fail(error)
    return "the trace processor says the same"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--busy", type=float)
    parser.add_argument("--processor", default=os.environ.get("UPCALL_TEST_TRACE_PROCESSOR"))
    parser.add_argument("--names", action="store_true", help="print how often each name occurs")
    arguments = parser.parse_args()
    timeline = Timeline(decode(arguments.file))
    timeline.check()
    busy = timeline.busy()
    if arguments.busy is not None and abs(busy - arguments.busy) > 1:
        fail(f"busy for {busy:.2f} %, and not {arguments.busy:.2f} %")
    said = by_processor(arguments.file, timeline, arguments.processor)
    print(
        f"{arguments.file}: {len(timeline.slices)} slices, {len(timeline.instants)} instants, "
        f"{timeline.counters} counts on {len(timeline.tracks)} tracks; busy for {busy:.2f} %; {said}"
    )
    if arguments.names:
        for name, count in Counter(name for _, name, *_ in timeline.slices + timeline.instants).most_common():
            print(f"{count:9} {name}")


if __name__ == "__main__":
    main()
