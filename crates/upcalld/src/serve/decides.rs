//! What is decided when something has happened: who has which processors, and whose weight is lent to whom.

use std::collections::BTreeMap;

use super::{GROUP_NS, IDLE_NS, SCHEDULER, Server, now};
use crate::meter::Idle;
use crate::words::Told;
use crate::{groups, lending};

impl Server {
    /// Reads what all say, decides, and tells each. Returns when to do so again.
    pub(super) fn decide(&mut self) -> Option<u64> {
        let now = now();
        self.listen_again(now);
        self.scheduler.look(now, (&self.epoll, SCHEDULER));
        if self.rests_until.is_some_and(|until| until <= now) {
            self.accept_again();
        }
        let are_several = self.spaces().count() > 1;
        self.look_at_idle(now);
        for (&id, client) in &mut self.clients {
            if let Some(pages) = &client.pages {
                let mut hints = pages.hints();
                hints.share = self.settings.config.share(&client.program, hints.share);
                hints.user = client.uid;
                if are_several {
                    hints.ran_ns = ran(client.pid);
                }
                self.house.hear(id, hints);
                if self.scheduler.is_on() {
                    // It compares all kernel threads.
                    self.house.set_group(id, Some(String::new()));
                    client.look_at = 0;
                } else if let Some(threads) = &client.threads {
                    if client.look_at <= now {
                        client.look_at = now + GROUP_NS;
                        let could = threads.could_borrow(self.house.weight(id).is_some());
                        let group = could.then(|| groups::of(client.pid)).flatten();
                        self.house.set_group(id, group);
                    }
                } else {
                    self.house.set_group(id, None);
                }
            }
        }
        self.house.set_lead(self.settings.config.warning.ns());
        let next = self.house.settle(now);
        self.counts.divisions.inc();
        self.lend(now);
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
        let scheduler = self.scheduler.next();
        next.into_iter()
            .chain(again)
            .chain(self.rests_until)
            .chain(scheduler)
            .min()
    }

    /// For how long processors have idled matters where turns are taken.
    fn look_at_idle(&mut self, now: u64) {
        if now < self.idle_at || !self.house.takes_turns() {
            return;
        }
        self.idle_at = now + IDLE_NS;
        let mut idle = Vec::new();
        upcall_linux::idle_times(|number, time_ns| {
            let number = number as usize;
            idle.resize(idle.len().max(number + 1), 0);
            idle[number] = time_ns;
        });
        self.house.set_idle(Idle(idle));
    }

    /// Who is on has the weight that others lend to it.
    fn lend(&mut self, now: u64) {
        if self.scheduler.is_on() {
            self.tell_scheduler();
            return;
        }
        let Some(weights) = &mut self.weights else {
            return;
        };
        let spaces = self.clients.iter();
        // Those whose group was looked up just now are looked at anew.
        let spaces = spaces.filter_map(|(&id, client)| {
            Some((
                id,
                client.threads.as_ref()?,
                client.look_at == now + GROUP_NS,
            ))
        });
        let lent = spaces
            .map(|(id, threads, again)| match self.house.weight(id) {
                Some(weight) => weights.set(id, threads, weight, again),
                None => {
                    weights.forget(id);
                    Ok(())
                }
            })
            .find_map(Result::err);
        if let Some(error) = lent {
            tracing::error!(%error, "no weight is lent any more: turns rest beside ordinary programs");
            self.weights = None;
            for (&id, client) in &mut self.clients {
                client.threads = None;
                self.house.set_group(id, None);
            }
        }
    }

    /// The scheduler is told who is a space, and what each weighs. Nice values lend nothing meanwhile.
    fn tell_scheduler(&mut self) {
        let mut spaces = BTreeMap::new();
        for (&id, client) in &self.clients {
            if client.pages.is_some() || client.observed.is_some() {
                let weight = spaces.entry(client.pid).or_insert(lending::ONE);
                // Its other connection has none.
                *weight = self.house.weight(id).unwrap_or(*weight);
            }
            if let Some(weights) = &mut self.weights {
                weights.forget(id);
            }
        }
        self.scheduler.tell(spaces);
    }
}

/// The processor time of a process, in nanoseconds; 0: it has ended.
fn ran(pid: i32) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut clock = 0;
    // SAFETY: fills in the clock's number, and then the time.
    let answer = unsafe {
        match libc::clock_getcpuclockid(pid, &raw mut clock) {
            0 => libc::clock_gettime(clock, &raw mut time),
            error => error,
        }
    };
    match answer {
        0 => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        _ => 0,
    }
}

fn trace(pid: i32, told: Told) {
    tracing::trace!(
        pid,
        changes = told.changes,
        has = told.has.0[0],
        wanted = told.wanted,
        leaves_at = told.leaves_at_ns,
        "told"
    );
}
