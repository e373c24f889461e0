//! Applies stubs to the objects of the process, and keeps what is known about them afterwards.
//!
//! Nobody executes the code that is written. At start the process has one kernel thread, and code of an object that is
//! loaded later is rewritten before any of it runs (`process::loads`). So windows are overwritten completely, after the
//! jump with `int3`: a jump into a window that the analysis has missed fails loudly.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};
use std::{fmt, ptr};

use upcall_linux::arch::own_syscalls;

use crate::ground::entry::{self, Hook, raw_syscall};
use crate::ground::state::GUEST;
use crate::ground::{arch, memory};
use crate::rewrite::arena::Arenas;
use crate::rewrite::cfi::{self, Known};
use crate::rewrite::finder;
use crate::rewrite::kept::{self, First};
use crate::rewrite::object::{self, Image, Object, Role, Segment};
use crate::rewrite::site::{self, CancelRange, Reason, Scan, Window};
use crate::rewrite::stub::{self, Row, Stub};
use crate::rewrite::sud;

/// What the runtime wants of the rewriter.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Called for every system call of a rewritten site.
    pub handler: Hook,
    /// Called after a call that was made at its site.
    pub after: Hook,
    /// Rewrite the dynamic loader too.
    pub loader: bool,
    /// Rewrite what else is in the object that holds this crate: a program that links it.
    pub beside: bool,
    /// Returns true if a call with this number, `None` where it is not known, is one of the first ([`Extent::First`]).
    pub is_first: fn(Option<u32>) -> bool,
    /// Those that may be, whatever the settings are.
    pub first: First,
}

/// What [`install`] was given.
static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Which sites are rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// All.
    All,
    /// Those of the first calls; and all of an object that must be scanned, since nothing is kept about it ([`kept`]).
    First,
}

impl Extent {
    fn wanted(self) -> Option<fn(Option<u32>) -> bool> {
        match self {
            Extent::All => None,
            Extent::First => HOOKS.get().map(|hooks| hooks.is_first),
        }
    }
}

/// The result for one site.
#[derive(Clone, Debug)]
pub struct SiteReport {
    /// The address of the `syscall` instruction.
    pub address: usize,
    /// The system-call number, where straight-line code shows it.
    pub number: Option<u32>,
    /// The bytes that were replaced, or why none were.
    pub window: Result<Range<usize>, Reason>,
}

/// The result for one object.
#[derive(Clone, Debug)]
pub struct ObjectReport {
    /// Its path, as [`Object::path`].
    pub path: String,
    /// Its sites, by address.
    pub sites: Vec<SiteReport>,
    /// The byte pairs of a system call that are no instruction.
    pub other_pairs: usize,
    /// glibc's cancellable call, from its start to the end of its system call.
    pub cancel: Option<CancelRange>,
    /// True if the process's unwinder knows the stubs.
    pub unwinder: bool,
    /// True if it has writable code, which was not examined.
    pub writable: bool,
    /// True if it holds this crate: Syscall User Dispatch lets all its calls through.
    pub own: bool,
    /// How many windows were left for later ([`Extent::First`]); `None`: nothing is left to do.
    pub left: Option<usize>,
}

impl ObjectReport {
    /// Returns how many sites were rewritten.
    pub fn patched(&self) -> usize {
        self.sites.iter().filter(|s| s.window.is_ok()).count()
    }

    /// Returns how many sites were left as they are although they may make a call that must be seen: all that were not
    /// rewritten but `rt_sigreturn`. Code that can be written counts as one. Nobody can catch those beside this crate.
    pub fn left_alone(&self) -> usize {
        if self.own {
            return 0;
        }
        self.refused()
            .filter(|(_, reason)| **reason != Reason::Sigreturn)
            .count()
            + usize::from(self.writable)
    }

    /// Returns the sites that were not, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&SiteReport, &Reason)> {
        self.sites
            .iter()
            .filter_map(|s| Some((s, s.window.as_ref().err()?)))
    }
}

/// The result for the process.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The objects that were looked at, in the loader's order.
    pub objects: Vec<ObjectReport>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for object in &self.objects {
            let (found, patched) = (object.sites.len(), object.patched());
            let path = object::path_of(&object.path);
            write!(f, "{path}: {patched} of {found} sites rewritten")?;
            if let Some(left) = object.left {
                write!(f, ", {left} left until there are threads")?;
            }
            writeln!(f)?;
            for (site, reason) in object.refused() {
                let number = site.number.map_or("?".to_owned(), |n| n.to_string());
                writeln!(f, "  {:#x} (call {number}): {reason}", site.address)?;
            }
        }
        Ok(())
    }
}

/// Where a program counter in a stub would be in the original code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    /// The original address.
    pub pc: usize,
    /// What to add to the stack pointer.
    pub skipped: usize,
}

/// What is known about the stubs of one object: written once, then read without locks. The table
/// of an object that is gone stays behind, some hundred bytes.
struct Table {
    stubs: Range<usize>,
    /// Where each stub is.
    starts: Vec<Range<usize>>,
    rows: Vec<Row>,
    windows: Vec<Range<usize>>,
    /// The code in which they are, whole pages, but for what an earlier table has.
    texts: Vec<Range<usize>>,
    trapped: Vec<(usize, usize)>,
    /// The object's addresses; whether it is still there.
    span: Range<usize>,
    live: AtomicBool,
    /// How the unwinder knows the stubs, if it does. Under the arenas' lock.
    known: Mutex<Option<Known>>,
    /// The table in which it looks by itself, if it does.
    entries: AtomicPtr<u8>,
    next: *const Table,
}

static TABLES: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
static ARENAS: Mutex<Arenas> = Mutex::new(Arenas::EMPTY);

fn tables() -> impl Iterator<Item = &'static Table> {
    // Acquire: pairs with the Release in `publish`.
    let mut next: *const Table = TABLES.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: tables are leaked, and not written after they were published.
        let table = unsafe { next.as_ref() }?;
        next = table.next;
        Some(table)
    })
    .filter(|table| table.live.load(Ordering::Relaxed))
}

fn publish(mut table: Table) -> &'static Table {
    table.next = TABLES.load(Ordering::Relaxed);
    let table = Box::leak(Box::new(table));
    // Release: pairs with the Acquire in `tables`. The caller holds the arenas' lock, so nobody
    // else publishes.
    TABLES.store(table, Ordering::Release);
    table
}

impl Table {
    /// Makes the stubs known to the process's unwinder, if there is one. Returns true if they are.
    fn tell_unwinder(&self) -> bool {
        let mut known = self.known.lock().unwrap_or_else(|e| e.into_inner());
        if known.is_none() {
            *known = cfi::make_known(&self.starts, &self.rows, &self.entries);
        }
        known.is_some()
    }
}

/// Returns the unwinder's entry for a program counter in a stub, and where that begins.
///
/// # Upcall safety
/// As [`original`].
pub fn entry_of(pc: usize) -> Option<(*const u8, usize)> {
    let table = tables().find(|table| table.stubs.contains(&pc))?;
    // Acquire: pairs with the Release in `cfi::make_known`.
    let entries = table.entries.load(Ordering::Acquire);
    if entries.is_null() {
        return None;
    }
    // SAFETY: of that function's; it is there while its stubs are executed.
    unsafe { cfi::entry_of(entries, pc) }
}

/// Returns what the program would be at, were it not in a stub at `pc`; `None` if `pc` is in no stub.
///
/// # Upcall safety
/// Everywhere, in signal handlers too: it only reads.
pub fn original(pc: usize) -> Option<Original> {
    let table = tables().find(|t| t.stubs.contains(&pc))?;
    let after = table.rows.partition_point(|r| r.pc <= pc);
    let row = table.rows.get(after.checked_sub(1)?)?;
    Some(Original {
        pc: row.original(),
        skipped: row.skipped.into(),
    })
}

/// Returns where the stub goes on that has replaced the instruction at `pc`, in the middle of a window: for a thread that a
/// signal has stopped there before the window was overwritten.
///
/// # Upcall safety
/// As [`original`].
pub fn replaced(pc: usize) -> Option<usize> {
    let is_inside = |window: &Range<usize>| window.start < pc && pc < window.end;
    let table = tables().find(|table| table.windows.iter().any(is_inside))?;
    let row = table
        .rows
        .iter()
        .find(|r| r.original() == pc && r.skipped == 0)?;
    Some(row.pc)
}

/// Returns the system call in a stub that replaces the refused site at `address`.
///
/// # Upcall safety
/// As [`original`].
pub(crate) fn trapped_site(address: usize) -> Option<usize> {
    tables()
        .flat_map(|t| &t.trapped)
        .find(|(site, _)| *site == address)
        .map(|(_, at_site)| *at_site)
}

/// Installs the hooks and rewrites every loaded object except our own and, unless asked for, the
/// loader.
///
/// # Safety
/// As [`entry::install`]; the process has one kernel thread.
///
/// # Upcall safety
/// For start-up: allocates, reads files.
pub unsafe fn patch_all(hooks: Hooks) -> Report {
    let objects = object::loaded();
    // SAFETY: the caller's promise.
    unsafe {
        install(hooks, &objects);
        patch_objects(&objects, Extent::All)
    }
}

/// Installs the hooks, for stubs that come later.
///
/// # Safety
/// As [`entry::install`].
pub unsafe fn install(hooks: Hooks, objects: &[Object]) {
    sud::note_range(objects);
    let _ = HOOKS.set(hooks);
    // SAFETY: the caller's promise.
    unsafe { entry::install(hooks.handler, hooks.after) };
}

/// Rewrites those of the objects that the hooks are for.
///
/// # Safety
/// As [`patch_all`]; the hooks are installed, and the objects loaded.
///
/// # Upcall safety
/// As [`patch_all`].
pub unsafe fn patch_objects(objects: &[Object], extent: Extent) -> Report {
    let hooks = HOOKS.get();
    let wanted = |o: &Object| match o.role {
        Role::Program | Role::Library => true,
        Role::Loader => hooks.is_some_and(|hooks| hooks.loader),
        // Its functions make the call for what they cannot answer, a thread's processor time. None is a first one.
        Role::Vdso => extent == Extent::All,
        Role::Runtime => hooks.is_some_and(|hooks| hooks.beside),
    };
    let patch_all = || {
        objects
            .iter()
            .filter(|o| wanted(o))
            // SAFETY: the loader holds the object, and there is no other thread.
            .map(|o| unsafe { patch_object(o, extent) })
            .collect()
    };
    let report = Report {
        objects: kept::while_open(patch_all),
    };
    log(&report);
    report
}

/// As [`patch_all`]'s report, for an object that was rewritten later.
pub fn log_object(report: &ObjectReport) {
    log(&Report {
        objects: vec![report.clone()],
    });
}

/// Rewrites one loaded object ([`object::at`] finds it). Windows that are rewritten already are
/// left alone, so it may be called again.
///
/// # Safety
/// The object stays loaded while its stubs can run, which is for ever unless the caller knows
/// better. Nobody else executes its code meanwhile.
///
/// # Upcall safety
/// Allocates and takes locks: for start-up and program context.
pub unsafe fn patch_object(object: &Object, extent: Extent) -> ObjectReport {
    let mut arenas = ARENAS.lock().unwrap_or_else(|e| e.into_inner());
    let span = object.span();
    let windows = tables().flat_map(|t| t.windows.iter().cloned());
    let own: Vec<Range<usize>> = own_syscalls()
        .map(|a| a..a + site::SYSCALL_LENGTH)
        .filter(|own| span.contains(&own.start))
        .collect();
    let known: Vec<Range<usize>> = windows
        .filter(|w| span.contains(&w.start))
        .chain(own.iter().cloned())
        .collect();
    // SAFETY: the loader mapped the object and the caller keeps it; nobody writes while we read.
    let image = unsafe { object.image() };
    let first = HOOKS.get().map_or(First::NONE, |hooks| hooks.first);
    let kept::Found { scan, left } = kept::sites(object, &image, &known, extent.wanted(), first);
    let Scan {
        mut sites,
        other_pairs,
        cancel,
    } = scan;
    for site in &mut sites {
        let is_in = |w: &Window| own.iter().any(|own| w.range.contains(&own.start));
        if site.window.as_ref().is_ok_and(is_in) {
            site.window = Err(Reason::NoWindow);
        }
    }
    if object.role == Role::Vdso {
        // Nothing is done for it, and runtimes call it on stacks without room for a frame (Go).
        sites.retain(|site| site.number != Some(libc::SYS_getrandom as u32));
    }
    let mut report = ObjectReport {
        path: object.path.clone(),
        sites: Vec::with_capacity(sites.len()),
        other_pairs,
        cancel,
        unwinder: false,
        own: object.role == Role::Runtime,
        writable: object
            .segments
            .iter()
            .any(|s| s.is_executable() && s.protection & libc::PROT_WRITE != 0),
        left,
    };
    if sites.is_empty() {
        return report;
    }
    let room = arenas.room(&span, sites.len() * stub::LONGEST);
    let mut at = room.as_ref().map_or(0, |r| r.free.start);
    let slots = room.as_ref().map_or(0, |r| r.slots);
    let start = at;
    let mut code = Vec::with_capacity(sites.len() * stub::USUAL);
    let mut table = Table {
        stubs: at..at,
        starts: Vec::with_capacity(sites.len()),
        rows: Vec::with_capacity(sites.len() * stub::USUAL_ROWS),
        windows: Vec::new(),
        texts: Vec::new(),
        trapped: Vec::new(),
        span: span.clone(),
        live: AtomicBool::new(true),
        known: Mutex::new(None),
        entries: AtomicPtr::new(ptr::null_mut()),
        next: ptr::null(),
    };
    let mut jumps = Vec::with_capacity(sites.len());
    let mut uses_wide = false;
    let mut add = |table: &mut Table, stub: &Stub| {
        code.resize(stub.range.start - start, stub::INT3);
        code.extend_from_slice(&stub.bytes);
        table.starts.push(stub.range.clone());
        table.rows.extend_from_slice(&stub.rows);
        stub.range.end.next_multiple_of(16)
    };
    for site in sites {
        let is_wide = site.window.as_ref().is_ok_and(|window| window.wide);
        let built = match (&room, &site.window) {
            (Err(why), Ok(_)) => Err(Reason::NoStubMemory(why.clone())),
            (_, Err(reason)) => Err(reason.clone()),
            (Ok(_), Ok(window)) => build(&image, window, at, slots),
        };
        let window = match built {
            Ok((window, stub)) => {
                uses_wide |= is_wide;
                jumps.push((window.clone(), stub.range.start, report.sites.len()));
                at = add(&mut table, &stub);
                Ok(window)
            }
            Err(reason) => {
                // They matter where dispatch is on, and then nothing is left.
                if room.is_ok()
                    && report.left.is_none()
                    && trapped_site(site.address).is_none()
                    && let Ok(stub) = stub::build_trapped(site.address, true, at, slots)
                {
                    uses_wide = true;
                    table.trapped.push((site.address, stub.at_site));
                    at = add(&mut table, &stub);
                }
                Err(reason)
            }
        };
        report.sites.push(SiteReport {
            address: site.address,
            number: site.number,
            window,
        });
    }
    let Ok(room) = room else { return report };
    drop(image);
    if code.is_empty() {
        return report;
    }
    if uses_wide {
        arch::setup();
    }
    table.stubs = start..at;
    if let Err(errno) = write_stubs(&table.stubs, &code) {
        for site in &mut report.sites {
            site.window = Err(Reason::NotWritable(errno));
        }
        return report;
    }
    arenas.take(&room, at);
    for segment in object.segments.iter().filter(|s| s.is_executable()) {
        if let Err(errno) = write_jumps(segment, &jumps) {
            for (window, _, index) in &jumps {
                if segment.range.contains(&window.start) {
                    report.sites[*index].window = Err(Reason::NotWritable(errno));
                }
            }
        }
    }
    table.windows = report
        .sites
        .iter()
        .filter_map(|s| s.window.clone().ok())
        .collect();
    table.texts = written_texts(object, &table.windows);
    report.unwinder = publish(table).tell_unwinder();
    report
}

/// Returns the code of the object in which windows were written, in whole pages, if no table has it.
fn written_texts(object: &Object, windows: &[Range<usize>]) -> Vec<Range<usize>> {
    let codes = object.segments.iter().filter(|s| s.is_executable());
    codes
        .filter(|s| windows.iter().any(|w| s.range.contains(&w.start)))
        .map(|s| memory::whole_pages(&s.range))
        .filter(|text| !texts().any(|known| known == text))
        .collect()
}

/// Returns the code in which windows were written, in whole pages.
///
/// # Upcall safety
/// As [`original`].
pub fn texts() -> impl Iterator<Item = &'static Range<usize>> {
    tables().flat_map(|table| &table.texts)
}

/// Makes the stubs known to the process's unwinder that are not yet: it may have been loaded just now.
///
/// # Upcall safety
/// As [`patch_object`].
pub fn tell_unwinder() {
    let _arenas = ARENAS.lock().unwrap_or_else(|e| e.into_inner());
    // One that was unloaded and loaded again does not ask any more.
    finder::bind();
    for table in tables() {
        table.tell_unwinder();
    }
}

/// The object at `span` is not there any more: nothing is known of these addresses, and its stubs
/// are free.
///
/// # Safety
/// None of its stubs is executed, now or later.
///
/// # Upcall safety
/// As [`patch_object`].
pub unsafe fn forget(span: &Range<usize>) {
    let mut arenas = ARENAS.lock().unwrap_or_else(|e| e.into_inner());
    for table in tables().filter(|t| t.span == *span) {
        table.live.store(false, Ordering::Relaxed);
        table.entries.store(ptr::null_mut(), Ordering::Relaxed);
        let known = table.known.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(known) = known {
            known.forget();
        }
        arenas.give_back(&table.stubs);
    }
}

/// Makes a function of `object` that does nothing, at `address`, call `instead`.
///
/// # Safety
/// The process has one kernel thread; `instead` does no harm where the function is called.
///
/// # Upcall safety
/// As [`patch_object`].
pub unsafe fn divert(
    object: &Object,
    address: usize,
    instead: extern "C" fn(),
) -> Result<(), Reason> {
    // SAFETY: the loader holds the object, and nobody writes it meanwhile.
    let image = unsafe { object.image() };
    let window = site::empty_function(&image, address).ok_or(Reason::NoWindow)?;
    let mut arenas = ARENAS.lock().unwrap_or_else(|e| e.into_inner());
    let room = arenas
        .room(&object.span(), stub::FAR_JUMP_LENGTH)
        .map_err(Reason::NoStubMemory)?;
    let stub = room.free.start..room.free.start + stub::FAR_JUMP_LENGTH;
    let jump = stub::jump(&window, stub.start)?;
    memory::while_writable(&stub, libc::PROT_READ | libc::PROT_EXEC, || {
        // SAFETY: free room of ours.
        unsafe { memory::store(stub.start, &stub::far_jump(instead as *const () as usize)) };
    })
    .map_err(Reason::NotWritable)?;
    arenas.take(&room, stub.end);
    drop(image);
    let segment = object
        .segments
        .iter()
        .find(|s| s.range.contains(&window.start));
    let segment = segment.ok_or(Reason::NoWindow)?;
    memory::while_writable(&segment.range, segment.protection, || {
        // SAFETY: made writable; there is no other thread.
        unsafe { memory::store(window.start, &jump) };
    })
    .map_err(Reason::NotWritable)
}

type Built = (Range<usize>, Stub);

fn build(image: &Image<'_>, window: &Window, at: usize, slots: usize) -> Result<Built, Reason> {
    let range = window.range.clone();
    let bytes = image.bytes(range.clone()).ok_or(Reason::Undecodable)?;
    let stub = stub::build(window, bytes, at, slots)?;
    stub::jump(&range, stub.range.start)?;
    Ok((range, stub))
}

fn write_stubs(area: &Range<usize>, code: &[u8]) -> Result<(), i32> {
    memory::while_writable(area, libc::PROT_READ | libc::PROT_EXEC, || {
        // SAFETY: the room belongs to this object's stubs, and nothing jumps there yet.
        unsafe { memory::store(area.start, code) };
    })
}

/// `jumps`: windows, and the stubs to which they lead.
fn write_jumps(segment: &Segment, jumps: &[(Range<usize>, usize, usize)]) -> Result<(), i32> {
    let is_inside = |w: &Range<usize>| segment.range.contains(&w.start);
    if !jumps.iter().any(|(window, ..)| is_inside(window)) {
        return Ok(());
    }
    memory::while_writable(&segment.range, segment.protection, || {
        for (window, stub, _) in jumps.iter().filter(|(window, ..)| is_inside(window)) {
            if let Ok(bytes) = stub::jump(window, *stub) {
                // SAFETY: the window was just made writable, and nobody executes it.
                unsafe { memory::store(window.start, &bytes) };
            }
        }
    })?;
    // Where an object was unloaded before, a processor that runs another thread may remember other code. For one thread
    // the change of protection is enough.
    if GUEST.runtime().is_some() || GUEST.helpers.load(Ordering::Relaxed) != 0 {
        synchronise();
    }
    Ok(())
}

/// Makes every processor that runs this process fetch its instructions anew. Kernels before
/// 4.16 lack the call; taking away the write permission interrupts the processors there.
fn synchronise() {
    const REGISTER: u64 = 1 << 6;
    const SYNC_CORE: u64 = 1 << 5;
    for command in [REGISTER, SYNC_CORE] {
        // SAFETY: membarrier touches no memory.
        unsafe { raw_syscall(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) };
    }
}

/// With `UPCALL_LOG=sites` in the environment the report goes to stderr.
fn log(report: &Report) {
    let wanted = std::env::var_os("UPCALL_LOG")
        .is_some_and(|v| v.to_string_lossy().split(',').any(|w| w == "sites"));
    if wanted {
        let text = report.to_string();
        let args = [2, text.as_ptr() as u64, text.len() as u64, 0, 0, 0];
        // SAFETY: the buffer lives through the call.
        unsafe { raw_syscall(libc::SYS_write, args) };
    }
}
