//! What spaces say and are told, in the daemon's own memory.

use upcall_alloc::Bits;

/// The times of the house.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long a gang is on while others wait, in nanoseconds.
    pub slice_ns: u64,
    /// How long an idle processor of a space that adapts is left to it, in nanoseconds.
    pub spell_ns: u64,
    /// How long a space may take to leave a processor, or to come to its turn, in nanoseconds.
    pub grace_ns: u64,
    /// No truce lasts longer, in nanoseconds.
    pub longest_truce_ns: u64,
    /// A space that has left too late so many times in a row is left to the kernel.
    pub patience: u32,
}

/// A time in which no space of a group waits for another, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Truce {
    /// When it ends.
    pub until_ns: u64,
    /// How long it was to be.
    pub length_ns: u64,
}

/// What a space says. Any value may be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// The last [`Told::changes`] that it has acted on.
    pub changes: u32,
    /// What it computes on, or would.
    pub wants: Bits,
    /// What it runs on.
    pub uses: Bits,
    /// The truce that it asks for.
    pub truce: Truce,
    /// With how many processors it goes on, at least, if it wants more; 0: it needs all at once.
    pub adapts: u32,
    /// Its share of the time, bounded by the configuration; 0 counts as 1.
    pub share: u32,
    /// Where it may run at all.
    pub may: Bits,
    /// Whose it is, as the kernel says.
    pub user: u32,
    /// The processor time that it has had, in nanoseconds, as the kernel says; 0: nobody has asked.
    pub ran_ns: u64,
}

/// What a space is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Counts what it was told.
    pub changes: u32,
    /// What it may use.
    pub has: Bits,
    /// Another space waits for something of it.
    pub wanted: bool,
    /// Its circle lends weight: what ordinary programs take is made up for, and no truce is needed.
    pub lends: bool,
    /// The last truce that concerned it.
    pub truce: Truce,
    /// The warning: when it is to lose its processors; 0: there is none.
    pub leaves_at_ns: u64,
    /// Counts the times that it got something: each time those that wait in it must be woken.
    pub gains: u32,
}

impl Truce {
    /// Returns true if it is in force and no nonsense.
    fn holds(self, now: u64, longest: u64) -> bool {
        now < self.until_ns && self.until_ns - now <= longest && self.length_ns <= longest
    }
}

/// The last truce for each of those that want these processors: a truce spreads among spaces that want common ones, until none
/// learns of a later one. Each comes with the one that it asks for, and the one that it has been told.
pub fn agree(spaces: &[(Bits, [Truce; 2])], now: u64, longest: u64) -> Vec<Truce> {
    let last = |own: &[Truce; 2]| {
        let holding = own.iter().filter(|truce| truce.holds(now, longest));
        holding.max_by_key(|truce| truce.until_ns).copied()
    };
    let mut all: Vec<Truce> = spaces
        .iter()
        .map(|(_, own)| last(own).unwrap_or_default())
        .collect();
    loop {
        let mut changed = false;
        for at in 0..all.len() {
            let (wants, truce) = (spaces[at].0, all[at]);
            for (other, (theirs, _)) in all.iter_mut().zip(spaces) {
                if other.until_ns < truce.until_ns && !theirs.and(wants).is_empty() {
                    *other = truce;
                    changed = true;
                }
            }
        }
        if !changed {
            return all;
        }
    }
}
