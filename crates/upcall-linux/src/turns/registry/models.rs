//! Several processes that come, go and die, in interleavings that shuttle draws.

use std::boxed::Box;

use shuttle::thread;

use super::*;

fn check(execution: impl Fn() + Send + Sync + 'static) {
    let executions = std::env::var("UPCALL_SHUTTLE")
        .ok()
        .and_then(|n| n.parse().ok());
    let model = move || {
        upcall_core::sync::begin(SLOTS * 16, 0);
        execution();
    };
    shuttle::check_pct(model, executions.unwrap_or(300), 3);
}

fn shared() -> &'static Shared {
    // SAFETY: zeros are the valid beginning.
    Box::leak(unsafe { Box::<Shared>::new_zeroed().assume_init() })
}

/// The number of no process.
const DEAD: u32 = i32::MAX as u32;

struct Living(std::process::Child);

impl Living {
    fn new() -> Self {
        let mut command = std::process::Command::new("cat");
        Living(command.stdin(std::process::Stdio::piped()).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_slot_has_one_process_however_many_join_at_once() {
    let living = [Living::new(), Living::new(), Living::new()];
    let pids = [0, 1, 2].map(|at: usize| living[at].pid());
    check(move || {
        let shared = shared();
        shared.slots[0].pid.store(DEAD, Ordering::Relaxed);
        shared.nr_used.store(1, Ordering::Relaxed);
        // The member that buries the dead one has a slot of its own.
        let watcher = Registry {
            shared,
            id: 63,
            origin: None,
        };
        let watcher = thread::spawn(move || watcher.bury(0));
        let joiners = pids.map(|pid| {
            thread::spawn(move || {
                let registry = Registry::take(shared, pid).unwrap();
                // Nobody else publishes there.
                registry.publish_busy(Set([u64::from(registry.id()) + 1, 0, 0, 0]));
                registry.publish(Phase::On { since: 7 });
                let me = registry.me();
                assert_eq!(me.phase, Phase::On { since: 7 });
                assert_eq!(me.busy.0[0], u64::from(registry.id()) + 1);
                registry.id()
            })
        });
        let _ = watcher.join().unwrap();
        let mut ids = joiners.map(|joiner| joiner.join().unwrap());
        ids.sort_unstable();
        assert!(ids[0] < ids[1] && ids[1] < ids[2], "{ids:?}");
    });
}
