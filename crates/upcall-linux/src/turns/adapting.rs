//! A process that adapts: which processors it wants, and where its virtual processors are, when the daemon gives it some.
//!
//! 1. `settle`: a virtual processor whose processor it has not moves to one that it has and where none is.
//! 2. The others stop, idle ones included: the core gives their threads away (`runtime/taken.rs` of `upcall-core`).
//! 3. `needs`: it wants a processor for each virtual processor that runs something, and for each ready thread, up to the
//!    number of virtual processors. So it asks for more when threads wait, and for less when processors fall idle.

use upcall_core::{Kernel, State, Vp};

use super::rules::Set;
use crate::processors::{affinity, placement};

/// What it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Needs {
    /// Processors that it could use.
    pub wants: Set,
    /// Those on which it runs.
    pub uses: Set,
    /// It wants some and has none.
    pub waits: bool,
}

/// Where it may run; `None`: also on processors that are not told apart.
pub(super) fn may() -> Option<Set> {
    let allowed = affinity::allowed().0;
    let (told_apart, others) = allowed.split_at(Set::WORDS);
    let is_whole = others.iter().all(|&word| word == 0);
    is_whole.then(|| Set(core::array::from_fn(|at| told_apart[at])))
}

/// Moves virtual processors to processors that the process has.
pub(super) fn settle(homes: &[impl placement::Home], has: Set, allowed: impl Iterator<Item = u32>) {
    let is_outside = |processor| !has.contains(processor);
    if !homes.iter().any(|home| is_outside(home.processor())) {
        return;
    }
    for free in allowed.filter(|&processor| has.contains(processor)) {
        if placement::count(homes, free) == 0
            && let Some(home) = homes.iter().find(|home| is_outside(home.processor()))
        {
            home.move_to(free);
        }
    }
}

/// What it says when it has these, and may use so many. `computes`: some virtual processor has kept its processor busy lately.
pub(super) fn needs<K: Kernel>(vps: &[Vp<K>], has: Set, most: u32, computes: bool) -> Needs {
    let none = Needs {
        wants: Set::default(),
        uses: Set::default(),
        waits: false,
    };
    if !computes {
        return none;
    }
    let is_here = |vp: &&Vp<K>| has.contains(vp.processor());
    let runs = |vp: &&Vp<K>| is_here(vp) && vp.word().state() != State::Idle;
    let ready: usize = vps.iter().map(Vp::nr_ready).sum();
    let running = vps.iter().filter(runs);
    let count = (running.clone().count() + ready).min(most as usize);
    let uses = running.clone().fold(none.uses, with);
    let idle = vps.iter().filter(|vp| is_here(vp) && !runs(vp));
    let stopped = vps.iter().filter(|vp| !is_here(vp));
    let wants = running.chain(idle).chain(stopped).take(count);
    Needs {
        wants: wants.fold(none.wants, with),
        uses,
        waits: count != 0 && !vps.iter().any(|vp| is_here(&vp)),
    }
}

fn with<K: Kernel>(set: Set, vp: &Vp<K>) -> Set {
    set.or(Set::only(vp.processor()))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use core::cell::Cell;

    use super::*;

    struct Place(Cell<u32>);

    impl placement::Home for Place {
        fn processor(&self) -> u32 {
            self.0.get()
        }

        fn move_to(&self, processor: u32) {
            self.0.set(processor);
        }
    }

    fn settled(places: &[u32], has: &[u32], allowed: u32) -> Vec<u32> {
        let homes: Vec<_> = places.iter().map(|&at| Place(Cell::new(at))).collect();
        let has = has
            .iter()
            .fold(Set::default(), |set, &at| set.or(Set::only(at)));
        settle(&homes, has, 0..allowed);
        homes.iter().map(|home| home.0.get()).collect()
    }

    #[test]
    fn virtual_processors_move_to_what_the_process_has_and_no_further() {
        assert_eq!(settled(&[0, 1], &[0, 1, 2, 3], 4), [0, 1]);
        assert_eq!(settled(&[0, 1], &[1], 4), [0, 1]);
        assert_eq!(settled(&[0, 1], &[2], 4), [2, 1]);
        assert_eq!(settled(&[0, 1], &[2, 3], 4), [2, 3]);
        assert_eq!(settled(&[0, 1], &[], 4), [0, 1]);
        // Where it may not run, it does not go.
        assert_eq!(settled(&[0, 1], &[2, 3], 3), [2, 1]);
    }
}
