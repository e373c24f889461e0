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
    /// The kernel refuses a kernel thread once in so many times; 0: never.
    pub refusals: u64,
    /// Sleeps and polls end for no reason, once in so many points; 0: never.
    pub spurious: u64,
    /// A time slice ends once in so many points; 0: never.
    pub slice: u64,
    /// An interruption, for no reason, reaches a vessel once in so many points; 0: never.
    pub interruptions: u64,
    /// After one in so many calls of the kernel the runtime is stepped by instructions; 0: never.
    pub stepped: u64,
    /// Blocked calls return early when interrupted, once in so many; 0: never.
    pub cut_short: u64,
    /// How late deadlines may be met.
    pub slack: u64,
    /// News reaches the poller up to so many nanoseconds late.
    pub late: u64,
    /// A sleeper runs up to so many nanoseconds after it was woken.
    pub slow_wakes: u64,
    /// Where a wrong yes costs an upcall and no more, one comes once in so many times; 0: never.
    pub doubts: u64,
    /// The activation in the poller meets a page fault once in so many times; 0: never.
    pub seat_faults: u64,
    /// Other programs have the processor of a vessel for a while, once in so many points; 0: never.
    pub stalls: u64,
    /// How many nanoseconds pass at a point, at most.
    pub pace: u64,
    /// The daemon that divides the processors dies once in so many looks; 0: never.
    pub deaths: u64,
    /// How many address spaces there are.
    pub spaces: usize,
}

/// What can be taken out of a style.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields of `Style`")]
pub enum Feature {
    Moves,
    Sentinel,
    Exhaustion,
    Spurious,
    Slices,
    Interruptions,
    Stepping,
    Cuts,
    Slack,
    Lateness,
    SlowWakes,
    Doubts,
    SeatFaults,
    Stalls,
    Deaths,
}

impl Feature {
    pub const ALL: [Feature; 15] = [
        Feature::Stepping,
        Feature::Moves,
        Feature::Sentinel,
        Feature::Exhaustion,
        Feature::Spurious,
        Feature::Slices,
        Feature::Interruptions,
        Feature::Cuts,
        Feature::Slack,
        Feature::Lateness,
        Feature::SlowWakes,
        Feature::Doubts,
        Feature::SeatFaults,
        Feature::Stalls,
        Feature::Deaths,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Feature::Moves => "moves",
            Feature::Sentinel => "sentinel",
            Feature::Exhaustion => "exhaustion",
            Feature::Spurious => "spurious",
            Feature::Slices => "slices",
            Feature::Interruptions => "interruptions",
            Feature::Stepping => "stepping",
            Feature::Cuts => "cuts",
            Feature::Slack => "slack",
            Feature::Lateness => "lateness",
            Feature::SlowWakes => "slow-wakes",
            Feature::Doubts => "doubts",
            Feature::SeatFaults => "seat-faults",
            Feature::Stalls => "stalls",
            Feature::Deaths => "deaths",
        }
    }
}

/// Stepping costs a signal for each instruction: it is for one seed in so many, thinly; and for one
/// in so many of those densely.
const STEPPED: (u64, u64) = (8, 16);

impl Style {
    /// Draws a style.
    pub fn draw(pick: &mut dyn FnMut(u64) -> u64) -> Self {
        let vps = [1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 4, 4, 5, 8, 70][pick(16) as usize];
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
            refusals: [0, 0, 0, 0, 0, 3][pick(6) as usize],
            spurious: [0, 50, 1000][pick(3) as usize],
            slice: [20, 200, 5000][pick(3) as usize],
            interruptions: [0, 0, 100, 2000][pick(4) as usize],
            stepped: match (pick(STEPPED.0), pick(STEPPED.1)) {
                (0, 0) => 20,
                (0, _) => 1000,
                _ => 0,
            },
            cut_short: [0, 3][pick(2) as usize],
            slack: [0, 0, 500, 5000][pick(4) as usize],
            late: [0, 0, 1000, 20_000][pick(4) as usize],
            slow_wakes: [0, 0, 2000][pick(3) as usize],
            doubts: [0, 20, 3][pick(3) as usize],
            seat_faults: [0, 10][pick(2) as usize],
            stalls: [0, 20, 100, 500][pick(4) as usize],
            pace: [200, 200, 2_000][pick(3) as usize],
            deaths: [0, 30, 300][pick(3) as usize],
            spaces: 1,
        }
    }

    /// Whether a sentinel may have to wait for the activations of another virtual processor.
    pub fn may_starve_sentinels(&self) -> bool {
        let place = |index: usize| self.processors[index];
        let shared =
            self.spaces > 1 || (1..self.processors.len()).any(|index| place(index) == place(0));
        self.sentinel && self.starved && (shared || !self.bound)
    }

    /// Takes a feature out.
    pub fn remove(&mut self, feature: Feature) {
        match feature {
            Feature::Moves => self.bound = true,
            Feature::Sentinel => self.sentinel = false,
            Feature::Exhaustion => {
                self.most_vessels = usize::MAX;
                self.refusals = 0;
            }
            Feature::Spurious => self.spurious = 0,
            Feature::Slices => self.slice = 0,
            Feature::Interruptions => self.interruptions = 0,
            Feature::Stepping => self.stepped = 0,
            Feature::Cuts => self.cut_short = 0,
            Feature::Slack => self.slack = 0,
            Feature::Lateness => self.late = 0,
            Feature::SlowWakes => self.slow_wakes = 0,
            Feature::Doubts => self.doubts = 0,
            Feature::SeatFaults => self.seat_faults = 0,
            Feature::Stalls => self.stalls = 0,
            Feature::Deaths => self.deaths = 0,
        }
    }
}
