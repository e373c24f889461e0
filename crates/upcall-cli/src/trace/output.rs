//! Writes packets to a file that has its name only when it is whole.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use prost::Message;

use super::packets::{
    BEGINS, CONTINUES, DebugAnnotation, InternedData, Kind, Name, ServiceEvent, Trace, TracePacket,
    TrackDescriptor, TrackEvent,
};

/// All packets are of one sequence.
const SEQUENCE: u32 = 1;

/// A file beside the one that is to be, which takes its place when all is written. Dropped before, it is removed.
pub struct Draft {
    file: Option<File>,
    path: PathBuf,
    target: PathBuf,
}

impl Draft {
    /// # Errors
    ///
    /// There can be no such file.
    pub fn new(target: &Path) -> io::Result<Self> {
        if target.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        name.push(format!(".{}", std::process::id()));
        let path = target.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path)?;
        Ok(Draft {
            file: Some(file),
            path,
            target: target.into(),
        })
    }

    /// Puts it into its place.
    ///
    /// # Errors
    ///
    /// There is no room for all of it.
    pub fn publish(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            // A file system may say only now that it has no room.
            file.sync_data()?;
        }
        fs::rename(&self.path, &self.target)?;
        self.path.clear();
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes packets.
pub struct Packets<W: Write> {
    out: BufWriter<W>,
    bytes: Vec<u8>,
    names: HashMap<String, u64>,
    notes: HashMap<&'static str, u64>,
    /// Names that have not been written yet.
    fresh: InternedData,
    began: bool,
    /// The slices that are open, by track.
    open: HashMap<u64, u32>,
}

/// What a slice, or an instant, has beside its name.
#[derive(Default)]
pub struct More<'a> {
    /// Begins of arrows.
    pub flows: &'a [u64],
    /// Their ends.
    pub ends: &'a [u64],
    pub note: Option<(&'static str, Note)>,
}

pub enum Note {
    Number(u64),
    Address(u64),
    Text(String),
}

impl<W: Write> Packets<W> {
    pub fn new(out: W) -> Self {
        Packets {
            out: BufWriter::with_capacity(1 << 18, out),
            bytes: Vec::new(),
            names: HashMap::new(),
            notes: HashMap::new(),
            fresh: InternedData::default(),
            began: false,
            open: HashMap::new(),
        }
    }

    /// # Errors
    ///
    /// It cannot be written.
    pub fn describe(&mut self, track: TrackDescriptor) -> io::Result<()> {
        self.write(TracePacket {
            track_descriptor: Some(track),
            ..TracePacket::default()
        })
    }

    /// # Errors
    ///
    /// It cannot be written.
    pub fn begin(&mut self, time: u64, track: u64, name: &str, more: &More<'_>) -> io::Result<()> {
        *self.open.entry(track).or_default() += 1;
        self.event(time, track, Kind::SliceBegin, Some(name), more)
    }

    /// Ends the innermost slice of a track, if one is open.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn end(&mut self, time: u64, track: u64) -> io::Result<()> {
        match self.open.get_mut(&track) {
            Some(open) if *open > 0 => *open -= 1,
            _ => return Ok(()),
        }
        self.event(time, track, Kind::SliceEnd, None, &More::default())
    }

    /// Ends all slices of a track.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn end_all(&mut self, time: u64, track: u64) -> io::Result<()> {
        while self.open.get(&track).is_some_and(|&open| open > 0) {
            self.end(time, track)?;
        }
        Ok(())
    }

    /// # Errors
    ///
    /// It cannot be written.
    pub fn instant(
        &mut self,
        time: u64,
        track: u64,
        name: &str,
        more: &More<'_>,
    ) -> io::Result<()> {
        self.event(time, track, Kind::Instant, Some(name), more)
    }

    /// # Errors
    ///
    /// It cannot be written.
    pub fn count(&mut self, time: u64, track: u64, value: i64) -> io::Result<()> {
        self.write(TracePacket {
            timestamp: Some(time),
            track_event: Some(TrackEvent {
                r#type: Some(Kind::Counter as i32),
                track_uuid: Some(track),
                counter_value: Some(value),
                ..TrackEvent::default()
            }),
            ..TracePacket::default()
        })
    }

    /// Nothing that comes is earlier than what came before the last such word. A trace processor sorts that then, and needs not
    /// keep it until the end of the file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn settle(&mut self, time: u64) -> io::Result<()> {
        let flushed = ServiceEvent {
            all_data_sources_flushed: Some(true),
            ..ServiceEvent::default()
        };
        let read = ServiceEvent {
            read_tracing_buffers_completed: Some(true),
            ..ServiceEvent::default()
        };
        for event in [flushed, read] {
            self.write(TracePacket {
                timestamp: Some(time),
                service_event: Some(event),
                ..TracePacket::default()
            })?;
        }
        Ok(())
    }

    /// Writes what waits.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn event(
        &mut self,
        time: u64,
        track: u64,
        kind: Kind,
        name: Option<&str>,
        more: &More<'_>,
    ) -> io::Result<()> {
        let name_iid = name.map(|name| self.name(name));
        let annotation = more.note.as_ref().map(|(name, note)| {
            let mut annotation = DebugAnnotation {
                name_iid: Some(self.note_name(name)),
                ..DebugAnnotation::default()
            };
            match note {
                Note::Number(number) => annotation.uint_value = Some(*number),
                Note::Address(address) => annotation.pointer_value = Some(*address),
                Note::Text(text) => annotation.string_value = Some(text.clone()),
            }
            annotation
        });
        self.write(TracePacket {
            timestamp: Some(time),
            track_event: Some(TrackEvent {
                debug_annotations: annotation.into_iter().collect(),
                r#type: Some(kind as i32),
                name_iid,
                track_uuid: Some(track),
                flow_ids: more.flows.to_vec(),
                terminating_flow_ids: more.ends.to_vec(),
                ..TrackEvent::default()
            }),
            ..TracePacket::default()
        })
    }

    fn name(&mut self, name: &str) -> u64 {
        if let Some(&iid) = self.names.get(name) {
            return iid;
        }
        let iid = self.names.len() as u64 + 1;
        self.names.insert(name.into(), iid);
        self.fresh.event_names.push(Name {
            iid: Some(iid),
            name: Some(name.into()),
        });
        iid
    }

    fn note_name(&mut self, name: &'static str) -> u64 {
        if let Some(&iid) = self.notes.get(name) {
            return iid;
        }
        let iid = self.notes.len() as u64 + 1;
        self.notes.insert(name, iid);
        self.fresh.debug_annotation_names.push(Name {
            iid: Some(iid),
            name: Some(name.into()),
        });
        iid
    }

    fn write(&mut self, mut packet: TracePacket) -> io::Result<()> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        packet.sequence_flags = Some(if self.began { CONTINUES } else { BEGINS });
        self.began = true;
        if self.fresh != InternedData::default() {
            packet.interned_data = Some(std::mem::take(&mut self.fresh));
        }
        self.bytes.clear();
        Trace {
            packet: vec![packet],
        }
        .encode(&mut self.bytes)
        .map_err(io::Error::other)?;
        self.out.write_all(&self.bytes)
    }
}

impl Draft {
    /// What is written to it.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }
}
