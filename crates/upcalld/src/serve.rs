//! The daemon's loop: one kernel thread, which sleeps until something happens.
//!
//! 1. A program connects. It is this user's, or any user's if the daemon observes, or the connection is closed. So is one
//!    beyond [`CONNECTIONS`] of its user.
//! 2. Its first message asks to join. The kernel says who has sent it: the process that has connected, or the answer is
//!    that it makes no sense. Each process is one space, and a user has as many of them as the
//!    configuration allows.
//! 3. The answer carries the descriptors of the two pages and of the knocker (`pages`). From then on the socket is silent.
//!    A daemon that observes hands out a page of that alone ([`Server::observe`]): it divides nothing.
//! 4. When a space knocks, all spaces' words are read anew, [`House`] decides, and each is told.
//! 5. The space ends when its process ends, whoever has copies of its descriptors, or when its socket is closed.
//!
//! Where the kernel gives no descriptor for another connection, none is accepted until a client leaves, or for [`REST_NS`]: the
//! listener would be reported without end.
//!
//! The loop sleeps without end if nobody waits: an idle machine has no wake-ups from here. A program that knocks more often
//! than [`MOST_KNOCKS`] in [`WINDOW_NS`] is not listened to until that time is over. Nothing is lost by that, since its words
//! are read whenever anybody's are.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::time::Timespec;
use upcall_abi::{
    ASK_JOIN, ASK_LIST, ASK_OBSERVE, Answer, MAGIC, Message, Row, STATE_AWAY, STATE_ON,
    STATE_RESTING, STATE_WAITING, STATUS_FULL, STATUS_NONSENSE, STATUS_NOT_HERE, STATUS_OK,
    STATUS_VERSION, VERSION,
};
use upcall_alloc::{Bits, Stage};
use upcall_bpf::{Observatory, Page};

use crate::config::{Absolute, Config, Source};
use crate::house::{Doing, House};
use crate::log::Log;
use crate::manager;
use crate::metrics::{Counts, Exporter};
use crate::packets::{self, Received};
use crate::pages::Pages;
use crate::place::Place;
use crate::trouble::Trouble;
use crate::words::Told;

/// Connections of one user, at most: spaces, and those that ask who is there.
pub const CONNECTIONS: usize = 96;
/// Connections of all users together, at most.
const ALL_CONNECTIONS: usize = 2048;
/// Knocks and messages that are listened to, in each [`WINDOW_NS`].
const MOST_KNOCKS: u32 = 512;
const WINDOW_NS: u64 = 50_000_000;
/// How long no connection is accepted when the kernel gave no descriptor for one, if no client leaves.
const REST_NS: u64 = 1_000_000_000;
const LISTENER: u64 = 0;
const SIGNAL: u64 = 1;
const RELOAD: u64 = 2;
const METRICS: u64 = 3;
const FIRST: u64 = 4;
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
}

/// What the daemon is told by its user.
pub struct Settings {
    /// Where the configuration is.
    pub source: Source,
    /// What it says.
    pub config: Config,
    /// What follows it.
    pub log: Log,
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
    /// None: it divides the processors among its own user's programs.
    observatory: Option<Observatory>,
    clients: BTreeMap<u64, Client>,
    next_id: u64,
    window_ends: u64,
    /// The listener is not listened to until then.
    rests_until: Option<u64>,
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
        observatory: Option<Observatory>,
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
            clients: BTreeMap::new(),
            next_id: 0,
            window_ends: 0,
            rests_until: None,
        };
        server.export(exporter)?;
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
        let socket = match rustix::net::accept_with(&self.place.listener, flags) {
            Ok(socket) => socket,
            // It was withdrawn meanwhile.
            Err(Errno::WOULDBLOCK | Errno::INTR | Errno::CONNABORTED) => return,
            Err(error) => {
                tracing::warn!(%error, "no further connection is accepted for now");
                self.rest();
                return;
            }
        };
        let own = rustix::process::geteuid().as_raw();
        let Ok(peer) = packets::peer(socket.as_fd()) else {
            return;
        };
        let of_user = self.clients.values().filter(|it| it.uid == peer.uid);
        let is_served = peer.uid == own || self.observatory.is_some();
        if !is_served || of_user.count() >= CONNECTIONS || self.clients.len() >= ALL_CONNECTIONS {
            tracing::warn!(pid = peer.pid, uid = peer.uid, "turned away");
            self.counts.refuse("connections");
            return;
        }
        let Ok(process) = packets::process_of(socket.as_fd(), peer.pid) else {
            return;
        };
        let id = self.next_id;
        let added = epoll::add(
            &self.epoll,
            &socket,
            token(id, Part::Socket),
            EventFlags::IN,
        )
        .and_then(|()| {
            epoll::add(
                &self.epoll,
                &process,
                token(id, Part::Process),
                EventFlags::IN,
            )
        });
        if let Err(error) = added {
            tracing::warn!(%error, pid = peer.pid, "cannot listen to a program");
            return;
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
        };
        self.clients.insert(id, client);
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
                ASK_JOIN | ASK_OBSERVE
                    if (message.ask == ASK_OBSERVE) != self.observatory.is_some() =>
                {
                    self.answer(id, STATUS_NOT_HERE, 0);
                    return false;
                }
                ASK_OBSERVE if client.observed.is_none() => {
                    if !self.observe(id) {
                        return false;
                    }
                }
                ASK_JOIN if client.pages.is_none() => {
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
                reserved: 0,
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

    /// A client becomes a space. Returns true if it stays.
    fn join(&mut self, id: u64) -> bool {
        let pid = self.clients[&id].pid;
        let spaces = self
            .clients
            .iter()
            .filter(|(_, client)| client.pages.is_some());
        // It has executed another program, and a child has the old socket still.
        let before: Vec<u64> = spaces
            .filter(|(_, client)| client.pid == pid)
            .map(|(&id, _)| id)
            .collect();
        for before in before {
            self.forget(before);
        }
        if self
            .clients
            .values()
            .filter(|client| client.pages.is_some())
            .count()
            >= self.most_spaces()
        {
            tracing::warn!(pid, "refused: its user has as many programs as allowed");
            self.answer(id, STATUS_FULL, 0);
            return false;
        }
        match Pages::new(self.generation) {
            Ok(pages) => {
                if hear_knocks(&self.epoll, id, &pages).is_err() {
                    return false;
                }
                let Some(client) = self.clients.get_mut(&id) else {
                    return false;
                };
                client.pages = Some(pages);
                client.program = program_of(client.pid);
                tracing::info!(pid = client.pid, program = client.program, "joined");
                self.house.join(id);
                self.counts.joined.inc();
                self.answer(id, STATUS_OK, 0);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "cannot make the pages of a space");
                self.answer(id, STATUS_FULL, 0);
                false
            }
        }
    }

    /// A client is observed from here on. Returns true if it stays.
    fn observe(&mut self, id: u64) -> bool {
        let Some(observatory) = &self.observatory else {
            return false;
        };
        let (pid, uid) = (self.clients[&id].pid, self.clients[&id].uid);
        // It has executed another program, and a child has the old socket still.
        let of_user = self.clients.iter().filter(|(_, it)| it.uid == uid);
        let (before, others): (Vec<_>, Vec<_>) = of_user
            .filter(|(_, it)| it.observed.is_some())
            .partition(|(_, it)| it.pid == pid);
        let before: Vec<u64> = before.iter().map(|(id, _)| **id).collect();
        if others.len() >= self.most_spaces() {
            tracing::warn!(
                pid,
                uid,
                "refused: its user has as many programs as allowed"
            );
            self.answer(id, STATUS_FULL, 0);
            return false;
        }
        let page = observatory.observe(pid, self.generation);
        for before in before {
            self.forget(before);
        }
        let Some(client) = self.clients.get_mut(&id) else {
            return false;
        };
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, pid, "cannot make the page of a space");
                self.answer(id, STATUS_FULL, 0);
                return false;
            }
        };
        // After the page is in use: a program that it executes from here on ends the page.
        if let Err(why) = may_be_observed(&client.process, pid, uid) {
            tracing::info!(pid, why, "not observed");
            self.answer(id, STATUS_NOT_HERE, 0);
            return false;
        }
        client.observed = Some(page);
        self.counts.joined.inc();
        tracing::info!(pid, uid, "observed");
        self.answer(id, STATUS_OK, 0);
        true
    }

    /// Tells a client which spaces there are. Returns true if it stays.
    fn list(&self, id: u64) -> bool {
        let rows: Vec<Row> = self
            .clients
            .iter()
            .filter_map(|(&id, client)| {
                let (doing, wants, share) = self.house.doing(id)?;
                let (state, since) = match doing {
                    Doing::Away(since) => (STATE_AWAY, since),
                    Doing::Gang(Stage::Resting) => (STATE_RESTING, 0),
                    Doing::Gang(Stage::On { since_ns }) => (STATE_ON, since_ns),
                    Doing::Gang(Stage::Waiting { since_ns }) => (STATE_WAITING, since_ns),
                };
                Some(Row {
                    pid: client.pid as u32,
                    state,
                    since,
                    wants: wants.0,
                    has: self.house.told(id)?.has.0,
                    share,
                    reserved: 0,
                })
            })
            .collect();
        let socket = self.clients[&id].socket.as_fd();
        self.answer(id, STATUS_OK, rows.len() as u32)
            && rows
                .iter()
                .all(|row| packets::send(socket, &row.bytes(), &[]).is_ok())
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
            }
        }
    }

    /// Reads what all say, decides, and tells each. Returns when to do so again.
    fn decide(&mut self) -> Option<u64> {
        let now = now();
        self.listen_again(now);
        if self.rests_until.is_some_and(|until| until <= now) {
            self.accept_again();
        }
        for (&id, client) in &self.clients {
            if let Some(pages) = &client.pages {
                let mut hints = pages.hints();
                hints.share = self.settings.config.share(&client.program, hints.share);
                self.house.hear(id, hints);
            }
        }
        let next = self.house.settle(now);
        self.counts.divisions.inc();
        for (&id, client) in &mut self.clients {
            if let (Some(pages), Some(told)) = (&mut client.pages, self.house.told(id)) {
                pages.tell(told);
                let got = told.has.without(client.has).and(self.machine);
                self.counts.moves.inc_by(got.len().into());
                client.has = told.has;
                trace(client.pid, told);
            }
        }
        let is_muted = self.clients.values().any(|client| client.is_muted);
        let again = is_muted.then_some(self.window_ends);
        next.into_iter().chain(again).chain(self.rests_until).min()
    }

    /// Programs of one user, at most.
    fn most_spaces(&self) -> usize {
        self.settings.config.limits.programs.0 as usize
    }

    /// SIGHUP: what the configuration says holds from here on, for programs that are there, too. One that makes no sense changes
    /// nothing.
    fn reload(&mut self) {
        // One look for all signals that have come.
        while matches!((&self.reload).read(&mut [0; 64]), Ok(1..)) {}
        manager::tell(manager::State::Reloading, "Reads its configuration again");
        let config = self.settings.source.read();
        let wanted = config.as_ref().map(|config| config.metrics.clone());
        let has = self.exporter.as_ref().map(|exporter| &exporter.path);
        let read = match wanted {
            Ok(Some(Absolute(path))) if has == Some(&path) => config,
            Ok(path) => exporter(path.as_ref())
                .and_then(|exporter| {
                    let failed = |error| Trouble::broken("cannot serve metrics", error);
                    self.export(exporter).map_err(failed)
                })
                .and(config),
            Err(_) => config,
        };
        match read {
            Ok(config) => {
                self.settings.log.follow(&config);
                self.settings.config = config;
                tracing::info!("the configuration was read again");
                manager::tell(manager::State::Ready, "Has read its configuration again");
            }
            // Whatever is logged.
            Err(mut trouble) => {
                trouble.remedy += ", then send SIGHUP again; until then the old one holds";
                eprintln!("{trouble}");
                let status = format!("The configuration is refused: {}", trouble.evidence);
                manager::tell(manager::State::Ready, &status);
            }
        }
    }

    /// From here on counts are served there, or nowhere.
    fn export(&mut self, exporter: Option<Exporter>) -> Result<(), Errno> {
        if let Some(exporter) = &exporter {
            let about = EventData::new_u64(METRICS);
            epoll::add(&self.epoll, exporter.epoll(), about, EventFlags::IN)?;
        }
        // The one before leaves the epoll with its last descriptor.
        self.exporter = exporter;
        Ok(())
    }

    /// Somebody asks for the counts.
    fn tell_counts(&mut self) {
        let spaces = || self.clients.iter().filter(|(_, it)| it.pages.is_some());
        let waits = |id: u64| {
            let doing = self.house.doing(id).map(|(doing, ..)| doing);
            matches!(doing, Some(Doing::Gang(Stage::Waiting { .. })))
        };
        let waiting = spaces().filter(|(id, _)| waits(**id)).count();
        let observed = self.clients.values().filter(|it| it.observed.is_some());
        self.counts.programs.set(spaces().count() as i64);
        self.counts.waiting.set(waiting as i64);
        self.counts.observed.set(observed.count() as i64);
        self.counts.connections.set(self.clients.len() as i64);
        if let Some(exporter) = &mut self.exporter
            && let Err(error) = exporter.serve(&self.counts)
        {
            tracing::error!(%error, "no metrics are served any more, until SIGHUP");
            self.exporter = None;
        }
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
    fn end(&self) {
        manager::tell(manager::State::Stopping, "Ends");
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

/// What serves counts at this path, if there is one.
///
/// # Errors
///
/// See [`Exporter::new`].
pub fn exporter(path: Option<&Absolute>) -> Result<Option<Exporter>, Trouble> {
    path.map(|path| Exporter::new(&path.0)).transpose()
}

/// The name of a process's executable file.
fn program_of(pid: i32) -> String {
    let file = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(" (deleted)").into()
}

/// Whether what the kernel does with this process may be shown to the user at the other end of its socket.
///
/// # Errors
///
/// Why not.
fn may_be_observed(process: &OwnedFd, pid: i32, uid: u32) -> Result<(), &'static str> {
    // The superuser's, if it has other rights than its user, or has given some up. That of the directory is not.
    let memory = format!("/proc/{pid}/mem");
    let owner = std::fs::metadata(memory).map_err(|_| "it has ended")?;
    if std::os::unix::fs::MetadataExt::uid(&owner) != uid {
        return Err("its memory is not its user's to see");
    }
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| "it has ended")?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    if numbers.is_none_or(|numbers| numbers.split_whitespace().count() != 1) {
        return Err("it is in another pid namespace");
    }
    // All this was about that very process, if it is there still.
    let mut events = [PollFd::new(process, PollFlags::IN)];
    match rustix::event::poll(&mut events, Some(&Timespec::default())) {
        Ok(0) => Ok(()),
        _ => Err("it has ended"),
    }
}

fn trace(pid: i32, told: Told) {
    tracing::trace!(
        pid,
        changes = told.changes,
        has = told.has.0[0],
        wanted = told.wanted,
        "told"
    );
}
