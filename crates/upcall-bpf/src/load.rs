//! Loads the object, and makes pages.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};

use libbpf_rs::{Link, MapHandle, Object, ObjectBuilder};
use upcall_abi::{MAGIC, Now, OBSERVED_RUNNING, OBSERVED_SLOTS, Observed, VERSION};

use crate::map::{self, Mapped};
use crate::object::{self, Aligned};
use crate::trouble::Trouble;

const ALIGNED: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/observe.bpf.o")));

/// The object, as it was compiled.
pub const OBJECT: &[u8] = &ALIGNED.0;

/// As in the object.
const MEMBERS: usize = 65536;
/// The program that is not on every machine.
const OPTIONAL: &str = "on_fault";
/// The program that is called, and not attached.
const CALLED: &str = "end_page";
/// How long this process sleeps to be seen.
const SLEEP: std::time::Duration = std::time::Duration::from_millis(1);

/// The programs, attached as long as this lives.
pub struct Observatory {
    shared: Rc<Shared>,
    _links: Vec<Link>,
}

struct Shared {
    object: Object,
    spaces: MapHandle,
    members: Mapped<[AtomicU8; MEMBERS]>,
    /// Which page is a process's now.
    current: RefCell<BTreeMap<u32, u64>>,
    next: RefCell<u64>,
}

/// The page of a process. It ends when this is dropped.
pub struct Page {
    shared: Rc<Shared>,
    place: Mapped<Observed>,
    map: OwnedFd,
    process: u32,
    number: u64,
}

impl Observatory {
    /// Loads the programs and attaches them.
    ///
    /// # Errors
    ///
    /// What the kernel refuses, or that the programs do not see this process.
    pub fn start() -> Result<Self, Trouble> {
        object::kernel_has_types()?;
        let (object, links) = object::listened(load).map_err(|(error, said)| Trouble {
            what: "the kernel does not take the BPF programs",
            evidence: format!("{error}{said}"),
            remedy: "run it as root (CAP_BPF and CAP_PERFMON), on Linux 5.15 or later, without lockdown",
        })?;
        let shared = shared(object).map_err(|error| Trouble {
            what: "the maps of the BPF programs cannot be used",
            evidence: error.to_string(),
            remedy: "run it as root (CAP_BPF)",
        })?;
        let observatory = Observatory {
            shared: Rc::new(shared),
            _links: links,
        };
        observatory.see_this_process()?;
        Ok(observatory)
    }

    /// Makes a page for a process, which is `pid` for this one. An earlier page of it is written no more.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn observe(&self, pid: i32, generation: u64) -> io::Result<Page> {
        let process = u32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
        let map = map::create(c"upcall_page", size_of::<Observed>())?;
        map::freeze_with(map.as_fd(), &beginning(generation))?;
        let place = Mapped::new(map.as_fd(), libc::PROT_READ)?;
        map::put(self.shared.spaces.as_fd(), process, map.as_fd())?;
        self.shared.count(process, 1);
        let number = {
            let mut next = self.shared.next.borrow_mut();
            *next += 1;
            *next
        };
        self.shared.current.borrow_mut().insert(process, number);
        Ok(Page {
            shared: Rc::clone(&self.shared),
            place,
            map,
            process,
            number,
        })
    }

    /// Sleeps, and finds that in a page.
    fn see_this_process(&self) -> Result<(), Trouble> {
        let failed = |evidence: String| Trouble {
            what: "the BPF programs do not see this process",
            evidence,
            remedy: "run it in the first pid namespace, outside of any container",
        };
        let pid = std::process::id();
        let page = self
            .observe(pid as i32, 1)
            .map_err(|error| failed(error.to_string()))?;
        // SAFETY: asks only.
        let tid = unsafe { libc::gettid() } as u32;
        std::thread::sleep(SLEEP);
        let slot = &page.place.get().slots[tid as usize % OBSERVED_SLOTS];
        let now = Now(slot.now.load(Ordering::Relaxed));
        if now.tid() != tid
            || now.state() != OBSERVED_RUNNING
            || slot.blocks.load(Ordering::Relaxed) == 0
        {
            return Err(failed(format!(
                "process {pid} slept, and its page says thread {} in state {}",
                now.tid(),
                now.state()
            )));
        }
        Ok(())
    }
}

fn load() -> libbpf_rs::Result<(Object, Vec<Link>)> {
    let mut object = ObjectBuilder::default()
        .name("upcall")?
        .open_memory(&ALIGNED.0)?;
    if !has_faults() {
        for mut program in object.progs_mut() {
            if program.name() == OPTIONAL {
                program.set_autoload(false);
            }
        }
    }
    let object = object.load()?;
    let mut links = Vec::new();
    for program in object.progs_mut() {
        let traces = program.name() != CALLED && (program.name() != OPTIONAL || has_faults());
        if traces {
            links.push(program.attach()?);
        }
    }
    Ok((object, links))
}

/// Whether the kernel tells of page faults. Its BTF has a type for each tracepoint.
fn has_faults() -> bool {
    use libbpf_rs::btf::types::Typedef;
    let btf = libbpf_rs::btf::Btf::from_vmlinux();
    btf.is_ok_and(|btf| {
        btf.type_by_name::<Typedef<'_>>("btf_trace_page_fault_user")
            .is_some()
    })
}

fn shared(object: Object) -> io::Result<Shared> {
    let spaces = object::map(&object, "spaces")?;
    let spaces = MapHandle::try_from(&spaces).map_err(io::Error::other)?;
    let members = object::map(&object, ".bss")?;
    let members = Mapped::new(members.as_fd(), libc::PROT_READ | libc::PROT_WRITE)?;
    Ok(Shared {
        object,
        spaces,
        members,
        current: RefCell::default(),
        next: RefCell::default(),
    })
}

/// What a page begins with, and its zeros.
fn beginning(generation: u64) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<Observed>()];
    bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    bytes[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    bytes[12..16].copy_from_slice(&(size_of::<Observed>() as u32).to_ne_bytes());
    bytes[16..24].copy_from_slice(&generation.to_ne_bytes());
    bytes
}

impl Shared {
    /// The page of this process is not written any more, and says so.
    fn end(&self, process: u32) {
        // If the kernel refuses, the page is left as one of a daemon that was killed.
        let _ = object::call(&self.object, CALLED, &mut process.to_ne_bytes());
    }

    fn count(&self, process: u32, change: u8) {
        let member = &self.members.get()[process as usize % MEMBERS];
        member.fetch_add(change, Ordering::Relaxed);
    }
}

impl Page {
    /// For the process: it can only be read, and mapped read-only.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// The page holds no more, and nobody writes it from here on.
    pub fn end(&self) {
        // Not that of the program that the process has executed meanwhile.
        if self.shared.current.borrow().get(&self.process) == Some(&self.number) {
            self.shared.end(self.process);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.end();
        let mut current = self.shared.current.borrow_mut();
        if current.get(&self.process) == Some(&self.number) {
            current.remove(&self.process);
            map::take(self.shared.spaces.as_fd(), self.process);
        }
        self.shared.count(self.process, u8::MAX);
    }
}
