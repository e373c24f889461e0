//! What a call that waits for descriptors asks: which descriptors, how long, and with which signal mask. It is read once,
//! from the registers and the program's memory, before the wait. Also writes the answer in the form that the program
//! expects.

use core::ops::Deref;

use upcall_core::Machine;
use upcall_linux::poller::{Wants, Watch, choice};
use upcall_linux::{Runtime, base};

use crate::call::select::Sets;
use crate::ground::entry::{Frame, NEVER, program_call};
use crate::ground::{access, mask};
use crate::signal::mask_place;

/// The most descriptors of one call that a thread parks on.
pub const BOUND: usize = 64;
/// Most calls have no more.
pub(super) const FEW: usize = 4;

/// Nanoseconds of a second.
pub(super) const NS: u64 = 1_000_000_000;
/// Nanoseconds of a millisecond.
pub(super) const NS_PER_MS: u64 = 1_000_000;

/// What a call asks about, beside its registers.
pub(super) enum Question<'a> {
    Poll,
    Select(&'a mut Sets),
    Epoll,
}

/// The descriptors of a call, in the room that its caller has for them.
pub struct Watches<'a> {
    list: &'a mut [Watch],
    count: usize,
}

impl<'a> Watches<'a> {
    pub(super) fn on(list: &'a mut [Watch]) -> Self {
        Watches { list, count: 0 }
    }

    /// Adds a descriptor. Returns `None` if there are too many.
    pub fn add(&mut self, descriptor: i32, wants: Wants) -> Option<()> {
        *self.list.get_mut(self.count)? = Watch::new(descriptor, wants);
        self.count += 1;
        Some(())
    }

    pub(super) fn as_mut(&mut self) -> &mut [Watch] {
        &mut self.list[..self.count]
    }
}

impl Deref for Watches<'_> {
    type Target = [Watch];

    fn deref(&self) -> &[Watch] {
        &self.list[..self.count]
    }
}

/// When a call's time is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Now,
    At(u64),
    Never,
}

/// Where a call has its time limit.
enum Place {
    /// Milliseconds in a register.
    Register(u64),
    /// Behind a register: a timespec.
    Timespec(u64),
    /// Behind a register: a timeval.
    Timeval(u64),
}

/// What a call asks.
pub(super) struct Call<'a> {
    pub(super) question: Question<'a>,
    pub(super) watches: Watches<'a>,
    pub(super) limit: Limit,
    /// The mask to wait with, and its address, which is 0 if there is none.
    pub(super) mask: u64,
    pub(super) mask_at: u64,
    /// True if the kernel itself has given the program the answer.
    pub(super) written: bool,
}

fn place(frame: &Frame) -> Place {
    match frame.rax as i64 {
        libc::SYS_poll => Place::Register(frame.rdx),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => Place::Register(frame.r10),
        libc::SYS_ppoll => Place::Timespec(frame.rdx),
        libc::SYS_epoll_pwait2 => Place::Timespec(frame.r10),
        libc::SYS_pselect6 => Place::Timespec(frame.r8),
        _ => Place::Timeval(frame.r8),
    }
}

impl<'a> Call<'a> {
    /// Reads what the call asks beside `question`. Returns `None` for a call that the kernel can judge more simply.
    pub(super) fn of(
        runtime: &'static Runtime,
        frame: &Frame,
        question: Question<'a>,
        mut watches: Watches<'a>,
    ) -> Option<Self> {
        match question {
            Question::Poll => read_set(frame, &mut watches)?,
            // Reading the sets has found them.
            Question::Select(_) => {}
            Question::Epoll => watches.add(frame.rdi as i32, Wants::IN)?,
        }
        let (mask_at, size) = mask_place(frame)?;
        let mask = match mask_at {
            0 => 0,
            _ if size != 8 => return None,
            at => access::load_u64(at as usize).ok()? & !mask::UNBLOCKABLE,
        };
        Some(Call {
            question,
            watches,
            limit: limit(runtime, frame)?,
            mask,
            mask_at,
            written: false,
        })
    }

    /// Returns true if the calling thread had better block its activation.
    pub(super) fn had_better_block(&self, runtime: &'static Runtime) -> bool {
        // SAFETY: on an activation.
        let activation = unsafe { base::current() };
        let blocks = !self.watches.is_empty()
            && self.limit != Limit::Now
            && choice::prefers_blocking(activation);
        if blocks {
            for watch in &*self.watches {
                let poller = runtime.kernel().poller();
                poller.goes_unwanted(runtime, watch.descriptor);
            }
        }
        blocks
    }

    /// Makes the call without waiting.
    pub(super) fn attempt(&mut self, frame: &Frame) -> i64 {
        let words = match &mut self.question {
            Question::Poll if self.watches.is_empty() && frame.rsi == 0 => return 0,
            Question::Poll => [libc::SYS_poll as u64, frame.rdi, frame.rsi, 0, 0, 0, 0],
            Question::Select(_) if self.watches.is_empty() => return 0,
            Question::Select(sets) => sets.words(),
            Question::Epoll => [
                libc::SYS_epoll_pwait as u64,
                frame.rdi,
                frame.rsi,
                frame.rdx,
                0,
                0,
                8,
            ],
        };
        // SAFETY: the program's own buffers, as it passed them, or ours.
        let answer = unsafe { program_call(&words, &frame.made, &NEVER) } as i64;
        if answer == 0 {
            frame.made.set(0);
        }
        answer
    }

    /// Returns how many nanoseconds of its time are left; `None` without a limit.
    pub(super) fn left(&self, runtime: &'static Runtime) -> Option<u64> {
        match self.limit {
            Limit::Never => None,
            Limit::Now => Some(0),
            Limit::At(deadline) => Some(deadline.saturating_sub(runtime.kernel().now())),
        }
    }

    /// Returns the answer as the program expects it.
    pub(super) fn finish(&mut self, runtime: &'static Runtime, frame: &Frame, answer: i64) -> i64 {
        // Where the program is told what is left, and in units of how many nanoseconds.
        let told = match place(frame) {
            Place::Timespec(at) if frame.rax as i64 != libc::SYS_epoll_pwait2 => Some((at, 1)),
            Place::Timeval(at) => Some((at, 1000)),
            _ => None,
        };
        if let (Limit::At(_), Some((at, unit))) = (self.limit, told)
            && let Some(left) = self.left(runtime)
        {
            // An answer that cannot be written is left out, as in the kernel.
            let _ = store_time(at, [left / NS, left % NS / unit]);
        }
        match &self.question {
            Question::Select(sets) if answer >= 0 && !self.written => sets.write(answer),
            _ => answer,
        }
    }
}

fn store_time(at: u64, words: [u64; 2]) -> Result<(), access::Fault> {
    access::store_u64(at as usize, words[0])?;
    access::store_u64(at as usize + 8, words[1])
}

fn limit(runtime: &'static Runtime, frame: &Frame) -> Option<Limit> {
    let nanoseconds = match place(frame) {
        Place::Register(word) => match word as i32 {
            ..0 => return Some(Limit::Never),
            milliseconds => milliseconds as u64 * NS_PER_MS,
        },
        Place::Timespec(0) | Place::Timeval(0) => return Some(Limit::Never),
        Place::Timespec(at) => access::nanoseconds(at as usize).ok()?,
        Place::Timeval(at) => {
            let seconds = access::load_u64(at as usize).ok()?;
            let rest = access::load_u64(at as usize + 8).ok()?;
            if seconds as i64 | rest as i64 >= 0 {
                seconds
                    .saturating_mul(NS)
                    .saturating_add(rest.saturating_mul(1000))
            } else {
                return None;
            }
        }
    };
    Some(match nanoseconds {
        0 => Limit::Now,
        _ => Limit::At(runtime.kernel().now().saturating_add(nanoseconds)),
    })
}

/// Reads the descriptors of poll(2).
fn read_set(frame: &Frame, watches: &mut Watches) -> Option<()> {
    const OUT: u16 = (libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND) as u16;
    const UNASKED: u16 = (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) as u16;
    const IN: u16 = !(OUT | UNASKED);
    for index in 0..frame.rsi as u32 {
        let one = access::load_u64(frame.rdi as usize + 8 * index as usize).ok()?;
        let (descriptor, events) = (one as i32, (one >> 32) as u16);
        if descriptor < 0 {
            if index as usize >= 2 * BOUND {
                return None;
            }
            continue;
        }
        let mut wants = Wants::ERRORS;
        if events & IN != 0 {
            wants = wants.or(Wants::IN);
        }
        if events & OUT != 0 {
            wants = wants.or(Wants::OUT);
        }
        watches.add(descriptor, wants)?;
    }
    Some(())
}
