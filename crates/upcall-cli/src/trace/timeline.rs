//! Makes a timeline of events: which thread ran where, and what each waited for.
//!
//! Arrows lead from an upcall, or from a wake-up, to where the thread runs again.
//!
//! Events may be missing: the oldest of a ring are replaced, and a program may die between two. So each event says what is
//! so from there on, whatever was before.

use std::io::{self, Write};

use upcall_abi::trace::what;

use super::output::{More, Note, Packets};
use super::reasons::{call, reason};
use super::space::{About, Space, State, all};
use super::spool::{Event, GAP, Sorted};
use super::tracks::Pen;

/// The number of ready threads is written at most this often, in nanoseconds.
const COUNT_EVERY_NS: u64 = 100_000;
/// After so many events a trace processor is told that what it has is in order.
const SETTLE_EVERY: usize = 1 << 15;

/// What a timeline says in short.
#[derive(Default, Debug, PartialEq)]
pub struct Summary {
    pub threads: usize,
    pub vps: usize,
    /// For how long there were virtual processors, all together, and for how much of that they were not idle, in nanoseconds.
    pub time_ns: u64,
    pub busy_ns: u64,
}

impl Summary {
    /// In percent.
    pub fn utilisation(&self) -> f64 {
        100.0 * self.busy_ns as f64 / self.time_ns.max(1) as f64
    }
}

/// Writes it.
///
/// # Errors
///
/// It cannot be written.
pub fn write<W: Write>(about: &[About], events: &Sorted, out: W) -> io::Result<Summary> {
    let mut tracks = 0;
    // Names first, since a thread may get its own late: everything is gone through twice.
    let mut first = all(about, &mut tracks);
    for event in events.iter() {
        if let Some(space) = first.get_mut(event.space()) {
            space.identify(&event, &mut tracks);
        }
    }
    let names = |space: &Space| (0..space.threads.len()).map(|at| space.name(at)).collect();
    let names: Vec<Vec<String>> = first.iter().map(names).collect();
    let mut tracks = 0;
    let mut spaces = all(about, &mut tracks);
    let mut pen = Pen {
        packets: Packets::new(out),
        tracks,
        arrows: 0,
    };
    for space in &spaces {
        space.describe(&mut pen)?;
    }
    for (number, event) in events.iter().enumerate() {
        // What is open in a process that has ended before others is closed late, at the end of the file.
        if spaces.len() == 1 && number % SETTLE_EVERY == SETTLE_EVERY - 1 {
            pen.packets.settle(event.time)?;
        }
        if let Some(space) = spaces.get_mut(event.space()) {
            space.take(&event, &names[event.space()], &mut pen)?;
        }
    }
    let mut summary = Summary::default();
    for space in &mut spaces {
        space.finish(&mut summary, &mut pen)?;
    }
    pen.packets.finish()?;
    Ok(summary)
}

impl Space {
    fn take<W: Write>(
        &mut self,
        event: &Event,
        names: &[String],
        pen: &mut Pen<W>,
    ) -> io::Result<()> {
        self.last_ns = event.time;
        let known = self.threads.len();
        let before = self.living.get(&event.thread).copied();
        let thread = self.identify(event, &mut pen.tracks);
        if let Some(before) = before.filter(|_| event.thread != 0 && thread != before) {
            // Its block is another thread's: it has ended, perhaps unsaid.
            self.leave(event.time, before, pen)?;
            self.set(event, before, State::Ended);
        }
        let fresh = names
            .iter()
            .enumerate()
            .take(self.threads.len())
            .skip(known);
        for (at, name) in fresh {
            let track = self.threads[at].track;
            self.track((1, at), name.clone(), Some(track), pen)?;
        }
        let ring = event.ring as u16;
        let what = u32::from(event.what);
        match (what, thread) {
            (what::CREATED, Some(thread)) => self.ready(event, thread, "ready", pen),
            (what::ENDED, Some(thread)) => {
                self.leave(event.time, thread, pen)?;
                self.put_down(event.time, ring, pen)?;
                self.set(event, thread, State::Ended);
                Ok(())
            }
            (what::BLOCKED, Some(thread)) => {
                self.leave(event.time, thread, pen)?;
                self.put_down(event.time, ring, pen)?;
                self.set(event, thread, State::Away);
                let (name, note) = reason(event.argument);
                let more = More {
                    note,
                    ..More::default()
                };
                let track = self.threads[thread].track;
                pen.packets.begin(event.time, track, name, &more)
            }
            (what::UNBLOCKED, Some(thread)) => self.unblock(event, thread, names, pen),
            (what::YIELDED | what::PREEMPTED, Some(thread)) => {
                self.put_down(event.time, ring, pen)?;
                let name = match what {
                    what::YIELDED => "ready: gave way",
                    _ => "ready: preempted",
                };
                self.ready(event, thread, name, pen)
            }
            (what::RUNS | what::RESUMES, Some(thread)) => self.run(event, thread, names, pen),
            (what::CALLS, Some(thread)) => {
                self.hold(event, thread, names, pen)?;
                let name = call(event.argument);
                self.set(event, thread, State::InCall(event.vp));
                let track = self.threads[thread].track;
                pen.packets.end_all(event.time, track)?;
                pen.packets
                    .begin(event.time, track, &name, &More::default())?;
                let carrier = self.carrier(ring, pen)?.track;
                pen.packets
                    .begin(event.time, carrier, &name, &More::default())
            }
            (what::RETURNS, Some(thread)) => {
                let carrier = self.carrier(ring, pen)?.track;
                pen.packets.end(event.time, carrier)?;
                self.hold(event, thread, names, pen)?;
                self.set(event, thread, State::Running(event.vp));
                let track = self.threads[thread].track;
                pen.packets.end_all(event.time, track)?;
                pen.packets.begin(event.time, track, "runs", &on(event.vp))
            }
            (what::ABSENT, Some(thread)) => self.absent(event, thread, pen),
            (what::DISPLACED, Some(thread)) => {
                let arrow = self.upcall(event, "upcall: preempted for one that came back", pen)?;
                self.leave(event.time, thread, pen)?;
                self.set(event, thread, State::Away);
                self.threads[thread].arrows.push(arrow);
                let track = self.threads[thread].track;
                pen.packets.begin(
                    event.time,
                    track,
                    "stopped with its activation",
                    &More::default(),
                )
            }
            (what::STOLEN, Some(thread)) => {
                let track = self.threads[thread].track;
                let name = format!("taken from virtual processor {}", event.vp);
                pen.packets
                    .instant(event.time, track, &name, &More::default())
            }
            (what::IDLE, _) => {
                self.vacate(event.time, event.vp, pen)?;
                self.put_down(event.time, ring, pen)?;
                let vp = self.vp(event.vp, pen)?;
                vp.idle_since = Some(event.time);
                let track = vp.track;
                pen.packets
                    .begin(event.time, track, "idle", &More::default())
            }
            (what::BUSY, _) => {
                let vp = self.vp(event.vp, pen)?;
                if let Some(since) = vp.idle_since.take() {
                    vp.idle_ns += event.time.saturating_sub(since);
                }
                let track = vp.track;
                pen.packets.end_all(event.time, track)
            }
            (what::RUNG, _) => {
                self.upcall(event, "upcall: put to work", pen)?;
                Ok(())
            }
            (what::TAKEN, _) => {
                self.vacate(event.time, event.vp, pen)?;
                self.upcall(event, "upcall: processor taken", pen)?;
                let track = self.vp(event.vp, pen)?.track;
                pen.packets.begin(
                    event.time,
                    track,
                    "another program's turn",
                    &More::default(),
                )
            }
            (what::ADDED, _) => {
                let track = self.vp(event.vp, pen)?.track;
                pen.packets.end_all(event.time, track)?;
                self.upcall(event, "upcall: processor added", pen)?;
                Ok(())
            }
            (what::POLLS, _) => {
                self.put_down(event.time, ring, pen)?;
                let track = self.carrier(ring, pen)?.track;
                pen.packets
                    .begin(event.time, track, "waits for descriptors", &More::default())
            }
            (what::POLLED, _) => {
                let track = self.carrier(ring, pen)?.track;
                pen.packets.end_all(event.time, track)
            }
            (what::PLACED, _) => {
                let vp = self.vp(event.vp, pen)?;
                if vp.processor.replace(event.argument) == Some(event.argument) {
                    return Ok(());
                }
                let track = vp.track;
                let name = format!("on processor {}", event.argument);
                pen.packets
                    .instant(event.time, track, &name, &More::default())
            }
            (what::BEGAN, _) => {
                let track = self.carrier(ring, pen)?.track;
                pen.packets.end_all(event.time, track)?;
                let more = More {
                    note: Some(("kernel thread", Note::Number(event.argument))),
                    ..More::default()
                };
                pen.packets.instant(event.time, track, "begins", &more)
            }
            _ if event.what == GAP => self.gap(event, pen),
            _ => Ok(()),
        }?;
        self.count(event.time, pen)
    }

    /// The thread is in another state from here on.
    fn set(&mut self, event: &Event, thread: usize, state: State) {
        let thread = &mut self.threads[thread];
        let is = |state: State| i64::from(state == State::Ready);
        self.ready += is(state) - is(thread.state);
        thread.state = state;
        if matches!(state, State::Running(_) | State::InCall(_)) {
            thread.carrier = Some(event.ring);
        }
    }

    /// The thread runs nowhere from here on, and no slice of it is open.
    fn leave<W: Write>(&mut self, time: u64, thread: usize, pen: &mut Pen<W>) -> io::Result<()> {
        if let Some(index) = self.threads[thread].state.vp() {
            self.leave_vp(time, thread, index, pen)?;
        }
        pen.packets.end_all(time, self.threads[thread].track)
    }

    /// The thread does not run on the virtual processor from here on.
    fn leave_vp<W: Write>(
        &mut self,
        time: u64,
        thread: usize,
        index: u16,
        pen: &mut Pen<W>,
    ) -> io::Result<()> {
        let vp = self.vp(index, pen)?;
        if vp.thread != Some(thread) {
            return Ok(());
        }
        vp.thread = None;
        let track = vp.track;
        pen.packets.end_all(time, track)
    }

    /// Nothing runs on the virtual processor from here on. The thread that did has given way, if nothing else was said.
    fn vacate<W: Write>(&mut self, time: u64, index: u16, pen: &mut Pen<W>) -> io::Result<()> {
        let vp = self.vp(index, pen)?;
        let (thread, track) = (vp.thread.take(), vp.track);
        if let Some(since) = vp.idle_since.take() {
            vp.idle_ns += time.saturating_sub(since);
        }
        pen.packets.end_all(time, track)?;
        if let Some(thread) = thread
            && self.threads[thread].state.vp() == Some(index)
        {
            let track = self.threads[thread].track;
            pen.packets.end_all(time, track)?;
            pen.packets
                .begin(time, track, "ready: gave way", &More::default())?;
            self.threads[thread].state = State::Ready;
            self.ready += 1;
        }
        Ok(())
    }

    /// The activation carries no thread from here on.
    fn put_down<W: Write>(&mut self, time: u64, ring: u16, pen: &mut Pen<W>) -> io::Result<()> {
        let carrier = self.carrier(ring, pen)?;
        carrier.thread = None;
        let track = carrier.track;
        pen.packets.end_all(time, track)
    }

    fn ready<W: Write>(
        &mut self,
        event: &Event,
        thread: usize,
        name: &str,
        pen: &mut Pen<W>,
    ) -> io::Result<()> {
        self.leave(event.time, thread, pen)?;
        self.set(event, thread, State::Ready);
        let track = self.threads[thread].track;
        pen.packets.begin(event.time, track, name, &More::default())
    }

    /// A thread is ready again: its activation has come back with it, or another thread, or the poller, has woken it.
    fn unblock<W: Write>(
        &mut self,
        event: &Event,
        thread: usize,
        names: &[String],
        pen: &mut Pen<W>,
    ) -> io::Result<()> {
        let ring = event.ring as u16;
        let carrier = self.carrier(ring, pen)?;
        let (track, carried) = (carrier.track, carrier.thread);
        let arrow = pen.arrow();
        if carried == Some(thread) {
            // The call, and nothing else, is over.
            pen.packets.end_all(event.time, track)?;
            self.carrier(ring, pen)?.thread = None;
            self.upcall_to(event, "upcall: unblocked", arrow, pen)?;
        } else {
            let more = More {
                flows: &[arrow],
                ..More::default()
            };
            let name = format!("wakes {}", names[thread]);
            pen.packets.instant(event.time, track, &name, &more)?;
        }
        self.threads[thread].arrows.push(arrow);
        self.ready(event, thread, "ready", pen)
    }

    /// The thread runs, on this activation and virtual processor and nowhere else.
    fn run<W: Write>(
        &mut self,
        event: &Event,
        thread: usize,
        names: &[String],
        pen: &mut Pen<W>,
    ) -> io::Result<()> {
        let (time, ring) = (event.time, event.ring as u16);
        self.vacate(time, event.vp, pen)?;
        if let Some(other) = self.threads[thread].carrier.take() {
            let other = other as u16;
            if other != ring && self.carrier(other, pen)?.thread == Some(thread) {
                self.put_down(time, other, pen)?;
            }
        }
        self.put_down(time, ring, pen)?;
        self.leave(time, thread, pen)?;
        self.set(event, thread, State::Running(event.vp));
        let arrows = std::mem::take(&mut self.threads[thread].arrows);
        let more = More {
            ends: &arrows,
            ..on(event.vp)
        };
        let track = self.threads[thread].track;
        pen.packets.begin(time, track, "runs", &more)?;
        let name = &names[thread];
        let vp = self.vp(event.vp, pen)?;
        vp.thread = Some(thread);
        let track = vp.track;
        pen.packets.begin(time, track, name, &More::default())?;
        let carrier = self.carrier(ring, pen)?;
        carrier.thread = Some(thread);
        let track = carrier.track;
        pen.packets.begin(time, track, name, &on(event.vp))
    }

    /// The thread has the virtual processor. Where what was noted before is missing, it was not said that it got it.
    fn hold<W: Write>(
        &mut self,
        event: &Event,
        thread: usize,
        names: &[String],
        pen: &mut Pen<W>,
    ) -> io::Result<()> {
        match self.vp(event.vp, pen)?.thread == Some(thread) {
            true => Ok(()),
            false => self.run(event, thread, names, pen),
        }
    }

    /// An activation has blocked with the thread, and its virtual processor is another's.
    fn absent<W: Write>(
        &mut self,
        event: &Event,
        thread: usize,
        pen: &mut Pen<W>,
    ) -> io::Result<()> {
        // It may be back by now, and then it is not said where it was.
        let state = self.threads[thread].state;
        if state.vp() != Some(event.vp) {
            return Ok(());
        }
        let in_call = matches!(state, State::InCall(_));
        let name = match in_call {
            true => "upcall: blocked in a system call",
            false => "upcall: blocked on a page fault",
        };
        let arrow = self.upcall(event, name, pen)?;
        self.threads[thread].arrows.push(arrow);
        self.leave_vp(event.time, thread, event.vp, pen)?;
        let track = self.threads[thread].track;
        if !in_call {
            pen.packets.end_all(event.time, track)?;
            pen.packets
                .begin(event.time, track, "page fault", &More::default())?;
        }
        let carrier = self.threads[thread].carrier;
        self.set(event, thread, State::Away);
        self.threads[thread].carrier = carrier;
        Ok(())
    }

    /// An upcall, on the track of its virtual processor. Returns the arrow that begins there.
    fn upcall<W: Write>(&mut self, event: &Event, name: &str, pen: &mut Pen<W>) -> io::Result<u64> {
        let arrow = pen.arrow();
        self.upcall_to(event, name, arrow, pen)?;
        Ok(arrow)
    }

    fn upcall_to<W: Write>(
        &mut self,
        event: &Event,
        name: &str,
        arrow: u64,
        pen: &mut Pen<W>,
    ) -> io::Result<()> {
        let track = self.vp(event.vp, pen)?.track;
        let more = More {
            flows: &[arrow],
            ..More::default()
        };
        pen.packets.instant(event.time, track, name, &more)
    }

    /// Events of an activation are missing before this moment: what it carried since is not known.
    fn gap<W: Write>(&mut self, event: &Event, pen: &mut Pen<W>) -> io::Result<()> {
        let ring = event.ring as u16;
        let carrier = self.carrier(ring, pen)?;
        let (thread, track) = (carrier.thread.take(), carrier.track);
        pen.packets.end_all(event.time, track)?;
        if let Some(thread) = thread {
            self.leave(event.time, thread, pen)?;
            self.set(event, thread, State::Unknown);
        }
        let more = More {
            note: Some(("events", Note::Number(event.argument))),
            ..More::default()
        };
        pen.packets.instant(
            event.time,
            track,
            "events dropped: the oldest, unread",
            &more,
        )
    }

    /// Writes the number of ready threads, if it is time.
    fn count<W: Write>(&mut self, time: u64, pen: &mut Pen<W>) -> io::Result<()> {
        let is_due = time.saturating_sub(self.counted_ns) >= COUNT_EVERY_NS;
        if self.ready == self.written_ready || !is_due {
            return Ok(());
        }
        (self.written_ready, self.counted_ns) = (self.ready, time);
        pen.packets.count(time, self.ready_track, self.ready)
    }

    fn finish<W: Write>(&mut self, summary: &mut Summary, pen: &mut Pen<W>) -> io::Result<()> {
        let end = self
            .about
            .ended_ns
            .unwrap_or(self.last_ns)
            .max(self.last_ns);
        let threads = self.threads.iter().map(|one| one.track);
        let vps = self.vps.values().map(|one| one.track);
        let carriers = self.carriers.values().map(|one| one.track);
        for track in threads.chain(vps).chain(carriers) {
            pen.packets.end_all(end, track)?;
        }
        if let Some(remark) = self.about.remark.take() {
            let more = More {
                note: Some(("what", Note::Text(remark))),
                ..More::default()
            };
            pen.packets.instant(end, self.track, "incomplete", &more)?;
        }
        for vp in self.vps.values() {
            let since = vp.idle_since.map_or(0, |since| end.saturating_sub(since));
            let time = end.saturating_sub(self.about.began_ns);
            summary.time_ns += time;
            summary.busy_ns += time.saturating_sub(vp.idle_ns + since);
        }
        summary.vps += self.vps.len();
        summary.threads += self.threads.len();
        Ok(())
    }
}

fn on(vp: u16) -> More<'static> {
    More {
        note: Some(("virtual processor", Note::Number(vp.into()))),
        ..More::default()
    }
}
