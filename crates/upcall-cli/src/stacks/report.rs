//! What is printed: as text, or as JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::status::plain;

/// Everything that was seen.
#[derive(Serialize)]
pub struct Report {
    pub v: u32,
    /// None: it was a core file.
    pub pid: Option<i32>,
    pub program: String,
    /// The program was stopped, or is a core file's.
    pub stopped: bool,
    /// No thread has gone on while it was looked at.
    pub consistent: bool,
    /// For what all threads wait, if all of them do: "one another", or "the outside".
    pub all_wait_for: Option<&'static str>,
    pub threads: Vec<Thread>,
}

/// A thread.
#[derive(Serialize)]
pub struct Thread {
    pub number: u64,
    pub id: i32,
    pub name: String,
    pub state: &'static str,
    /// Its virtual processor, if it runs.
    pub vp: Option<u32>,
    /// The kernel thread that has it.
    pub tid: Option<i32>,
    pub waits_for: Option<String>,
    /// It waits for another thread, and for nothing else.
    #[serde(skip)]
    pub waits_for_a_thread: bool,
    /// When its wait ends at the latest; negative if that has passed.
    pub at_most_ms: Option<i64>,
    /// It has gone on while it was looked at: its frames may be wrong.
    pub went_on: bool,
    /// The innermost first. None: they are not known.
    pub frames: Option<Vec<Frame>>,
}

/// One function in a thread's call chain.
#[derive(Serialize)]
pub struct Frame {
    /// Where it goes on, in hexadecimal.
    pub address: String,
    pub function: Option<String>,
    pub line: Option<String>,
    pub object: Option<String>,
    /// The address as the object itself counts.
    pub offset: Option<String>,
    /// It is a part of the next frame's function.
    pub inlined: bool,
    /// Found by a frame pointer: it may be wrong.
    pub guessed: bool,
    #[serde(skip)]
    pub whose: Whose,
}

/// To what a function belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// The runtime.
    Own,
    /// Rust's library, which the runtime and programs use.
    Library,
    /// Everything else.
    Programs,
}

impl Thread {
    /// Leaves out the runtime's own frames at the innermost end, unless there are no others.
    pub fn leave_out_own(&mut self) {
        let Some(frames) = &mut self.frames else {
            return;
        };
        let Some(first) = frames
            .iter()
            .position(|frame| frame.whose == Whose::Programs)
        else {
            return;
        };
        let last = frames[..first]
            .iter()
            .rposition(|frame| frame.whose == Whose::Own);
        frames.drain(..last.map_or(0, |last| last + 1));
    }
}

const ONE_ANOTHER: &str = "one another";

/// For what all threads wait. None: some thread goes on, or may.
pub fn all_wait_for(threads: &[Thread]) -> Option<&'static str> {
    let waits = |one: &Thread| !one.went_on && matches!(one.state, "parked" | "blocked");
    if threads.is_empty() || !threads.iter().all(waits) {
        return None;
    }
    match threads.iter().all(|one| one.waits_for_a_thread) {
        true => Some(ONE_ANOTHER),
        false => Some("the outside"),
    }
}

impl Report {
    pub fn text(&self) -> String {
        let mut text = String::new();
        let whose = self
            .pid
            .map_or("core file".into(), |pid| format!("process {pid}"));
        let count = self.threads.len();
        let _ = write!(text, "{whose}, {}: {count} threads", plain(&self.program));
        match self.all_wait_for {
            Some(ONE_ANOTHER) => text.push_str(", which all wait for one another"),
            Some(_) => {
                let inside = self.threads.iter().filter(|one| one.waits_for_a_thread);
                let outside = count - inside.count();
                let _ = write!(text, ", which all wait, {outside} of them for the outside");
            }
            None => {}
        }
        text.push('\n');
        for thread in &self.threads {
            thread.tell(&mut text, self.stopped);
        }
        let moved = self.threads.iter().filter(|thread| thread.went_on).count();
        if moved > 0 {
            let _ = writeln!(
                text,
                "\n{moved} of {count} threads went on while they were looked at (~): what is said of these is of no one moment."
            );
        }
        text
    }
}

impl Thread {
    fn tell(&self, text: &mut String, stopped: bool) {
        let mark = if self.went_on { "~" } else { "" };
        let _ = write!(
            text,
            "\n{mark}{} (id {}, \"{}\") {}",
            self.number,
            self.id,
            plain(&self.name),
            self.state
        );
        if let Some(vp) = self.vp {
            let _ = write!(text, " on {vp}");
        }
        if let Some(waits_for) = &self.waits_for {
            let _ = write!(text, ": {waits_for}");
        }
        if let Some(ms) = self.at_most_ms {
            let _ = write!(text, ", for at most {} s", ms.max(0) as f64 / 1000.0);
        }
        text.push('\n');
        match &self.frames {
            Some(frames) => frames.iter().for_each(|frame| frame.tell(text)),
            None if stopped => text.push_str("    (its frames are not known)\n"),
            None => text.push_str("    (its frames are seen with --stop only)\n"),
        }
    }
}

impl Frame {
    fn tell(&self, text: &mut String) {
        let address = match self.inlined {
            true => "(inlined)",
            false => &self.address,
        };
        let function = self.function.as_deref().unwrap_or("?");
        let _ = write!(text, "    {address:>18} {}", plain(function));
        if let Some(line) = &self.line {
            let _ = write!(text, " ({})", plain(line));
        } else if let Some(object) = &self.object {
            let _ = write!(text, " in {}", plain(object));
            if let (None, Some(offset)) = (&self.function, &self.offset) {
                let _ = write!(text, "+{offset}");
            }
        }
        text.push_str(if self.guessed {
            " (by frame pointer)\n"
        } else {
            "\n"
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, whose: Whose) -> Frame {
        Frame {
            address: "0x1000".into(),
            function: Some(function.into()),
            line: None,
            object: Some("libx.so".into()),
            offset: Some("0x10".into()),
            inlined: false,
            guessed: false,
            whose,
        }
    }

    fn thread(frames: Option<Vec<Frame>>) -> Thread {
        Thread {
            number: 2,
            id: 268_435_456,
            name: "a\u{1b}[2Jb".into(),
            state: "parked",
            vp: None,
            tid: None,
            waits_for: Some("its deadline".into()),
            waits_for_a_thread: false,
            at_most_ms: Some(1500),
            went_on: true,
            frames,
        }
    }

    #[test]
    fn a_name_does_not_command_the_terminal_and_a_moving_thread_is_marked() {
        let report = Report {
            v: 1,
            pid: Some(7),
            program: "p".into(),
            stopped: false,
            consistent: false,
            all_wait_for: None,
            threads: vec![
                thread(Some(vec![frame("f", Whose::Programs)])),
                thread(None),
            ],
        };
        let text = report.text();
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(
            text.contains(
                "\n~2 (id 268435456, \"a[2Jb\") parked: its deadline, for at most 1.5 s\n                0x1000 f in libx.so\n"
            ),
            "{text}"
        );
        assert!(text.contains("2 of 2 threads went on"), "{text}");
        assert!(text.contains("--stop"), "{text}");
    }

    #[test]
    fn a_deadlock_is_told_from_a_program_that_waits_for_the_outside() {
        let of = |all: &[(&'static str, bool)]| {
            let one = |&(state, waits_for_a_thread): &(&'static str, bool)| Thread {
                state,
                waits_for_a_thread,
                went_on: false,
                ..thread(None)
            };
            let threads: Vec<Thread> = all.iter().map(one).collect();
            let report = Report {
                v: 1,
                pid: Some(7),
                program: "p".into(),
                stopped: false,
                consistent: true,
                all_wait_for: all_wait_for(&threads),
                threads,
            };
            report.text().lines().next().expect("a line").to_owned()
        };
        for (threads, said) in [
            (
                &[("parked", true), ("parked", true)][..],
                ", which all wait for one another",
            ),
            (
                &[("parked", true), ("parked", false), ("blocked", false)],
                ", which all wait, 2 of them for the outside",
            ),
            (&[("parked", true), ("running", false)], ""),
            (&[("parked", true), ("ready", false)], ""),
            (&[("parked", true), ("bound", false)], ""),
        ] {
            let expected = format!("process 7, p: {} threads{said}", threads.len());
            assert_eq!(of(threads), expected);
        }
    }

    #[test]
    fn frames_of_the_runtime_are_left_out_at_the_innermost_end_only() {
        let names = |thread: &Thread| -> Vec<String> {
            let frames = thread.frames.iter().flatten();
            frames.filter_map(|frame| frame.function.clone()).collect()
        };
        let frames = |all: &[(&str, Whose)]| {
            let all = all.iter().map(|(name, whose)| frame(name, *whose));
            let mut thread = thread(Some(all.collect()));
            thread.leave_out_own();
            names(&thread)
        };
        let (own, library, programs) = (Whose::Own, Whose::Library, Whose::Programs);
        let through_library = [
            ("park", own),
            ("call_once", library),
            ("read", own),
            ("read_exact", library),
            ("mine", programs),
            ("shell", own),
        ];
        assert_eq!(frames(&through_library), ["read_exact", "mine", "shell"]);
        assert_eq!(
            frames(&through_library[3..]),
            ["read_exact", "mine", "shell"]
        );
        assert_eq!(frames(&through_library[..2]), ["park", "call_once"]);
    }
}
