//! What is known of a process while its events are gone through: its threads, activations and virtual processors.

use std::collections::HashMap;

use upcall_abi::trace::what;

use super::rings::text;
use super::spool::Event;

/// What is known of a process beside its events.
#[derive(Clone)]
pub struct About {
    pub pid: u32,
    pub name: String,
    pub began_ns: u64,
    /// Until when it was traced; none: until its last event.
    pub ended_ns: Option<u64>,
    /// What is to be said at its end.
    pub remark: Option<String>,
}

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing is known.
    Unknown,
    Ready,
    Running(u16),
    /// In the kernel, with a virtual processor.
    InCall(u16),
    /// In the kernel, or waiting in the program, or stopped with its activation.
    Away,
    Ended,
}

impl State {
    /// The virtual processor that it has.
    pub fn vp(self) -> Option<u16> {
        match self {
            State::Running(vp) | State::InCall(vp) => Some(vp),
            State::Unknown | State::Ready | State::Away | State::Ended => None,
        }
    }
}

/// A thread, from its creation to its end. Its block in the program may be another's afterwards.
pub struct Thread {
    pub track: u64,
    pub id: u64,
    pub name: [u64; 2],
    pub state: State,
    /// It has an id, and its creation was not told yet.
    pub is_new: bool,
    /// Its end was told.
    pub has_ended: bool,
    /// The activation that carries it.
    pub carrier: Option<u32>,
    /// Arrows that lead to where it runs again.
    pub arrows: Vec<u64>,
}

#[derive(Default)]
pub struct Carrier {
    pub track: u64,
    pub thread: Option<usize>,
}

#[derive(Default)]
pub struct Vp {
    pub track: u64,
    pub processor: Option<u64>,
    /// The thread that has it.
    pub thread: Option<usize>,
    pub idle_since: Option<u64>,
    pub idle_ns: u64,
}

/// One process.
pub struct Space {
    pub about: About,
    pub track: u64,
    /// The track above all others of the process.
    pub top: u64,
    /// The tracks above those of virtual processors, threads and activations.
    pub groups: [u64; 3],
    pub ready_track: u64,
    pub ready: i64,
    pub written_ready: i64,
    pub counted_ns: u64,
    /// When its last event was.
    pub last_ns: u64,
    pub threads: Vec<Thread>,
    /// By the address of the block.
    pub living: HashMap<u64, usize>,
    pub carriers: HashMap<u16, Carrier>,
    pub vps: HashMap<u16, Vp>,
}

impl Space {
    /// The thread with that block.
    pub fn thread(&mut self, address: u64, tracks: &mut u64) -> usize {
        if let Some(&at) = self.living.get(&address) {
            return at;
        }
        *tracks += 1;
        self.threads.push(Thread {
            track: *tracks,
            id: 0,
            name: [0; 2],
            state: State::Unknown,
            is_new: false,
            has_ended: false,
            carrier: None,
            arrows: Vec::new(),
        });
        let at = self.threads.len() - 1;
        self.living.insert(address, at);
        at
    }

    /// A thread begins in that block.
    pub fn begin(&mut self, address: u64, tracks: &mut u64) -> usize {
        let before = self.living.remove(&address);
        let at = self.thread(address, tracks);
        if let Some(before) = before {
            (self.threads[at].id, self.threads[at].name) =
                (self.threads[before].id, self.threads[before].name);
        }
        at
    }

    pub fn name(&self, at: usize) -> String {
        let thread = &self.threads[at];
        let name = text(&thread.name);
        match (name.is_empty(), thread.id) {
            (true, 0) => format!("thread {}", at + 1),
            (true, id) => id.to_string(),
            (false, 0) => name,
            (false, id) => format!("{name} {id}"),
        }
    }

    /// Notes what an event says of which threads there are. Returns the thread that it is about.
    pub fn identify(&mut self, event: &Event, tracks: &mut u64) -> Option<usize> {
        let (what, address) = (u32::from(event.what), event.thread);
        if address == 0 {
            return None;
        }
        let known = self.living.get(&address).copied();
        let lives = known.is_some_and(|at| !self.threads[at].has_ended);
        let at = match what {
            what::IDENTITY => {
                let begins = !lives || known.is_none_or(|at| self.threads[at].id != 0);
                let at = if begins {
                    self.begin(address, tracks)
                } else {
                    self.thread(address, tracks)
                };
                let thread = &mut self.threads[at];
                (thread.id, thread.is_new) = (event.argument, true);
                at
            }
            what::CREATED if lives && known.is_some_and(|at| self.threads[at].is_new) => {
                self.thread(address, tracks)
            }
            what::CREATED => self.begin(address, tracks),
            _ => self.thread(address, tracks),
        };
        let thread = &mut self.threads[at];
        match what {
            what::NAME => thread.name[0] = event.argument,
            what::NAME_REST => thread.name[1] = event.argument,
            what::IDENTITY => {}
            what::ENDED => (thread.is_new, thread.has_ended) = (false, true),
            _ => thread.is_new = false,
        }
        Some(at)
    }
}

/// The processes, of which no event was looked at.
pub fn all(about: &[About], tracks: &mut u64) -> Vec<Space> {
    let mut track = || {
        *tracks += 1;
        *tracks
    };
    let space = |about: &About| Space {
        about: about.clone(),
        track: track(),
        top: track(),
        groups: [track(), track(), track()],
        ready_track: track(),
        ready: 0,
        written_ready: -1,
        counted_ns: 0,
        last_ns: 0,
        threads: Vec::new(),
        living: HashMap::new(),
        carriers: HashMap::new(),
        vps: HashMap::new(),
    };
    about.iter().map(space).collect()
}
