//! The virtual processors of a program, as its memory says.

use upcall_abi::description::state;

use super::memory::Unreadable;
use super::threads::{Nothing, Threads, behind};

/// As many as a program may have.
const MOST: u32 = 1024;

/// What the owner of a virtual processor does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doing {
    Runs,
    InCall,
    Idles,
    Unknown,
}

impl Doing {
    pub fn name(self) -> &'static str {
        match self {
            Doing::Runs => "running",
            Doing::InCall => "in a call",
            Doing::Idles => "idle",
            Doing::Unknown => "unknown",
        }
    }
}

/// A virtual processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vp {
    pub number: u32,
    /// Where it is to run.
    pub processor: u32,
    /// The kernel thread of its owner; none while it changes hands.
    pub owner: Option<i32>,
    pub doing: Doing,
}

impl Threads<'_> {
    /// All virtual processors. One that cannot be read is left out.
    ///
    /// # Errors
    /// The runtime cannot be read.
    pub fn vps(&self) -> Result<Vec<Vp>, Nothing> {
        let (it, memory) = (&self.description, self.memory);
        let runtime = memory.u64(it.runtime)?;
        let first = memory.u64(behind(runtime, it.offsets.runtime_vps))?;
        let count = memory.u32(behind(runtime, it.offsets.runtime_nr_vps))?;
        let size = u64::from(it.offsets.vp_size);
        let places = (0..count.min(MOST)).map(|at| first.wrapping_add(size * u64::from(at)));
        Ok(places.filter_map(|place| self.vp(place).ok()).collect())
    }

    fn vp(&self, place: u64) -> Result<Vp, Unreadable> {
        let (at, memory) = (&self.description.offsets, self.memory);
        let word = memory.u64(behind(place, at.vp_word))?;
        let owner = match word & !7 {
            0 => None,
            owner => Some(memory.u32(behind(owner, at.activation_tid))? as i32),
        };
        Ok(Vp {
            number: memory.u32(behind(place, at.vp_index))?,
            processor: memory.u32(behind(place, at.vp_processor))?,
            owner: owner.filter(|&tid| tid > 0),
            doing: match self.description.states[(word & 7) as usize] {
                state::RUNNING => Doing::Runs,
                state::IN_CALL => Doing::InCall,
                state::IDLE => Doing::Idles,
                _ => Doing::Unknown,
            },
        })
    }
}
