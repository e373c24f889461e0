//! The programs on this kernel. Tests that need the rights of root, or a BPF object, are skipped aloud without.
#![cfg(feature = "bpf")]

use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;

use upcall_abi::{
    LAYOUT, Now, OBSERVED_BLOCKED, OBSERVED_RUNNING, OBSERVED_SLOTS, Observed, REASON_CALL,
    REASON_FAULT, Slot,
};
use upcall_bpf::Observatory;

mod common;
#[path = "../examples/kernel-header/write.rs"]
mod header;

/// The programs, if they can be loaded here.
fn observatory() -> Option<Observatory> {
    // SAFETY: asks only.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: this user may not load BPF programs");
        return None;
    }
    if upcall_bpf::OBJECTS.is_none() {
        println!("skipped: this build has no BPF object");
        return None;
    }
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        println!("skipped: this kernel has no BTF");
        return None;
    }
    Some(Observatory::start().expect("the programs are loaded"))
}

fn map(page: BorrowedFd<'_>, access: i32) -> Result<&'static Observed, i32> {
    let length = size_of::<Observed>();
    // SAFETY: a new mapping somewhere, which stays; any bytes are a valid page.
    unsafe {
        let place = libc::mmap(
            std::ptr::null_mut(),
            length,
            access,
            libc::MAP_SHARED,
            page.as_raw_fd(),
            0,
        );
        if place == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        Ok(&*place.cast())
    }
}

fn slot(page: &Observed, tid: u32) -> (Now, &Slot) {
    let slot = &page.slots[tid as usize % OBSERVED_SLOTS];
    (Now(slot.now.load(Ordering::Acquire)), slot)
}

fn tid() -> u32 {
    // SAFETY: asks only.
    unsafe { libc::gettid() as u32 }
}

#[test]
fn the_object_has_the_layout_of_the_header() {
    let Some([object, _]) = upcall_bpf::OBJECTS else {
        println!("skipped: this build has no BPF object");
        return;
    };
    let btf = common::types("observe", object);
    let mut compared = 0;
    for (expression, number) in LAYOUT {
        let inside = &expression[expression.find("struct ").unwrap() + 7..expression.len() - 1];
        let (name, field) = inside.split_once(", ").unwrap_or((inside, ""));
        // The object has the types that it uses.
        let Some(size) = common::size(&btf, name) else {
            continue;
        };
        compared += 1;
        let found = match field {
            "" => size,
            field => common::offset(&btf, name, field),
        };
        assert_eq!(found, number, "{expression}");
    }
    assert!(compared >= 12, "{compared}");
}

#[test]
fn the_headers_are_what_the_kernel_gives() {
    let written = [
        (header::OBSERVER, include_str!("../bpf/kernel.h")),
        (header::SCHEDULER, include_str!("../bpf/scheduler-kernel.h")),
    ];
    for (header, there) in written {
        match header.text(None) {
            Ok(text) => assert_eq!(text, there, "{}", header.file),
            Err(error) => println!("skipped: {}: {error}", header.file),
        }
    }
}

#[test]
fn the_page_can_only_be_read() {
    let Some(observatory) = observatory() else {
        return;
    };
    let page = observatory.observe(std::process::id() as i32, 7).unwrap();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    assert_eq!(map(page.descriptor(), both).err(), Some(libc::EPERM));
    let seen = map(page.descriptor(), libc::PROT_READ).unwrap();
    // SAFETY: the mapping above.
    let changed = unsafe {
        libc::mprotect(
            std::ptr::from_ref(seen).cast_mut().cast(),
            size_of::<Observed>(),
            both,
        )
    };
    assert_eq!(changed, -1);
    assert_eq!(seen.alive.load(Ordering::Relaxed), 7);
    drop(page);
    assert_eq!(seen.alive.load(Ordering::Relaxed), 0);
}

#[test]
fn a_thread_that_blocks_is_seen_with_its_call() {
    let Some(observatory) = observatory() else {
        return;
    };
    let page = observatory.observe(std::process::id() as i32, 7).unwrap();
    let seen = map(page.descriptor(), libc::PROT_READ).unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let reading = thread::spawn(move || {
        tell.send(tid()).unwrap();
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
        let own = tid();
        (own, slot(seen, own).0)
    });
    let reader = told.recv().unwrap();
    // Until it is there: nothing tells of the moment but the page.
    let is_reading = || {
        let (now, slot) = slot(seen, reader);
        now.tid() == reader
            && now.state() == OBSERVED_BLOCKED
            && now.reason() == REASON_CALL
            && i64::from(slot.nr.load(Ordering::Relaxed)) == libc::SYS_read
    };
    while !is_reading() {
        thread::yield_now();
    }
    drop(writer);
    let (reader, then) = reading.join().unwrap();
    assert_eq!((then.tid(), then.state()), (reader, OBSERVED_RUNNING));
    // It has ended, and the kernel has seen it out.
    while slot(seen, reader).0.tid() == reader {
        thread::yield_now();
    }
}

#[test]
fn a_page_fault_is_seen_with_its_address() {
    let Some(observatory) = observatory() else {
        return;
    };
    let page = observatory.observe(std::process::id() as i32, 7).unwrap();
    let seen = map(page.descriptor(), libc::PROT_READ).unwrap();
    // A page of a userfaultfd(2) is not there until somebody brings it.
    // SAFETY: a new descriptor, and a new mapping somewhere.
    let (faults, place) = unsafe {
        let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        if faults < 0 {
            println!("skipped: userfaultfd: {}", std::io::Error::last_os_error());
            return;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        (
            faults,
            libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) as usize,
        )
    };
    // uffdio_api, uffdio_register, uffdio_zeropage.
    let mut api = [0xaau64, 0, 0];
    let mut register = [place as u64, 4096, 1, 0];
    // SAFETY: reads and writes these structures.
    unsafe {
        assert_eq!(libc::ioctl(faults, 0xc018_aa3f, &raw mut api), 0);
        assert_eq!(libc::ioctl(faults, 0xc020_aa00, &raw mut register), 0);
    }
    let (tell, told) = std::sync::mpsc::channel();
    let touching = thread::spawn(move || {
        tell.send(tid()).unwrap();
        // SAFETY: mapped above.
        unsafe { ((place + 24) as *const u8).read_volatile() }
    });
    let toucher = told.recv().unwrap();
    let is_on_it = || {
        let (now, slot) = slot(seen, toucher);
        let at = slot.address.load(Ordering::Relaxed);
        now.tid() == toucher
            && now.state() == OBSERVED_BLOCKED
            && now.reason() == REASON_FAULT
            && at == place as u64 + 24
    };
    while !is_on_it() {
        thread::yield_now();
    }
    let mut zero = [place as u64, 4096, 0, 0];
    // SAFETY: brings the page.
    unsafe { assert_eq!(libc::ioctl(faults, 0xc020_aa04, &raw mut zero), 0) };
    assert_eq!(touching.join().unwrap(), 0);
}

#[test]
fn a_page_ends_with_the_program_that_it_is_of() {
    let Some(observatory) = observatory() else {
        return;
    };
    for (script, ends) in [
        ("read line; exec sleep 5", false),
        ("read line; exit", true),
    ] {
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let page = observatory.observe(child.id() as i32, 7).unwrap();
        let seen = map(page.descriptor(), libc::PROT_READ).unwrap();
        assert_eq!(seen.alive.load(Ordering::Relaxed), 7);
        drop(child.stdin.take());
        if ends {
            child.wait().unwrap();
        } else {
            while seen.alive.load(Ordering::Acquire) != 0 {
                thread::yield_now();
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(seen.alive.load(Ordering::Acquire), 0, "{script}");
    }
}

#[test]
fn an_earlier_page_of_the_process_ends_without_the_later_one() {
    let Some(observatory) = observatory() else {
        return;
    };
    let own = std::process::id() as i32;
    let first = observatory.observe(own, 1).unwrap();
    let second = observatory.observe(own, 2).unwrap();
    drop(first);
    let seen = map(second.descriptor(), libc::PROT_READ).unwrap();
    thread::sleep(std::time::Duration::from_millis(1));
    assert_eq!(slot(seen, tid()).0.tid(), tid());
}
