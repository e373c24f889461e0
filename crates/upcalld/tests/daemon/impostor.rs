//! Programs whose daemon is something else that this user runs.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::sync::atomic::Ordering;

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

/// Runs a program whose daemon accepts it, and answers with this. The connection stays open until the program ends.
fn with(name: &str, rounds: &str, answer: Answer, files: &[OwnedFd]) -> Option<Outcome> {
    let (case, path, _alone) = spinning(name)?;
    let place = Place::new(name.rsplit('_').next().unwrap_or(name));
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
        let outcome = begin(&case, &path, &place, "copy", rounds).finish();
        drop(serves.join().unwrap());
        outcome
    });
    check(&outcome);
    assert_eq!(outcome.counted("turns given by upcalld"), 0);
    Some(outcome)
}

fn answer(status: u32) -> Answer {
    Answer {
        magic: MAGIC,
        version: VERSION,
        status,
        generation: 1,
        count: 0,
        reserved: 0,
    }
}

fn knocker() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
}

const SEALS: SealFlags = SealFlags::SHRINK;

#[test]
fn a_daemon_of_another_version_is_none() {
    let other = Answer {
        version: VERSION + 1,
        ..answer(STATUS_VERSION)
    };
    with("a_daemon_of_another_version_is_none", "500", other, &[]);
}

#[test]
fn pages_that_could_be_cut_short_are_not_used() {
    let head = Some((MAGIC, VERSION));
    let files = [
        page::<Told>(size_of::<Told>(), head, SealFlags::empty()),
        page::<Said>(size_of::<Said>(), head, SealFlags::empty()),
        knocker(),
    ];
    with(
        "pages_that_could_be_cut_short_are_not_used",
        "500",
        answer(STATUS_OK),
        &files,
    );
    let files = [
        page::<Told>(0, head, SEALS),
        page::<Said>(4096, head, SEALS),
        knocker(),
    ];
    with(
        "pages_of_another_size_are_not_used",
        "500",
        answer(STATUS_OK),
        &files,
    );
}

#[test]
fn pages_of_another_version_are_not_used() {
    let head = Some((MAGIC, VERSION + 1));
    let files = [
        page::<Told>(size_of::<Told>(), head, SEALS),
        page::<Said>(size_of::<Said>(), head, SEALS),
        knocker(),
    ];
    with(
        "pages_of_another_version_are_not_used",
        "500",
        answer(STATUS_OK),
        &files,
    );
}

/// It says that the program has no processor, and never anything else.
#[test]
fn a_daemon_that_gives_nothing_is_left() {
    let head = Some((MAGIC, VERSION));
    let files = [
        page::<Told>(size_of::<Told>(), head, SEALS),
        page::<Said>(size_of::<Said>(), head, SEALS),
        knocker(),
    ];
    // SAFETY: the page of that structure, which stays.
    let told: &Told = unsafe { &*client::map(&files[0], true).cast() };
    told.alive.store(1, Ordering::Relaxed);
    let name = "a_daemon_that_gives_nothing_is_left";
    if let Some(outcome) = with(name, "5000", answer(STATUS_OK), &files) {
        assert!(
            outcome.counted("upcalls: processor taken") > 0,
            "it did what it was told"
        );
    }
}
