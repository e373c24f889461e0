//! What kind of machine a seed gives, and what it does to the runtime.

/// The properties of one run.
#[derive(Clone, Debug)]
pub struct Style {
    /// Processor of each virtual processor.
    pub processors: Vec<u32>,
    /// Vessels run where they are bound; otherwise anywhere, as if somebody had moved them.
    pub bound: bool,
    /// The standby is a sentinel.
    pub sentinel: bool,
    /// A sentinel runs only while nothing else of its processor can.
    pub starved: bool,
    /// The kernel gives no more kernel threads than this after the start.
    pub most_vessels: usize,
    /// Sleeps end for no reason, once in so many points; 0: never.
    pub spurious: u64,
    /// A time slice ends once in so many points.
    pub slice: u64,
    /// After one in so many calls of the kernel the runtime is stepped by instructions; 0: never.
    pub stepped: u64,
    /// Blocked calls return early when interrupted, once in so many; 0: never.
    pub cut_short: u64,
    /// How late deadlines may be met.
    pub slack: u64,
    /// Who sits in the poller meets a page fault once in so many times; 0: never.
    pub seat_faults: u64,
}

impl Style {
    /// Draws a style.
    pub fn draw(pick: &mut dyn FnMut(u64) -> u64) -> Self {
        let vps = [1, 1, 2, 2, 3, 4, 8, 70][pick(8) as usize];
        let processors = 1 + pick(vps) as u32;
        Style {
            processors: (0..vps as u32).map(|index| index % processors).collect(),
            bound: pick(4) != 0,
            sentinel: pick(5) == 0,
            starved: pick(2) == 0,
            most_vessels: if pick(5) == 0 {
                vps as usize + 2 + pick(6) as usize
            } else {
                usize::MAX
            },
            spurious: [0, 50, 1000][pick(3) as usize],
            slice: [20, 200, 5000][pick(3) as usize],
            stepped: [0, 0, 40, 5][pick(4) as usize],
            cut_short: [0, 3][pick(2) as usize],
            slack: [0, 0, 500, 5000][pick(4) as usize],
            seat_faults: [0, 10][pick(2) as usize],
        }
    }
}
