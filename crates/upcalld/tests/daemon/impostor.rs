//! Programs whose daemon is something else that this user runs.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::sync::atomic::{AtomicBool, Ordering};

use program_tests::program::Outcome;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use upcall_abi::{
    ASK_JOIN, Answer, Head, MAGIC, Message, STATUS_OK, STATUS_VERSION, Said, Told, VERSION,
};

use crate::client;
use crate::daemon::Place;
use crate::programs::{begin, check, spinning};

/// A page of this size and head, sealed as a daemon's or not.
fn page<T>(size: usize, head: Option<(u64, u32)>, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("impostor", flags).unwrap();
    rustix::fs::ftruncate(&file, size as u64).unwrap();
    if let Some((magic, version)) = head
        && size >= size_of::<Head>()
    {
        // SAFETY: the page of that structure, which stays.
        let head: &Head = unsafe { &*client::map(&file, true).cast() };
        head.magic.store(magic, Ordering::Relaxed);
        head.version.store(version, Ordering::Relaxed);
        head.size.store(size_of::<T>() as u32, Ordering::Relaxed);
    }
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Runs a program for so many milliseconds whose daemon accepts it once, and answers with this. The connection stays open until the
/// program ends. Returns true beside its outcome if it has asked again.
fn with(name: &str, ms: &str, answer: Answer, files: &[OwnedFd]) -> Option<(Outcome, bool)> {
    let (case, path, _alone) = spinning(name)?;
    let place = Place::new("impostor");
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(place.0.join("upcall"))
        .unwrap();
    let flags = SocketFlags::CLOEXEC;
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(place.socket()).unwrap()).unwrap();
    rustix::net::listen(&listener, 8).unwrap();
    let outcome = std::thread::scope(|scope| {
        let serves = scope.spawn(|| {
            let program = rustix::net::accept_with(&listener, flags).unwrap();
            let mut room = [0u8; 64];
            let (_, length) = rustix::net::recv(&program, &mut room, RecvFlags::empty()).unwrap();
            assert_eq!(Message::read(&room[..length]), Some(Message::new(ASK_JOIN)));
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            if !files.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(&files));
            }
            let bytes = answer.bytes();
            rustix::net::sendmsg(
                &program,
                &[IoSlice::new(&bytes)],
                &mut control,
                SendFlags::NOSIGNAL,
            )
            .unwrap();
            program
        });
        let outcome = begin(&case, &path, &place, "copy", ms).finish();
        drop(serves.join().unwrap());
        outcome
    });
    check(&outcome);
    assert_eq!(outcome.counted("turns given by upcalld"), 0);
    rustix::io::ioctl_fionbio(&listener, true).unwrap();
    let asked_again = rustix::net::accept_with(&listener, flags).is_ok();
    Some((outcome, asked_again))
}

fn answer(status: u32) -> Answer {
    Answer {
        magic: MAGIC,
        version: VERSION,
        status,
        generation: 1,
        count: 0,
        flags: 0,
    }
}

const SEALS: SealFlags = SealFlags::SHRINK;
const HEAD: (u64, u32) = (MAGIC, VERSION);

/// Pages of a daemon that gives the program every processor, and a knocker.
fn pages(head: (u64, u32), sizes: [usize; 2], seals: SealFlags) -> [OwnedFd; 3] {
    let told = page::<Told>(sizes[0], Some(head), SealFlags::empty());
    if sizes[0] >= size_of::<Told>() {
        // SAFETY: the page of that structure, which stays.
        let words: &Told = unsafe { &*client::map(&told, true).cast() };
        words.alive.store(1, Ordering::Relaxed);
        for word in &words.has {
            word.store(u64::MAX, Ordering::Relaxed);
        }
    }
    rustix::fs::fcntl_add_seals(&told, seals).unwrap();
    let said = page::<Said>(sizes[1], Some(head), seals);
    let knocker = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    [told, said, knocker]
}

/// Whether a program has said in these pages what it uses. `None`: it could not be run.
fn was_linked(name: &str, ms: &str, files: &[OwnedFd; 3]) -> Option<bool> {
    with(name, ms, answer(STATUS_OK), files)?;
    // SAFETY: the page of that structure, which stays.
    let said: &Said = unsafe { &*client::map(&files[1], true).cast() };
    Some(
        said.uses
            .iter()
            .any(|word| word.load(Ordering::Relaxed) != 0),
    )
}

const SIZES: [usize; 2] = [size_of::<Told>(), size_of::<Said>()];

#[test]
fn a_daemon_of_another_version_is_none() {
    let other = Answer {
        version: VERSION + 1,
        ..answer(STATUS_VERSION)
    };
    let seen = with("a_daemon_of_another_version_is_none", "3000", other, &[]);
    // The one with the right version may be started at any time.
    assert!(seen.is_none_or(|(_, asked_again)| asked_again));
}

/// What the tests below compare with.
#[test]
fn pages_as_they_should_be_are_used() {
    let name = "pages_as_they_should_be_are_used";
    assert_ne!(
        was_linked(name, "5000", &pages(HEAD, SIZES, SEALS)),
        Some(false)
    );
}

#[test]
fn pages_that_could_be_cut_short_are_not_used() {
    let name = "pages_that_could_be_cut_short_are_not_used";
    let files = pages(HEAD, SIZES, SealFlags::empty());
    assert_ne!(was_linked(name, "5000", &files), Some(true));
}

#[test]
fn pages_of_another_size_are_not_used() {
    let name = "pages_of_another_size_are_not_used";
    let larger = pages(HEAD, [SIZES[0], 4096], SEALS);
    assert_ne!(was_linked(name, "5000", &larger), Some(true));
}

#[test]
fn pages_of_another_version_are_not_used() {
    let name = "pages_of_another_version_are_not_used";
    let files = pages((MAGIC, VERSION + 1), SIZES, SEALS);
    assert_ne!(was_linked(name, "5000", &files), Some(true));
}

/// It says that the program has no processor, and never anything else.
#[test]
fn a_daemon_that_gives_nothing_is_left_for_good() {
    let files = pages(HEAD, SIZES, SEALS);
    // SAFETY: the page of that structure, which stays.
    let told: &Told = unsafe { &*client::map(&files[0], true).cast() };
    for word in &told.has {
        word.store(0, Ordering::Relaxed);
    }
    let name = "a_daemon_that_gives_nothing_is_left_for_good";
    if let Some((outcome, asked_again)) = with(name, "8000", answer(STATUS_OK), &files) {
        assert!(
            outcome.counted("upcalls: processor taken") > 0,
            "it did what it was told"
        );
        assert!(!asked_again);
    }
}

/// Pages in which a warning stands for all time, and the moment that it says.
fn warns(leaves_at: u64) -> ([OwnedFd; 3], &'static Told) {
    let files = pages(HEAD, SIZES, SEALS);
    // SAFETY: the page of that structure, which stays.
    let told: &Told = unsafe { &*client::map(&files[0], true).cast() };
    told.leaves_at.store(leaves_at, Ordering::Relaxed);
    (files, told)
}

#[test]
fn a_warning_of_no_sense_is_none() {
    for leaves_at in [1, u64::MAX] {
        let (files, _) = warns(leaves_at);
        let name = "a_warning_of_no_sense_is_none";
        if let Some((outcome, _)) = with(name, "500", answer(STATUS_OK), &files) {
            assert_eq!(outcome.counted("turns left at a warning"), 0);
        }
    }
}

/// Says that it is over when it is dropped, by a panic, too: a scope waits for its threads.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// It warns again and again, and never says what follows.
#[test]
fn a_daemon_that_warns_without_end_is_left() {
    let (files, told) = warns(0);
    let over = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let soon = upcall_linux::clock(libc::CLOCK_MONOTONIC) + 50_000_000;
                told.leaves_at.store(soon, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let _over = Over(&over);
        let name = "a_daemon_that_warns_without_end_is_left";
        with(name, "5000", answer(STATUS_OK), &files)
    });
    if let Some((outcome, _)) = outcome {
        assert!(
            outcome.counted("turns left at a warning") > 0,
            "it did leave"
        );
    }
}
