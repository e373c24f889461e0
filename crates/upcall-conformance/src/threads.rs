//! The world [`Threads`]: an ordinary program with threads, which knows nothing of the runtime under it.
//!
//! A call that blocks waits for a System V semaphore, because the kernel counts its waiters (`GETNCNT`). A page
//! fault happens in a userfaultfd(2) region. Child processes do what must come from outside: one opens gates, one is the
//! rival that computes, one changes affinities. A process has one such world.

use std::hint::black_box;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, mem, ptr, thread};

use upcall_bench::workload::uffd::{Region, Resolver};

use crate::world::{Kind, World};

/// How many semaphores the set has. Gates take turns with them.
const SEMAPHORES: usize = 200;
/// After this time the child process opens a gate.
const LATER: Duration = Duration::from_millis(2);
/// How many pages the region has. Each is one gate.
const PAGES: usize = 4096;

/// A thread of the program.
#[derive(Clone, Copy)]
pub struct Threads {
    processors: usize,
    rounds: u32,
    set: libc::c_int,
}

/// A semaphore of the set, or a page of the region.
#[derive(Clone, Copy)]
pub enum Gate {
    /// By its number.
    Semaphore(u16),
    /// By its number.
    Page(usize),
}

/// The region of the process, and how many threads wait for each page.
struct Pages {
    region: Region,
    resolver: Resolver,
    nr_waiting: Vec<AtomicUsize>,
}

static PAGES_OF_PROCESS: OnceLock<Result<Pages, String>> = OnceLock::new();
static RIVAL: Mutex<Option<Child>> = Mutex::new(None);
/// The child that opens gates: each line on its standard input names one.
static OPENER: Mutex<Option<Child>> = Mutex::new(None);
static NEXT_GATE: AtomicUsize = AtomicUsize::new(0);

impl Threads {
    /// The world of this process. The caller says how many virtual processors the runtime has.
    ///
    /// # Errors
    ///
    /// Where there are no System V semaphores.
    pub fn new(processors: usize, rounds: u32) -> io::Result<Self> {
        // SAFETY: a system call on plain values.
        let set = unsafe { libc::semget(libc::IPC_PRIVATE, SEMAPHORES as libc::c_int, 0o600) };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Threads {
            processors,
            rounds,
            set,
        })
    }

    /// Runs in the child: opens each gate that standard input names, after a while.
    pub fn open_gates(set: libc::c_int) -> io::Result<()> {
        let world = Threads {
            processors: 1,
            rounds: 1,
            set,
        };
        for line in io::stdin().lines() {
            let line = line?;
            let (number, count) = line.split_once(' ').unwrap_or_default();
            let number = number.parse().map_err(io::Error::other)?;
            let count = count.parse().map_err(io::Error::other)?;
            thread::sleep(LATER);
            world.operate(number, count, None);
        }
        Ok(())
    }

    /// Ends the world. No thread may wait on a gate any more.
    pub fn end(self) {
        let opener = OPENER.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = opener {
            // It ends with its input.
            drop(child.stdin.take());
            child.wait().expect("a child can be awaited");
        }
        // SAFETY: a system call on plain values.
        unsafe { libc::semctl(self.set, 0, libc::IPC_RMID) };
    }

    /// Does one operation on a semaphore. Returns false if `until` came first.
    fn operate(self, number: u16, change: i16, until: Option<Instant>) -> bool {
        loop {
            let mut operation = libc::sembuf {
                sem_num: number,
                sem_op: change,
                sem_flg: 0,
            };
            let left = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
            let timeout = left.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: one valid operation; a valid time or none.
            let answer = unsafe {
                libc::syscall(
                    libc::SYS_semtimedop,
                    self.set,
                    &raw mut operation,
                    1,
                    timeout,
                )
            };
            if answer == 0 {
                return true;
            }
            // The kernel never restarts this call after a signal, such as the runtime's own.
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return false,
                other => panic!("semtimedop(2): {other:?}"),
            }
        }
    }

    fn pages() -> &'static Pages {
        match PAGES_OF_PROCESS.get() {
            Some(Ok(pages)) => pages,
            _ => unreachable!("a gate of pages exists"),
        }
    }
}

impl Pages {
    fn new() -> Result<Self, String> {
        let (region, resolver) = Region::new(PAGES).map_err(|failure| format!("{failure:?}"))?;
        let nr_waiting = (0..PAGES).map(|_| AtomicUsize::new(0)).collect();
        Ok(Pages {
            region,
            resolver,
            nr_waiting,
        })
    }
}

/// Computes for about a microsecond.
pub fn step() {
    for turn in 0..2_000 {
        black_box(turn);
    }
}

/// What a clock of processor time shows, in nanoseconds.
pub fn processor_time(clock: libc::clockid_t) -> u64 {
    let mut used = timespec(Duration::ZERO);
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(clock, &raw mut used) };
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(time.subsec_nanos()),
    }
}

/// Starts this program with other arguments. Its output is dropped: its `--stats` are not those of the test.
fn myself(arguments: &[String]) -> Child {
    myself_with(arguments, Stdio::null())
}

fn myself_with(arguments: &[String], input: Stdio) -> Child {
    Command::new(std::env::current_exe().expect("the program has a path"))
        .args(arguments)
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process can be started")
}

/// Has another process change the affinity of every thread of this one.
fn change_affinity(all_but_one: bool) {
    let whose = std::process::id().to_string();
    let how = if all_but_one { "one" } else { "all" };
    let arguments = ["affinity".to_owned(), whose, how.to_owned()];
    let status = myself(&arguments).wait().expect("a child can be awaited");
    assert!(status.success(), "the affinity was not changed");
}

impl World for Threads {
    const CALL_NS: u64 = 3_000_000;

    type Handle = JoinHandle<()>;
    type Gate = Gate;

    fn processors(self) -> usize {
        self.processors
    }

    fn rounds(self) -> u32 {
        self.rounds
    }

    fn spawn(self, body: impl FnOnce(Self) + Send + 'static) -> JoinHandle<()> {
        thread::spawn(move || body(self))
    }

    fn join(self, handle: JoinHandle<()>) {
        handle.join().expect("a thread that does not panic");
    }

    fn step(self) {
        step();
    }

    fn yield_now(self) {
        thread::yield_now();
    }

    fn wait(self, word: &'static AtomicU32, value: u32) {
        // SAFETY: a word that lives for ever.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                value,
                ptr::null::<libc::timespec>(),
            )
        };
    }

    fn wake(self, word: &'static AtomicU32, count: u32) {
        let most = i32::try_from(count).unwrap_or(i32::MAX);
        // SAFETY: a word that lives for ever.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                most,
            )
        };
    }

    fn sleep(self, ns: u64) {
        thread::sleep(Duration::from_nanos(ns));
    }

    fn gate(self, kind: Kind) -> Result<Gate, String> {
        let number = NEXT_GATE.fetch_add(1, Ordering::Relaxed);
        if kind == Kind::Call {
            // Semaphore 0 is nobody's.
            return Ok(Gate::Semaphore((1 + number % (SEMAPHORES - 1)) as u16));
        }
        assert!(number < PAGES, "no page is left");
        let pages = PAGES_OF_PROCESS.get_or_init(Pages::new);
        pages.as_ref().map_err(String::clone)?;
        Ok(Gate::Page(number))
    }

    fn pass(self, gate: Gate) {
        match gate {
            Gate::Semaphore(number) => {
                self.operate(number, -1, None);
            }
            Gate::Page(number) => {
                Self::pages().region.touch(number);
            }
        }
    }

    fn nr_waiting(self, gate: Gate) -> usize {
        match gate {
            // SAFETY: a system call on plain values.
            Gate::Semaphore(number) => unsafe {
                libc::semctl(self.set, libc::c_int::from(number), libc::GETNCNT) as usize
            },
            Gate::Page(number) => {
                let pages = Self::pages();
                while let Some(address) = pages.resolver.next_fault() {
                    let page = pages.region.page_at(address);
                    pages.nr_waiting[page].fetch_add(1, Ordering::SeqCst);
                }
                pages.nr_waiting[number].load(Ordering::SeqCst)
            }
        }
    }

    fn open(self, gate: Gate, count: usize) {
        match gate {
            Gate::Semaphore(number) => {
                self.operate(number, count as i16, None);
            }
            Gate::Page(number) => {
                let pages = Self::pages();
                let filled = pages.resolver.fill(pages.region.address_of(number), true);
                assert!(filled, "a page cannot be filled");
            }
        }
    }

    fn open_later(self, gate: Gate, count: usize) {
        let Gate::Semaphore(number) = gate else {
            panic!("a page is filled by the program itself");
        };
        let mut opener = OPENER.lock().unwrap_or_else(PoisonError::into_inner);
        let child = opener.get_or_insert_with(|| {
            myself_with(&["open".to_owned(), self.set.to_string()], Stdio::piped())
        });
        let input = child.stdin.as_mut().expect("it has a pipe");
        writeln!(input, "{number} {count}").expect("somebody reads");
    }

    fn call_for(self, ns: u64) {
        let until = Instant::now() + Duration::from_nanos(ns);
        assert!(!self.operate(0, -1, Some(until)), "nobody ends this call");
    }

    fn busy_ns(self) -> u64 {
        processor_time(libc::CLOCK_PROCESS_CPUTIME_ID)
    }

    fn invite_rival(self) {
        let child = myself(&["rival".to_owned(), self.processors.to_string()]);
        *RIVAL.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    }

    fn has_company(self) -> bool {
        for _ in 0..1_000 {
            self.step();
        }
        let mut rival = RIVAL.lock().unwrap_or_else(PoisonError::into_inner);
        let child = rival.as_mut().expect("a rival was invited");
        match child.try_wait().expect("a child can be awaited") {
            Some(status) => {
                assert!(status.success(), "the rival fails: {status}");
                false
            }
            None => true,
        }
    }

    fn forbid_all_but_one(self) {
        change_affinity(true);
    }

    fn allow_all(self) {
        change_affinity(false);
    }

    fn exhaust(self) -> Result<(), String> {
        forbid_clone().map_err(|error| format!("no filter of system calls: {error}"))
    }

    fn set_priority(self, priority: u32) -> Result<(), String> {
        if std::env::var("UPCALL_POLICY").as_deref() != Ok("priority") {
            return Err("threads are not ordered by priority".to_owned());
        }
        let policy = match priority {
            0 => libc::SCHED_OTHER,
            _ => libc::SCHED_RR,
        };
        let parameters = libc::sched_param {
            sched_priority: priority as libc::c_int,
        };
        // SAFETY: the calling thread, and valid parameters.
        let error = unsafe {
            libc::pthread_setschedparam(libc::pthread_self(), policy, &raw const parameters)
        };
        match error {
            0 => Ok(()),
            _ => Err(format!(
                "no priorities: {}",
                io::Error::from_raw_os_error(error)
            )),
        }
    }
}

/// From here on clone(2) and clone3(2) fail with EAGAIN, on every kernel thread of the process.
fn forbid_clone() -> io::Result<()> {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let line = |code: u32, jt, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let mut lines = [
        line(load, 0, mem::offset_of!(libc::seccomp_data, nr) as u32),
        line(compare, 2, libc::SYS_clone as u32),
        line(compare, 1, libc::SYS_clone3 as u32),
        line(answer, 0, libc::SECCOMP_RET_ALLOW),
        line(answer, 0, libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32),
    ];
    let program = libc::sock_fprog {
        len: lines.len() as u16,
        filter: lines.as_mut_ptr(),
    };
    // SAFETY: a valid program; it forbids nothing but more kernel threads.
    let answer = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
