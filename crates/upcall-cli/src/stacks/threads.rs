//! The threads of a program, as its memory says: see [`upcall_abi::description`].

use std::mem::{MaybeUninit, offset_of};

use upcall_abi::description::{
    Description, MAGIC, NOTE_NAME, NOTE_TYPE, VERSION, activity, standing, state, wait,
};

use super::calls;
use super::memory::{Memory, Unreadable};
use super::unwind::{BP, BX, IP, Registers, SP};

/// Words of the table of threads that are looked at.
const MOST: u64 = 1 << 22;

/// The memory is the program's, and may say anything.
pub fn behind(address: u64, offset: u32) -> u64 {
    address.wrapping_add(u64::from(offset))
}

/// Why there are no threads to show.
#[derive(Debug, PartialEq, Eq)]
pub enum Nothing {
    /// No object of the process is Upcall's.
    NotUnderUpcall,
    /// It has made no thread: its one thread is the kernel's.
    NoRuntime,
    /// The library in the process is of another version.
    Version(u32),
    /// What must be there is not.
    Unreadable(u64),
}

impl From<Unreadable> for Nothing {
    fn from(Unreadable(address): Unreadable) -> Self {
        Nothing::Unreadable(address)
    }
}

/// The state of a thread, as it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Running,
    Ready,
    Parked,
    Held,
    Blocked,
    Preempted,
    Bound,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Ready => "ready",
            State::Parked => "parked",
            State::Held => "held",
            State::Blocked => "blocked",
            State::Preempted => "preempted",
            State::Bound => "bound",
        }
    }
}

/// What a thread's words are at some moment: if any of them changes, it has gone on.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Words {
    address: u64,
    id: u32,
    standing: u32,
    context: u64,
    wait: u64,
    carrier: u64,
    frame: u64,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    words: Words,
    /// The first one is 1, the others have their places in the table: it does not change while the thread lives.
    pub number: u64,
    pub id: i32,
    pub name: String,
    pub state: State,
    /// Its virtual processor, if it runs.
    pub vp: Option<u32>,
    /// The kernel thread that has it.
    pub tid: Option<i32>,
    pub waits_for: Option<String>,
    /// By another thread, and by nothing else but a deadline.
    is_to_be_woken: bool,
    /// When its wait ends at the latest, in nanoseconds of CLOCK_MONOTONIC.
    pub deadline: Option<u64>,
    /// From where its frames are found, if its memory says.
    pub registers: Option<Registers>,
}

impl Thread {
    /// Returns true if it waits for another thread of its process, whenever that may be.
    pub fn waits_for_a_thread(&self) -> bool {
        self.state == State::Parked && self.deadline.is_none() && self.is_to_be_woken
    }
}

/// The threads of a process.
pub struct Threads<'a> {
    pub(super) memory: &'a Memory,
    pub(super) description: Description<u64>,
}

impl<'a> Threads<'a> {
    /// # Errors
    /// The program is not under Upcall, or has no threads of it.
    pub fn find(memory: &'a Memory) -> Result<Self, Nothing> {
        let mut nothing = Nothing::NotUnderUpcall;
        let starts = memory.mappings.iter().filter(|one| one.offset == 0);
        for mapping in starts.filter(|one| one.path.is_absolute()) {
            for at in notes(memory, mapping.start).unwrap_or_default() {
                match describe(memory, at) {
                    Ok(description) if memory.u64(description.runtime)? != 0 => {
                        return Ok(Threads {
                            memory,
                            description,
                        });
                    }
                    Ok(_) => nothing = Nothing::NoRuntime,
                    Err(why) => nothing = why,
                }
            }
        }
        Err(nothing)
    }

    /// All threads.
    ///
    /// # Errors
    /// The table of threads cannot be read.
    pub fn all(&self) -> Result<Vec<Thread>, Nothing> {
        let description = &self.description;
        let mut addresses = Vec::new();
        match self.memory.u64(description.first)? {
            0 => {}
            first => addresses.push((1, first)),
        }
        let table = self.memory.u64(description.table)?;
        if table != 0 {
            let used = self
                .memory
                .u64(description.used)?
                .min(description.most)
                .min(MOST);
            for place in 0..used {
                match self.memory.u64(table.wrapping_add(8 * place))? {
                    0 => {}
                    address => addresses.push((place + 2, address)),
                }
            }
        }
        // One that cannot be read has ended, or the core file lacks it.
        let threads = addresses
            .into_iter()
            .filter_map(|(number, address)| self.thread(number, address).ok()?);
        Ok(threads.collect())
    }

    /// True if the thread has not gone on since it was read. The caller has had the memory forget what it was.
    pub fn stands_still(&self, thread: &Thread) -> bool {
        self.words(thread.words.address)
            .is_ok_and(|words| words == thread.words)
    }

    fn words(&self, address: u64) -> Result<Words, Unreadable> {
        let (at, memory) = (&self.description.offsets, self.memory);
        let u64 = |offset: u32| memory.u64(behind(address, offset));
        let u32 = |offset: u32| memory.u32(behind(address, offset));
        Ok(Words {
            address,
            id: u32(at.thread_id)?,
            standing: u32(at.thread_state)?,
            context: u64(at.thread_context)?,
            wait: u64(at.thread_wait)?,
            carrier: u64(at.thread_carrier)?,
            frame: u64(at.thread_frame)?,
        })
    }

    /// Returns true if a thread of the program runs in a shell.
    fn runs_in(&self, shell: u64) -> Result<bool, Unreadable> {
        let at = &self.description.offsets;
        let word = |address: u64, offset: u32| self.memory.u64(behind(address, offset));
        let task = word(shell, at.shell_task)?;
        Ok(task != 0
            && word(task, at.task_shell)? == shell
            && word(task, at.task_ending)? != u64::from(at.task_over))
    }

    /// `None`: no thread of the program runs in it.
    fn thread(&self, number: u64, address: u64) -> Result<Option<Thread>, Unreadable> {
        let (it, memory) = (&self.description, self.memory);
        let at = &it.offsets;
        let words = self.words(address)?;
        let word = |address: u64, offset: u32| memory.u64(behind(address, offset));
        let half = |address: u64, offset: u32| memory.u32(behind(address, offset));
        let shell = word(address, at.thread_shell)?;
        if shell != 0 && !self.runs_in(shell)? {
            return Ok(None);
        }
        let mut name = [0; 16];
        memory.read(behind(address, at.thread_name), &mut name)?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let has_deadline = half(address, at.thread_has_deadline)? != 0;
        let mut thread = Thread {
            number,
            id: words.id as i32,
            name: String::from_utf8_lossy(name).into_owned(),
            state: State::Running,
            vp: None,
            tid: None,
            waits_for: None,
            is_to_be_woken: false,
            deadline: has_deadline
                .then(|| word(address, at.thread_deadline))
                .transpose()?,
            registers: None,
            words,
        };
        let bound = word(address, at.thread_bound)?;
        if thread.words.carrier != 0 {
            if self.carried(&mut thread).is_err() {
                // gdb 13's gcore gives up at guard pages, and leaves out what is behind.
                thread.waits_for = Some("its activation cannot be read".into());
                let pointer = word(address, at.thread_pointer)?;
                thread.tid = memory.kernel_thread_of(pointer);
            }
        } else if bound != 0 && half(bound, at.bound_state)? == at.bound_away {
            thread.state = State::Bound;
            thread.tid = Some(half(bound, at.bound_tid)? as i32);
            thread.waits_for = Some("runs on its own kernel thread".into());
        } else {
            self.saved(&mut thread)?;
        }
        Ok(Some(thread))
    }

    /// An activation has the thread.
    fn carried(&self, thread: &mut Thread) -> Result<(), Unreadable> {
        let (it, memory, carrier) = (&self.description, self.memory, thread.words.carrier);
        let at = &it.offsets;
        let word = |address: u64, offset: u32| memory.u64(behind(address, offset));
        let half = |address: u64, offset: u32| memory.u32(behind(address, offset));
        thread.tid = Some(half(carrier, at.activation_tid)? as i32);
        let doing = it.activities[half(carrier, at.activation_activity)? as usize % 16];
        let was_replaced = half(carrier, at.activation_marks)? != 0;
        let vp = word(carrier, at.activation_vp)?;
        let owner = word(vp, at.vp_word)?;
        let owns = owner & !7 == carrier;
        let owner_is = it.states[(owner & 7) as usize];
        match doing {
            activity::IN_CALL if !owns || owner_is == state::IN_CALL => {
                thread.state = State::Blocked;
                thread.registers = self.at_call(thread.words.frame)?;
                thread.waits_for = self.call(thread.words.frame)?;
            }
            activity::DISPLACED => thread.state = State::Preempted,
            activity::UNSETTLED => self.on_a_page(thread),
            _ if was_replaced => self.on_a_page(thread),
            _ if owns => thread.vp = Some(half(vp, at.vp_index)?),
            _ => {}
        }
        Ok(())
    }

    fn on_a_page(&self, thread: &mut Thread) {
        thread.state = State::Blocked;
        thread.waits_for = Some("a page, or a debugger".into());
    }

    /// Nobody has the thread: its registers are saved.
    fn saved(&self, thread: &mut Thread) -> Result<(), Unreadable> {
        let it = &self.description;
        let at = &it.offsets;
        thread.state = match it.standings[thread.words.standing as usize % 16] {
            standing::PARKED | standing::PARKING => State::Parked,
            standing::HELD => State::Held,
            _ => State::Ready,
        };
        let context = thread.words.context;
        if context == 0 {
            return Ok(());
        }
        let word = |offset: u32| self.memory.u64(behind(context, offset));
        let mut registers = Registers::default();
        registers.0[IP] = Some(word(at.saved_ip)?);
        if registers.0[IP] == Some(it.beginning) {
            thread.waits_for = Some("has not begun".into());
            thread.registers = Some(registers);
            return Ok(());
        }
        registers.0[SP] = Some(word(at.saved_sp)?);
        registers.0[BP] = Some(word(at.saved_bp)?);
        registers.0[BX] = Some(word(at.saved_bx)?);
        thread.registers = Some(registers);
        if thread.state == State::Parked {
            thread.waits_for = self.parked_for(thread)?;
            let waits = thread.words.wait;
            let kind = it.waits[(waits & 3) as usize];
            thread.is_to_be_woken = waits != 0 && kind != wait::SLEEP;
        }
        Ok(())
    }

    fn parked_for(&self, thread: &Thread) -> Result<Option<String>, Unreadable> {
        let (it, memory, address) = (&self.description, self.memory, thread.words.address);
        let at = &it.offsets;
        let waits = thread.words.wait;
        let kind = it.waits[(waits & 3) as usize];
        if waits != 0 {
            return Ok(Some(match kind {
                wait::SLEEP => "its deadline".into(),
                wait::END => "the end of a thread".into(),
                _ => format!("the word at {:#x}", waits & !3),
            }));
        }
        let half = |offset: u32| memory.u32(behind(address, offset));
        if half(at.thread_waits)? & 0xff == 0 {
            return self.call(thread.words.frame);
        }
        let wants = half(at.thread_wants)?;
        let aims: Vec<&str> = [(1, "read"), (2, "write")]
            .into_iter()
            .filter_map(|(bit, aim)| (wants & bit != 0).then_some(aim))
            .collect();
        let aims = if aims.is_empty() {
            "fail".to_owned()
        } else {
            aims.join(" or ")
        };
        let more = match memory.u64(behind(address, at.thread_sibling))? {
            0 => "",
            _ => " and others",
        };
        let descriptor = half(at.thread_descriptor)?;
        Ok(Some(format!("descriptor {descriptor}{more} to {aims}")))
    }

    /// The system call in which a thread is.
    fn call(&self, frame: u64) -> Result<Option<String>, Unreadable> {
        let at = &self.description.offsets;
        if frame == 0 {
            return Ok(None);
        }
        let number = self.memory.u64(behind(frame, at.frame_call))?;
        let first = self.memory.u64(behind(frame, at.frame_argument))?;
        Ok(Some(calls::describe(number, first)))
    }

    /// The registers at the system call in which a thread is.
    fn at_call(&self, frame: u64) -> Result<Option<Registers>, Unreadable> {
        let at = &self.description.offsets;
        if frame == 0 {
            return Ok(None);
        }
        let mut registers = Registers::default();
        for (register, offset) in [
            (IP, at.frame_ip),
            (SP, at.frame_sp),
            (BP, at.frame_bp),
            (BX, at.frame_bx),
            (12, at.frame_r12),
            (13, at.frame_r13),
            (14, at.frame_r14),
            (15, at.frame_r15),
        ] {
            registers.0[register] = Some(self.memory.u64(behind(frame, offset))?);
        }
        Ok(Some(registers))
    }
}

/// Where the notes of an object say how far a description is.
fn notes(memory: &Memory, start: u64) -> Result<Vec<u64>, Unreadable> {
    let mut header = [0; 64];
    memory.read(start, &mut header)?;
    let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    if header[..6] != *b"\x7fELF\x02\x01" {
        return Ok(Vec::new());
    }
    let (programs, size, count) = (word(32), u64::from(short(54)), u64::from(short(56)));
    let mut bias = None;
    let mut found = Vec::new();
    for at in (0..count).map(|at| start.wrapping_add(programs).wrapping_add(at * size)) {
        let (kind, offset) = (memory.u32(at)?, memory.u64(behind(at, 8))?);
        let (address, length) = (memory.u64(behind(at, 16))?, memory.u64(behind(at, 32))?);
        match kind {
            // PT_LOAD, PT_NOTE
            1 if offset == 0 => bias = Some(start.wrapping_sub(address)),
            4 if length < 1 << 16 => found.push((address, length)),
            _ => {}
        }
    }
    let mut places = Vec::new();
    for (address, length) in found {
        let begin = address.wrapping_add(bias.unwrap_or(start));
        let mut at = 0;
        while at + 12 <= length {
            let head = begin.wrapping_add(at);
            let (name, contents) = (memory.u32(head)?, memory.u32(behind(head, 4))?);
            let aligned = |size: u32| u64::from(size).next_multiple_of(4);
            let mut text = [0; NOTE_NAME.len()];
            if name as usize == text.len() && memory.u32(behind(head, 8))? == NOTE_TYPE {
                memory.read(behind(head, 12), &mut text)?;
            }
            at += 12 + aligned(name);
            if text == *NOTE_NAME && contents == 8 {
                places.push(begin.wrapping_add(at));
            }
            at += aligned(contents);
        }
    }
    Ok(places)
}

fn describe(memory: &Memory, note: u64) -> Result<Description<u64>, Nothing> {
    let at = note.wrapping_add(memory.u64(note)?);
    let version = behind(at, offset_of!(Description<u64>, version) as u32);
    if memory.u64(at)? != MAGIC {
        return Err(Nothing::NotUnderUpcall);
    }
    match memory.u32(version)? {
        VERSION => {}
        other => return Err(Nothing::Version(other)),
    }
    let mut description = MaybeUninit::<Description<u64>>::zeroed();
    // SAFETY: the bytes of `description`, which are initialized and nobody else's.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(
            description.as_mut_ptr().cast::<u8>(),
            size_of::<Description<u64>>(),
        )
    };
    memory.read(at, bytes)?;
    // SAFETY: all of it is integers, for which any bytes will do.
    Ok(unsafe { description.assume_init() })
}
