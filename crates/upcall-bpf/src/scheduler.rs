//! Loads the scheduler, tells it of processes, and learns how it has ended.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};

use crate::ended::{Counts, Ended};
use crate::map::Mapped;
use crate::object::{self, Aligned};
use crate::trouble::Trouble;

const ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(
    env!("OUT_DIR"),
    "/scheduler.bpf.o"
)));

/// The object, as it was compiled.
pub const OBJECT: &[u8] = &ALIGNED.0;

/// As in the object: processors, and the words of `struct cpu`.
const CPUS: usize = 512;
const WORDS: usize = 8;
const UPCALLS: usize = 5;
const AT_ONCE: usize = 6;
const OVERDUE: usize = 7;
/// The program that is called.
const CALLED: &str = "set_process";
const DIRECTORY: &str = "/sys/kernel/sched_ext";

/// The scheduler, in force as long as this lives, or until it ends by itself.
pub struct Scheduler {
    object: Object,
    ends: RingBuffer<'static>,
    ended: Rc<RefCell<Option<Ended>>>,
    cpus: Mapped<[AtomicU64; CPUS * WORDS]>,
    _link: Link,
}

impl Scheduler {
    /// Loads it, and puts it in force for the whole machine.
    ///
    /// # Errors
    ///
    /// The kernel has no sched_ext, or another scheduler, or does not take this one.
    pub fn start() -> Result<Self, Trouble> {
        if !Path::new(DIRECTORY).exists() {
            return Err(Trouble {
                what: "the kernel takes no scheduler",
                evidence: format!("{DIRECTORY} is not there"),
                remedy: "use Linux 6.17 or later, built with CONFIG_SCHED_CLASS_EXT",
            });
        }
        if let Ok(name) = fs::read_to_string(format!("{DIRECTORY}/root/ops")) {
            return Err(Trouble {
                what: "the kernel has another scheduler",
                evidence: format!("{DIRECTORY}/root/ops says {}", name.trim()),
                remedy: "end that one, and send SIGHUP to upcalld",
            });
        }
        object::kernel_has_types()?;
        if possible() > CPUS {
            return Err(Trouble {
                what: "the machine has more processors than the scheduler knows",
                evidence: format!("{} may be there, and it knows {CPUS}", possible()),
                remedy: "leave it off (scheduler = \"off\")",
            });
        }
        object::listened(load).map_err(|(error, said)| Trouble {
            what: "the kernel does not take the scheduler",
            evidence: format!("{error}{said}"),
            remedy: "run upcalld as root (CAP_BPF and CAP_PERFMON), on Linux 6.17 or later, without lockdown",
        })
    }

    /// What becomes readable when the scheduler has ended.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as `ends` lives.
        unsafe { BorrowedFd::borrow_raw(self.ends.epoll_fd()) }
    }

    /// How it has ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        // Nothing that could go wrong is of use: it would be asked again.
        let _ = self.ends.consume();
        self.ended.borrow().clone()
    }

    /// Says what a process weighs, where an ordinary one weighs 1024, and if its kernel threads that give way wait for others of it.
    /// This holds until it ends or is said again.
    ///
    /// # Errors
    ///
    /// There is no such process.
    pub fn set_process(&self, pid: i32, weight: u32, is_space: bool) -> io::Result<()> {
        let mut context = [0; 12];
        context[..4].copy_from_slice(&pid.to_ne_bytes());
        context[4..8].copy_from_slice(&weight.max(1).to_ne_bytes());
        context[8..].copy_from_slice(&u32::from(is_space).to_ne_bytes());
        match object::call(&self.object, CALLED, &mut context)? as i32 {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// What it has done.
    pub fn counts(&self) -> Counts {
        let cpus = self.cpus.get();
        let sum = |word: usize| {
            let all = cpus.iter().skip(word).step_by(WORDS);
            all.map(|it| it.load(Ordering::Relaxed)).sum()
        };
        Counts {
            upcalls: sum(UPCALLS),
            at_once: sum(AT_ONCE),
            overdue: sum(OVERDUE),
        }
    }
}

/// Processors that there may be: the greatest number of one, and one.
fn possible() -> usize {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit([',', '-']).next().unwrap_or_default();
    last.parse::<usize>().map_or(1, |last| last + 1)
}

fn load() -> libbpf_rs::Result<Scheduler> {
    let object = ObjectBuilder::default()
        .name("upcall_s")?
        .open_memory(&ALIGNED.0)?;
    let mut object = object.load()?;
    let ended = Rc::new(RefCell::new(None));
    let seen = Rc::clone(&ended);
    let ends = {
        let mut builder = RingBufferBuilder::new();
        let map = object::map(&object, "ends")?;
        builder.add(&map, move |bytes| {
            *seen.borrow_mut() = Ended::read(bytes);
            0
        })?;
        builder.build()?
    };
    let cpus = Mapped::new(object::map(&object, ".bss.cpus")?.as_fd(), libc::PROT_READ)?;
    let link = {
        let mut maps = object.maps_mut();
        let found = maps.find(|map| map.name() == "upcall");
        let mut found = found.ok_or_else(|| io::Error::other("the object has no scheduler"))?;
        found.attach_struct_ops()?
    };
    Ok(Scheduler {
        object,
        ends,
        ended,
        cpus,
        _link: link,
    })
}
