//! What a decision costs: `cargo run --release -p upcall-alloc --example decisions`.
//!
//! A machine of P processors, S spaces that want twice what there is between them, and a mix of the
//! calls that a busy machine makes: a space idles a processor, needs one more again, time passes,
//! and now and then a space leaves, another joins, a processor goes and comes back. The table has the
//! minimum and the median over rounds, per call, and how many processors change hands by a call.
//!
//! With `count P S CALLS` it makes that many calls and says how many it made and how many processors
//! changed hands; with `turns P S CHANGES` it lets time pass, on a machine with as many remainders as
//! fit, until that many changed hands: both for a tool that counts instructions (`tests/growth.rs`).

use std::hint::black_box;
use std::time::Instant;

use upcall_alloc::{Allocator, Priority, ProcessorId, SpaceId, Terms};

/// The machines of the table: processors and spaces.
const MACHINES: [(u32, u32); 7] = [
    (4, 10),
    (64, 10),
    (64, 100),
    (64, 1000),
    (1000, 100),
    (10_000, 1000),
    (10_000, 10_000),
];

/// A machine in use.
struct Machine {
    allocator: Allocator,
    spaces: Vec<SpaceId>,
    processors: u32,
    /// What each space wants at most.
    want: u32,
    now_ns: u64,
    random: u64,
    changes: usize,
}

impl Machine {
    fn new(processors: u32, spaces: u32) -> Self {
        let mut allocator = Allocator::new(Terms::default());
        for number in 0..processors {
            allocator.add(0, ProcessorId(number)).expect("it is new");
        }
        let mut machine = Machine {
            allocator,
            spaces: Vec::new(),
            processors,
            want: (2 * processors).div_ceil(spaces),
            now_ns: 0,
            random: 1991,
            changes: 0,
        };
        for _ in 0..spaces {
            machine.join();
        }
        machine
    }

    /// A number below `below` (xorshift: the calls are the same in each run).
    fn pick(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    fn join(&mut self) {
        let space = self.allocator.join(self.now_ns, Priority(0));
        self.spaces.push(space);
        let answer = self.allocator.need(self.now_ns, space, self.want);
        self.changes += answer.map_or(0, <[_]>::len);
    }

    /// One round of calls; how many it was.
    fn round(&mut self) -> u64 {
        self.now_ns += 50_000;
        let index = self.pick(self.spaces.len());
        let id = self.spaces[index];
        let space = self.allocator.space(id);
        let running = space.and_then(|space| space.running().last().copied());
        let mut calls = 1;
        self.changes += match (running, self.pick(256)) {
            (_, 0) => {
                self.spaces.swap_remove(index);
                let moved = self.allocator.leave(self.now_ns, id).map_or(0, <[_]>::len);
                self.join();
                calls = 3;
                moved
            }
            (_, 1) => {
                let processor = ProcessorId(self.pick(self.processors as usize) as u32);
                let gone = self
                    .allocator
                    .remove(self.now_ns, processor)
                    .map_or(0, <[_]>::len);
                let back = self
                    .allocator
                    .add(self.now_ns, processor)
                    .map_or(0, <[_]>::len);
                calls = 2;
                gone + back
            }
            (Some(processor), number) if number % 2 == 0 => self
                .allocator
                .idle(self.now_ns, id, processor)
                .map_or(0, <[_]>::len),
            (_, number) if number % 3 == 0 => self.allocator.tick(self.now_ns).len(),
            _ => self
                .allocator
                .need(self.now_ns, id, self.want)
                .map_or(0, <[_]>::len),
        };
        calls
    }

    /// At least so many calls; how many it was.
    fn calls(&mut self, at_least: u64) -> u64 {
        let mut calls = 0;
        while calls < at_least {
            calls += self.round();
        }
        calls
    }

    /// At least so many changes by turns; how many calls it was.
    fn turns(&mut self, at_least: u64) -> u64 {
        let mut calls = 0;
        while (self.changes as u64) < at_least {
            self.now_ns = self.allocator.next_ns().expect("a remainder has turns");
            self.changes += self.allocator.tick(self.now_ns).len();
            calls += 1;
        }
        calls
    }
}

fn table() {
    println!(
        "{:>10} {:>7} {:>9} {:>9} {:>14}",
        "processors", "spaces", "min", "median", "changes a call"
    );
    for (processors, spaces) in MACHINES {
        let mut machine = Machine::new(processors, spaces);
        machine.calls(20_000);
        machine.changes = 0;
        let mut total = 0;
        let mut samples: Vec<f64> = (0..41)
            .map(|_| {
                let begin = Instant::now();
                let calls = black_box(&mut machine).calls(5_000);
                total += calls;
                begin.elapsed().as_nanos() as f64 / calls as f64
            })
            .collect();
        samples.sort_by(f64::total_cmp);
        let [min, median] = [samples[0], samples[samples.len() / 2]];
        let changes = machine.changes as f64 / total as f64;
        println!("{processors:>10} {spaces:>7} {min:>6.0} ns {median:>6.0} ns {changes:>14.2}");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments
        .iter()
        .filter_map(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [processors, spaces, number] => {
            let turns = arguments[0] == "turns";
            let without = processors.min(spaces) / 2 * u64::from(turns);
            let mut machine = Machine::new((processors - without) as u32, spaces as u32);
            machine.changes = 0;
            let calls = match turns {
                true => black_box(&mut machine).turns(number),
                false => black_box(&mut machine).calls(number),
            };
            println!("{calls} {}", machine.changes);
        }
        _ => table(),
    }
}
