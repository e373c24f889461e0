//! What programs and commands ask for: to join, to be observed, who is there.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use upcall_abi::{
    Row, STATE_AWAY, STATE_ON, STATE_RESTING, STATE_WAITING, STATUS_FULL, STATUS_NOT_HERE,
    STATUS_OK,
};
use upcall_alloc::Stage;

use super::{ALL_SPACES, Server, hear_knocks};
use crate::house::Doing;
use crate::packets;
use crate::pages::Pages;
use crate::weights::Process;

impl Server {
    /// A client becomes a space. Returns true if it stays.
    pub(super) fn join(&mut self, id: u64) -> bool {
        let (pid, uid) = (self.clients[&id].pid, self.clients[&id].uid);
        // It has executed another program, and a child has the old socket still.
        let before: Vec<u64> = self
            .spaces()
            .filter(|(_, client)| client.pid == pid)
            .map(|(id, _)| id)
            .collect();
        for before in before {
            self.forget(before);
        }
        let of_user = self.spaces().filter(|(_, it)| it.uid == uid).count();
        if of_user >= self.most_spaces() || self.spaces().count() >= ALL_SPACES {
            tracing::warn!(
                pid,
                uid,
                of_user,
                "refused: its user, or all, have as many programs as allowed"
            );
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
                if self.weights.is_some() {
                    client.threads = Process::new(client.pid).ok().map(Rc::new);
                    // It is that very process's, if that is there still.
                    client.threads.take_if(|_| has_ended(&client.process));
                }
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
    pub(super) fn observe(&mut self, id: u64) -> bool {
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
    pub(super) fn list(&self, id: u64) -> bool {
        let asks = self.clients[&id].uid;
        // Others' programs are shown to root alone.
        let rows: Vec<Row> = self
            .clients
            .iter()
            .filter(|(_, client)| asks == 0 || asks == client.uid)
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
                    user: client.uid,
                })
            })
            .collect();
        let socket = self.clients[&id].socket.as_fd();
        self.answer(id, STATUS_OK, rows.len() as u32)
            && rows
                .iter()
                .all(|row| packets::send(socket, &row.bytes(), &[]).is_ok())
    }
}

/// The name of a process's executable file, or, where that is not shown, the one that the process has.
fn program_of(pid: i32) -> String {
    let file = match std::fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(file) => file,
        // Another user's, without CAP_SYS_PTRACE.
        Err(_) => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            return name.unwrap_or_default().trim_end().into();
        }
    };
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
    match has_ended(process) {
        false => Ok(()),
        true => Err("it has ended"),
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut events = [PollFd::new(process, PollFlags::IN)];
    rustix::event::poll(&mut events, Some(&Timespec::default())) != Ok(0)
}
