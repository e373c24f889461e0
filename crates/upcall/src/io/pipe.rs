//! Pipes.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Instant;

use super::source::{self, Deadlines, Direction, Source};

/// Makes a pipe (pipe(7)). execve(2) closes both ends.
///
/// # Errors
///
/// `EMFILE`, `ENFILE`: too many descriptors, of the process or of all.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let mut ends = [0; 2];
    // SAFETY: writes two numbers.
    let answer = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new descriptors, nobody else's.
    let [reader, writer] = ends.map(|end| Source::new(unsafe { OwnedFd::from_raw_fd(end) }));
    Ok((PipeReader(reader), PipeWriter(writer)))
}

/// The end of a [`pipe`] that is read.
pub struct PipeReader(Source<OwnedFd>);

/// The end of a [`pipe`] that is written.
pub struct PipeWriter(Source<OwnedFd>);

macro_rules! end {
    ($name:ident, $direction:expr, $own:ident, $other:ident) => {
        impl $name {
            /// Takes an end that was made elsewhere, for example by a parent, and makes it non-blocking. All processes
            /// that share it are affected.
            ///
            /// # Errors
            ///
            /// Those of fcntl(2).
            pub fn from_fd(end: OwnedFd) -> io::Result<Self> {
                set_nonblocking(&end, true)?;
                Ok(Self(Source::new(end)))
            }

            /// Gives the end away in blocking mode, which most programs expect: for the end that a child gets.
            ///
            /// # Errors
            ///
            /// Those of fcntl(2).
            pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
                let end = self.0.into_inner();
                set_nonblocking(&end, false)?;
                Ok(end)
            }
        }

        impl Deadlines for $name {
            fn $own(&self, deadline: Option<Instant>) {
                self.0.set_deadlines(&[$direction], deadline);
            }

            /// Nothing: this end has the other direction only.
            fn $other(&self, _deadline: Option<Instant>) {}
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.get().as_fd()
            }
        }

        impl From<$name> for OwnedFd {
            /// It stays non-blocking.
            fn from(end: $name) -> Self {
                end.0.into_inner()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name))
                    .field(&self.0.number())
                    .finish()
            }
        }
    };
}

end!(
    PipeReader,
    Direction::In,
    set_read_deadline,
    set_write_deadline
);
end!(
    PipeWriter,
    Direction::Out,
    set_write_deadline,
    set_read_deadline
);

/// Reading waits for data or the end. See read(2), pipe(7).
impl Read for &PipeReader {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        read(&self.0, buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        read_vectored(&self.0, buffers)
    }
}

/// Writing waits for room. See write(2), pipe(7).
impl Write for &PipeWriter {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.until_done(Direction::Out, |end| {
            let words = [bytes.as_ptr() as usize, bytes.len(), 0, 0, 0];
            // SAFETY: reads the bytes.
            let written = unsafe { source::call(libc::SYS_write, raw(end), words) }?;
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            if let Some(runtime) = upcall_guest::direct::runtime() {
                upcall_guest::direct::written(runtime, raw(end));
            }
            Ok(written)
        })
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        write_vectored(&self.0, buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

super::read_by_reference!(PipeReader);
super::write_by_reference!(PipeWriter);

#[inline]
fn raw(end: &impl AsFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&end.as_fd())
}

/// read(2).
#[inline]
fn read<T: AsFd>(source: &Source<T>, buffer: &mut [u8]) -> io::Result<usize> {
    source.until_done(Direction::In, |end| {
        let words = [buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
        // SAFETY: writes into the buffer only.
        unsafe { source::call(libc::SYS_read, raw(end), words) }
    })
}

/// How many buffers a call takes (IOV_MAX).
const MOST: usize = 1024;

/// readv(2).
pub(crate) fn read_vectored<T: AsFd>(
    source: &Source<T>,
    buffers: &mut [IoSliceMut<'_>],
) -> io::Result<usize> {
    source.until_done(Direction::In, |end| {
        let words = [
            buffers.as_mut_ptr() as usize,
            buffers.len().min(MOST),
            0,
            0,
            0,
        ];
        // SAFETY: the slices have iovec's layout, as std promises; writes into the buffers only.
        unsafe { source::call(libc::SYS_readv, raw(end), words) }
    })
}

/// writev(2).
pub(crate) fn write_vectored<T: AsFd>(
    source: &Source<T>,
    buffers: &[IoSlice<'_>],
) -> io::Result<usize> {
    source.until_done(Direction::Out, |end| {
        let words = [buffers.as_ptr() as usize, buffers.len().min(MOST), 0, 0, 0];
        // SAFETY: as above; reads the buffers.
        unsafe { source::call(libc::SYS_writev, raw(end), words) }
    })
}

fn set_nonblocking(end: &OwnedFd, nonblocking: bool) -> io::Result<()> {
    // SAFETY: asks.
    let flags = unsafe { libc::fcntl(raw(end), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    let flags = if nonblocking {
        flags | libc::O_NONBLOCK
    } else {
        flags & !libc::O_NONBLOCK
    };
    // SAFETY: sets flags of a descriptor that we own.
    match unsafe { libc::fcntl(raw(end), libc::F_SETFL, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
