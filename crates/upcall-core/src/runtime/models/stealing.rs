//! More threads than loom gets through.

use core::sync::atomic::Ordering;

use super::{all_ready, kernel::Checked, runtime, threads};
use crate::state::ready::By;
use crate::state::thread::Thread;
use crate::sync;

fn check(execution: impl Fn() + Send + Sync + 'static) {
    let executions = std::env::var("UPCALL_SHUTTLE")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1000);
    // Of each bug of a depth up to three, some part of these would find it.
    let model = move || {
        sync::begin(500, 0);
        execution();
    };
    shuttle::check_pct(model, executions, 3);
}

/// Three virtual processors put threads into their own lists, exchange, and steal from the others.
#[test]
fn no_thread_is_lost_or_doubled_between_three_that_steal() {
    check(|| {
        let runtime = runtime(3);
        let all: [&'static Thread<Checked>; 6] = threads(runtime);
        let workers = [0, 1, 2].map(|me: usize| {
            shuttle::thread::spawn(move || {
                let vps = runtime.vps();
                let mut mine = std::vec::Vec::new();
                let (kernel, own) = (runtime.kernel(), &vps[me].ready);
                runtime.free_list(&vps[me], u64::MAX);
                own.push_back(kernel, By::Owner, all[2 * me]);
                own.push_front(kernel, By::Owner, all[2 * me + 1]);
                for step in 0..3 {
                    let taken = match step {
                        0 => own.pop(kernel, By::Owner),
                        _ => vps[(me + step) % 3].ready.steal(kernel),
                    };
                    if let Some(thread) = taken {
                        thread.context.store(me, Ordering::Relaxed);
                        mine.push(own.exchange(kernel, By::Owner, thread));
                    }
                }
                mine.into_iter()
                    .map(core::ptr::from_ref)
                    .map(|p| p as usize)
                    .collect::<std::vec::Vec<_>>()
            })
        });
        let mut found: std::vec::Vec<usize> = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect();
        found.extend(all_ready(runtime).into_iter().map(|p| p as usize));
        found.sort_unstable();
        let mut expected = all.map(|thread| core::ptr::from_ref(thread) as usize);
        expected.sort_unstable();
        assert_eq!(found, expected);
    });
}
