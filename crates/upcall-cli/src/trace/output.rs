//! Writes packets to a file that has its name only when it is whole.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use prost::Message;

use super::packets::{
    BEGINS, CONTINUES, DebugAnnotation, InternedData, Kind, Name, ServiceEvent, Trace, TracePacket,
    TrackDescriptor, TrackEvent,
};

/// All packets are of one sequence.
const SEQUENCE: u32 = 1;

/// The file that is to be: it takes its name when all is written, in place of what has that name. Until then it has none, where
/// the file system has such files, so that nothing of it is left however this process ends. What is no regular file, as a pipe or a
/// device, is written to as it is.
pub struct Draft {
    file: Option<File>,
    target: PathBuf,
    /// Its name until then.
    path: PathBuf,
    has_name: bool,
    is_stream: bool,
}

impl Draft {
    /// # Errors
    ///
    /// There can be no such file.
    pub fn new(target: &Path) -> io::Result<Self> {
        // Behind a symbolic link is what is to be replaced.
        let found = fs::metadata(target).ok();
        let target = match fs::canonicalize(target) {
            Ok(target) => target,
            // A pipe in /proc has no other name.
            Err(_) if found.is_some() => target.into(),
            Err(_) => fs::read_link(target).map_or(target.into(), |to| folder(target).join(to)),
        };
        if found.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let is_stream = found.is_some_and(|found| !found.is_file());
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        name.push(format!(".{}", std::process::id()));
        let path = target.with_file_name(name);
        let mut options = OpenOptions::new();
        options.write(true).mode(0o644);
        let (file, has_name) = if is_stream {
            (options.open(&target)?, false)
        } else if let Some(file) = unnamed(folder(&target), 0o644)? {
            (file, false)
        } else {
            (options.create_new(true).open(&path)?, true)
        };
        Ok(Draft {
            file: Some(file),
            target,
            path,
            has_name,
            is_stream,
        })
    }

    /// What is written to it.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Where there is room beside it.
    pub fn folder(&self) -> PathBuf {
        match self.is_stream {
            true => std::env::temp_dir(),
            false => folder(&self.target).into(),
        }
    }

    /// Puts it into its place.
    ///
    /// # Errors
    ///
    /// There is no room for all of it.
    pub fn publish(&mut self) -> io::Result<()> {
        let Some(mut file) = self.file.take().filter(|_| !self.is_stream) else {
            return Ok(());
        };
        if !self.has_name && link(&file, &self.path).is_err() {
            // Not every file system that has files without a name has links.
            let mut options = OpenOptions::new();
            let mut named = options
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&self.path)?;
            self.has_name = true;
            file.rewind()?;
            io::copy(&mut file, &mut named)?;
            file = named;
        }
        self.has_name = true;
        // A file system may say only now that it has no room.
        file.sync_data()?;
        fs::rename(&self.path, &self.target)?;
        self.has_name = false;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.has_name {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A file without a name in a directory. None: the file system has none.
///
/// # Errors
///
/// There can be no file at all.
pub fn unnamed(directory: &Path, mode: u32) -> io::Result<Option<File>> {
    let made = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(mode)
        .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
        .open(directory);
    match made {
        Ok(file) => Ok(Some(file)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Gives a file without a name this one.
fn link(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    let (here, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both paths end with zeros.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory that goes with this.
    struct Place(PathBuf);

    impl Place {
        fn new() -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("upcall-drafts-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).expect("a directory");
            Place(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn write(target: &Path, text: &str) {
        let mut draft = Draft::new(target).expect("a draft");
        let mut file = draft.file().expect("a file");
        file.write_all(text.as_bytes()).expect("room");
        draft.publish().expect("room");
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a directory");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut all: Vec<_> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_file_is_replaced_when_it_is_whole_and_so_is_what_a_link_leads_to() {
        let place = Place::new();
        let (file, link) = (place.0.join("a"), place.0.join("b"));
        write(&file, "one");
        symlink("a", &link).expect("a link");
        let mut draft = Draft::new(&link).expect("a draft");
        draft
            .file()
            .expect("a file")
            .write_all(b"two")
            .expect("room");
        assert_eq!(fs::read(&file).expect("it is there"), b"one");
        draft.publish().expect("room");
        drop(draft);
        assert_eq!(fs::read(&file).expect("it is there"), b"two");
        drop(Draft::new(&file).expect("a draft"));
        assert_eq!(fs::read(&file).expect("it is there"), b"two");
        assert!(link.is_symlink());
        let dangling = place.0.join("c");
        symlink("d", &dangling).expect("a link");
        write(&dangling, "three");
        assert!(dangling.is_symlink());
        assert_eq!(fs::read(place.0.join("d")).expect("it is there"), b"three");
        assert_eq!(names(&place.0), ["a", "b", "c", "d"]);
    }

    #[test]
    fn a_device_and_a_pipe_are_written_to_and_stay() {
        let place = Place::new();
        let null = place.0.join("null");
        symlink("/dev/null", &null).expect("a link");
        write(&null, "nothing");
        assert!(!fs::metadata("/dev/null").expect("it is there").is_file());
        let (reader, writer) = io::pipe().expect("a pipe");
        let pipe = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
        write(&pipe, "through");
        drop(writer);
        assert_eq!(io::read_to_string(reader).expect("text"), "through");
        assert_eq!(names(&place.0), ["null"]);
    }

    /// As where a file cannot be linked: its name is taken away, so that there is nothing to link.
    #[test]
    fn what_cannot_be_linked_is_copied() {
        let place = Place::new();
        let file = place.0.join("a");
        let mut draft = Draft::new(&file).expect("a draft");
        let lost = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&file);
        draft.file = Some(lost.expect("a file"));
        draft.has_name = false;
        fs::remove_file(&file).expect("it is there");
        draft
            .file()
            .expect("a file")
            .write_all(b"all")
            .expect("room");
        draft.publish().expect("room");
        assert_eq!(fs::read(&file).expect("it is there"), b"all");
        assert_eq!(names(&place.0), ["a"]);
    }

    #[test]
    fn a_file_without_a_name_gets_one_with_what_is_in_it() {
        let place = Place::new();
        let Some(mut file) = unnamed(&place.0, 0o644).expect("a file") else {
            return;
        };
        file.write_all(b"whole").expect("room");
        assert!(names(&place.0).is_empty());
        link(&file, &place.0.join("a")).expect("a name");
        assert_eq!(names(&place.0), ["a"]);
    }
}
