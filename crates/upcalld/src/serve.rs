//! The daemon's loop: one kernel thread, which sleeps until something happens.
//!
//! 1. A program connects. It is this user's, or any user's if the daemon is the system's, or the connection is closed. So is one
//!    beyond [`CONNECTIONS`] of its user.
//! 2. Its first message asks to join. The kernel says who has sent it: the process that has connected, or the answer is
//!    that it makes no sense. Each process is one space, and a user has as many of them as the
//!    configuration allows.
//! 3. The answer carries the descriptors of the two pages and of the knocker (`pages`). From then on the socket is silent.
//!    By a second connection a program asks to be observed ([`Server::observe`]).
//! 4. When a space knocks, all spaces' words are read anew, [`House`] decides, each is told, and weight is lent (`weights`).
//! 5. The space ends when its process ends, whoever has copies of its descriptors, or when its socket is closed.
//!
//! Where the kernel gives no descriptor for another connection, none is accepted until a client leaves, or for [`REST_NS`]: the
//! listener would be reported without end.
//!
//! The loop sleeps without end if nobody waits: an idle machine has no wake-ups from here. A program that knocks more often
//! than [`MOST_KNOCKS`] in [`WINDOW_NS`] is not listened to until that time is over. Nothing is lost by that, since its words
//! are read whenever anybody's are.

mod asks;
mod decides;
mod settings;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::time::Timespec;
use upcall_abi::{
    ANSWER_SCHEDULES, ASK_JOIN, ASK_LIST, ASK_OBSERVE, Answer, MAGIC, Message, STATUS_FULL,
    STATUS_NONSENSE, STATUS_NOT_HERE, STATUS_OK, STATUS_VERSION, VERSION,
};
use upcall_alloc::Bits;
use upcall_bpf::{Observatory, Page};

use crate::house::House;
use crate::manager;
use crate::metrics::{Counts, Exporter};
use crate::packets::{self, Received};
use crate::pages::Pages;
use crate::place::{Place, Scope};
use crate::scheduler::Keeper;
use crate::trouble::Trouble;
use crate::weights::{Process, Weights};

pub use settings::{Settings, exporter};

/// Connections of one user, at most: spaces, each of which the system's daemon may observe, too, and those that ask who is there.
pub const CONNECTIONS: usize = 160;
/// Connections of all users together, at most.
const ALL_CONNECTIONS: usize = 2048;
/// Spaces of all users together, at most: a round of as many turns is no longer than a program waits for its own.
const ALL_SPACES: usize = 256;
/// How long it holds in which of the kernel's groups a space is.
const GROUP_NS: u64 = 1_000_000_000;
/// Knocks and messages that are listened to, in each [`WINDOW_NS`].
const MOST_KNOCKS: u32 = 512;
const WINDOW_NS: u64 = 50_000_000;
/// How long no connection is accepted when the kernel gave no descriptor for one, if no client leaves.
const REST_NS: u64 = 1_000_000_000;
/// How long it holds for how long processors have idled.
const IDLE_NS: u64 = 2_000_000;
const LISTENER: u64 = 0;
const SIGNAL: u64 = 1;
const RELOAD: u64 = 2;
const METRICS: u64 = 3;
const SCHEDULER: u64 = 4;
const FIRST: u64 = 5;
const EVENTS: usize = 64;

struct Client {
    socket: OwnedFd,
    process: OwnedFd,
    pid: i32,
    uid: u32,
    /// None: it has not joined.
    pages: Option<Pages>,
    /// None: it is not observed.
    observed: Option<Page>,
    knocks: u32,
    is_muted: bool,
    /// The name of its executable file when it joined.
    program: String,
    /// What it was told that it has.
    has: Bits,
    /// Its kernel threads, if weight is lent.
    threads: Option<Rc<Process>>,
    /// When to look for its group again.
    look_at: u64,
}

/// The daemon.
pub struct Server {
    place: Place,
    signal: UnixStream,
    reload: UnixStream,
    settings: Settings,
    counts: Counts,
    /// None: nobody may ask for them.
    exporter: Option<Exporter>,
    machine: Bits,
    epoll: OwnedFd,
    generation: u64,
    house: House,
    /// None: programs are not observed.
    observatory: Option<Observatory>,
    /// None: no weight is lent by nice values.
    weights: Option<Weights>,
    scheduler: Keeper,
    clients: BTreeMap<u64, Client>,
    next_id: u64,
    window_ends: u64,
    /// The listener is not listened to until then.
    rests_until: Option<u64>,
    /// When to look again for how long processors have idled.
    idle_at: u64,
}

/// Nanoseconds of the monotonic clock, which programs have, too.
fn now() -> u64 {
    upcall_linux::clock(libc::CLOCK_MONOTONIC)
}

/// Which descriptor of a client an event is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Socket = 0,
    Process = 1,
    Knocker = 2,
}

fn token(id: u64, part: Part) -> EventData {
    EventData::new_u64(FIRST + id * 3 + part as u64)
}

/// From here on the loop wakes when a program connects.
fn hear_listener(epoll: &OwnedFd, place: &Place) -> Result<(), Errno> {
    let about = EventData::new_u64(LISTENER);
    epoll::add(epoll, &place.listener, about, EventFlags::IN)
}

/// From here on the loop wakes when the space knocks: by edges, since nobody reads the knocker.
fn hear_knocks(epoll: &OwnedFd, id: u64, pages: &Pages) -> Result<(), Errno> {
    let edges = EventFlags::IN | EventFlags::ET;
    epoll::add(epoll, pages.knocker(), token(id, Part::Knocker), edges)
}

impl Server {
    /// A daemon at this place, which divides or observes. What comes at the first signal ends it, what comes at the second has it
    /// read its configuration again.
    ///
    /// # Errors
    ///
    /// The kernel's, when it gives no descriptors.
    pub fn new(
        place: Place,
        [signal, reload]: [UnixStream; 2],
        (settings, exporter): (Settings, Option<Exporter>),
        (house, machine): (House, Bits),
        (observatory, weights): (Option<Observatory>, Option<Weights>),
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        hear_listener(&epoll, &place)?;
        epoll::add(&epoll, &signal, EventData::new_u64(SIGNAL), EventFlags::IN)?;
        epoll::add(&epoll, &reload, EventData::new_u64(RELOAD), EventFlags::IN)?;
        let counts = Counts::default();
        counts.processors.set(machine.len().into());
        let mut server = Server {
            place,
            signal,
            reload,
            settings,
            counts,
            exporter: None,
            machine,
            epoll,
            // Not that of an earlier daemon, and never 0.
            generation: now() | 1,
            house,
            observatory,
            weights,
            scheduler: Keeper::default(),
            clients: BTreeMap::new(),
            next_id: 0,
            window_ends: 0,
            rests_until: None,
            idle_at: 0,
        };
        server.export(exporter)?;
        server.configure_scheduler();
        Ok(server)
    }

    /// Serves programs until a signal comes.
    ///
    /// # Errors
    ///
    /// What the kernel refuses so that the daemon cannot go on.
    pub fn serve(mut self) -> Result<(), Trouble> {
        let mut next = None;
        loop {
            let events = self
                .wait(next)
                .map_err(|error| Trouble::broken("cannot wait for programs", error))?;
            for (about, flags) in events {
                match about {
                    LISTENER => self.accept(),
                    SIGNAL => {
                        self.end();
                        return Ok(());
                    }
                    RELOAD => self.reload(),
                    METRICS => self.tell_counts(),
                    SCHEDULER => self.scheduler.hear(now(), (&self.epoll, SCHEDULER)),
                    about => {
                        let (id, part) = ((about - FIRST) / 3, (about - FIRST) % 3);
                        let stays = if part == Part::Knocker as u64 {
                            self.knock(id)
                        } else {
                            part == Part::Socket as u64 && self.listen(id, flags)
                        };
                        if !stays {
                            self.forget(id);
                        }
                    }
                }
            }
            next = self.decide();
        }
    }

    fn wait(&self, next: Option<u64>) -> Result<Vec<(u64, EventFlags)>, Errno> {
        let timeout = next.map(|next| {
            // Never early: the kernel rounds up to milliseconds where it takes no shorter ones.
            let left = next.saturating_sub(now());
            Timespec {
                tv_sec: (left / 1_000_000_000) as i64,
                tv_nsec: (left % 1_000_000_000) as _,
            }
        });
        let mut events = Vec::with_capacity(EVENTS);
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, room, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let events: Vec<epoll::Event> = events;
        Ok(events
            .iter()
            .map(|event| (event.data.u64(), event.flags))
            .collect())
    }

    /// A program connects.
    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = rustix::net::accept_with(&self.place.listener, flags);
        match accepted.and_then(|socket| self.admit(socket)) {
            // It was withdrawn meanwhile, or its process has ended.
            Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR | Errno::CONNABORTED | Errno::SRCH) => {}
            Err(error) => {
                tracing::warn!(%error, "no further connection is accepted for now");
                self.rest();
            }
        }
    }

    /// A connection becomes a client, or is turned away.
    ///
    /// # Errors
    ///
    /// The kernel's, when it gives no descriptor for its process. The connection is closed.
    fn admit(&mut self, socket: OwnedFd) -> Result<(), Errno> {
        let own = rustix::process::geteuid().as_raw();
        let peer = packets::peer(socket.as_fd())?;
        let of_user = self.clients.values().filter(|it| it.uid == peer.uid);
        let is_served = peer.uid == own || self.place.scope == Scope::All;
        if !is_served || of_user.count() >= CONNECTIONS || self.clients.len() >= ALL_CONNECTIONS {
            tracing::warn!(pid = peer.pid, uid = peer.uid, "turned away");
            self.counts.refuse("connections");
            return Ok(());
        }
        let process = packets::process_of(socket.as_fd(), peer.pid)?;
        let id = self.next_id;
        for (part, file) in [(Part::Socket, &socket), (Part::Process, &process)] {
            epoll::add(&self.epoll, file, token(id, part), EventFlags::IN)?;
        }
        self.next_id += 1;
        let client = Client {
            socket,
            process,
            pid: peer.pid,
            uid: peer.uid,
            pages: None,
            observed: None,
            knocks: 0,
            is_muted: false,
            program: String::new(),
            has: Bits([u64::MAX; 4]),
            threads: None,
            look_at: 0,
        };
        self.clients.insert(id, client);
        Ok(())
    }

    /// No connection is accepted for a while.
    fn rest(&mut self) {
        if epoll::delete(&self.epoll, &self.place.listener).is_ok() {
            self.rests_until = Some(now() + REST_NS);
        }
    }

    /// Connections are accepted again, if they were not.
    fn accept_again(&mut self) {
        if self.rests_until.is_some() && hear_listener(&self.epoll, &self.place).is_ok() {
            self.rests_until = None;
        }
    }

    /// A client says something. Returns true if it stays.
    fn listen(&mut self, id: u64, flags: EventFlags) -> bool {
        loop {
            let Some(client) = self.clients.get_mut(&id) else {
                return true;
            };
            if client.knocks >= MOST_KNOCKS {
                tracing::warn!(pid = client.pid, "too many messages");
                return false;
            }
            // One byte more than a message has.
            let mut room = [0u8; 17];
            let (packet, sender) = match packets::receive(client.socket.as_fd(), &mut room) {
                Received::Nothing => return !flags.contains(EventFlags::HUP),
                Received::Closed => return false,
                Received::Packet(length, sender) => (&room[..length], sender),
            };
            client.knocks += 1;
            let is_peers = sender.is_some_and(|sender| sender.pid == client.pid);
            let Some(message) = Message::read(packet).filter(|_| is_peers) else {
                self.answer(id, STATUS_NONSENSE, 0);
                return false;
            };
            if message.version != VERSION {
                tracing::info!(
                    pid = client.pid,
                    version = message.version,
                    "another version"
                );
                self.answer(id, STATUS_VERSION, 0);
                return false;
            }
            match message.ask {
                ASK_OBSERVE if self.observatory.is_none() => {
                    self.answer(id, STATUS_NOT_HERE, 0);
                    return false;
                }
                ASK_OBSERVE if client.observed.is_none() && client.pages.is_none() => {
                    if !self.observe(id) {
                        return false;
                    }
                }
                ASK_JOIN if client.pages.is_none() && client.observed.is_none() => {
                    if !self.join(id) {
                        return false;
                    }
                }
                ASK_LIST if client.pages.is_none() && client.observed.is_none() => {
                    if !self.list(id) {
                        tracing::info!(pid = self.clients[&id].pid, "does not read its answers");
                        return false;
                    }
                }
                _ => {
                    self.answer(id, STATUS_NONSENSE, 0);
                    return false;
                }
            }
        }
    }

    /// A space has changed what it says, which is read when all has been heard. Returns true if it stays.
    fn knock(&mut self, id: u64) -> bool {
        let Some(client) = self.clients.get_mut(&id) else {
            return true;
        };
        client.knocks += 1;
        if client.knocks >= MOST_KNOCKS
            && let Some(pages) = &client.pages
        {
            tracing::debug!(pid = client.pid, "knocks too often");
            client.is_muted = epoll::delete(&self.epoll, pages.knocker()).is_ok();
            return client.is_muted;
        }
        true
    }

    /// Returns true if the answer is sent.
    fn answer(&self, id: u64, status: u32, count: u32) -> bool {
        match status {
            STATUS_VERSION => self.counts.refuse("version"),
            STATUS_FULL => self.counts.refuse("full"),
            STATUS_NONSENSE => self.counts.refuse("nonsense"),
            STATUS_NOT_HERE => self.counts.refuse("not_here"),
            _ => {}
        }
        self.clients.get(&id).is_some_and(|client| {
            let answer = Answer {
                magic: MAGIC,
                version: VERSION,
                status,
                generation: self.generation,
                count,
                flags: match self.scheduler.is_on() {
                    true => ANSWER_SCHEDULES,
                    false => 0,
                },
            };
            let pages = client.pages.as_ref().map(Pages::descriptors);
            let observed = client.observed.as_ref().map(|page| [page.descriptor()]);
            let descriptors = match (status, &pages, &observed) {
                (STATUS_OK, Some(pages), _) => &pages[..],
                (STATUS_OK, _, Some(page)) => &page[..],
                _ => &[],
            };
            let sent = packets::send(client.socket.as_fd(), &answer.bytes(), descriptors);
            if let Err(error) = sent {
                tracing::debug!(%error, pid = client.pid, "cannot answer");
            }
            sent.is_ok()
        })
    }

    fn forget(&mut self, id: u64) {
        if let Some(client) = self.clients.remove(&id) {
            // What it had is free at the end of this.
            self.rests_until = self.rests_until.map(|_| 0);
            // The descriptors may have copies elsewhere: they would go on to be reported.
            let _ = epoll::delete(&self.epoll, &client.socket);
            let _ = epoll::delete(&self.epoll, &client.process);
            if client.observed.is_some() {
                tracing::info!(pid = client.pid, "not observed any more");
            }
            if let Some(pages) = client.pages {
                tracing::info!(pid = client.pid, "left");
                let _ = epoll::delete(&self.epoll, pages.knocker());
                pages.end();
                self.house.leave(id);
                if let Some(weights) = &mut self.weights {
                    weights.forget(id);
                }
            }
        }
    }

    /// The clients that have joined.
    fn spaces(&self) -> impl Iterator<Item = (u64, &Client)> {
        let clients = self.clients.iter().map(|(&id, client)| (id, client));
        clients.filter(|(_, client)| client.pages.is_some())
    }

    /// Those that have said too much are listened to again, when the time is over.
    fn listen_again(&mut self, now: u64) {
        if now < self.window_ends {
            return;
        }
        self.window_ends = now + WINDOW_NS;
        for (&id, client) in &mut self.clients {
            client.knocks = 0;
            if client.is_muted
                && let Some(pages) = &client.pages
            {
                client.is_muted = hear_knocks(&self.epoll, id, pages).is_err();
            }
        }
    }

    /// A signal has come: every program goes on without the daemon at once.
    fn end(&mut self) {
        manager::tell(manager::State::Stopping, "Ends");
        self.scheduler.unload();
        for client in self.clients.values() {
            if let Some(pages) = &client.pages {
                pages.end();
            }
            if let Some(page) = &client.observed {
                page.end();
            }
        }
        tracing::info!(fd = self.signal.as_raw_fd(), "ended by a signal");
    }
}
