//! What the kernel threads of a space weigh: their nice values are lowered while the space is on, and put back.
//!
//! 1. A space of which the journal does not know is written there first, with when its process began. So a daemon that is killed leaves
//!    nothing that the next one, or `upcalld --clean`, does not find.
//! 2. A kernel thread borrows if it is of SCHED_OTHER, has the nice value 0, and does not reset it on fork(2). First it is made to reset
//!    it, so that no child inherits what is lent.
//! 3. What has been lent is taken back by setting the nice value to 0, if it is lower than that. A program that has raised it
//!    meanwhile keeps its own.
//! 4. At the end the kernel thread does not reset it on fork(2) any more, and the journal forgets the space.
//!
//! Kernel threads are found by a descriptor of the process's directory, which never is another process's. The kernel's list of them lacks
//! those behind one that ends meanwhile, so one that has borrowed is looked for by its number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{Access, AtFlags, Mode, OFlags};

use crate::lending::ONE;

/// The weights of the nice values 0, -1, and so on, in the kernel.
const WEIGHTS: [u32; 13] = [
    1024, 1277, 1586, 1991, 2501, 3121, 3906, 4904, 6100, 7620, 9548, 11916, 14949,
];

/// The nice value whose weight is nearest to this one, in proportion.
fn nice_for(weight: u32) -> i32 {
    let square = u64::from(weight) * u64::from(weight);
    let is_above = |pair: &&[u32]| square > u64::from(pair[0]) * u64::from(pair[1]);
    -(WEIGHTS.windows(2).take_while(is_above).count() as i32)
}

/// A process, as long as it is there.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    began: u64,
    /// `/proc/PID/task`.
    tasks: OwnedFd,
}

impl Process {
    /// The process that has this number now.
    ///
    /// # Errors
    ///
    /// There is none, or none that can be seen.
    pub fn new(pid: i32) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tasks = rustix::fs::open(format!("/proc/{pid}/task"), flags, Mode::empty())?;
        let began = began(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Process { pid, began, tasks })
    }

    /// Returns true if this is the number of one of its kernel threads.
    fn has(&self, tid: i32) -> bool {
        let (access, flags) = (Access::EXISTS, AtFlags::empty());
        rustix::fs::accessat(&self.tasks, tid.to_string(), access, flags).is_ok()
    }

    /// Its kernel threads, or some of them.
    fn tids(&self) -> Vec<i32> {
        let Ok(directory) = rustix::fs::Dir::read_from(&self.tasks) else {
            return Vec::new();
        };
        let number = |name: &std::ffi::CStr| name.to_str().ok()?.parse().ok();
        directory
            .filter_map(|entry| number(entry.ok()?.file_name()))
            .collect()
    }

    /// Puts back what was lent to any of its kernel threads, known or not. Returns true if there was something.
    fn put_all_back(&self) -> bool {
        // A list can lack some.
        const LISTS: u32 = 3;
        let pass = || self.tids().into_iter().filter(|&tid| put_back(tid)).count();
        (0..LISTS).map(|_| pass()).sum::<usize>() != 0
    }

    /// Returns true if its first kernel thread could borrow, or has borrowed.
    pub fn could_borrow(&self, has: bool) -> bool {
        is_plain(self.pid)
            || has
                && policy(self.pid) == libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK
                && nice(self.pid).is_some_and(|nice| nice <= 0)
    }
}

/// When a process began, in the kernel's ticks.
fn began(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit(')')
        .next()?
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

/// The policy of sched(7) of a kernel thread, with its flag; less than 0: it has ended.
fn policy(tid: i32) -> i32 {
    // Not by libc, of which one kind refuses.
    // SAFETY: asks only.
    unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) as i32 }
}

fn set_policy(tid: i32, policy: i32) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: reads the parameter.
    match unsafe {
        let number = libc::SYS_sched_setscheduler;
        libc::syscall(number, tid, policy, &raw const parameter)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn nice(tid: i32) -> Option<i32> {
    rustix::process::getpriority_process(rustix::process::Pid::from_raw(tid)).ok()
}

fn set_nice(tid: i32, nice: i32) -> io::Result<()> {
    let tid = rustix::process::Pid::from_raw(tid);
    Ok(rustix::process::setpriority_process(tid, nice)?)
}

/// Returns true if nothing about the scheduling of this kernel thread was chosen.
fn is_plain(tid: i32) -> bool {
    policy(tid) == libc::SCHED_OTHER && nice(tid) == Some(0)
}

/// Takes back what was lent to a kernel thread. Another error than that it has ended is the kernel's refusal.
fn lower(tid: i32) -> io::Result<()> {
    match nice(tid) {
        Some(nice) if nice < 0 => set_nice(tid, 0),
        _ => Ok(()),
    }
}

/// The same for good. Returns true if there was something.
fn put_back(tid: i32) -> bool {
    if policy(tid) != libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK {
        return false;
    }
    lower(tid)
        .and_then(|()| set_policy(tid, libc::SCHED_OTHER))
        .is_ok()
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Who has borrowed.
#[derive(Debug)]
struct Borrower {
    process: Rc<Process>,
    weight: u32,
    tids: BTreeSet<i32>,
}

impl Borrower {
    /// Its kernel threads that have borrowed and have not ended.
    fn tids(&self) -> impl Iterator<Item = i32> {
        let all = self.tids.iter().copied();
        all.filter(|&tid| self.process.has(tid))
    }

    fn put_back(&self) {
        for tid in self.tids() {
            put_back(tid);
        }
    }
}

/// Sets weights. What it has lent is put back when it is dropped.
#[derive(Debug)]
pub struct Weights {
    journal: PathBuf,
    borrowers: BTreeMap<u64, Borrower>,
}

impl Drop for Weights {
    fn drop(&mut self) {
        for borrower in self.borrowers.values() {
            borrower.put_back();
        }
        let _ = fs::remove_file(&self.journal);
    }
}

impl Weights {
    /// What lends, and notes in this journal to whom. What a daemon before has left was mended.
    ///
    /// # Errors
    ///
    /// The kernel refuses: it was tried with this kernel thread.
    pub fn new(journal: PathBuf) -> io::Result<Self> {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let before = nice(own).unwrap_or(0);
        set_nice(own, before - 1)?;
        set_nice(own, before)?;
        let weights = Weights {
            journal,
            borrowers: BTreeMap::new(),
        };
        weights.write()?;
        Ok(weights)
    }

    /// From here on this space weighs so much: its own weight, or more. If it did before, kernel threads that it has begun since then
    /// do so only if this is done again.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn set(
        &mut self,
        id: u64,
        process: &Rc<Process>,
        weight: u32,
        again: bool,
    ) -> io::Result<()> {
        let before = self.borrowers.get(&id).map(|borrower| borrower.weight);
        if before.unwrap_or(ONE) == weight && !(again && weight != ONE) {
            return Ok(());
        }
        let borrower = self.borrowers.entry(id).or_insert(Borrower {
            process: Rc::clone(process),
            weight,
            tids: BTreeSet::new(),
        });
        borrower.weight = weight;
        if before.is_none() {
            self.write()?;
        }
        let Some(borrower) = self.borrowers.get_mut(&id) else {
            return Ok(());
        };
        let value = nice_for(weight);
        if value == 0 {
            for tid in borrower.tids() {
                lower(tid).or_else(|error| match is_gone(&error) {
                    true => Ok(()),
                    false => Err(error),
                })?;
            }
            return Ok(());
        }
        let mut tids: BTreeSet<i32> = process.tids().into_iter().collect();
        let known = &mut borrower.tids;
        known.retain(|&tid| tids.contains(&tid) || process.has(tid));
        tids.extend(known.iter());
        for tid in tids {
            let is_new = !borrower.tids.contains(&tid);
            if is_new && !is_plain(tid) {
                continue;
            }
            let lent = match is_new {
                true => set_policy(tid, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK),
                false => Ok(()),
            };
            match lent.and_then(|()| set_nice(tid, value)) {
                Ok(()) => borrower.tids.insert(tid),
                Err(error) if is_gone(&error) => false,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// This space has its own weight again, for good.
    pub fn forget(&mut self, id: u64) {
        if let Some(borrower) = self.borrowers.remove(&id) {
            borrower.put_back();
            // One that is named for nothing is looked at for nothing.
            let _ = self.write();
        }
    }

    fn write(&self) -> io::Result<()> {
        let new = self.journal.with_extension("new");
        let mut text = String::new();
        for borrower in self.borrowers.values() {
            let process = &borrower.process;
            text += &format!("{} {}\n", process.pid, process.began);
        }
        let mut file = fs::File::create(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, &self.journal)
    }
}

/// Where the journal of the daemon with this socket is.
pub fn journal(socket: &Path) -> PathBuf {
    socket.with_file_name("upcalld.lent")
}

/// Puts back what a daemon has left that was killed, and removes its journal. Returns how many programs had something.
///
/// # Errors
///
/// The journal cannot be read. Where there is none there is nothing to mend.
pub fn mend(journal: &Path) -> io::Result<usize> {
    let text = match fs::read_to_string(journal) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut mended = 0;
    for line in text.lines() {
        let mut words = line.split(' ').map(str::parse::<u64>);
        let (Some(Ok(pid)), Some(Ok(begun))) = (words.next(), words.next()) else {
            continue;
        };
        let Ok(process) = Process::new(i32::try_from(pid).unwrap_or(0)) else {
            continue;
        };
        if process.began == begun {
            mended += usize::from(process.put_all_back());
        }
    }
    fs::remove_file(journal)?;
    Ok(mended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lending::MOST;

    #[test]
    fn the_nearest_nice_value_is_taken() {
        assert_eq!(nice_for(ONE), 0);
        assert_eq!(nice_for(2 * ONE), -3);
        assert_eq!(nice_for(3 * ONE), -5);
        assert_eq!(nice_for(4 * ONE), -6);
        assert_eq!(nice_for(MOST), -12);
        for weight in (ONE..=MOST).step_by(100) {
            let has = WEIGHTS[-nice_for(weight) as usize];
            // The share beside one other of weight 1, in thousandths.
            let share = |weight: u32| u64::from(weight) * 1000 / u64::from(weight + ONE);
            assert!(share(has).abs_diff(share(weight)) <= 30, "{weight}");
        }
    }

    /// A child that sleeps, ended at the end.
    struct Child(std::process::Child);

    impl Drop for Child {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn child() -> (Child, Rc<Process>) {
        child_of(std::process::Command::new("sleep").arg("600"))
    }

    fn child_of(command: &mut std::process::Command) -> (Child, Rc<Process>) {
        let child = Child(command.spawn().expect("it starts"));
        let process = Rc::new(Process::new(child.0.id() as i32).expect("it lives"));
        // Whatever these tests have.
        set_nice(process.pid, 0).expect("it may be lowered here");
        (child, process)
    }

    fn lender(name: &str) -> Option<(Weights, PathBuf)> {
        let name = format!("upcalld-{}-{name}.lent", std::process::id());
        let journal = std::env::temp_dir().join(name);
        match Weights::new(journal.clone()) {
            Ok(weights) => Some((weights, journal)),
            Err(error) => {
                println!("skipped: nice values cannot be lowered here: {error}");
                None
            }
        }
    }

    #[test]
    fn what_is_lent_is_put_back_whatever_the_program_does_with_it() {
        let Some((mut weights, journal)) = lender("back") else {
            return;
        };
        let (_child, process) = child();
        let pid = process.pid;
        assert!(process.could_borrow(false));
        weights.set(1, &process, ONE, false).unwrap();
        assert_eq!(fs::read_to_string(&journal).unwrap(), "");
        weights.set(1, &process, 2 * ONE, false).unwrap();
        let line = format!("{pid} {}\n", process.began);
        assert_eq!(fs::read_to_string(&journal).unwrap(), line);
        assert_eq!(nice(pid), Some(-3));
        assert_eq!(policy(pid), libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK);
        weights.set(1, &process, ONE, false).unwrap();
        assert_eq!(nice(pid), Some(0));
        weights.set(1, &process, 4 * ONE, false).unwrap();
        assert_eq!(nice(pid), Some(-6));
        weights.forget(1);
        assert!(is_plain(pid));
        assert_eq!(fs::read_to_string(&journal).unwrap(), "");
        // One that goes on with less has what it chose.
        weights.set(2, &process, 2 * ONE, false).unwrap();
        set_nice(pid, 7).unwrap();
        drop(weights);
        assert_eq!((nice(pid), policy(pid)), (Some(7), libc::SCHED_OTHER));
        assert!(!journal.exists());
    }

    #[test]
    fn what_a_killed_daemon_left_is_mended_once() {
        let Some((mut weights, journal)) = lender("killed") else {
            return;
        };
        let [(_one, lent), (_other, own)] = [child(), child()];
        weights.set(1, &lent, 2 * ONE, false).unwrap();
        weights.set(2, &own, 2 * ONE, false).unwrap();
        // Another process has the number by now.
        let text = fs::read_to_string(&journal).unwrap();
        let line = |began| format!("{} {began}\n", own.pid);
        let text = text.replace(&line(own.began), &line(own.began + 1));
        fs::write(&journal, &text).unwrap();
        // Killed: nothing is put back.
        std::mem::forget(weights);
        assert_eq!(nice(lent.pid), Some(-3));
        assert_eq!(mend(&journal).unwrap(), 1);
        assert!(is_plain(lent.pid));
        assert_eq!(nice(own.pid), Some(-3));
        assert!(!journal.exists());
        fs::write(&journal, text).unwrap();
        assert_eq!(mend(&journal).unwrap(), 0);
        fs::write(&journal, "x\n1\n-1 5\n99999999999 1\n\n7 8 9\n").unwrap();
        assert_eq!(mend(&journal).unwrap(), 0);
        assert_eq!(mend(&journal).unwrap(), 0);
    }

    /// The child of the next test: threads that end soon, each before one that stays for a while.
    #[test]
    fn has_threads_that_come_and_go() {
        if std::env::var_os("UPCALLD_TEST_THREADS").is_none() {
            return;
        }
        let mut stay = std::collections::VecDeque::new();
        loop {
            std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_micros(100)));
            let (end, ends) = std::sync::mpsc::channel::<()>();
            std::thread::spawn(move || ends.recv());
            stay.push_back(end);
            if stay.len() > 32 {
                stay.pop_front();
            }
        }
    }

    #[test]
    fn nothing_is_forgotten_while_threads_come_and_go() {
        let Some((mut weights, _)) = lender("threads") else {
            return;
        };
        let name = "weights::tests::has_threads_that_come_and_go";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", name])
            .env("UPCALLD_TEST_THREADS", "1");
        let (_child, process) = child_of(command.stdout(std::process::Stdio::null()));
        // Until it has them.
        while process.tids().len() < 20 {
            std::thread::yield_now();
        }
        let lent = |tid: i32| nice(tid).is_some_and(|nice| nice < 0);
        for _ in 0..10_000 {
            weights.set(1, &process, 2 * ONE, true).unwrap();
            let known = &weights.borrowers[&1].tids;
            let mut seen = process.tids().into_iter().filter(|&tid| lent(tid));
            assert_eq!(seen.find(|tid| !known.contains(tid)), None);
        }
    }

    #[test]
    fn who_has_chosen_its_own_borrows_nothing() {
        let Some((mut weights, _)) = lender("own") else {
            return;
        };
        let (_child, process) = child();
        set_nice(process.pid, 5).unwrap();
        assert!(!process.could_borrow(false));
        weights.set(1, &process, 2 * ONE, false).unwrap();
        assert_eq!(nice(process.pid), Some(5));
    }
}
