"""What Perfetto's trace processor must answer of a timeline of `upcall trace`. Each query of WRONG finds what is not as it should be."""

PLACES = """
create perfetto table place as
select track.id as track_id, track.name as name, above.name as kind
from track join track above on track.parent_id = above.id
where above.name in ('virtual processors', 'threads', 'activations')
"""

# In the order of time, those of one moment as they were written.
ORDER = "partition by track_id order by ts, slice.id"

WRONG = {
    "errors of the trace processor": """
        select name, severity, value from stats where severity <> 'info' and value > 0
    """,
    "slices without an end": "select name, ts from slice where dur < 0",
    "slices that go on after what is around them": """
        select slice.name, slice.ts
        from slice join slice around on slice.parent_id = around.id
        where slice.ts < around.ts or slice.ts + slice.dur > around.ts + around.dur
    """,
    "two things at a time": f"""
        select kind, one, other, ts from (
          select kind, slice.name as one, lead(slice.name) over ({ORDER}) as other, ts,
            ts + dur > lead(ts) over ({ORDER}) as overlaps
          from slice join place using (track_id)
          where dur > 0 and (kind <> 'activations' or depth = 0)
        ) where overlaps
    """,
    "slices within slices, where one thing is done at a time": """
        select slice.name, ts from slice join place using (track_id) where depth > 0 and dur > 0 and kind <> 'activations'
    """,
    "threads that run on two virtual processors": """
        select name, ts from (
          select slice.name as name, ts,
            ts + dur > lead(ts) over (partition by slice.name order by ts, slice.id) as overlaps
          from slice join place using (track_id)
          where kind = 'virtual processors' and dur > 0 and slice.name not in ('idle', 'another program''s turn')
        ) where overlaps
    """,
    "threads that run for longer than they have a virtual processor": """
        with own as (
          select place.name as name, sum(dur) as ns from slice join place using (track_id)
          where kind = 'threads' and slice.name = 'runs' group by place.name
        ), had as (
          select slice.name as name, sum(dur) as ns from slice join place using (track_id)
          where kind = 'virtual processors' group by slice.name
        )
        select own.name as name, own.ns as runs, had.ns as has from own left join had using (name)
        where own.ns > ifnull(had.ns, 0)
    """,
    "arrows that lead back in time": """
        select begin.name, begin.ts, end.ts from flow
        join slice begin on flow.slice_out = begin.id join slice end on flow.slice_in = end.id
        where begin.ts > end.ts
    """,
    "arrows from what is neither an upcall nor a wake-up, or to where no thread runs": """
        select begin.name as begins, end.name as ends, end.ts from flow
        join slice begin on flow.slice_out = begin.id join slice end on flow.slice_in = end.id
        join place on end.track_id = place.track_id
        where not (begin.name like 'upcall: %' or begin.name like 'wakes %') or end.name <> 'runs' or kind <> 'threads'
    """,
    "threads that one was woken in place of": """
        select begin.name as begins, place.name as thread, end.ts from flow
        join slice begin on flow.slice_out = begin.id join slice end on flow.slice_in = end.id
        join place on end.track_id = place.track_id
        where begin.name like 'wakes %' and begin.name <> 'wakes ' || place.name
    """,
    "counts of ready threads below zero": "select ts, value from counter where value < 0",
}

# An upcall has a reason: before its thread runs again it is ready, and before that it is where it blocked. What was dropped
# may be that.
WRONG_UNLESS_DROPPED = {
    "upcalls without a reason": f"""
        with known as (
          select slice.id as id, slice.name as name, lag(slice.name, 1) over ({ORDER}) as before,
            lag(slice.name, 2) over ({ORDER}) as reason
          from slice join place using (track_id)
          where kind = 'threads' and slice.name not like 'taken from %'
        )
        select begin.name as upcall, reason, before, begin.ts from flow
        join slice begin on flow.slice_out = begin.id join known on flow.slice_in = known.id
        where begin.name like 'upcall: blocked %'
          and (before not like 'ready%' or reason is null or reason = 'runs' or reason like 'ready%')
    """,
}

DROPPED = "select count(*) as n from slice where name like 'events dropped%'"

# How many tracks of each kind something is on.
TRACKS = """
select kind, count(distinct track_id) as n from slice join place using (track_id) group by kind order by kind
"""

# For how much of the time virtual processors were not idle, in percent.
BUSY = """
select 100.0 * (1 - 1.0 * idle / (places * (last - first))) as n from
  (select ifnull(sum(dur), 0) as idle from slice join place using (track_id) where slice.name = 'idle' and kind = 'virtual processors'),
  (select count(*) as places from place where kind = 'virtual processors'),
  (select max(ts + max(dur, 0)) as last from slice),
  (select min(ts) as first from slice where dur = 0)
"""

COUNTS = {
    "slices": "select count(*) as n from slice",
    "idle": "select ifnull(sum(dur), 0) as n from slice where name = 'idle'",
    "arrows": "select count(*) as n from flow",
    "counts": "select count(*) as n from counter",
    "processes": "select count(*) as n from process where name is not null",
}
