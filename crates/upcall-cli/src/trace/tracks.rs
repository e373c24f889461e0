//! The tracks of a timeline, below the process's own: one for each virtual processor, thread and activation, and how many threads
//! are ready.

use std::io::{self, Write};

use super::output::Packets;
use super::packets::{CounterDescriptor, ProcessDescriptor, TrackDescriptor};
use super::space::{Carrier, Space, Vp};

/// What writes, and the last numbers of tracks and arrows.
pub struct Pen<W: Write> {
    pub packets: Packets<W>,
    pub tracks: u64,
    pub arrows: u64,
}

impl<W: Write> Pen<W> {
    pub fn arrow(&mut self) -> u64 {
        self.arrows += 1;
        self.arrows
    }
}

impl Space {
    pub fn describe<W: Write>(&self, pen: &mut Pen<W>) -> io::Result<()> {
        let pid = i32::try_from(self.about.pid).unwrap_or(0);
        pen.packets.describe(TrackDescriptor {
            uuid: Some(self.track),
            process: Some(ProcessDescriptor {
                pid: Some(pid),
                process_name: Some(self.about.name.clone()),
            }),
            ..TrackDescriptor::default()
        })?;
        // What is directly below a process is put into the order of names, whatever is said here.
        pen.packets.describe(TrackDescriptor {
            uuid: Some(self.top),
            name: Some("Upcall".into()),
            parent_uuid: Some(self.track),
            child_ordering: Some(3),
            ..TrackDescriptor::default()
        })?;
        let names = ["virtual processors", "threads", "activations"];
        for (rank, (group, name)) in self.groups.into_iter().zip(names).enumerate() {
            pen.packets.describe(TrackDescriptor {
                uuid: Some(group),
                name: Some(name.into()),
                parent_uuid: Some(self.top),
                child_ordering: Some(3),
                sibling_order_rank: Some(rank as i32 + 1),
                ..TrackDescriptor::default()
            })?;
        }
        pen.packets.describe(TrackDescriptor {
            uuid: Some(self.ready_track),
            name: Some("ready threads".into()),
            parent_uuid: Some(self.top),
            counter: Some(CounterDescriptor {}),
            sibling_order_rank: Some(0),
            ..TrackDescriptor::default()
        })
    }

    /// A track in a group.
    pub fn track<W: Write>(
        &self,
        (group, rank): (usize, usize),
        name: String,
        track: Option<u64>,
        pen: &mut Pen<W>,
    ) -> io::Result<u64> {
        let track = track.unwrap_or_else(|| {
            pen.tracks += 1;
            pen.tracks
        });
        pen.packets.describe(TrackDescriptor {
            uuid: Some(track),
            name: Some(name),
            parent_uuid: Some(self.groups[group]),
            sibling_order_rank: Some(rank as i32),
            // Threads may have the same name.
            sibling_merge_behavior: Some(2),
            ..TrackDescriptor::default()
        })?;
        Ok(track)
    }

    /// The virtual processor, which may be new.
    pub fn vp<W: Write>(&mut self, index: u16, pen: &mut Pen<W>) -> io::Result<&mut Vp> {
        if !self.vps.contains_key(&index) {
            let name = format!("virtual processor {index}");
            let track = self.track((0, index.into()), name, None, pen)?;
            let vp = Vp {
                track,
                ..Vp::default()
            };
            self.vps.insert(index, vp);
        }
        Ok(self.vps.entry(index).or_default())
    }

    /// The activation that writes to a ring, which may be new.
    pub fn carrier<W: Write>(&mut self, ring: u16, pen: &mut Pen<W>) -> io::Result<&mut Carrier> {
        if !self.carriers.contains_key(&ring) {
            let name = match ring {
                0 => "kernel threads that are no activations".to_owned(),
                ring => format!("activation {ring}"),
            };
            let track = self.track((2, ring.into()), name, None, pen)?;
            let carrier = Carrier {
                track,
                thread: None,
            };
            self.carriers.insert(ring, carrier);
        }
        Ok(self.carriers.entry(ring).or_default())
    }
}
