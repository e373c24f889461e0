//! Which runtimes have a program for which kind of workload.

use crate::args::RuntimeName::{
    self, Boost, Crate, Go, Java, May, Nptl, Rayon, St, Tbb, Tokio, Upcall,
};

/// Those whose threads can wait for a pipe while others run. A coroutine, fiber or task of the others
/// would keep its processor, and the workload would not end.
pub const WITH_PIPES: &[RuntimeName] = &[Upcall, Crate, Nptl, Go, St, Java];

/// Those of what is the machine's or a process's, or needs libc: our two, and what they are compared with.
pub const WITH_LIBC: &[RuntimeName] = &[Upcall, Crate, Nptl];

/// Those whose threads, goroutines or tasks wait for a socket while others compute.
pub const THAT_REACT: &[RuntimeName] = &[Upcall, Crate, Nptl, Go, Tokio];

/// Those with condition variables.
pub const WITH_CONDITIONS: &[RuntimeName] = &[Upcall, Crate, Nptl, Go, May, Boost, St, Java];

/// Those whose thread, coroutine, fiber or task can wait for another one.
pub const THAT_WAIT: &[RuntimeName] = &[Upcall, Crate, Nptl, Go, May, Tokio, Boost, St, Java];

/// Those that can be told of a thread or task, and later to wait for its end.
pub const THAT_FORK: &[RuntimeName] = &[Upcall, Crate, Nptl, Go, May, Tokio, Tbb, Boost, St, Java];

/// Those with a web server.
pub const SERVERS: &[RuntimeName] = &[Upcall, Crate, Nptl, Go, Tokio, St, Java];

/// Those whose web servers are to be equalled.
pub const PEER_SERVERS: &[RuntimeName] = &[Go, Tokio];

/// Those of them that are to be surpassed.
pub const SURPASSED_SERVERS: &[RuntimeName] = &[Tokio];

/// Those of [`WITH_PIPES`] that run many threads on a few kernel threads, as ours do. Those of State Threads are all on
/// one.
pub const PEERS_WITH_PIPES: &[RuntimeName] = &[Go, Java];

/// Those whose joins are to be equalled: a half that nobody has taken is called.
pub const PEERS_THAT_JOIN: &[RuntimeName] = &[Rayon];

/// The applications of 1991 and 2000 on their three systems: user-level threads with the kernel's help, unmodified and of the
/// crate; kernel threads; and user-level threads without that help, which are `may`'s.
pub const NBODY: &[RuntimeName] = &[Upcall, Crate, Nptl, May];

/// Those with a function that runs two halves, for which it need not make a thread.
pub const THAT_JOIN: &[RuntimeName] = &[Crate, Rayon, Tbb];

#[cfg(test)]
mod tests {
    use crate::bounds::Limit;
    use crate::catalogue::WORKLOADS;

    #[test]
    fn peers_of_a_bound_have_a_program_for_it() {
        let mut named = 0;
        for workload in WORKLOADS {
            for variant in workload.variants {
                for bound in variant.bounds {
                    let (Limit::TimesPeers(_, peers) | Limit::AtLeastPeers(_, peers)) = bound.limit
                    else {
                        continue;
                    };
                    named += 1;
                    for peer in peers {
                        let (name, peer) = (workload.name, *peer);
                        assert!(variant.runs_on(peer), "{name}: {}", peer.as_str());
                    }
                }
            }
        }
        assert!(named > 0);
    }
}
