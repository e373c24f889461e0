//! A client that speaks the daemon's interface by hand.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use upcall_abi::{ASK_JOIN, ASK_LIST, Answer, Message, Row, Said, Told};

pub struct Client(pub OwnedFd);

/// What a client gets when it has joined.
pub struct Joined {
    pub told: OwnedFd,
    pub said: OwnedFd,
    pub knocker: OwnedFd,
}

impl Client {
    pub fn connect(socket: &Path) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let client =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::connect(&client, &SocketAddrUnix::new(socket)?)?;
        Ok(Client(client))
    }

    pub fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL).map(drop)
    }

    /// The next packet with its descriptors; empty at the end.
    pub fn receive(&self) -> (Vec<u8>, Vec<OwnedFd>) {
        let mut room = [0u8; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut room)];
        let length =
            rustix::net::recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
                .map_or(0, |received| received.bytes);
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        (room[..length].to_vec(), descriptors)
    }

    pub fn answer(&self) -> Option<Answer> {
        Answer::read(&self.receive().0)
    }

    pub fn join(&self) -> Option<Joined> {
        self.send(&Message::new(ASK_JOIN).bytes()).ok()?;
        let (packet, descriptors) = self.receive();
        Answer::read(&packet)?;
        let [told, said, knocker] = descriptors.try_into().ok()?;
        Some(Joined {
            told,
            said,
            knocker,
        })
    }
}

impl Joined {
    pub fn told(&self) -> &'static Told {
        // SAFETY: the page of that structure, which stays.
        unsafe { &*map(&self.told, false).cast() }
    }

    pub fn said(&self) -> &'static Said {
        // SAFETY: the page of that structure, which stays.
        unsafe { &*map(&self.said, true).cast() }
    }

    pub fn knock(&self) {
        rustix::io::write(&self.knocker, &1u64.to_ne_bytes()).expect("an eventfd");
    }
}

/// The first page of a file, which stays mapped.
pub fn map(file: impl AsFd, writable: bool) -> *mut std::ffi::c_void {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let access = if writable {
        ProtFlags::READ | ProtFlags::WRITE
    } else {
        ProtFlags::READ
    };
    // SAFETY: a new mapping somewhere, which stays.
    unsafe {
        mmap(
            std::ptr::null_mut(),
            4096,
            access,
            MapFlags::SHARED,
            file,
            0,
        )
    }
    .expect("mapped")
}

/// The spaces that a daemon has.
pub fn list(socket: &Path) -> Vec<Row> {
    let client = Client::connect(socket).expect("a daemon");
    client.send(&Message::new(ASK_LIST).bytes()).expect("sent");
    let count = client.answer().expect("an answer").count;
    (0..count)
        .map(|_| Row::read(&client.receive().0).expect("a row"))
        .collect()
}

/// On how many processors a space computes, or would.
pub fn wants(row: &Row) -> u32 {
    row.wants.iter().map(|word| word.count_ones()).sum()
}
