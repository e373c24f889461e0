//! The scheduler's object. It is put in force by `tests/vm/run --scheduler` alone, where that concerns nobody else.
#![cfg(feature = "bpf")]

mod common;

/// What the loader reads, as `src/scheduler.rs` and `src/ended.rs` have it: structure, field, and offset in bytes.
const FIELDS: [(&str, &str, usize); 10] = [
    ("cpu", "upcalls", 5 * 8),
    ("cpu", "at_once", 6 * 8),
    ("cpu", "overdue", 7 * 8),
    ("scheduler_end", "code", 0),
    ("scheduler_end", "kind", 8),
    ("scheduler_end", "reason", 12),
    ("scheduler_end", "message", 76),
    ("about_process", "pid", 0),
    ("about_process", "weight", 4),
    ("about_process", "is_space", 8),
];
const SIZES: [(&str, usize); 3] = [("cpu", 64), ("scheduler_end", 208), ("about_process", 12)];

#[test]
fn the_object_has_the_layout_that_the_loader_reads() {
    let Some([_, object]) = upcall_bpf::OBJECTS else {
        println!("skipped: this build has no BPF object");
        return;
    };
    let btf = common::types("scheduler", object);
    for (name, size) in SIZES {
        assert_eq!(common::size(&btf, name), Some(size), "{name}");
    }
    for (name, field, expected) in FIELDS {
        let offset = common::offset(&btf, name, field);
        assert_eq!(offset, expected, "{name}.{field}");
    }
}

#[test]
fn where_it_cannot_be_loaded_it_says_why() {
    if std::path::Path::new("/sys/kernel/sched_ext").exists() {
        println!("skipped: this kernel might take it");
        return;
    }
    let Err(trouble) = upcall_bpf::Scheduler::start() else {
        panic!("there is nothing that could take it");
    };
    assert!(!trouble.evidence.is_empty() && !trouble.remedy.is_empty());
}
