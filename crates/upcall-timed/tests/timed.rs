//! The machine against the paper of 1991, and against itself.

use std::cell::RefCell;
use std::rc::Rc;

use upcall_timed::costs::{MS, today};
use upcall_timed::nbody::firefly::{self, System, published, speedup, time};
use upcall_timed::nbody::program::{Problem, sequential};
use upcall_timed::{Kind, Me, Outcome, Program, Scheduling, Setup, simulate};

#[test]
fn published_figures_are_met_within_a_tenth() {
    for point in published() {
        let here = (point.measure)();
        assert!(
            (here / point.paper - 1.0).abs() <= 0.1,
            "{}: {} in the paper, {here} here",
            point.what,
            point.paper
        );
    }
}

/// Figure 2, in the words of the text, and in the figures that follow from them.
#[test]
fn speedups_have_the_shape_of_figure_2() {
    let line = |system| [1, 3, 4, 5, 6].map(|many| speedup(firefly::PROBLEM, system, many, 1));
    let [topaz, original, new] = firefly::SYSTEMS.map(line);
    // All worse than the sequential program on one processor, Topaz threads by more.
    assert!(topaz[0] < original[0] && topaz[0] < new[0]);
    assert!([topaz[0], original[0], new[0]].iter().all(|&one| one < 1.0));
    // Topaz threads improve at first, then flatten out: the sixth processor brings nothing.
    let last = |line: [f64; 5]| line[4] - line[3];
    assert!(topaz[1] > 1.8 * topaz[0], "{topaz:?}");
    assert!(topaz[4] < 1.25 * topaz[1] && last(topaz) < 0.1, "{topaz:?}");
    // The others do not. Two copies (2.45 in Table 5) are within 5 % of one on three processors, so
    // that reaches 2.45 to 2.58. By Amdahl's law, with no more than 1 on one processor, the serial
    // part is then at most (3 / 2.45 - 1) / 2 = 11.2 %, and on six processors there are at
    // least 1 / (0.112 + 0.888 / 6) = 3.84.
    for line in [original, new] {
        assert!((2.45 * 0.95..2.58 * 1.05).contains(&line[1]), "{line:?}");
        assert!(line[4] > 3.84 && last(line) > 0.3, "{line:?}");
    }
    // Daemons preempt virtual processors of original FastThreads even where others are idle: the lines
    // part a little on four and five. On six the order is the same, and the difference small.
    for many in 2..5 {
        assert!(topaz[many] < original[many] && original[many] < new[many]);
        assert!(new[many] < 1.05 * original[many], "{original:?} {new:?}");
    }
    let half = speedup(firefly::PROBLEM, System::New, firefly::PROCESSORS, 2);
    assert!((half / new[1] - 1.0).abs() <= 0.05, "{half} {}", new[1]);
}

/// Figure 3, in the words of the text.
#[test]
fn times_have_the_shape_of_figure_3() {
    let [topaz, original, new] =
        firefly::SYSTEMS.map(|system| [100, 90, 50, 40].map(|memory| time(system, memory)));
    for line in [topaz, original, new] {
        // Slowly at first, then more sharply.
        assert!(line[1] - line[0] < (line[3] - line[2]) / 2.0, "{line:?}");
    }
    // The one that loses a processor with each miss degrades more quickly; the other two go parallel.
    assert!(original[1] > 1.25 * new[1] && original[3] > 5.0 * new[3]);
    let lost = |line: [f64; 4]| line[3] - line[0];
    assert!(
        (lost(new) / lost(topaz) - 1.0).abs() < 0.5,
        "{topaz:?} {new:?}"
    );
    assert!(new[0] < 0.75 * topaz[0]);
}

/// Threads compute what one thread computes, on every kind of thread, with misses and preemption.
#[test]
fn threads_move_the_bodies_as_one_thread_does() {
    let problem = Problem {
        steps: 2,
        memory: 80,
        ..firefly::PROBLEM
    };
    let alone = sequential(problem);
    for system in firefly::SYSTEMS {
        for result in firefly::run(system, 3, 1, problem) {
            assert_eq!(result.bodies, alone.bodies);
            assert!(result.misses > 0);
        }
    }
}

fn spaces(processors: u32, programs: Vec<Program>) -> Outcome {
    simulate(Setup {
        processors,
        scheduling: Scheduling::Allocated(upcall_alloc::Terms::default()),
        programs,
        limit: 3_600_000 * MS,
    })
}

fn program(kind: Kind, vps: u32, main: impl FnOnce(Me) + 'static) -> Program {
    Program {
        kind,
        costs: match kind {
            Kind::KernelThreads => today::kernel_threads(),
            Kind::Activations | Kind::Bound => today::activations(),
        },
        vps,
        daemon: false,
        main: Box::new(main),
    }
}

/// Two hundred threads of a millisecond, a third of which block.
fn busy(me: Me) {
    let threads: Vec<_> = (0..200)
        .map(|index| {
            me.fork(move |me| {
                me.work(MS);
                if index % 3 == 0 {
                    me.block(2 * MS);
                }
                me.work(MS / 10);
            })
        })
        .collect();
    for thread in threads {
        me.join(thread);
    }
}

/// A run depends on nothing but its setup, and spaces of both kinds share the processors evenly.
#[test]
fn spaces_share_processors_evenly_and_repeatably() {
    let run = || {
        let kinds = [Kind::Activations, Kind::KernelThreads, Kind::Activations];
        let outcome = spaces(7, kinds.map(|kind| program(kind, 7, busy)).into());
        outcome
            .programs
            .iter()
            .map(|one| one.ended)
            .collect::<Vec<_>>()
    };
    let ended = run();
    assert_eq!(ended, run());
    // 220 ms of work on 7/3 processors, and remainders of 20 ms take turns.
    for time in &ended {
        let ms = *time as f64 / 1e6;
        assert!((80.0..125.0).contains(&ms), "{ended:?}");
    }
}

/// Nobody idles while another address space has work.
#[test]
fn a_sequential_space_leaves_its_processors_to_the_other() {
    let outcome = spaces(
        8,
        vec![
            program(Kind::Activations, 8, |me| me.work(40 * MS)),
            program(Kind::Activations, 8, busy),
        ],
    );
    let ms = outcome.programs[1].ended as f64 / 1e6;
    assert!(
        (31.0..36.0).contains(&ms),
        "{ms} ms for 220 ms on 7 processors"
    );
}

/// When each of some threads that compute for 1200 ms on two virtual processors was seen to have done each quarter of one.
fn seen_to_compute(threads: usize) -> Vec<Vec<u64>> {
    const QUARTERS: u64 = 4800;
    let seen: Rc<Vec<RefCell<Vec<u64>>>> = Rc::new(vec![RefCell::default(); threads]);
    let all = seen.clone();
    let main = move |me: Me| {
        let threads: Vec<_> = (0..threads)
            .map(|index| {
                let all = all.clone();
                me.fork(move |me| {
                    for _ in 0..QUARTERS {
                        me.work(MS / 4);
                        all[index].borrow_mut().push(me.now());
                    }
                })
            })
            .collect();
        for thread in threads {
            me.join(thread);
        }
    };
    spaces(2, vec![program(Kind::Activations, 2, main)]);
    seen.iter().map(RefCell::take).collect()
}

/// None of three threads has a processor for itself.
#[test]
fn threads_that_compute_have_equal_parts_of_fewer_processors() {
    for seen in seen_to_compute(3) {
        let ended = seen.last().expect("it has computed") / MS;
        assert!(
            (1600..=1900).contains(&ended),
            "1200 of 3600 ms after {ended} ms"
        );
    }
}

/// Of four threads on two processors, each is sometimes on one while any other one is on the other.
#[test]
fn threads_that_compute_meet_all_others() {
    const QUARTER: u64 = MS / 4;
    let seen = seen_to_compute(4);
    for (index, one) in seen.iter().enumerate() {
        for other in &seen[..index] {
            // On one processor no two end their quarters so close to each other, but where a slice has ended in the middle of one.
            let is_with = |when: &&u64| {
                let next = other.partition_point(|end| end < when);
                other.get(next).is_some_and(|end| end - *when < QUARTER)
            };
            let together = one.iter().filter(is_with).count();
            assert!(
                together >= 480,
                "{together} of 4800 quarters with another one"
            );
        }
    }
}
